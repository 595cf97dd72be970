// SPDX-License-Identifier: Apache-2.0
// com.microsoft: activations, products and norms that exporters and graph optimisers fuse, as ONNX Runtime's
// ContribOperators.md documents them.
#include <algorithm>
#include <cmath>

#include "products.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_float;
using sdk::attr_int;

V gelu_of(const V& x, const char* approximate) { return x.call("gelu", {sdk::attr_string("approximate", approximate)}); }

void gelu(Op& op) { op.out(gelu_of(op.in(), "none")); }
void bias_gelu(Op& op) { op.out(gelu_of(op.in(0) + op.in(1), "none")); }
void fast_gelu(Op& op) { op.out(gelu_of(op.has(1) ? op.in(0) + op.in(1) : op.in(0), "tanh")); }

void quick_gelu(Op& op) {
  const V x = op.in();
  op.out(x * (x * op.f("alpha", 1.702f)).call("sigmoid"));
}

void fused_matmul(Op& op) {
  Build& b = op.b;
  // The batch flag moves the first dimension behind the other batch dimensions, in front of the matrix's last.
  const auto turned = [&](V v, bool batch, bool turn) {
    Ints perm = axes_from(0, v.rank());
    if (batch && v.rank() > 2) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
    if (turn && v.rank() > 1) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return b.transpose(v, perm);
  };
  const V y = b.matmul(turned(op.in(0), op.flag("transBatchA"), op.flag("transA")),
                       turned(op.in(1), op.flag("transBatchB"), op.flag("transB")));
  const double alpha = op.f("alpha", 1.0);
  op.out(alpha == 1 ? y : y * alpha);
}

void layer_normalization(Op& op) {
  const V x = op.in(0);
  op.out(op.b.op("layer_norm", {x, op.in(1), op.opt(2)},
                 {attr_int("axis", op.axis_attr("axis", -1, x.rank())), attr_float("eps", op.f("epsilon", 1e-5f))}));
}

// (input + skip + bias), normalised; output 3 is the sum.
template <bool Rms>
void skip_layer_normalization(Op& op) {
  V x = op.in(0) + op.in(1);
  const V bias = op.opt(Rms ? 3 : 4);
  if (bias) x = x + bias;
  const double eps = op.f("epsilon", 1e-12f);
  op.out(Rms ? op.b.op("rms_norm", {x, op.in(2)}, {attr_float("eps", eps)})
             : op.b.op("layer_norm", {x, op.in(2), op.opt(3)}, {attr_float("eps", eps)}),
         0);
  op.out(x, 3);
}

// Embeddings of words, positions and segments, summed and normalised; output 1 counts the ones in front of each row of the
// mask.
void embed_layer_normalization(Op& op) {
  Build& b = op.b;
  const V ids = op.in(0);
  const auto rows = [&](size_t table, const V& index) {
    const V n = b.dim(op.in(table).size(0), index.dtype());
    return b.gather(op.in(table), select(index < 0.0, index + n, index), 0);
  };
  const V position = op.has(8) ? op.in(8) : b.expand(b.range(ids.size(1)), {0});
  V x = rows(2, ids) + rows(3, position);
  if (op.has(1) && op.has(4)) x = x + rows(4, op.in(1));
  op.out(b.op("layer_norm", {x, op.in(5), op.in(6)}, {attr_float("eps", op.f("epsilon", 1e-12f))}), 0);
  const Ints last = {1};
  op.out(op.has(7) ? b.cast(b.sum(b.cast(op.in(7) == 1.0, TSR_I32), last), TSR_I32) : b.full(0, TSR_I32, {ids.size(0)}), 1);
  op.out(x, 2);
}

// What follows a fused convolution or product: the attributes name it and give its numbers.
V activated(Op& op, const V& y, const std::vector<double>& numbers) {
  const std::string_view name = op.s("activation", "");
  const auto number = [&](size_t i, double fallback) { return i < numbers.size() ? numbers[i] : fallback; };
  if (name.empty()) return y;
  if (name == "Relu") return y.call("relu");
  if (name == "Tanh") return y.call("tanh");
  if (name == "Sigmoid") return y.call("sigmoid");
  if (name == "LeakyRelu") return y.call("leaky_relu", {attr_float("slope", number(0, 0.01f))});
  if (name == "Clip")
    return op.b.op("clamp", {y, op.b.scalar(number(0, -HUGE_VAL), y.dtype()), op.b.scalar(number(1, HUGE_VAL), y.dtype())});
  if (name == "HardSigmoid")
    return y.call("hardsigmoid", {attr_float("alpha", number(0, 0.2f)), attr_float("beta", number(1, 0.5))});
  op.unsupported("activation '" + std::string(name) + "'");
}

void fused_conv(Op& op) {
  V y = conv_of(op, op.in(0), op.in(1), op.opt(2));
  if (op.has(3)) y = y + op.in(3);
  op.out(activated(op, y, op.reals("activation_params", std::vector<double>{})));
}

void fused_gemm(Op& op) {
  std::vector<double> numbers;
  for (const char* name : {"activation_alpha", "activation_beta"})
    if (op.has_attr(name)) numbers.push_back(op.f(name));
  op.out(activated(op, gemm_of(op, true), numbers));
}

}  // namespace

std::span<const Record> microsoft_records() {
  static constexpr Record records[] = {
      {"com.microsoft", "Gelu", gelu},
      {"com.microsoft", "BiasGelu", bias_gelu},
      {"com.microsoft", "FastGelu", fast_gelu},
      {"com.microsoft", "QuickGelu", quick_gelu},
      {"com.microsoft", "FusedMatMul", fused_matmul},
      {"com.microsoft", "LayerNormalization", layer_normalization},
      {"com.microsoft", "SkipLayerNormalization", skip_layer_normalization<false>},
      {"com.microsoft", "SkipSimplifiedLayerNormalization", skip_layer_normalization<true>},
      {"com.microsoft", "EmbedLayerNormalization", embed_layer_normalization},
      {"com.microsoft", "FusedConv", fused_conv},
      {"com.microsoft", "FusedGemm", fused_gemm},
  };
  return records;
}

}  // namespace tessera::onnx
