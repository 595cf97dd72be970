// SPDX-License-Identifier: Apache-2.0
// com.microsoft: attention in the forms that ONNX Runtime's graph optimiser and its exporters write, as its ContribOperators.md
// documents them. Heads are [batch, heads, sequence, size].
#include <algorithm>
#include <cmath>

#include "attention.hpp"
#include "quantize.hpp"

namespace tessera::onnx {
namespace {

// Which keys a mask leaves, as a bool that broadcasts to [batch, heads, queries, keys]: a length per sample (or an end, then a
// begin, for each), or a number above 0 for each key, or for each query and key.
V visible_keys(Op& op, const V& mask, tsr_dim batch, tsr_dim queries, tsr_dim keys, tsr_dim past) {
  Build& b = op.b;
  const V m = b.cast(mask, TSR_I64);
  const auto per_sample = [&](const V& v) { return b.expand(v, {1, 2, 3}); };
  if (m.rank() == 1) {
    const V key = b.iota({1, 1, 1, keys}, 3);
    const tsr_dim length = m.size(0), twice = b.mul(batch, 2);
    if (Build::is_number(batch) && length == b.add(b.add(twice, batch), 2)) op.unsupported("a mask of lengths and their sums");
    if (length == batch) return key < per_sample(m);
    // Begins follow the ends, or nothing does: zeros behind them stand for no begins.
    const V all = length == twice ? m : b.concat({m, b.full(0, TSR_I64, {batch})}, 0);
    return both(key < per_sample(b.slice(all, 0, 0, batch)), key >= per_sample(b.slice(all, 0, batch, twice)));
  }
  const V left = m > 0.0;
  if (m.rank() == 2) return b.expand(left, {1, 2});
  if (m.rank() == 3) return b.expand(left, {1});
  op.expect(m.rank() == 4, "a mask of rank " + std::to_string(m.rank()));  // of the longest sequence there can be
  return b.slice(b.slice(left, 2, past, b.add(past, queries)), 3, 0, keys);
}

// Keys that the mask hides get `mask_filter_value` added to their scores, so that a query all of whose keys are hidden weighs
// them as if none were. What lies ahead of a query is never seen.
V attend(Op& op, const V& q, const V& k, const V& v, const V& mask, const V& attention_bias, tsr_dim past) {
  Build& b = op.b;
  const tsr_dim queries = q.size(2), keys = k.size(2);
  const bool causal = op.flag("unidirectional");
  V bias = attention_bias;
  if (mask) {
    const V filter = select(visible_keys(op, mask, q.size(0), queries, keys, past), b.scalar(0, q.dtype()),
                            b.scalar(op.f("mask_filter_value", -10000.0), q.dtype()));
    bias = bias ? bias + filter : filter;
  }
  const double scale = op.f("scale", 0.0);
  if (!causal || past == 0) return merge_heads(b, whole_attention(b, q, k, v, bias, scale, causal));
  const V seen = b.iota({1, keys}, 1) <= b.iota({queries, 1}, 0) + b.dim(past);
  return merge_heads(b, whole_attention(b, q, k, v, bias ? select(seen, bias, -HUGE_VAL) : seen, scale, false));
}

// Self attention of projections [batch, sequence, hidden + hidden + hidden of the values]; past and present state are [2,
// batch, heads, sequence, size].
void self_attention(Op& op, const V& projections, const V& mask, const V& past, const V& attention_bias) {
  Build& b = op.b;
  if (op.flag("do_rotary")) op.unsupported("do_rotary", "export with RotaryEmbedding before it");
  if (op.flag("past_present_share_buffer")) op.unsupported("a past state that shares its memory with the present one");
  const int64_t heads = op.i("num_heads");
  const Ints hidden = op.ints("qkv_hidden_sizes", Ints{});
  op.expect(heads > 0 && (hidden.empty() || hidden.size() == 3), "attributes 'num_heads' or 'qkv_hidden_sizes'");
  Dims sizes(hidden.begin(), hidden.end());
  if (sizes.empty()) sizes.assign(3, b.floordiv(projections.size(2), 3));
  std::vector<V> parts;
  tsr_dim at = 0;
  for (const tsr_dim n : sizes) {
    parts.push_back(split_heads(b, b.slice(projections, 2, at, b.add(at, n)), heads));
    at = b.add(at, n);
  }
  V k = parts[1], v = parts[2];
  tsr_dim before = 0;
  if (past) {
    before = past.size(3);
    k = b.concat({b.squeeze(b.slice(past, 0, 0, 1), {0}), k}, 2);
    v = b.concat({b.squeeze(b.slice(past, 0, 1, 2), {0}), v}, 2);
  }
  if (op.wants(1)) op.out(b.concat({b.expand(k, {0}), b.expand(v, {0})}, 0), 1);
  op.out(attend(op, parts[0], k, v, mask, attention_bias, before));
}

void attention(Op& op) {
  V all = op.b.matmul(op.in(0), op.in(1));
  if (op.has(2)) all = all + op.in(2);
  self_attention(op, all, op.opt(3), op.opt(4), op.opt(5));
}

void quantized_attention(Op& op) {
  Build& b = op.b;
  const V product = integer_product(op, op.in(0), op.in(1), op.opt(6), op.opt(7));
  const V scale = one_or_all(b, op.in(3)) * one_or_all(b, op.in(4));
  self_attention(op, b.cast(product, scale.dtype()) * scale + op.in(2), op.opt(5), op.opt(8), {});
}

// Queries, keys and values apart, or packed per head; keys and values may be heads already.
void multi_head_attention(Op& op) {
  Build& b = op.b;
  const int64_t heads = op.i("num_heads");
  op.expect(heads > 0, "attribute 'num_heads' is " + std::to_string(heads));
  if (op.has(8) || op.has(9)) op.unsupported("a past state that shares its memory with the present one");
  const V bias = op.opt(3);
  V q, k, v;
  const auto unpack = [&](const V& packed, int64_t i) {  // [batch, sequence, heads, parts, size]
    return b.transpose(b.squeeze(b.slice(packed, 3, i, i + 1), {3}), {0, 2, 1, 3});
  };
  // Each part of the bias before its heads are split.
  const V query = op.in(0);
  if (query.rank() == 5) {
    q = unpack(query, 0), k = unpack(query, 1), v = unpack(query, 2);
  } else {
    op.expect(query.rank() == 3, "a query of rank " + std::to_string(query.rank()));
    q = split_heads(b, query, heads);
    if (op.in(1).rank() == 5) {
      k = unpack(op.in(1), 0), v = unpack(op.in(1), 1);
    } else {
      const auto as_heads = [&](const V& x) { return x.rank() == 4 ? x : split_heads(b, x, heads); };
      k = as_heads(op.in(1)), v = as_heads(op.in(2));
    }
  }
  if (bias) {  // [heads * size of queries, of keys, of values]
    tsr_dim at = 0;
    for (V* part : {&q, &k, &v}) {
      const tsr_dim size = part->size(3), n = b.mul(size, heads);
      *part = *part + b.reshape(b.slice(bias, 0, at, b.add(at, n)), {heads, 1, size});
      at = b.add(at, n);
    }
  }
  tsr_dim past = 0;
  if (op.has(6)) {
    past = op.in(6).size(2);
    k = b.concat({op.in(6), k}, 2);
    v = b.concat({op.in(7), v}, 2);
  }
  op.out(k, 1);
  op.out(v, 2);
  op.out(attend(op, q, k, v, op.opt(4), op.opt(5), past));
}

// The front of the last dimension rotated; cos and sin broadcast.
V rotate_front(Build& b, const V& x, const V& cos, const V& sin, bool interleaved) {
  const tsr_dim rotated = b.mul(cos.size(-1), 2), size = x.size(-1);
  if (rotated == size) return rotate(b, x, cos, sin, interleaved);
  const int64_t last = x.rank() - 1;
  return b.concat({rotate(b, b.slice(x, last, 0, rotated), cos, sin, interleaved), b.slice(x, last, rotated, size)}, last);
}

// input, position_ids, cos_cache, sin_cache; heads apart already (rank 4) or packed.
void rotary_embedding(Op& op) {
  Build& b = op.b;
  V x = op.in(0), ids = op.in(1);
  if (op.flag("is_packed_batching")) op.unsupported("packed batches");
  const bool flat = x.rank() == 3;
  op.expect(flat || x.rank() == 4, "an input of rank " + std::to_string(x.rank()));
  const tsr_dim half = op.in(2).size(1);
  if (flat) {
    const int64_t heads = op.i("num_heads", 0);
    tsr_dim size = b.mul(half, 2);
    if (heads > 0) size = b.floordiv(x.size(2), heads);
    op.expect(!Build::is_number(size) || size > 0, "the cache has no columns");
    x = b.reshape(x, {x.size(0), x.size(1), b.floordiv(x.size(2), size), size});
  } else {
    x = b.transpose(x, {0, 2, 1, 3});
  }
  if (ids.rank() == 1) ids = b.expand(ids + b.range(x.size(1)), {0});  // one position, from which all count
  const V cos = b.expand(b.gather(op.in(2), ids, 0), {2}), sin = b.expand(b.gather(op.in(3), ids, 0), {2});
  const V y = rotate_front(b, x, cos, sin, op.flag("interleaved"));
  op.out(flat ? b.reshape(y, op.in(0).sizes()) : b.transpose(y, {0, 2, 1, 3}));
}

// Grouped queries over a cache of keys and values. A sample has seqlens_k + 1 tokens after this step; what is new follows what
// it had.
class GroupQuery {
 public:
  explicit GroupQuery(Op& op) : op_(op), b_(op.b) {}

  void run() {
    check();
    V q, k, v;
    heads(&q, &k, &v);
    const tsr_dim batch = q.size(0), length = q.size(2), total = op_.size(6);
    tokens_ = b_.cast(b_.reshape(op_.in(5), {batch}), TSR_I64) + 1.0;  // [batch]
    // The first prompt begins at 0, though shorter samples are padded behind.
    const V before = b_.proven(TSR_EQ, length, total)
                         ? b_.full(0, TSR_I64, {batch})
                         : select(b_.dim(length) == b_.dim(total), b_.integer(0), tokens_ - b_.dim(length));
    const V position = b_.expand(before, {1}) + b_.iota({1, length}, 1);  // [batch, length]
    if (op_.flag("do_rotary")) {
      const V at = op_.has(9) ? op_.in(9) : position;
      const V cos = b_.expand(b_.gather(op_.in(7), at, 0), {1}), sin = b_.expand(b_.gather(op_.in(8), at, 0), {1});
      const bool interleaved = op_.flag("rotary_interleaved");
      q = rotate_front(b_, q, cos, sin, interleaved);
      k = rotate_front(b_, k, cos, sin, interleaved);
    }
    k = cached(op_.opt(3), k, position, total);
    v = cached(op_.opt(4), v, position, total);
    op_.out(k, 1);
    op_.out(v, 2);
    op_.out(merge_heads(b_, attend(q, k, v, position, total)));
  }

 private:
  void check() {
    if (op_.s("k_quant_type", "NONE") != "NONE" || op_.s("v_quant_type", "NONE") != "NONE")
      op_.unsupported("a quantised cache");
    if (op_.flag("sliding_window_cache")) op_.unsupported("a cache of one window's size");
    if (op_.has(14) || op_.has(15))
      op_.unsupported("norms of queries and keys", "export with SimplifiedLayerNormalization before it");
    if (op_.has(16)) op_.unsupported("padded chunks of queries (query_seqlens)");
    if (op_.has(3) != op_.has(4)) op_.fail(kNode, "one of past_key and past_value is missing");
  }

  void heads(V* q, V* k, V* v) {
    const int64_t own = op_.i("num_heads"), shared = op_.i("kv_num_heads");
    op_.expect(own > 0 && shared > 0 && own % shared == 0, "attributes 'num_heads' and 'kv_num_heads' do not fit");
    V all = op_.in(0);
    if (op_.has(1)) {
      *q = split_heads(b_, all, own);
      *k = split_heads(b_, op_.in(1), shared);
      *v = split_heads(b_, op_.in(2), shared);
      return;
    }
    all = split_heads(b_, all, own + 2 * shared);  // packed
    *q = b_.slice(all, 1, 0, own);
    *k = b_.slice(all, 1, own, own + shared);
    *v = b_.slice(all, 1, own + shared, own + 2 * shared);
  }

  // The cache, as long as it was or as all tokens are, with what is new at its positions.
  V cached(const V& past, const V& fresh, const V& position, tsr_dim total) {
    Dims shape = fresh.sizes();
    V cache;
    if (past) {
      shape[2] = b_.max(past.size(2), total);
      Dims behind(4, 0);
      behind[2] = b_.sub(shape[2], past.size(2));
      cache = b_.pad(past, Dims(4, 0), behind);
    } else {
      if (fresh.size(2) == total) return fresh;
      shape[2] = total;
      cache = b_.full(0, fresh.dtype(), shape);
    }
    const V at = b_.broadcast(b_.expand(position, {1, 3}), fresh.sizes());
    return b_.op("scatter", {cache, at, fresh}, {sdk::attr_int("axis", 2)});
  }

  V attend(const V& q, const V& k, const V& v, const V& position, tsr_dim total) {
    const tsr_dim keys = k.size(2);
    const V key = b_.iota({1, 1, 1, keys}, 3), at = b_.expand(position, {1, 3});  // [batch, 1, length, 1]
    V seen = op_.flag("causal", true) ? key <= at : key < b_.expand(tokens_, {1, 2, 3});
    if (const int64_t window = op_.i("local_window_size", -1); window >= 0)
      seen = both(seen, key > at - static_cast<double>(window));
    V bias = op_.opt(10);
    if (bias && bias.size(3) != keys) {
      Dims behind(4, 0);
      behind[3] = b_.sub(keys, total);
      bias = b_.pad(bias, Dims(4, 0), behind);
    }
    const double cap = op_.f("softcap", 0.0), scale = op_.f("scale", 0.0);
    const bool smooth = op_.i("smooth_softmax", -1) > 0;
    if (cap == 0 && !smooth && !op_.has(11))
      return whole_attention(b_, q, k, v, bias ? select(seen, bias, -HUGE_VAL) : seen, scale, false);

    const tsr_dtype t = q.dtype(), wide = Build::wide(t);
    op_.expect(scale != 0 || Build::is_number(q.size(3)), "the head size is symbolic and there is no scale");
    const double factor = scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
    V scores = b_.matmul(b_.cast(q, wide), b_.transpose(b_.cast(repeat_heads(b_, k, q.size(1)), wide), {0, 1, 3, 2})) * factor;
    if (cap > 0) scores = (scores / cap).call("tanh") * cap;
    if (bias) scores = scores + b_.cast(bias, wide);
    scores = select(seen, scores, -HUGE_VAL);
    // A score without a value, which only takes from the weights of the others: per head, or 0.
    const bool sink = smooth || op_.has(11);
    if (sink) {
      const V extra =
          op_.has(11) ? b_.reshape(b_.cast(op_.in(11), wide), {1, q.size(1), 1, 1}) : b_.full(0, wide, {1, 1, 1, 1});
      scores = b_.concat({scores, b_.broadcast(extra, {q.size(0), q.size(1), q.size(2), 1})}, 3);
    }
    V weights = scores.call("softmax", {sdk::attr_int("axis", 3)});
    if (sink) weights = b_.slice(weights, 3, 0, keys);
    return b_.matmul(b_.cast(weights, t), repeat_heads(b_, v, q.size(1)));
  }

  Op& op_;
  Build& b_;
  V tokens_;
};

void group_query_attention(Op& op) { GroupQuery(op).run(); }

}  // namespace

std::span<const Record> microsoft_attention_records() {
  static constexpr Record records[] = {
      {"com.microsoft", "Attention", attention},
      {"com.microsoft", "QAttention", quantized_attention},
      {"com.microsoft", "MultiHeadAttention", multi_head_attention},
      {"com.microsoft", "GroupQueryAttention", group_query_attention},
      {"com.microsoft", "RotaryEmbedding", rotary_embedding},
  };
  return records;
}

}  // namespace tessera::onnx
