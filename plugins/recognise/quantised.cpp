// SPDX-License-Identifier: Apache-2.0
// Products of dequantised tensors, as programs in ONNX's QDQ form have them, computed on the integers they are made of:
//
//   sum of ((a - za) sa) ((b - zb) sb)  =  (sum of (a - za) (b - zb)) (sa sb)
//
// The sum is exact in 32 bits, so a result differs from that of the parts by the rounding errors of their sum alone. One scale
// for a and x, one scale for each column of b or each output channel: only then a result has one factor.
#include <algorithm>

#include <tessera/dtypes.hpp>

#include "rules.hpp"

namespace tessera::passes {
namespace {

using C = const Candidate&;
using V = sdk::Value;
using sdk::attr_dims, sdk::attr_dtype, sdk::attr_ints;

bool is_byte(uint32_t dtype) { return dtype == TSR_I8 || dtype == TSR_U8; }

// Of the dequantised operand `side` ("a" or "b"): its integers, its scale, and its zero point if the program takes one away.
struct Quantised {
  V q, scale;
  V zero;  // none: 0
};
Quantised quantised(C c, const std::string& side) {
  return {c.found["q" + side], c.found["s" + side], c.found.has("z" + side) ? c.found["z" + side] : c.g.none()};
}

// One value, or one for each index of `axis`.
bool is_along(const sdk::Type& t, const sdk::Type& of, int axis) {
  if (t.rank() > of.rank()) return false;
  for (uint32_t i = 0; i < t.rank(); ++i) {
    const int at = static_cast<int>(of.rank() - t.rank() + i);
    if (t.size(static_cast<int>(i)) != 1 && (at != axis || t.size(static_cast<int>(i)) != of.size(axis))) return false;
  }
  return true;
}
// The dequantisation is (i32(q) - i32(zero)) * scale in f32. Axis -1: of the whole tensor.
bool is_dequantised(C c, const std::string& side, int axis) {
  const Quantised t = quantised(c, side);
  const V whole = c.found["d" + side], wide = c.found["f" + side], inner = c.found["i" + side];
  if (whole.type().dtype() != TSR_F32 || wide.type().dtype() != TSR_F32 || inner.type().dtype() != TSR_I32) return false;
  if (!is_byte(t.q.type().dtype()) || inner.type().rank() != t.q.type().rank() || whole.type().rank() != t.q.type().rank())
    return false;
  if (t.scale.type().dtype() != TSR_F32 || !is_along(t.scale.type(), t.q.type(), axis)) return false;
  return !t.zero || (t.zero.type().dtype() == t.q.type().dtype() && is_along(t.zero.type(), t.q.type(), axis));
}

// Sums of so many products of two bytes and their zero points fit in 32 bits.
bool fits(tsr_dim depth) { return !TSR_DIM_IS_EXPR(depth) && depth <= INT32_MAX / (255 * 255); }

V zero_point(C c, const Quantised& t) {
  if (t.zero) return t.zero;
  const uint8_t byte = 0;
  tsr_tensor data{};
  data.data = const_cast<uint8_t*>(&byte);
  data.dtype = t.q.type().dtype();
  const V v = c.g.constant(c.here(), data);
  tsr_type type = *t.q.type().p;  // its device
  type.rank = 0, type.sizes = nullptr, type.strides = nullptr;
  c.g.set_type(v, type);
  return v;
}
V shaped(C c, V v, std::initializer_list<tsr_dim> shape) {
  return c.g.op(c.here(), "reshape", {v}, {attr_dims("shape", std::span(shape.begin(), shape.size()))});
}
V flat(C c, V v) { return v.type().rank() == 0 ? v : shaped(c, v, {}); }
V rescaled(C c, V sums, V left_scale, V right_scale) {
  const V wide = c.g.op(c.here(), "cast", {sums}, {attr_dtype("dtype", TSR_F32)});
  return c.g.op(c.here(), "mul", {wide, c.g.op(c.here(), "mul", {right_scale, left_scale})});
}

// ---- matmul and linear, whose right side is [.., K, N] and [N, K]
bool multiplies(C c) {
  const sdk::Type a = c.found["qa"].type(), b = c.found["qb"].type();
  const int last = static_cast<int>(b.rank()) - 1;
  return a.rank() >= 1 && b.rank() == 2 && is_dequantised(c, "a", -1) && is_dequantised(c, "b", last) && fits(b.size(0));
}
V multiplied(C c) {
  const Quantised a = quantised(c, "a"), b = quantised(c, "b");
  const V sums = c.g.op(c.here(), "matmul_integer", {a.q, b.q, flat(c, zero_point(c, a)), zero_point(c, b)});
  return rescaled(c, sums, flat(c, a.scale), b.scale);
}
bool applies(C c) {
  const sdk::Type b = c.found["qb"].type();
  return c.found["qa"].type().rank() >= 1 && is_dequantised(c, "a", -1) && is_dequantised(c, "b", 0) && fits(b.size(1)) &&
         !TSR_DIM_IS_EXPR(b.size(0));
}
V applied(C c) {
  const Quantised a = quantised(c, "a"), b = quantised(c, "b");
  const tsr_dim n = b.q.type().size(0);
  // [N, 1], [1, 1] or a number: by column of the transposed weights.
  const auto by_column = [&](V v) { return v.type().elements() == 1 ? flat(c, v) : shaped(c, v, {n}); };
  const int64_t swap[] = {1, 0};
  const V weights = c.g.op(c.here(), "transpose", {b.q}, {attr_ints("perm", swap)});
  const V sums = c.g.op(c.here(), "matmul_integer", {a.q, weights, flat(c, zero_point(c, a)), by_column(zero_point(c, b))});
  return rescaled(c, sums, flat(c, a.scale), by_column(b.scale));
}
V applied_with_bias(C c) { return c.g.op(c.here(), "add", {applied(c), c.found["bias"]}); }

// ---- conv
bool convolves(C c) {
  const sdk::Type w = c.found["qb"].type();
  tsr_dim depth = 1;
  for (uint32_t d = 0; d < w.rank(); ++d) {
    if (TSR_DIM_IS_EXPR(w.size(static_cast<int>(d)))) return false;
    if (d > 0) depth = std::min<tsr_dim>(depth * w.size(static_cast<int>(d)), INT32_MAX);
  }
  // Few channels in a group are no product: floats are faster there.
  const int64_t groups = c.n.attr("groups").as_int();
  if (groups > 1 && (w.size(0) / groups < 8 || w.size(1) < 4)) return false;
  return w.rank() <= 4 && is_dequantised(c, "a", -1) && is_dequantised(c, "b", 0) && fits(depth);
}
V convolved(C c) {
  const Quantised x = quantised(c, "a"), w = quantised(c, "b");
  const V sums = c.g.op(c.here(), "conv_integer", {x.q, w.q, flat(c, zero_point(c, x)), zero_point(c, w)},
                        {*c.n.attr("strides").p, *c.n.attr("pad_low").p, *c.n.attr("pad_high").p, *c.n.attr("dilations").p,
                         *c.n.attr("groups").p});
  const bool one = w.scale.type().elements() == 1;
  const tsr_dim outputs = w.q.type().size(0);
  const V scale = one                      ? flat(c, w.scale)
                  : w.q.type().rank() == 3 ? shaped(c, w.scale, {outputs, 1})
                                           : shaped(c, w.scale, {outputs, 1, 1});
  return rescaled(c, sums, flat(c, x.scale), scale);
}
V convolved_with_bias(C c) {
  const tsr_dim outputs = c.found["qb"].type().size(0);
  const V bias =
      c.found["qb"].type().rank() == 3 ? shaped(c, c.found["bias"], {outputs, 1}) : shaped(c, c.found["bias"], {outputs, 1, 1});
  return c.g.op(c.here(), "add", {convolved(c), bias});
}

// ---- conv_integer of one position is a product: no columns of a panel of positions go to waste
bool has_one_position(C c) {
  const sdk::Type x = c.found["x"].type(), w = c.found["w"].type(), y = c.out().type(), zero = c.found["zw"].type();
  for (uint32_t d = 2; d < x.rank(); ++d)
    for (const sdk::Type& t : {x, w, y})
      if (t.size(static_cast<int>(d)) != 1) return false;
  for (const int64_t pad : c.n.attr("pad_low").as_ints())
    if (pad != 0) return false;
  const bool one_zero =
      zero.elements() == 1 || (zero.rank() == w.rank() && zero.size(0) == w.size(0) && zero.elements() == w.size(0));
  return c.n.attr("groups").as_int() == 1 && one_zero;
}
V as_product(C c) {
  const V x = c.found["x"], w = c.found["w"], zero = c.found["zw"];
  const tsr_dim images = x.type().size(0), channels = x.type().size(1), outputs = w.type().size(0);
  const int64_t swap[] = {1, 0};
  const V right = c.g.op(c.here(), "transpose", {shaped(c, w, {outputs, channels})}, {attr_ints("perm", swap)});
  const V by_column = zero.type().elements() == 1 ? flat(c, zero) : shaped(c, zero, {outputs});
  const V sums = c.g.op(c.here(), "matmul_integer", {shaped(c, x, {images, channels}), right, c.found["zx"], by_column});
  return c.g.op(c.here(), "reshape", {sums}, {attr_dims("shape", c.out().type().sizes())});
}

#define DEQUANTISED(N) \
  "d" N "=[mul(f" N "=cast(i" N "=sub(cast(q" N "), cast(z" N "))), s" N ") | mul(f" N "=cast(i" N "=cast(q" N ")), s" N ")]"
#define BOTH DEQUANTISED("a") ", " DEQUANTISED("b")

// clang-format off
constexpr Rule kRules[] = {
    {"matmul-quantised",      "matmul(" BOTH ")",       multiplies, multiplied},
    {"linear-quantised",      "linear(" BOTH ")",       applies,    applied},
    {"linear-bias-quantised", "linear(" BOTH ", bias)", applies,    applied_with_bias},
    {"conv-quantised",        "conv(" BOTH ")",         convolves,  convolved},
    {"conv-bias-quantised",   "conv(" BOTH ", bias)",   convolves,  convolved_with_bias},
    {"conv-integer-product",  "conv_integer(x, w, zx, zw)", has_one_position, as_product},
};
// clang-format on

}  // namespace

std::span<const Rule> quantised_rules() { return kRules; }

}  // namespace tessera::passes
