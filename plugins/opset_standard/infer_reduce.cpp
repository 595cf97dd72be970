// SPDX-License-Identifier: Apache-2.0
// Result types of arg-reductions, scans along an axis and sum_to; checks that the shape patterns of the records cannot say.
#include "infer.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

void arg_reduction(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  const int64_t axis = in.axis("axis", in.rank(0));
  const tsr_dim size = in.operand(0).size(axis);
  if (!in.dims.assume(TSR_GT, size, 0, "an arg-reduction needs an element"))
    in.fail("TSR-I208", "size of axis " + std::to_string(axis), in.dims.print(size), "at least 1");
  DimVector shape(in.sizes(0).begin(), in.sizes(0).end());
  if (in.flag("keepdims"))
    shape[static_cast<size_t>(axis)] = 1;
  else
    shape.erase(shape.begin() + axis);
  in.result(TSR_I64, shape);
}

void along_axis(Infer& in) {  // one result like x
  in.expect_rank(0, "x", 1, INT64_MAX);
  in.axis("axis", in.rank(0));
  in.result(in.dtype(0), in.sizes(0));
}

void along_axis_with_indices(Infer& in) {
  along_axis(in);
  in.result(TSR_I64, in.sizes(0));
}

void sum_to(Infer& in) {
  const DimVector shape = in.shape("shape");
  const auto from = in.sizes(0);
  if (shape.size() > from.size())
    in.fail("TSR-I203", "attribute 'shape'", in.dims.print(shape), "no more dimensions than x " + in.dims.print(from));
  const size_t lead = from.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i)
    if (!in.dims.assume_repeats(shape[i], from[lead + i], "sum_to undoes a broadcast"))
      in.fail("TSR-I203", "attribute 'shape'", in.dims.print(shape), "a shape that broadcasts to x " + in.dims.print(from));
  in.result(in.dtype(0), shape);
}

}  // namespace

void add_infer_reduce(Table& t) {
  t.infer("argmax", arg_reduction);
  t.infer("argmin", arg_reduction);
  t.infer("cumsum", along_axis);
  t.infer("cumprod", along_axis);
  t.infer("cummax", along_axis_with_indices);
  t.infer("cummin", along_axis_with_indices);
  t.infer("sum_to", sum_to);
}

}  // namespace tessera::opset
