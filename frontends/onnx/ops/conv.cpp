// SPDX-License-Identifier: Apache-2.0
// Convolutions.
#include <algorithm>

#include "conv.hpp"

#include "../window.hpp"
#include "products.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_int;
using sdk::attr_ints;

Ints kernel_of(Op& op, const V& weight) {
  op.expect(weight.rank() >= 3, "weights of rank " + std::to_string(weight.rank()));
  Ints k(weight.sizes().begin() + 2, weight.sizes().end());
  if (!Build::are_numbers(k)) op.unsupported("weights of symbolic sizes");
  return k;
}

}  // namespace

V conv_of(Op& op, const V& x, const V& weight, const V& bias) {
  const Window w = window(op, x, kernel_of(op, weight));
  return op.b.op("conv", {x, weight, bias},
                 {attr_ints("strides", w.strides), attr_ints("pad_low", w.low), attr_ints("pad_high", w.high),
                  attr_ints("dilations", w.dilations), attr_int("groups", op.i("group", 1))});
}

V integer_conv(Op& op, const V& x, const V& weight, const V& x_zero, const V& weight_zero) {
  Build& b = op.b;
  const Window w = window(op, x, kernel_of(op, weight));
  const V xz = x_zero ? b.reshape(x_zero, {}) : b.scalar(0, x.dtype());
  V wz = weight_zero ? weight_zero : b.scalar(0, weight.dtype());
  if (wz.rank() == 1) wz = wz.size(0) == 1 ? b.reshape(wz, {}) : b.expand(wz, axes_from(1, weight.rank()));
  return b.op("conv_integer", {x, weight, xz, wz},
              {attr_ints("strides", w.strides), attr_ints("pad_low", w.low), attr_ints("pad_high", w.high),
               attr_ints("dilations", w.dilations), attr_int("groups", op.i("group", 1))});
}

namespace {

void conv(Op& op) { op.out(conv_of(op, op.in(0), op.in(1), op.opt(2))); }

void conv_integer(Op& op) { op.out(integer_conv(op, op.in(0), op.in(1), op.opt(2), op.opt(3))); }

void conv_transpose(Op& op) {
  Build& b = op.b;
  const V x = op.in(0), weight = op.in(1);
  const Ints kernel = kernel_of(op, weight);
  const size_t n = kernel.size();
  op.expect(static_cast<int64_t>(n) == x.rank() - 2, "weights do not fit the input");
  const Ints ones(n, 1), zeros(n, 0);
  const Ints strides = op.small_ints("strides", ones), dilations = op.small_ints("dilations", ones);
  Ints output_pad = op.small_ints("output_padding", zeros), pads = op.small_ints("pads", Ints(2 * n, 0));
  op.expect(strides.size() == n && dilations.size() == n && output_pad.size() == n && pads.size() == 2 * n,
            "an attribute does not fit the input");
  const std::string_view automatic = op.s("auto_pad", "NOTSET");
  const bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
  if (automatic == "VALID") pads.assign(2 * n, 0);
  Ints low(pads.begin(), pads.begin() + static_cast<int64_t>(n)), high(pads.begin() + static_cast<int64_t>(n), pads.end());
  const auto convolve = [&](const V& bias) {
    return b.op("conv_transpose", {x, weight, bias},
                {attr_ints("strides", strides), attr_ints("pad_low", low), attr_ints("pad_high", high),
                 attr_ints("output_pad", output_pad), attr_ints("dilations", dilations), attr_int("groups", op.i("group", 1))});
  };
  if (!op.has_attr("output_shape") && !same) return op.out(convolve(op.opt(2)));

  Ints want = op.small_ints("output_shape", Ints{});
  if (want.size() == n + 2) want.erase(want.begin(), want.begin() + 2);
  op.expect(want.empty() ? same : want.size() == n, "attribute 'output_shape' does not fit the input");
  // What the whole convolution has more than the output that is wanted. Of an odd number SAME_UPPER alone puts the smaller half
  // in front.
  Dims totals(n);
  for (size_t i = 0; i < n; ++i) {
    op.expect(kernel[i] < INT32_MAX, "a kernel of 2^31 or more");
    const int64_t reach = output_pad[i] + (kernel[i] - 1) * dilations[i] + 1;
    const tsr_dim size = x.size(static_cast<int64_t>(i) + 2);
    totals[i] = want.empty() ? tsr_dim{reach - strides[i]} : b.add(b.mul(strides[i], b.sub(size, 1)), reach - want[i]);
  }
  const auto front = [&](const tsr_dim total) {
    const tsr_dim half = b.floordiv(total, 2);
    return automatic == "SAME_UPPER" ? half : b.sub(total, half);
  };
  if (Build::are_numbers(totals)) {
    for (size_t i = 0; i < n; ++i) {
      op.expect(totals[i] < INT32_MAX && totals[i] > -INT32_MAX, "an output shape that is 2^31 or more off");
      const int64_t cut = std::max<int64_t>(totals[i], 0);
      output_pad[i] += cut - totals[i];  // more than the convolution reaches: the rest is padding behind
      low[i] = front(cut);
      high[i] = cut - low[i];
    }
    return op.out(convolve(op.opt(2)));
  }
  // Pads that follow a symbolic size: the whole convolution is cut, or padded behind, to the shape.
  low.assign(n, 0);
  high.assign(n, 0);
  V y = convolve({});
  Dims behind(n + 2, 0);
  for (size_t i = 0; i < n; ++i) {
    const auto axis = static_cast<int64_t>(i) + 2;
    const tsr_dim cut = b.max(totals[i], 0), start = front(cut);
    behind[i + 2] = b.sub(cut, totals[i]);
    y = b.slice(y, axis, start, b.add(start, b.sub(y.size(axis), cut)));
  }
  y = b.reshape(b.pad(y, Dims(n + 2, 0), behind), [&] {
    Dims shape(y.sizes().begin(), y.sizes().begin() + 2);
    shape.insert(shape.end(), want.begin(), want.end());
    return shape;
  }());
  op.out(op.has(2) ? y + b.expand(op.in(2), axes_from(1, static_cast<int64_t>(n) + 1)) : y);
}

void causal_conv_with_state(Op& op) {
  Build& b = op.b;
  const V x = op.in(0), weight = op.in(1);
  const tsr_dim state = b.sub(weight.size(2), 1);
  op.expect(x.rank() == 3 && weight.rank() == 3 && Build::is_number(x.size(1)), "expected rank 3 and a number of channels");
  const V past = op.has(3) ? op.in(3) : b.full(0, x.dtype(), {x.size(0), x.size(1), state});
  const V all = b.concat({past, x}, 2);
  const Ints one = {1}, zero = {0};
  V y = b.op("conv", {all, weight, op.opt(2)},
             {attr_ints("strides", one), attr_ints("pad_low", zero), attr_ints("pad_high", zero), attr_ints("dilations", one),
              attr_int("groups", x.size(1))});
  const auto activation = op.s("activation", "none");
  if (activation == "silu" || activation == "swish") y = y.call("silu");
  op.out(y, 0);
  op.out(b.slice(all, 2, b.sub(all.size(2), state), all.size(2)), 1);
}

// Every tap reads x at its own position plus an offset, by linear interpolation, zero outside; then it is a matrix product.
// Dai et al., Deformable Convolutional Networks, 2017; with a mask, Zhu et al. 2018.
void deform_conv(Op& op) {
  Build& b = op.b;
  const V x = op.in(0), weight = op.in(1), offset = op.in(2);
  const Window w = window(op, x, kernel_of(op, weight));
  if (w.dims() != 2) op.unsupported(std::to_string(w.dims()) + " spatial dimensions", "2 are known here");
  const int64_t groups = op.i("group", 1), og = op.i("offset_group", 1);
  const tsr_dim N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), O = weight.size(0), oh = offset.size(2),
                ow = offset.size(3);
  const int64_t kh = w.kernel[0], kw = w.kernel[1], taps = kh * kw;
  const tsr_dtype t = Build::wide(x.dtype());
  // [N, og, taps, 2, oh, ow]: dy and dx of every tap
  const V off = b.cast(b.reshape(offset, {N, og, taps, 2, oh, ow}), t);
  const auto part = [&](int64_t i) { return b.squeeze(b.slice(off, 3, i, i + 1), {3}); };
  const auto base = [&](int64_t axis) {  // [1, 1, taps, oh, ow] without the offset
    const int64_t k = axis == 0 ? kh : kw, other = axis == 0 ? kw : kh;
    V tap = b.iota(axis == 0 ? Dims{k, other} : Dims{other, k}, axis, t) *
            static_cast<double>(w.dilations[static_cast<size_t>(axis)]);
    tap = b.reshape(tap, {1, 1, taps, 1, 1});
    const V place = axis == 0 ? b.iota({1, 1, 1, oh, 1}, 3, t) : b.iota({1, 1, 1, 1, ow}, 4, t);
    return tap + place * static_cast<double>(w.strides[static_cast<size_t>(axis)]) -
           static_cast<double>(w.low[static_cast<size_t>(axis)]);
  };
  const V py = part(0) + base(0), px = part(1) + base(1);  // [N, og, taps, oh, ow]
  const V image = b.reshape(b.cast(x, t), {N, og, b.floordiv(C, og), b.mul(H, W)});
  const Dims points = {N, og, 1, b.mul(b.mul(taps, oh), ow)};
  const V y0 = py.call("floor"), x0 = px.call("floor");
  V sampled;
  for (int corner = 0; corner < 4; ++corner) {
    const double dy = corner / 2, dx = corner % 2;
    const V yi = y0 + dy, xi = x0 + dx;
    const V inside = both(both(yi >= 0.0, yi < b.dim(H, t)), both(xi >= 0.0, xi < b.dim(W, t)));
    const V fy = py - y0, fx = px - x0;
    const V weight_here = select(inside, (dy != 0 ? fy : 1.0 - fy) * (dx != 0 ? fx : 1.0 - fx), 0.0);
    const V at = b.cast(select(inside, yi * b.dim(W, t) + xi, 0.0), TSR_I64);
    const V index = b.broadcast(b.reshape(at, points), {N, og, b.floordiv(C, og), points[3]});
    const V value = image.call("take_along_axis", index, {attr_int("axis", 3)}) * b.reshape(weight_here, points);
    sampled = sampled ? sampled + value : value;
  }
  if (op.has(4)) sampled = sampled * b.reshape(b.cast(op.in(4), t), points);
  // [N, groups, C/groups * taps, oh*ow] by [groups, O/groups, C/groups * taps]
  const tsr_dim cg = b.floordiv(C, groups), pixels = b.mul(oh, ow);
  const V columns = b.reshape(sampled, {N, groups, b.mul(cg, taps), pixels});
  const V rows = b.reshape(b.cast(weight, t), {1, groups, b.floordiv(O, groups), b.mul(cg, taps)});
  V y = b.reshape(b.matmul(rows, columns), {N, O, oh, ow});
  if (op.has(3)) y = y + b.expand(b.cast(op.in(3), t), {1, 2});
  op.out(b.cast(y, x.dtype()));
}

}  // namespace

std::span<const Record> conv_records() {
  static constexpr Record records[] = {
      {"", "Conv", conv},
      {"", "ConvInteger", conv_integer},
      {"", "ConvTranspose", conv_transpose},
      {"", "CausalConvWithState", causal_conv_with_state},
      {"", "DeformConv", deform_conv},
  };
  return records;
}

}  // namespace tessera::onnx
