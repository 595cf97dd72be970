// SPDX-License-Identifier: Apache-2.0
// Attention in its forms. What the op set's `attention` says stays whole; soft caps, score outputs, windows and cache lengths
// per sample are written out between the two products.
#include <algorithm>
#include <cmath>

#include "../importer.hpp"
#include "attention.hpp"

namespace tessera::onnx {

V split_heads(Build& b, const V& v, int64_t heads) {
  return b.transpose(b.reshape(v, {v.size(0), v.size(1), heads, b.floordiv(v.size(2), heads)}), {0, 2, 1, 3});
}

V merge_heads(Build& b, const V& v) {
  return b.reshape(b.transpose(v, {0, 2, 1, 3}), {v.size(0), v.size(2), b.mul(v.size(1), v.size(3))});
}

V whole_attention(Build& b, const V& q, const V& k, const V& v, const V& mask, double scale, bool causal) {
  return b.op("attention", {q, k, v, mask}, {sdk::attr_float("scale", scale), sdk::attr_bool("causal", causal)});
}

V repeat_heads(Build& b, const V& v, tsr_dim heads) {
  if (v.size(1) == heads) return v;
  const tsr_dim each = b.floordiv(heads, v.size(1));
  const V wide = b.broadcast(b.expand(v, {2}), {v.size(0), v.size(1), each, v.size(2), v.size(3)});
  return b.reshape(wide, {v.size(0), heads, v.size(2), v.size(3)});
}

namespace {

void attention(Op& op) {
  Build& b = op.b;
  V q = op.in(0), k = op.in(1), v = op.in(2), mask = op.opt(3);
  const bool flat = q.rank() == 3;
  if (flat) {
    q = split_heads(b, q, op.i("q_num_heads"));
    k = split_heads(b, k, op.i("kv_num_heads"));
    v = split_heads(b, v, op.i("kv_num_heads"));
  }
  op.expect(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "inputs Q, K and V have rank 3 or 4");
  tsr_dim past = 0;
  if (op.has(4)) {
    past = op.in(4).size(2);
    k = b.concat({op.in(4), k}, 2);
    v = b.concat({op.in(5), v}, 2);
  }
  op.out(k, 1);
  op.out(v, 2);
  const tsr_dim L = q.size(2), S = k.size(2);
  const V lengths = op.has(6) ? b.reshape(b.cast(op.in(6), TSR_I64), {q.size(0), 1, 1, 1}) : V();
  const bool causal = op.flag("is_causal");
  const int64_t left = op.i("left_window_size", -1), right = op.i("right_window_size", -1);
  const double cap = op.f("softcap", 0.0);
  const double scale = op.has_attr("scale") ? op.f("scale") : 0.0;
  // Keys behind the end of the mask are masked. That holds for a length of 1 too, which is not broadcast: so the operator's
  // reference implementation does it, and a symbolic length could not be both.
  if (mask && mask.size(-1) != S) {
    Dims low(mask.sizes().size(), 0), high = low;
    high.back() = b.sub(S, mask.size(-1));
    mask = b.pad(mask, low, high, "constant", b.scalar(mask.dtype() == TSR_BOOL ? 0 : -HUGE_VAL, mask.dtype()));
  }
  if (!lengths && left < 0 && right < 0 && cap == 0 && !op.wants(3) && past == 0 && !op.has_attr("softmax_precision") &&
      (!mask || mask.dtype() == TSR_BOOL || mask.dtype() == q.dtype())) {
    const V y = whole_attention(b, q, k, v, mask, scale, causal);
    return op.out(flat ? merge_heads(b, y) : y);
  }

  // Which keys a query may see: nothing where every key may.
  V allowed;
  const auto also = [&](const V& c) { allowed = allowed ? both(allowed, c) : c; };
  if (causal || left >= 0 || right >= 0) {
    V at = b.iota({L, 1}, 0);
    if (lengths && !op.has(4))
      at = at + (lengths - b.dim(L));
    else if (past != 0)
      at = at + b.dim(past);
    const V key = b.iota({1, S}, 1);
    if (causal) also(key <= at);
    if (left >= 0) also(key >= at - static_cast<double>(left));
    if (right >= 0) also(key <= at + static_cast<double>(right));
  }
  if (lengths) also(b.iota({1, S}, 1) < lengths);
  const tsr_dtype t = q.dtype();
  V bias;
  if (mask && mask.dtype() == TSR_BOOL)
    also(mask);
  else if (mask)
    bias = mask;

  const tsr_dtype wide = Build::wide(t);
  double factor = scale;
  V keys = b.cast(repeat_heads(b, k, q.size(1)), wide);
  const V queries = b.cast(q, wide);
  if (factor == 0) {
    op.expect(Build::is_number(q.size(3)) || op.has_attr("scale"), "the head size is symbolic and there is no scale");
    factor = 1 / std::sqrt(static_cast<double>(q.size(3)));
  }
  V scores = b.matmul(queries, b.transpose(keys, {0, 1, 3, 2})) * factor;
  const int64_t mode = op.i("qk_matmul_output_mode", 0);
  if (mode == 0) op.out(b.cast(scores, t), 3);
  if (cap > 0) scores = (scores / cap).call("tanh") * cap;
  if (mode == 1) op.out(b.cast(scores, t), 3);
  if (bias) scores = scores + b.cast(bias, wide);
  if (allowed) scores = select(allowed, scores, -HUGE_VAL);
  if (mode == 2) op.out(b.cast(scores, t), 3);
  const tsr_dtype precision =
      op.has_attr("softmax_precision") ? dtype_of(static_cast<DataType>(op.i("softmax_precision"))) : wide;
  op.expect(is_float(precision), "attribute 'softmax_precision' is no float type");
  V p = b.cast(scores, precision);
  // A query that sees no key gives 0, where softmax alone would give NaN.
  const Ints last = {3};
  const V blind = allowed || bias ? b.reduce("reduce_max", p, last, true) == -HUGE_VAL : V();
  p = p.call("softmax", {sdk::attr_int("axis", 3)});
  if (blind) p = select(blind, 0.0, p);
  p = b.cast(p, t);
  if (mode == 3) op.out(p, 3);
  const V y = b.matmul(p, repeat_heads(b, v, q.size(1)));
  op.out(flat ? merge_heads(b, y) : y);
}

// Su et al., RoFormer, 2021: pairs of elements are rotated by an angle that grows with the position.
void rotary_embedding(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  const bool flat = x.rank() == 3;
  if (flat) {
    const int64_t heads = op.i("num_heads", 0);
    op.expect(heads > 0, "attribute 'num_heads' is needed for an input of rank 3");
    x = b.reshape(x, {x.size(0), x.size(1), heads, b.floordiv(x.size(2), heads)});
  } else {
    x = b.transpose(x, {0, 2, 1, 3});  // [batch, sequence, heads, head size]
  }
  const tsr_dim size = x.size(3);
  tsr_dim rotated = op.i("rotary_embedding_dim", 0);
  if (rotated == 0) rotated = size;
  V cos = op.in(1), sin = op.in(2);
  if (op.has(3)) {
    cos = b.gather(cos, op.in(3), 0);
    sin = b.gather(sin, op.in(3), 0);
  }
  const V c = b.expand(cos, {2}), sn = b.expand(sin, {2});
  const bool interleaved = op.flag("interleaved");
  const V whole = rotated == size
                      ? rotate(b, x, c, sn, interleaved)
                      : b.concat({rotate(b, b.slice(x, 3, 0, rotated), c, sn, interleaved), b.slice(x, 3, rotated, size)}, 3);
  op.out(flat ? b.reshape(whole, op.in(0).sizes()) : b.transpose(whole, {0, 2, 1, 3}));
}

// One step after another: S is the state [batch, kv heads, key size, value size].
void linear_attention(Op& op) {
  Build& b = op.b;
  const int64_t q_heads = op.i("q_num_heads"), heads = op.i("kv_num_heads");
  op.expect(heads > 0 && q_heads > 0 && q_heads % heads == 0, "attributes 'q_num_heads' and 'kv_num_heads' do not fit");
  const std::string rule(op.s("update_rule", "gated_delta"));
  const bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
  const tsr_dtype t = op.in(0).dtype(), wide = Build::wide(t);
  // [batch, sequence, heads, size], the sequence in front for the scan.
  const auto steps = [&](const V& v, int64_t h) {
    return b.transpose(b.reshape(b.cast(v, wide), {v.size(0), v.size(1), h, b.floordiv(v.size(2), h)}), {1, 0, 2, 3});
  };
  const V q = steps(op.in(0), q_heads), k = steps(op.in(1), heads), v = steps(op.in(2), heads);
  const tsr_dim batch = q.size(1), dk = k.size(3), dv = v.size(3);
  const int64_t group = q_heads / heads;
  double scale = op.f("scale", 0.0);
  if (scale == 0) {
    op.expect(Build::is_number(dk), "the head size is symbolic and there is no scale");
    scale = 1 / std::sqrt(static_cast<double>(dk));
  }
  const V start = op.has(3) ? b.cast(op.in(3), wide) : b.full(0, wide, {batch, heads, dk, dv});
  std::vector<V> args = {start, q, k, v};
  size_t decay_at = 0, beta_at = 0;
  if (gated) {
    decay_at = args.size();
    args.push_back(steps(op.in(4), heads));  // [seq, batch, heads, dk or 1]
  }
  if (delta) {
    beta_at = args.size();
    const V beta = op.in(5);
    args.push_back(Build::is_number(beta.size(2)) && beta.size(2) == 1 ? steps(beta, 1)
                                                                       : steps(beta, heads));  // [seq, batch, heads or 1, 1]
  }
  std::vector<tsr_type> types = b.types_of(args);
  for (size_t i = 1; i < args.size(); ++i) {
    --types[i].rank;
    ++types[i].sizes;
  }
  const tsr_id body = b.make_region(types, [&](std::span<const V> in) {
    V s = in[0];
    const V qt = in[1], kt = in[2], vt = in[3];
    if (gated) s = s * b.expand(in[decay_at].call("exp"), {3});
    V value = vt;
    if (delta) {
      const V seen = b.squeeze(b.matmul(b.expand(kt, {2}), s), {2});  // k^T S: [batch, heads, dv]
      value = (vt - seen) * in[beta_at];
    }
    s = s + b.expand(kt, {3}) * b.expand(value, {2});
    const V grouped = b.reshape(qt, {batch, heads, group, dk});
    return std::vector<V>{s, b.reshape(b.matmul(grouped, s) * scale, {batch, b.mul(q_heads, dv)})};
  });
  const tsr_id regions[] = {body};
  const tsr_attr attrs[] = {sdk::attr_int("carried", 1), sdk::attr_int("scanned", static_cast<int64_t>(args.size()) - 1),
                            sdk::attr_dim("length", q.size(0))};
  const auto r = b.ops("scan", args, attrs, regions);
  op.out(b.cast(b.transpose(r[1], {1, 0, 2}), t), 0);
  op.out(b.cast(r[0], op.has(3) ? op.in(3).dtype() : t), 1);
}

// The score and probability functions are graphs of their own, put between the products.
void flex_attention(Op& op) {
  Build& b = op.b;
  const V q = op.in(0);
  const V k = repeat_heads(b, op.in(1), q.size(1)), v = repeat_heads(b, op.in(2), q.size(1));
  const tsr_dtype precision =
      op.has_attr("softmax_precision") ? dtype_of(static_cast<DataType>(op.i("softmax_precision"))) : Build::wide(q.dtype());
  op.expect(is_float(precision), "attribute 'softmax_precision' is no float type");
  double scale = op.has_attr("scale") ? op.f("scale") : 0;
  if (scale == 0) {
    op.expect(Build::is_number(q.size(3)), "the head size is symbolic and there is no scale");
    scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  }
  V p = b.matmul(b.cast(q, precision), b.transpose(b.cast(k, precision), {0, 1, 3, 2})) * scale;
  const auto through = [&](const char* name, const V& x) {
    const V in[] = {x};
    const auto out = op.importer.inline_graph(op.graph(name), in);
    op.expect(out.size() == 1,
              std::string("graph '") + name + "' gives " + std::to_string(out.size()) + " values; expected one");
    return out[0];
  };
  if (op.has_attr("score_mod")) p = through("score_mod", p);
  p = p.call("softmax", {sdk::attr_int("axis", 3)});
  if (op.has_attr("prob_mod")) p = through("prob_mod", p);
  op.out(b.cast(b.matmul(p, b.cast(v, precision)), q.dtype()));
}

}  // namespace

V rotate(Build& b, const V& x, const V& cos, const V& sin, bool interleaved) {
  const tsr_dim n = x.size(-1), half = b.floordiv(n, 2);
  const int64_t last = x.rank() - 1;
  const V even = interleaved ? b.slice(x, last, 0, n, 2) : b.slice(x, last, 0, half);
  const V odd = interleaved ? b.slice(x, last, 1, n, 2) : b.slice(x, last, half, n);
  const V re = even * cos - odd * sin, im = even * sin + odd * cos;
  if (!interleaved) return b.concat({re, im}, last);
  return b.reshape(b.concat({b.expand(re, {last + 1}), b.expand(im, {last + 1})}, last + 1), x.sizes());
}

std::span<const Record> attention_records() {
  static constexpr Record records[] = {
      {"", "Attention", attention},
      {"", "RotaryEmbedding", rotary_embedding},
      {"", "LinearAttention", linear_attention},
      {"ai.onnx.preview", "FlexAttention", flex_attention},
  };
  return records;
}

}  // namespace tessera::onnx
