// SPDX-License-Identifier: Apache-2.0
// Resampling, one spatial dimension after the other, last one first: taps are gathered and weighted. The coordinate rules
// are PyTorch's (ATen/native/UpSample.h); the cubic kernel is Keys' with a = -0.75 (Keys 1981, "Cubic convolution
// interpolation for digital image processing").
#include <array>

#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

struct Axis {
  int64_t axis;
  tsr_dim in, out;
};

Var tap(const Var& x, const Var& index, const Var& weight, const Axis& a) {
  DimVector shape(static_cast<size_t>(x.rank() - a.axis), 1);
  shape[0] = a.out;
  return x.gather(index, a.axis) * weight.reshape(shape);
}

Var limit(Build& b, const Var& index, const Axis& a) {
  return b.op("clamp", {index, b.integer_scalar(0), b.count(b.dims.sub(a.in, 1), TSR_I64)});
}

Var nearest(Build& b, const Var& x, const Axis& a) {
  const Var scale = b.count(a.in, TSR_F32) / b.count(a.out, TSR_F32);
  const Var index = (b.iota({a.out}, 0, TSR_F32) * scale).call("floor").to(TSR_I64);
  return x.gather(limit(b, index, a), a.axis);
}

// Source coordinate of every output element.
Var coordinates(Build& b, const Axis& a, tsr_dtype dtype, bool align_corners) {
  const Var i = b.iota({a.out}, 0, dtype);
  const auto count = [&](tsr_dim d) { return b.count(d, dtype); };
  if (!align_corners) return (i + 0.5) * (count(a.in) / count(a.out)) - 0.5;
  // A single output is element 0: its index is 0, whatever the scale.
  return i * (count(b.dims.sub(a.in, 1)) / maximum(count(b.dims.sub(a.out, 1)), b.scalar(1, dtype)));
}

struct Split {
  Var index;     // i64, floor of the coordinate
  Var fraction;  // in [0, 1]
};
Split split(Build& b, const Var& source, const Axis& a) {
  const Var whole = minimum(source.call("floor"), b.count(b.dims.sub(a.in, 1), source.dtype()));
  const Var fraction = b.op("clamp", {source - whole, b.scalar(0, source.dtype()), b.scalar(1, source.dtype())});
  return {whole.to(TSR_I64), fraction};
}

Var linear(Build& b, const Var& x, const Axis& a, bool align_corners) {
  Var source = coordinates(b, a, x.dtype(), align_corners);
  if (!align_corners) source = maximum(source, b.scalar(0, x.dtype()));
  const Split s = split(b, source, a);
  const Var next = limit(b, s.index + b.integer_scalar(1), a);
  return tap(x, s.index, 1 - s.fraction, a) + tap(x, next, s.fraction, a);
}

constexpr double kCubic = -0.75;
Var inner(const Var& t) { return (t * (kCubic + 2) - (kCubic + 3)) * t * t + 1; }                  // |t| <= 1
Var outer(const Var& t) { return ((t * kCubic - 5 * kCubic) * t + 8 * kCubic) * t - 4 * kCubic; }  // 1 < |t| < 2

Var cubic(Build& b, const Var& x, const Axis& a, bool align_corners) {
  const Split s = split(b, coordinates(b, a, x.dtype(), align_corners), a);
  const Var t = s.fraction, u = 1 - t;
  const std::array<Var, 4> weights = {outer(t + 1), inner(t), inner(u), outer(u + 1)};
  Var y;
  for (int64_t i = 0; i < 4; ++i) {
    const Var term = tap(x, limit(b, s.index + b.integer_scalar(i - 1), a), weights[static_cast<size_t>(i)], a);
    y = y ? y + term : term;
  }
  return y;
}

void interpolate(Build& b) {
  const std::string_view mode = b.text("mode");
  const bool align_corners = b.flag("align_corners");
  const Ints output = b.ints("output");
  const Var given = b.operand(0);
  Var x = mode == "nearest" ? given : b.wide(given);
  for (size_t i = output.size(); i-- > 0;) {
    const int64_t axis = 2 + static_cast<int64_t>(i);
    const Axis a{axis, x.size(axis), output[i]};
    if (a.in == a.out) continue;  // every coordinate is an element
    x = mode == "nearest"  ? nearest(b, x, a)
        : mode == "linear" ? linear(b, x, a, align_corners)
                           : cubic(b, x, a, align_corners);
  }
  b.replace(0, x.to(given.dtype()));
}

}  // namespace

void add_decompose_interpolate(Table& t) { t.decompose("interpolate", interpolate); }

}  // namespace tessera::opset
