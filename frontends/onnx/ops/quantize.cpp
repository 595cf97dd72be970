// SPDX-License-Identifier: Apache-2.0
// Quantised tensors: integers (or narrow floats) with a scale and a zero point per tensor, axis or block.
#include <algorithm>
#include <cmath>

#include "quantize.hpp"

#include "../window.hpp"
#include "cast.hpp"
#include "conv.hpp"

namespace tessera::onnx {

V one_or_all(Build& b, const V& v) { return v && v.rank() == 1 && v.size(0) == 1 ? b.reshape(v, {}) : v; }

V saturate(Op& op, const V& value, const V& zero, tsr_dtype to) {
  Build& b = op.b;
  if (!is_int(to)) {
    V v = value;
    if (zero) v = v + b.cast(zero, v.dtype());
    return cast_to(op, v, to);
  }
  V r = b.cast(value, value.dtype() == TSR_F64 ? TSR_F64 : TSR_F32).call("round");
  if (zero) r = r + b.cast(zero, r.dtype());
  const int bits = dtype_bits(to);
  const double lo = is_signed_int(to) ? -std::ldexp(1.0, bits - 1) : 0,
               hi = std::ldexp(1.0, is_signed_int(to) ? bits - 1 : bits) - 1;
  return b.cast(b.op("clamp", {r, b.scalar(lo, r.dtype()), b.scalar(hi, r.dtype())}), to);
}

V integers_of(Op& op, const V& v, const V& zero) {
  const V wide = op.b.cast(v, TSR_I32);
  return zero ? wide - op.b.cast(zero, TSR_I32) : wide;
}

V zero_point(Op& op, const V& v, V zero, bool left) {
  Build& b = op.b;
  if (!zero) return b.scalar(0, v.dtype());
  if (zero.rank() == 1 && zero.size(0) == 1) zero = b.reshape(zero, {});
  if (zero.rank() == 1 && left && v.rank() > 1) zero = b.expand(zero, {1});
  return zero;
}

V integer_product(Op& op, const V& a, const V& c, const V& a_zero, const V& c_zero) {
  if (is_float(a.dtype())) {  // float8
    const auto wide = [&](const V& v, const V& zero) {
      return zero ? op.b.cast(v, TSR_F32) - op.b.cast(zero, TSR_F32) : op.b.cast(v, TSR_F32);
    };
    return op.b.matmul(wide(a, a_zero), wide(c, c_zero));
  }
  return op.b.op("matmul_integer", {a, c, zero_point(op, a, a_zero, true), zero_point(op, c, c_zero, false)});
}

Quantised quantize_dynamically(Op& op, const V& x) {
  Build& b = op.b;
  // Rows first: what makes a row can find its ends too.
  const auto end_of = [&](const char* reduction) {
    if (x.rank() < 2) return b.reduce(reduction, x, axes_from(0, x.rank()), false);
    return b.reduce(reduction, b.reduce(reduction, x, {x.rank() - 1}, false), axes_from(0, x.rank() - 1), false);
  };
  const V zero = b.scalar(0, x.dtype());
  const V low = minimum(end_of("reduce_min"), zero), high = maximum(end_of("reduce_max"), zero);
  const V range = high - low, scale = select(range == 0.0, 1.0, range / 255.0);
  const V point = b.cast(b.op("clamp", {(-low / scale).call("round"), zero, b.scalar(255, x.dtype())}), TSR_U8);
  return {saturate(op, x / scale, point, TSR_U8), scale, point};
}

namespace {

using sdk::attr_int;
using sdk::attr_ints;

// A scale or zero point, so that it broadcasts against x: one for all, one per index along `axis`, or one per block of `block`
// indices.
V spread(Op& op, const V& v, const V& x, int64_t axis, int64_t block) {
  Build& b = op.b;
  if (v.rank() == 0) return v;
  if (v.rank() == 1 && block == 0) {
    if (v.size(0) == 1) return b.reshape(v, {});
    axis = op.axis(axis, x.rank());
    return b.expand(v, axes_from(1, x.rank() - axis));
  }
  axis = op.axis(axis, x.rank());
  op.expect(v.rank() == x.rank(),
            "a scale of rank " + std::to_string(v.rank()) + " for an input of rank " + std::to_string(x.rank()));
  const tsr_dim n = x.size(axis), m = v.size(axis);
  if (n == m) return v;
  if (block == 0) {
    op.expect(Build::is_number(n) && Build::is_number(m) && m > 0, "the block size cannot be told");
    block = (n + m - 1) / m;
  }
  Dims wide = v.sizes(), flat = v.sizes();
  wide.insert(wide.begin() + axis + 1, block);
  flat[static_cast<size_t>(axis)] = b.mul(m, block);
  return b.slice(b.reshape(b.broadcast(b.expand(v, {axis + 1}), wide), flat), axis, 0, n);
}

tsr_dtype dtype_attr(Op& op, std::string_view name) {
  const int64_t v = op.i(name, 0);
  if (v == 0) return TSR_DTYPE_INVALID;
  const tsr_dtype d = dtype_of(static_cast<DataType>(v));
  if (d == TSR_DTYPE_INVALID) op.fail(kType, "attribute '" + std::string(name) + "' is " + type_name(static_cast<DataType>(v)));
  return d;
}

void quantize_linear(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const int64_t axis = op.i("axis", 1), block = op.i("block_size", 0);
  V scale = spread(op, op.in(1), x, axis, block), zero;
  if (op.has(2)) zero = spread(op, op.in(2), x, axis, block);
  tsr_dtype to = dtype_attr(op, "output_dtype");
  if (to == TSR_DTYPE_INVALID) to = zero ? zero.dtype() : TSR_U8;
  tsr_dtype t = dtype_attr(op, "precision");
  if (t == TSR_DTYPE_INVALID) t = scale.dtype();
  if (!is_float(t) || is_f8(t)) t = TSR_F32;
  op.out(saturate(op, b.cast(x, t) / b.cast(scale, t), zero, to));
}

void dequantize_linear(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const int64_t axis = op.i("axis", 1), block = op.i("block_size", 0);
  const V scale = spread(op, op.in(1), x, axis, block);
  tsr_dtype to = dtype_attr(op, "output_dtype");
  if (to == TSR_DTYPE_INVALID) to = scale.dtype();
  const tsr_dtype t = Build::wide(is_f8(scale.dtype()) ? TSR_F32 : scale.dtype());
  V v = b.cast(x, is_int(x.dtype()) ? TSR_I32 : t);
  if (op.has(2)) v = v - b.cast(spread(op, op.in(2), x, axis, block), v.dtype());
  op.out(b.cast(b.cast(v, t) * b.cast(scale, t), to));
}

void dynamic_quantize_linear(Op& op) {
  const Quantised q = quantize_dynamically(op, op.in());
  op.out(q.values, 0);
  op.out(q.scale, 1);
  op.out(q.zero, 2);
}

void matmul_integer(Op& op) { op.out(integer_product(op, op.in(0), op.in(1), op.opt(2), op.opt(3))); }

void qlinear_matmul(Op& op) {
  Build& b = op.b;
  const V product = integer_product(op, op.in(0), op.in(3), op.in(2), op.in(5));
  const auto scale = [&](size_t i, bool left) {
    V s = b.cast(op.in(i), TSR_F32);
    if (s.rank() == 1 && s.size(0) == 1) s = b.reshape(s, {});
    return s.rank() == 1 && left ? b.expand(s, {1}) : s;
  };
  const V value = b.cast(product, TSR_F32) * (scale(1, true) * scale(4, false) / scale(6, true));
  V zero = op.in(7);
  if (zero.rank() == 1 && zero.size(0) == 1) zero = b.reshape(zero, {});
  op.out(saturate(op, value, zero, op.in(7).dtype()));
}

void qlinear_conv(Op& op) {
  Build& b = op.b;
  const bool last = op.flag("channels_last");  // of com.microsoft
  const V weight = op.in(3);
  V x = op.in(0);
  if (last) {
    Ints perm = axes_from(0, x.rank());
    std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
    x = b.transpose(x, perm);
  }
  const auto channel = [&](const V& v, int64_t rank) {  // per output channel, in front of `rank` dimensions
    if (v.rank() == 0) return v;
    return v.size(0) == 1 ? b.reshape(v, {}) : b.expand(v, axes_from(1, rank + 1));
  };
  op.expect(weight.rank() >= 3, "weights of rank " + std::to_string(weight.rank()));
  V sums = integer_conv(op, x, weight, op.in(2), op.in(5));
  if (op.has(8)) sums = sums + b.expand(op.in(8), axes_from(1, weight.rank() - 1));
  const V scale = b.reshape(b.cast(op.in(1), TSR_F32), {}) * channel(b.cast(op.in(4), TSR_F32), weight.rank() - 2) /
                  b.reshape(b.cast(op.in(6), TSR_F32), {});
  V y = saturate(op, b.cast(sums, TSR_F32) * scale, b.reshape(op.in(7), {}), op.in(7).dtype());
  if (last) {
    Ints perm = axes_from(0, y.rank());
    std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
    y = b.transpose(y, perm);
  }
  op.out(y);
}

}  // namespace

std::span<const Record> quantize_records() {
  static constexpr Record records[] = {
      {"", "QuantizeLinear", quantize_linear},
      {"", "DequantizeLinear", dequantize_linear},
      {"", "DynamicQuantizeLinear", dynamic_quantize_linear},
      {"", "MatMulInteger", matmul_integer},
      {"", "QLinearMatMul", qlinear_matmul},
      {"", "QLinearConv", qlinear_conv},
      {"com.microsoft", "QuantizeLinear", quantize_linear},
      {"com.microsoft", "DequantizeLinear", dequantize_linear},
      {"com.microsoft", "QLinearConv", qlinear_conv},
  };
  return records;
}

}  // namespace tessera::onnx
