// SPDX-License-Identifier: Apache-2.0
// com.microsoft: operators on quantised tensors that ONNX Runtime's quantisation tools and graph optimiser write, as its
// ContribOperators.md documents them. 8-bit tensors come with a scale and a zero point for all of their elements.
#include <algorithm>

#include "../window.hpp"
#include "quantize.hpp"

namespace tessera::onnx {
namespace {

// Inputs i, i + 1 and i + 2: a tensor, its scale and its zero point (0 when omitted).
V centred(Op& op, size_t i) { return integers_of(op, op.in(i), op.has(i + 2) ? op.b.reshape(op.in(i + 2), {}) : V()); }
V scale_at(Op& op, size_t i) { return op.b.reshape(op.b.cast(op.in(i), TSR_F32), {}); }
V dequantized(Op& op, size_t i) { return op.b.cast(centred(op, i), TSR_F32) * scale_at(op, i + 1); }

// The result, a float, as integers of scale input i and zero point input i + 1.
V quantized(Op& op, const V& y, size_t i, tsr_dtype to) {
  return saturate(op, y / scale_at(op, i), op.has(i + 1) ? op.b.reshape(op.in(i + 1), {}) : V(), to);
}

void qlinear_add(Op& op) { op.out(quantized(op, dequantized(op, 0) + dequantized(op, 3), 6, op.in(0).dtype())); }

void qlinear_mul(Op& op) {
  const V product = op.b.cast(centred(op, 0) * centred(op, 3), TSR_F32);
  op.out(quantized(op, product * (scale_at(op, 1) * scale_at(op, 4)), 6, op.in(0).dtype()));
}

void qlinear_leaky_relu(Op& op) {
  const V x = dequantized(op, 0);
  op.out(quantized(op, x.call("leaky_relu", {sdk::attr_float("slope", op.f("alpha", 0.01f))}), 3, op.in(0).dtype()));
}

void qlinear_sigmoid(Op& op) { op.out(quantized(op, dequantized(op, 0).call("sigmoid"), 3, op.in(0).dtype())); }

// Of the dimension, or before version 13 of Softmax of all from it on.
void qlinear_softmax(Op& op) {
  Build& b = op.b;
  const V x = dequantized(op, 0);
  const int64_t axis = op.axis_attr("axis", -1, x.rank());
  V y;
  if (op.i("opset") >= 13) {
    y = x.call("softmax", {sdk::attr_int("axis", axis)});
  } else {
    const auto s = std::span(x.sizes());
    const V flat =
        b.reshape(x, {b.product(s.first(static_cast<size_t>(axis))), b.product(s.subspan(static_cast<size_t>(axis)))});
    y = b.reshape(flat.call("softmax", {sdk::attr_int("axis", 1)}), x.sizes());
  }
  op.out(quantized(op, y, 3, op.in(0).dtype()));
}

void qlinear_reduce_mean(Op& op) {
  const V x = dequantized(op, 0);
  const Ints axes = op.axes(op.ints("axes", axes_from(0, x.rank())), x.rank());
  op.out(quantized(op, op.b.reduce("mean", x, axes, op.flag("keepdims", true)), 3, op.in(0).dtype()));
}

void qlinear_concat(Op& op) {
  op.expect(op.num_inputs() >= 5 && op.num_inputs() % 3 == 2,
            std::to_string(op.num_inputs()) + " inputs; expected 2 and 3 per tensor");
  std::vector<V> parts;
  for (size_t i = 2; i < op.num_inputs(); i += 3) parts.push_back(dequantized(op, i));
  op.out(quantized(op, op.b.concat(parts, op.axis(op.i("axis"), parts[0].rank())), 0, op.in(1).dtype()));
}

void qlinear_where(Op& op) {
  op.out(quantized(op, select(op.in(0), dequantized(op, 1), dequantized(op, 4)), 7, op.in(1).dtype()));
}

// The channels from the last dimension to the second, and back.
V channels_first(Build& b, const V& x) {
  Ints perm = axes_from(0, x.rank());
  std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
  return b.transpose(x, perm);
}
V channels_last(Build& b, const V& x) {
  Ints perm = axes_from(0, x.rank());
  std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return b.transpose(x, perm);
}

template <class Pool>
void qlinear_pool(Op& op, Pool pool) {
  op.expect(op.in(0).rank() >= 3, "an input of rank " + std::to_string(op.in(0).rank()));
  const bool last = op.flag("channels_last");
  const V x = dequantized(op, 0), y = pool(last ? channels_first(op.b, x) : x);
  op.out(quantized(op, last ? channels_last(op.b, y) : y, 3, op.in(0).dtype()));
}

void qlinear_average_pool(Op& op) {
  qlinear_pool(op, [&](const V& x) {
    const Window w = window(op, x, op.ints("kernel_shape"));
    return x.call("avg_pool", {sdk::attr_ints("kernel", w.kernel), sdk::attr_ints("strides", w.strides),
                               sdk::attr_ints("pad_low", w.low), sdk::attr_ints("pad_high", w.high),
                               sdk::attr_ints("dilations", w.dilations), sdk::attr_bool("ceil_mode", op.flag("ceil_mode")),
                               sdk::attr_bool("count_include_pad", op.flag("count_include_pad"))});
  });
}

void qlinear_global_average_pool(Op& op) {
  qlinear_pool(op, [&](const V& x) { return op.b.reduce("mean", x, axes_from(2, x.rank()), true); });
}

// sum(A - zero)(B - zero) scaled, as a float; the scale broadcasts along the columns of the product.
V scaled_product(Op& op, const V& product, const V& scale, const V& bias) {
  const V y = op.b.cast(product, TSR_F32) * scale;
  return bias ? y + bias : y;
}

// Per tensor, or per column of B.
V column_scale(Op& op, size_t i) {
  const V s = one_or_all(op.b, op.b.cast(op.in(i), TSR_F32));
  op.expect(s.rank() <= 1, "a scale of rank " + std::to_string(s.rank()));
  return s;
}

void matmul_integer_to_float(Op& op) {
  const V product = integer_product(op, op.in(0), op.in(1), op.opt(4), op.opt(5));
  const V y =
      scaled_product(op, product, scale_at(op, 2) * column_scale(op, 3), op.has(6) ? op.b.cast(op.in(6), TSR_F32) : V());
  op.out(op.b.cast(y, op.in(2).dtype()));
}

void dynamic_quantize_matmul(Op& op) {
  const Quantised a = quantize_dynamically(op, op.in(0));
  op.out(
      scaled_product(op, integer_product(op, a.values, op.in(1), a.zero, op.opt(3)), a.scale * column_scale(op, 2), op.opt(4)));
}

void qgemm(Op& op) {
  Build& b = op.b;
  const auto turned = [&](const V& v, const char* flag) {
    op.expect(v.rank() == 2, "an operand of rank " + std::to_string(v.rank()));
    return op.flag(flag) ? b.transpose(v, {1, 0}) : v;
  };
  V sum = integer_product(op, turned(op.in(0), "transA"), turned(op.in(3), "transB"), op.opt(2), op.opt(5));
  if (op.has(6)) sum = sum + op.in(6);
  const V y = b.cast(sum, TSR_F32) * (scale_at(op, 1) * column_scale(op, 4) * op.f("alpha", 1.0));
  op.out(op.has(7) ? quantized(op, y, 7, op.has(8) ? op.in(8).dtype() : op.in(0).dtype()) : y);
}

// Numbers of `bits` bits, the lowest first, out of the bytes of the last dimension.
V unpacked(Op& op, const V& bytes, int64_t bits) {
  Build& b = op.b;
  if (bits == 8) return b.cast(bytes, TSR_I32);
  Dims shifts, shape = bytes.sizes();
  for (int64_t i = 0; i < 8; i += bits) shifts.push_back(i);
  shape.back() = b.mul(shape.back(), 8 / bits);
  const V each = b.cast(b.expand(bytes, {bytes.rank()}), TSR_I32).call("shift_right", b.known(shifts, 1, TSR_I32));
  return b.reshape(each.call("bitwise_and", b.scalar(static_cast<double>((1 << bits) - 1), TSR_I32)), shape);
}

// A by the transpose of weights [N, K], which are stored in blocks along K: (number - zero point) * scale.
void matmul_n_bits(Op& op) {
  Build& b = op.b;
  const V a = op.in(0);
  const int64_t bits = op.i("bits", 4), n = op.i("N"), k = op.i("K"), block = op.i("block_size");
  op.expect(bits == 2 || bits == 4 || bits == 8, "attribute 'bits' is " + std::to_string(bits) + "; expected 2, 4 or 8");
  op.expect(n > 0 && k > 0 && block > 0 && n < INT32_MAX && k < INT32_MAX && block < INT32_MAX && block * bits % 8 == 0,
            "attributes 'N', 'K' or 'block_size' are not above 0");
  if (op.i("weight_prepacked", 0) != 0) op.unsupported("weights that are packed for one device");
  const int64_t blocks = (k + block - 1) / block;
  const auto bias = [&](const V& y) { return op.has(5) ? y + op.in(5) : y; };
  const Dims& packed = op.in(1).sizes();
  if (std::find(packed.begin(), packed.end(), 0) != packed.end()) {  // a projection that is left out
    Dims shape = a.sizes();
    shape.back() = n;
    return op.out(bias(b.full(0, a.dtype(), shape)));
  }
  const V weights =
      b.cast(unpacked(op, b.reshape(op.in(1), {n, blocks, block * bits / 8}), bits), a.dtype());  // [n, blocks, block]
  V scale = b.reshape(b.cast(op.in(2), a.dtype()), {n, blocks}),
    zero = b.scalar(static_cast<double>(1 << (bits - 1)), a.dtype());
  if (op.has(3) && op.in(3).dtype() == TSR_U8)
    zero = b.cast(b.slice(unpacked(op, b.reshape(op.in(3), {n, (blocks * bits + 7) / 8}), bits), 1, 0, blocks), a.dtype());
  else if (op.has(3))
    zero = b.reshape(b.cast(op.in(3), a.dtype()), {n, blocks});
  V values;
  if (op.has(4)) {  // the block of each row of K
    const V group = b.slice(op.in(4), 0, 0, k);
    if (zero.rank() != 0) zero = b.gather(zero, group, 1);
    values = (b.slice(b.reshape(weights, {n, blocks * block}), 1, 0, k) - zero) * b.gather(scale, group, 1);
  } else {
    if (zero.rank() != 0) zero = b.expand(zero, {2});
    values = b.slice(b.reshape((weights - zero) * b.expand(scale, {2}), {n, blocks * block}), 1, 0, k);
  }
  op.out(bias(b.dot(a, values, {a.rank() - 1}, {1})));
}

}  // namespace

std::span<const Record> microsoft_quantized_records() {
  static constexpr Record records[] = {
      {"com.microsoft", "QLinearAdd", qlinear_add},
      {"com.microsoft", "QLinearMul", qlinear_mul},
      {"com.microsoft", "QLinearLeakyRelu", qlinear_leaky_relu},
      {"com.microsoft", "QLinearSigmoid", qlinear_sigmoid},
      {"com.microsoft", "QLinearSoftmax", qlinear_softmax},
      {"com.microsoft", "QLinearReduceMean", qlinear_reduce_mean},
      {"com.microsoft", "QLinearConcat", qlinear_concat},
      {"com.microsoft", "QLinearWhere", qlinear_where},
      {"com.microsoft", "QLinearAveragePool", qlinear_average_pool},
      {"com.microsoft", "QLinearGlobalAveragePool", qlinear_global_average_pool},
      {"com.microsoft", "QGemm", qgemm},
      {"com.microsoft", "MatMulIntegerToFloat", matmul_integer_to_float},
      {"com.microsoft", "DynamicQuantizeMatMul", dynamic_quantize_matmul},
      {"com.microsoft", "MatMulNBits", matmul_n_bits},
  };
  return records;
}

}  // namespace tessera::onnx
