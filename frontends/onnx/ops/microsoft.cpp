// SPDX-License-Identifier: Apache-2.0
// com.microsoft: fused operators that exporters and graph optimisers leave behind, as far as ONNX Runtime's ContribOperators.md
// documents them.
#include <algorithm>
#include <cmath>

#include "attention.hpp"

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
  if (op.flag("transBatchA") || op.flag("transBatchB")) op.unsupported("transposed batch dimensions");
  const auto turned = [&](V v, bool turn) {
    if (!turn || v.rank() < 2) return v;
    Ints perm = axes_from(0, v.rank());
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return b.transpose(v, perm);
  };
  const V y = b.matmul(turned(op.in(0), op.flag("transA")), turned(op.in(1), op.flag("transB")));
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

// Self attention with packed projections: input [batch, sequence, hidden] by weights [hidden, 3 * hidden].
void attention(Op& op) {
  Build& b = op.b;
  if (op.has(4) || op.has(6)) op.unsupported("a past state", "export without a key-value cache");
  if (op.flag("do_rotary") || !op.ints("qkv_hidden_sizes", Ints{}).empty()) op.unsupported("do_rotary and qkv_hidden_sizes");
  const int64_t heads = op.i("num_heads");
  const V x = op.in(0);
  V all = b.matmul(x, op.in(1));
  if (op.has(2)) all = all + op.in(2);
  const tsr_dim hidden = b.floordiv(all.size(2), 3);
  const auto part = [&](int64_t i) { return split_heads(b, b.slice(all, 2, b.mul(hidden, i), b.mul(hidden, i + 1)), heads); };
  V mask;
  if (op.has(3)) {
    const V m = op.in(3);
    const tsr_dim S = x.size(1);
    if (m.rank() == 1)
      mask = b.iota({1, 1, 1, S}, 3) < b.reshape(b.cast(m, TSR_I64), {m.size(0), 1, 1, 1});  // lengths
    else if (m.rank() == 2)
      mask = b.expand(negated(m == 0.0), {1, 2});
    else if (m.rank() == 3)
      mask = b.expand(negated(m == 0.0), {1});
    else
      op.unsupported("a mask of rank " + std::to_string(m.rank()));
  }
  if (op.has(5)) {
    const V bias = op.in(5);
    mask = mask ? b.select(mask, bias, static_cast<double>(op.f("mask_filter_value", -10000.0))) : bias;
  }
  op.out(merge_heads(b, whole_attention(b, part(0), part(1), part(2), mask, op.f("scale", 0.0), op.flag("unidirectional"))));
}

// Separate projections [batch, sequence, hidden].
void multi_head_attention(Op& op) {
  Build& b = op.b;
  const int64_t heads = op.i("num_heads");
  if (!op.has(1) || !op.has(2) || op.in(0).rank() != 3 || op.in(1).rank() != 3)
    op.unsupported("packed queries, keys and values");
  if (op.has(6) || op.has(7)) op.unsupported("a past state", "export without a key-value cache");
  V q = op.in(0), k = op.in(1), v = op.in(2);
  if (op.has(3)) {
    const V bias = op.in(3);
    const tsr_dim n = q.size(2);
    q = q + b.slice(bias, 0, 0, n);
    k = k + b.slice(bias, 0, n, b.mul(n, 2));
    v = v + b.slice(bias, 0, b.mul(n, 2), bias.size(0));
  }
  V mask;
  if (op.has(4)) {
    const V m = op.in(4);
    if (m.rank() == 1)
      mask = b.iota({1, 1, 1, k.size(1)}, 3) < b.reshape(b.cast(m, TSR_I64), {m.size(0), 1, 1, 1});
    else
      mask = b.expand(negated(m == 0.0), m.rank() == 2 ? Ints{1, 2} : Ints{1});
  }
  if (op.has(5)) mask = mask ? b.select(mask, op.in(5), static_cast<double>(op.f("mask_filter_value", -10000.0))) : op.in(5);
  op.out(merge_heads(b, whole_attention(b, split_heads(b, q, heads), split_heads(b, k, heads), split_heads(b, v, heads), mask,
                                        op.f("scale", 0.0), op.flag("unidirectional"))));
}

// input, position_ids, cos_cache, sin_cache; heads apart already (rank 4) or packed.
void rotary_embedding(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  const V ids = op.in(1);
  if (op.i("rotary_embedding_dim", 0) != 0) op.unsupported("a partial rotation");
  if (ids.rank() != 2) op.unsupported("positions that count from an offset", "export with position_ids [batch, sequence]");
  const V cos = b.gather(op.in(2), ids, 0), sin = b.gather(op.in(3), ids, 0);  // [batch, sequence, size / 2]
  const bool flat = x.rank() == 3;
  if (flat) {
    op.expect(Build::is_number(cos.size(2)) && cos.size(2) > 0, "the cache has no columns");
    const tsr_dim size = b.mul(cos.size(2), 2);
    x = b.reshape(x, {x.size(0), x.size(1), b.floordiv(x.size(2), size), size});
  }
  const int64_t heads_axis = flat ? 2 : 1;
  const V y = rotate(b, x, b.expand(cos, {heads_axis}), b.expand(sin, {heads_axis}), op.flag("interleaved"));
  op.out(flat ? b.reshape(y, op.in(0).sizes()) : y);
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
      {"com.microsoft", "Attention", attention},
      {"com.microsoft", "MultiHeadAttention", multi_head_attention},
      {"com.microsoft", "RotaryEmbedding", rotary_embedding},
  };
  return records;
}

}  // namespace tessera::onnx
