// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

// Every maximum gives its gradient to the place that it came from.
void max_pool(GradBuild& b) {
  if (!b.has_grad(0)) return;
  const Var x = b.operand(0), g = b.grad(0);
  const auto flat = [&](const Var& v) {
    const DimVector s = v.sizes();
    return v.reshape({s[0], s[1], b.dims.product({s.data() + 2, s.size() - 2})});
  };
  const DimVector s = x.sizes();
  const Var zeros = b.full(0, x.dtype(), {s[0], s[1], b.dims.product({s.data() + 2, s.size() - 2})});
  b.set(0,
        b.op("scatter", {zeros, flat(b.result(1)), flat(g)}, {sdk::attr_int("axis", 2), sdk::attr_string("reduction", "add")})
            .reshape(s));
}

// Number of taps of every window along one dimension that lie in [low, high).
Var taps(Build& b, tsr_dim outputs, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, int64_t low,
         const Var& high) {
  const Var start = b.iota({outputs}, 0) * static_cast<double>(stride) - static_cast<double>(pad);
  const Var d = b.integer_scalar(dilation);
  // Taps before `limit`: ceil((limit - start) / dilation), within 0 .. kernel.
  const auto before = [&](const Var& limit) {
    const Var n = (limit - start + static_cast<double>(dilation - 1)).call("floor_div", d);
    return b.op("clamp", {n, b.integer_scalar(0), b.integer_scalar(kernel)});
  };
  return before(high) - before(b.integer_scalar(low));
}

// Averages are a depthwise convolution with ones; its transpose spreads the gradient, divided by each window's divisor.
void avg_pool(GradBuild& b) {
  const Var x = b.operand(0);
  Var g = b.wide(b.grad());
  const Ints kernel = b.ints("kernel"), strides = b.ints("strides"), low = b.ints("pad_low"), high = b.ints("pad_high"),
             dilations = b.ints("dilations");
  const size_t n = kernel.size();
  const int64_t divisor = b.integer("divisor");
  if (divisor != 0) {
    g = g / static_cast<double>(divisor);
  } else {
    const bool padded = b.flag("count_include_pad");
    Var count;
    for (size_t i = 0; i < n; ++i) {
      const auto axis = 2 + static_cast<int64_t>(i);
      const Var end = b.count(b.dims.add(x.size(axis), padded ? high[i] : 0), TSR_I64);
      DimVector shape(n, 1);
      shape[i] = g.size(axis);
      const Var c =
          taps(b, g.size(axis), kernel[i], strides[i], low[i], dilations[i], padded ? -low[i] : 0, end).reshape(shape);
      count = count ? count * c : c;
    }
    g = g / count.to(g.dtype());
  }
  // Channels join the batch, so that one kernel of ones serves all.
  const DimVector s = x.sizes();
  DimVector single = {b.dims.mul(s[0], s[1]), 1}, ones = {1, 1};
  for (size_t i = 0; i < n; ++i) {
    single.push_back(g.size(2 + static_cast<int64_t>(i)));
    ones.push_back(kernel[i]);
  }
  const Ints zero(n, 0);
  const Var spread =
      b.op("conv_transpose", {g.reshape(single), b.full(1, g.dtype(), ones), Var()},
           {sdk::attr_ints("strides", strides), sdk::attr_ints("pad_low", zero), sdk::attr_ints("pad_high", zero),
            sdk::attr_ints("output_pad", zero), sdk::attr_ints("dilations", dilations), sdk::attr_int("groups", 1)});
  DimVector cut_low = {0, 0}, cut_high = {0, 0};
  for (size_t i = 0; i < n; ++i) {
    cut_low.push_back(-low[i]);
    cut_high.push_back(b.dims.sub(b.dims.add(s[2 + i], low[i]), spread.size(2 + static_cast<int64_t>(i))));
  }
  const Var fitted = spread.call("pad", Var(), {sdk::attr_dims("low", cut_low), sdk::attr_dims("high", cut_high)});
  b.set(0, fitted.reshape(s).to(x.dtype()));
}

}  // namespace

void add_grad_pool(Table& t) {
  t.grad("max_pool", max_pool);
  t.grad("avg_pool", avg_pool);
}

}  // namespace tessera::opset
