// SPDX-License-Identifier: Apache-2.0
// Result types of constants and of ops that rearrange elements by attributes.
#include <algorithm>

#include "infer.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

void constant(Infer& in) {
  const tsr_tensor& t = in.attr("value").as_tensor();
  in.result(static_cast<tsr_dtype>(t.dtype), {t.sizes, t.rank});
}

void iota(Infer& in) {
  const DimVector shape = in.shape("shape");
  const tsr_dtype dtype = in.attr("dtype").as_dtype();
  if (!is_valid_dtype(dtype) || is_bool(dtype))
    in.fail("TSR-I206", "attribute 'dtype'", std::string(dtype_name(dtype)), "a number dtype");
  in.axis("axis", static_cast<int64_t>(shape.size()));
  in.result(dtype, shape);
}

void shape_of(Infer& in) {
  const tsr_dim rank = in.rank(0);
  in.result(TSR_I64, {&rank, 1});
}

void reshape(Infer& in) {
  const DimVector shape = in.shape("shape");
  const tsr_dim have = in.dims.product(in.sizes(0)), want = in.dims.product(shape);
  if (!in.dims.assume(TSR_EQ, have, want, "reshape keeps the number of elements"))
    in.fail("TSR-I209", "attribute 'shape'", in.dims.print(shape) + " (" + in.dims.print(want) + " elements)",
            in.dims.print(have) + " elements, as " + in.dims.print(in.sizes(0)) + " has");
  in.result(in.dtype(0), shape);
}

void expand_dims(Infer& in) {
  const auto n = static_cast<int64_t>(in.ints("axes").size());
  const int64_t rank = in.rank(0) + n;
  const std::vector<int64_t> axes = in.axes("axes", rank);
  DimVector shape(static_cast<size_t>(rank), -1);
  for (int64_t a : axes) shape[static_cast<size_t>(a)] = 1;
  size_t next = 0;
  for (tsr_dim& d : shape)
    if (d == -1) d = in.sizes(0)[next++];
  in.result(in.dtype(0), shape);
}

void squeeze(Infer& in) {
  const std::vector<int64_t> axes = in.axes("axes", in.rank(0));
  DimVector shape;
  for (int64_t i = 0; i < in.rank(0); ++i) {
    const tsr_dim d = in.sizes(0)[static_cast<size_t>(i)];
    if (std::find(axes.begin(), axes.end(), i) == axes.end())
      shape.push_back(d);
    else
      in.expect_equal("size of axis " + std::to_string(i), d, 1, "a squeezed size is 1");
  }
  in.result(in.dtype(0), shape);
}

void broadcast_to(Infer& in) {
  const DimVector shape = in.shape("shape");
  const auto from = in.sizes(0);
  if (from.size() > shape.size())
    in.fail("TSR-I203", "attribute 'shape'", in.dims.print(shape), "at least as many dimensions as x " + in.dims.print(from));
  for (size_t i = 0; i < from.size(); ++i) {
    const tsr_dim have = from[i], want = shape[i + shape.size() - from.size()];
    if (!in.dims.assume_repeats(have, want, "broadcast_to repeats only sizes of 1"))
      in.fail("TSR-I203", "attribute 'shape'", in.dims.print(shape), "sizes that x " + in.dims.print(from) + " broadcasts to");
  }
  in.result(in.dtype(0), shape);
}

void slice(Infer& in) {
  const auto rank = static_cast<size_t>(in.rank(0));
  in.expect_length("starts", rank);
  in.expect_length("limits", rank);
  in.expect_length("strides", rank);
  const auto starts = in.ints("starts"), limits = in.ints("limits"), strides = in.ints("strides");
  const Dims& d = in.dims;
  DimVector shape(rank);
  for (size_t i = 0; i < rank; ++i) {
    const tsr_dim size = in.sizes(0)[i], start = starts[i], limit = limits[i];
    const auto range = [&] {
      return d.print(start) + ":" + d.print(limit) + ":" + std::to_string(strides[i]) + " of size " + d.print(size);
    };
    const auto ordered = [&](tsr_dim low, tsr_dim high) {
      return d.assume(TSR_LE, low, high, "a slice stays inside its dimension");
    };
    if (strides[i] == 0) in.fail("TSR-I205", "attribute 'strides'", "0 for axis " + std::to_string(i), "another number");
    if (strides[i] > 0) {
      if (!ordered(0, start) || !ordered(start, limit) || !ordered(limit, size))
        in.fail("TSR-I205", "axis " + std::to_string(i), range(), "0 <= start <= limit <= size");
      shape[i] = d.ceildiv(d.distance(start, limit), strides[i]);
    } else {
      // limit <= start < size; an empty slice of an empty dimension is start = limit = -1.
      if (strides[i] == INT64_MIN || !ordered(-1, limit) || !ordered(limit, start) || !ordered(d.add(start, 1), size))
        in.fail("TSR-I205", "axis " + std::to_string(i), range(), "-1 <= limit <= start < size");
      shape[i] = d.ceildiv(d.distance(limit, start), -strides[i]);
    }
  }
  in.result(in.dtype(0), shape);
}

void as_strided(Infer& in) {
  const DimVector shape = in.shape("shape");
  in.expect_length("strides", shape.size());
  const auto strides = in.ints("strides");
  const Dims& d = in.dims;
  const tsr_dim offset = in.integer("offset");
  tsr_dim last = offset;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!d.assume(TSR_GE, strides[i], 0, "as_strided takes strides that are not negative"))
      in.fail("TSR-I205", "attribute 'strides'", d.print(strides), "no negative stride");
    last = d.add(last, d.mul(d.sub(shape[i], 1), strides[i]));
  }
  if (!d.assume(TSR_GE, offset, 0, "as_strided starts inside x"))
    in.fail("TSR-I205", "attribute 'offset'", d.print(offset), "0 or more");
  const bool empty = std::any_of(shape.begin(), shape.end(), [](tsr_dim s) { return s == 0; });
  const tsr_dim count = d.product(in.sizes(0));
  if (!empty && !d.assume(TSR_LT, last, count, "as_strided stays inside x"))
    in.fail("TSR-I205", "attributes", "a last element at " + d.print(last), "one of the " + d.print(count) + " elements of x");
  in.result(in.dtype(0), shape);
}

void flip(Infer& in) {
  in.axes("axes", in.rank(0));
  in.result(in.dtype(0), in.sizes(0));
}

void concat(Infer& in) {
  in.expect_rank(0, "xs[0]", 1, INT64_MAX);
  const auto axis = static_cast<size_t>(in.axis("axis", in.rank(0)));
  DimVector shape(in.sizes(0).begin(), in.sizes(0).end());
  for (uint32_t k = 1; k < in.num_operands(); ++k) {
    const std::string name = "xs[" + std::to_string(k) + "]";
    in.expect_rank(k, name, in.rank(0), in.rank(0));
    for (size_t i = 0; i < shape.size(); ++i)
      if (i == axis)
        shape[i] = in.dims.add(shape[i], in.sizes(k)[i]);
      else
        in.expect_equal(name + ", axis " + std::to_string(i), in.sizes(k)[i], shape[i], "concat joins equal sizes");
  }
  in.result(in.dtype(0), shape);
}

void pad(Infer& in) {
  const auto rank = static_cast<size_t>(in.rank(0));
  in.expect_length("low", rank);
  in.expect_length("high", rank);
  const auto interior = in.ints("interior");
  if (!interior.empty()) in.expect_length("interior", rank);
  in.expect_all_at_least("interior", 0);
  const std::string_view mode = in.attr("mode").as_string();
  if (mode != "constant" && std::any_of(interior.begin(), interior.end(), [](int64_t v) { return v != 0; }))
    in.fail("TSR-I205", "attribute 'interior'", ordinal_text(interior), "none, as mode is '" + std::string(mode) + "'");
  const Dims& d = in.dims;
  DimVector shape(rank);
  for (size_t i = 0; i < rank; ++i) {
    const tsr_dim size = in.sizes(0)[i], low = in.ints("low")[i], high = in.ints("high")[i];
    const std::string what = "axis " + std::to_string(i);
    const std::string found = "low " + d.print(low) + " and high " + d.print(high) + " of size " + d.print(size);
    for (tsr_dim p : {low, high}) {
      if (mode == "reflect" && p != 0 && !d.assume(TSR_LT, p, size, "a reflection is narrower than the tensor"))
        in.fail("TSR-I205", what, found, "low and high below the size, as mode is 'reflect'");
      if ((mode == "edge" || mode == "wrap") && p != 0 && d.compare(TSR_GT, p, 0) != TSR_FALSE &&
          !d.assume(TSR_GT, size, 0, "there is an element to repeat"))
        in.fail("TSR-I205", what, found, "a size of at least 1, as mode is '" + std::string(mode) + "'");
    }
    tsr_dim inner = size;
    if (!interior.empty() && interior[i] != 0) inner = d.add(size, d.mul(d.max(d.sub(size, 1), 0), interior[i]));
    shape[i] = d.add(d.add(low, inner), high);
    if (!d.assume(TSR_GE, shape[i], 0, "padding does not remove more than there is"))
      in.fail("TSR-I208", what, found, "a result that is not negative");
    // Cropping past one end and padding the other would read elements that were removed.
    if (mode != "constant") {
      for (tsr_dim p : {low, high})
        if (!d.assume(TSR_GE, d.add(p, size), 0, "padding does not remove more than there is"))
          in.fail("TSR-I205", what, found, "to remove no more than the size");
    }
  }
  in.result(in.dtype(0), shape);
}

void matrix_band(Infer& in) {  // tril, triu
  in.expect_rank(0, "x", 2, INT64_MAX);
  in.result(in.dtype(0), in.sizes(0));
}

void tile(Infer& in) {
  const auto repeats = in.ints("repeats");
  if (static_cast<int64_t>(repeats.size()) < in.rank(0))
    in.fail("TSR-I204", "attribute 'repeats'", std::to_string(repeats.size()) + " entries",
            "at least " + std::to_string(in.rank(0)));
  in.expect_all_at_least("repeats", 0);
  DimVector shape(repeats.begin(), repeats.end());
  const size_t lead = shape.size() - in.sizes(0).size();
  for (size_t i = lead; i < shape.size(); ++i) shape[i] = in.dims.mul(in.sizes(0)[i - lead], shape[i]);
  in.result(in.dtype(0), shape);
}

void roll(Infer& in) {
  const size_t n = in.ints("axes").size();
  in.expect_length("shifts", n == 0 ? 1 : n);
  for (int64_t a : in.ints("axes")) in.normalize_axis("attribute 'axes'", a, in.rank(0));
  in.result(in.dtype(0), in.sizes(0));
}

void diagonal(Infer& in) {
  in.expect_rank(0, "x", 2, INT64_MAX);
  const int64_t a = in.axis("axis1", in.rank(0)), b = in.axis("axis2", in.rank(0));
  if (a == b) in.fail("TSR-I201", "attributes 'axis1' and 'axis2'", std::to_string(a) + " twice", "two axes");
  const Dims& d = in.dims;
  const int64_t offset = in.integer("offset");
  const tsr_dim rows = in.operand(0).size(a), columns = in.operand(0).size(b);
  const tsr_dim n = offset >= 0 ? d.min(rows, d.sub(columns, offset)) : d.min(d.add(rows, offset), columns);
  DimVector shape;
  for (int64_t i = 0; i < in.rank(0); ++i)
    if (i != a && i != b) shape.push_back(in.operand(0).size(i));
  shape.push_back(d.max(n, 0));
  in.result(in.dtype(0), shape);
}

void stack(Infer& in) {
  const int64_t axis = in.axis("axis", in.rank(0) + 1);
  for (uint32_t k = 1; k < in.num_operands(); ++k) {
    const std::string name = "xs[" + std::to_string(k) + "]";
    in.expect_rank(k, name, in.rank(0), in.rank(0));
    for (int64_t i = 0; i < in.rank(0); ++i)
      in.expect_equal(name + ", axis " + std::to_string(i), in.operand(k).size(i), in.operand(0).size(i),
                      "stack joins equal shapes");
  }
  DimVector shape(in.sizes(0).begin(), in.sizes(0).end());
  shape.insert(shape.begin() + axis, static_cast<tsr_dim>(in.num_operands()));
  in.result(in.dtype(0), shape);
}

void split(Infer& in) {
  in.expect_rank(0, "x", 1, INT64_MAX);
  const auto axis = static_cast<size_t>(in.axis("axis", in.rank(0)));
  const DimVector pieces = in.shape("sizes");
  if (pieces.empty()) in.fail("TSR-I204", "attribute 'sizes'", "no entry", "at least 1");
  tsr_dim total = 0;
  for (tsr_dim p : pieces) total = in.dims.add(total, p);
  in.expect_equal("sum of 'sizes'", total, in.sizes(0)[axis], "the pieces of a split cover its dimension");
  DimVector shape(in.sizes(0).begin(), in.sizes(0).end());
  for (tsr_dim p : pieces) {
    shape[axis] = p;
    in.result(in.dtype(0), shape);
  }
}

}  // namespace

void add_infer_shape(Table& t) {
  t.infer("constant", constant);
  t.infer("iota", iota);
  t.infer("shape_of", shape_of);
  t.infer("reshape", reshape);
  t.infer("expand_dims", expand_dims);
  t.infer("squeeze", squeeze);
  t.infer("broadcast_to", broadcast_to);
  t.infer("slice", slice);
  t.infer("as_strided", as_strided);
  t.infer("flip", flip);
  t.infer("concat", concat);
  t.infer("pad", pad);
  t.infer("tril", matrix_band);
  t.infer("triu", matrix_band);
  t.infer("tile", tile);
  t.infer("roll", roll);
  t.infer("diagonal", diagonal);
  t.infer("stack", stack);
  t.infer("split", split);
}

}  // namespace tessera::opset
