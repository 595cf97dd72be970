// SPDX-License-Identifier: Apache-2.0
// Result types of contractions, convolutions and pooling.
#include <algorithm>

#include "infer.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"
#include "window.hpp"

namespace tessera::opset {
namespace {

std::string axis_name(size_t i) { return ", axis " + std::to_string(i); }

void dot_general(Infer& in) {
  const auto lhs_batch = in.axes("lhs_batch", in.rank(0)), rhs_batch = in.axes("rhs_batch", in.rank(1));
  const auto lhs_contract = in.axes("lhs_contract", in.rank(0)), rhs_contract = in.axes("rhs_contract", in.rank(1));
  in.expect_length("rhs_batch", lhs_batch.size());
  in.expect_length("rhs_contract", lhs_contract.size());
  const auto pair = [&](const std::vector<int64_t>& l, const std::vector<int64_t>& r, const char* why) {
    for (size_t i = 0; i < l.size(); ++i)
      in.expect_equal("b" + axis_name(static_cast<size_t>(r[i])), in.operand(1).size(r[i]), in.operand(0).size(l[i]), why);
  };
  pair(lhs_batch, rhs_batch, "batch sizes of a contraction agree");
  pair(lhs_contract, rhs_contract, "contracted sizes agree");
  DimVector shape;
  for (int64_t a : lhs_batch) shape.push_back(in.operand(0).size(a));
  const auto free = [&](uint32_t operand, const std::vector<int64_t>& batch, const std::vector<int64_t>& contract,
                        const char* name) {
    for (int64_t i = 0; i < in.rank(operand); ++i) {
      const bool b = std::find(batch.begin(), batch.end(), i) != batch.end();
      const bool c = std::find(contract.begin(), contract.end(), i) != contract.end();
      if (b && c) in.fail("TSR-I201", name, "axis " + std::to_string(i) + " both as batch and contracted", "one of the two");
      if (!b && !c) shape.push_back(in.operand(operand).size(i));
    }
  };
  free(0, lhs_batch, lhs_contract, "a");
  free(1, rhs_batch, rhs_contract, "b");
  const tsr_dtype out = in.attr("out_dtype").as_dtype();
  const auto kind = [](uint32_t d) { return dtype_info(d).cls == DtypeClass::Uint ? DtypeClass::Sint : dtype_info(d).cls; };
  if (out != TSR_DTYPE_INVALID && kind(out) != kind(in.dtype(0)))
    in.fail("TSR-I206", "attribute 'out_dtype'", std::string(dtype_name(out)),
            "the kind of " + std::string(dtype_name(in.dtype(0))) + " (float, integer or complex)");
  in.result(out == TSR_DTYPE_INVALID ? in.dtype(0) : out, shape);
}

DimVector matmul_shape(Infer& in) {
  in.expect_rank(0, "a", 1, INT64_MAX);
  in.expect_rank(1, "b", 1, INT64_MAX);
  const auto a = in.sizes(0), b = in.sizes(1);
  const tsr_dim k = b.size() == 1 ? b[0] : b[b.size() - 2];
  in.expect_equal("b" + axis_name(b.size() == 1 ? 0 : b.size() - 2), k, a.back(), "contracted sizes agree");
  const auto batch = [](std::span<const tsr_dim> s) {
    return s.size() <= 2 ? std::span<const tsr_dim>{} : s.first(s.size() - 2);
  };
  DimVector shape = in.broadcast(batch(a), batch(b));
  if (a.size() > 1) shape.push_back(a[a.size() - 2]);
  if (b.size() > 1) shape.push_back(b.back());
  return shape;
}
void matmul(Infer& in) { in.result(in.dtype(0), matmul_shape(in)); }

// Operand `zero` holds zero points of operand `of`, which do not widen it.
void expect_zero_points(Infer& in, uint32_t of, uint32_t zero, const char* name) {
  in.expect_rank(zero, name, 0, in.rank(of));
  const DimVector both = in.broadcast(in.sizes(of), in.sizes(zero));
  for (size_t i = 0; i < both.size(); ++i)
    in.expect_equal(name + axis_name(i), both[i], in.sizes(of)[i], "zero points broadcast to their operand");
}
void matmul_integer(Infer& in) {
  expect_zero_points(in, 0, 2, "a_zero");
  expect_zero_points(in, 1, 3, "b_zero");
  in.result(TSR_I32, matmul_shape(in));
}

// Checks what conv, conv_transpose and the pools share; the number of spatial dimensions.
size_t expect_spatial(Infer& in, bool has_groups) {
  in.expect_rank(0, "x", 3, 5);
  const auto n = static_cast<size_t>(in.rank(0)) - 2;
  for (const char* name : {"strides", "pad_low", "pad_high", "dilations"}) in.expect_length(name, n);
  in.expect_all_at_least("strides", 1);
  in.expect_all_at_least("dilations", 1);
  if (has_groups && in.integer("groups") < 1)
    in.fail("TSR-I205", "attribute 'groups'", std::to_string(in.integer("groups")), "at least 1");
  return n;
}

Window window(Infer& in, size_t i, tsr_dim kernel) {
  return {in.sizes(0)[2 + i],     kernel, in.ints("strides")[i], in.ints("pad_low")[i], in.ints("pad_high")[i],
          in.ints("dilations")[i]};
}

void expect_fits(Infer& in, size_t i, const Window& w, tsr_dim output) {
  if (in.dims.assume(TSR_GE, output, 1, "the kernel fits into the padded input")) return;
  in.fail("TSR-I208", "spatial dimension " + std::to_string(i),
          "size " + in.dims.print(w.size) + " padded by " + std::to_string(w.pad_low) + " and " + std::to_string(w.pad_high) +
              " under a kernel that spans " + in.dims.print(w.extent(in.dims)),
          "a kernel that fits");
}

void expect_bias(Infer& in, tsr_dim channels) {
  if (in.has(2)) in.expect_equal("bias, axis 0", in.sizes(2)[0], channels, "one bias per output channel");
}

DimVector conv_shape(Infer& in) {
  const size_t n = expect_spatial(in, true);
  in.expect_rank(1, "weight", in.rank(0), in.rank(0));
  const int64_t groups = in.integer("groups");
  const tsr_dim channels = in.sizes(0)[1], out = in.sizes(1)[0];
  in.expect_equal("channels of x", channels, in.dims.mul(in.sizes(1)[1], groups), "x has groups * weight's axis 1 channels");
  if (!in.dims.assume(TSR_DIVISIBLE, out, groups, "groups divide the output channels"))
    in.fail("TSR-I202", "weight, axis 0", in.dims.print(out), "a multiple of groups " + std::to_string(groups));
  DimVector shape = {in.sizes(0)[0], out};
  for (size_t i = 0; i < n; ++i) {
    const Window w = window(in, i, in.sizes(1)[2 + i]);
    shape.push_back(w.output(in.dims));
    // A conv over an empty dimension that padding does not fill has no output, as in PyTorch an error.
    expect_fits(in, i, w, shape.back());
  }
  return shape;
}
void conv(Infer& in) {
  const DimVector shape = conv_shape(in);
  expect_bias(in, shape[1]);
  in.result(in.dtype(0), shape);
}
void conv_integer(Infer& in) {
  const DimVector shape = conv_shape(in);
  expect_zero_points(in, 1, 3, "weight_zero");
  in.result(TSR_I32, shape);
}

void conv_transpose(Infer& in) {
  const size_t n = expect_spatial(in, true);
  in.expect_rank(1, "weight", in.rank(0), in.rank(0));
  in.expect_length("output_pad", n);
  in.expect_all_at_least("output_pad", 0);
  const int64_t groups = in.integer("groups");
  in.expect_equal("weight, axis 0", in.sizes(1)[0], in.sizes(0)[1], "weight has a row per channel of x");
  if (!in.dims.assume(TSR_DIVISIBLE, in.sizes(0)[1], groups, "groups divide the channels"))
    in.fail("TSR-I202", "channels of x", in.dims.print(in.sizes(0)[1]), "a multiple of groups " + std::to_string(groups));
  const tsr_dim out = in.dims.mul(in.sizes(1)[1], groups);
  expect_bias(in, out);
  DimVector shape = {in.sizes(0)[0], out};
  for (size_t i = 0; i < n; ++i) {
    const Window w = window(in, i, in.sizes(1)[2 + i]);
    shape.push_back(in.dims.add(w.transposed(in.dims), in.ints("output_pad")[i]));
    if (!in.dims.assume(TSR_GE, shape.back(), 0, "a transposed convolution has an output"))
      in.fail("TSR-I208", "spatial dimension " + std::to_string(i), "an output size of " + in.dims.print(shape.back()),
              "0 or more");
  }
  in.result(in.dtype(0), shape);
}

DimVector pool_shape(Infer& in) {
  const size_t n = expect_spatial(in, false);
  in.expect_length("kernel", n);
  in.expect_all_at_least("kernel", 1);
  in.expect_all_at_least("pad_low", 0);
  in.expect_all_at_least("pad_high", 0);
  DimVector shape = {in.sizes(0)[0], in.sizes(0)[1]};
  for (size_t i = 0; i < n; ++i) {
    const Window w = window(in, i, in.ints("kernel")[i]);
    // Every window must hold an element of x: a maximum over padding alone has no value.
    const int64_t widest = (in.ints("kernel")[i] - 1) * w.dilation;
    if (w.pad_low > widest || w.pad_high > widest)
      in.fail("TSR-I205", "attributes 'pad_low' and 'pad_high', spatial dimension " + std::to_string(i),
              std::to_string(w.pad_low) + " and " + std::to_string(w.pad_high),
              "less than the extent of the kernel, " + std::to_string(widest + 1));
    shape.push_back(w.output(in.dims, in.flag("ceil_mode")));
    expect_fits(in, i, w, shape.back());
  }
  return shape;
}

void max_pool(Infer& in) {
  const DimVector shape = pool_shape(in);
  in.result(in.dtype(0), shape);
  in.result(TSR_I64, shape);
}

void avg_pool(Infer& in) {
  const int64_t divisor = in.integer("divisor");
  const DimVector shape = pool_shape(in);
  if (divisor < 0) in.fail("TSR-I205", "attribute 'divisor'", std::to_string(divisor), "0 or more");
  in.result(in.dtype(0), shape);
}

DimVector adaptive_shape(Infer& in) {
  in.expect_rank(0, "x", 3, 5);
  in.expect_length("output", static_cast<size_t>(in.rank(0)) - 2);
  DimVector shape = {in.sizes(0)[0], in.sizes(0)[1]};
  for (tsr_dim d : in.shape("output")) shape.push_back(d);
  for (size_t i = 2; i < shape.size(); ++i)
    if (!in.dims.assume(TSR_GT, in.sizes(0)[i], 0, "an adaptive window holds an element"))
      in.fail("TSR-I208", "spatial dimension " + std::to_string(i - 2) + " of x", in.dims.print(in.sizes(0)[i]), "at least 1");
  return shape;
}

void adaptive_avg_pool(Infer& in) { in.result(in.dtype(0), adaptive_shape(in)); }

void adaptive_max_pool(Infer& in) {
  const DimVector shape = adaptive_shape(in);
  in.result(in.dtype(0), shape);
  in.result(TSR_I64, shape);
}

}  // namespace

void add_infer_linalg(Table& t) {
  t.infer("dot_general", dot_general);
  t.infer("matmul", matmul);
  t.infer("conv", conv);
  t.infer("matmul_integer", matmul_integer);
  t.infer("conv_integer", conv_integer);
  t.infer("conv_transpose", conv_transpose);
  t.infer("max_pool", max_pool);
  t.infer("avg_pool", avg_pool);
  t.infer("adaptive_avg_pool", adaptive_avg_pool);
  t.infer("adaptive_max_pool", adaptive_max_pool);
}

}  // namespace tessera::opset
