// SPDX-License-Identifier: Apache-2.0
// The gradient of attention on matrix instructions, without scores in memory and without atomics (Dao 2023): one launch whose
// blocks keep 64 keys and walk over the queries that see them, for the gradients of keys and values, and one whose blocks keep
// 64 queries and walk over keys. Both compute the probabilities again, as exp(score - lse). So every sum has one order.
#include "attention_tiles.hpp"

namespace tessera::kit {
namespace {

class AttentionBackwardWriter : AttentionTiles {
 public:
  AttentionBackwardWriter(NodeWriter& w, bool vectors) : AttentionTiles(w, vectors, kQ, 4) {
    for (size_t d = 0; d + 2 < q_shape_.size(); ++d) {
      q_batch_ = p_.mul(q_batch_, q_shape_[d]);
      k_batch_ = p_.mul(k_batch_, k_shape_[d]);
    }
    if (const size_t rank = q_shape_.size(); rank > 2 && q_shape_[rank - 3] != k_shape_[rank - 3])
      group_ = *p_.as_number(q_shape_[rank - 3]) / *p_.as_number(k_shape_[rank - 3]);
  }

  void run() {
    keys_and_values();
    queries();
  }

 private:
  enum : uint32_t { kDy, kQ, kK, kV, kMask, kLse, kDelta };
  enum : uint32_t { kDq, kDk, kDv };

  void declare() {
    products_ = registers("s", Type::F32, kKeys / 8 * 4);
    others_ = registers("d", Type::F32, kKeys / 8 * 4);
    declare_tiles();
  }
  // Where lse and delta of a query of the current batch lie.
  Expr query_at(Expr query) { return p_.add(p_.mul(batch_, queries_), within(query, queries_)); }
  // What scores are taken less of: of a query that sees no key any number does, since its probabilities are 0.
  uint32_t base_of(uint32_t lse) { return b_.select(b_.binary(Op::Eq, lse, number(-kInfinity)), number(0), lse); }

  // Turns a score and the product dy v^T of a query and a key into the probability and the score's gradient.
  void differentiate(Expr place, Expr query, Expr key, uint32_t base, uint32_t delta, uint32_t more_seen) {
    const Score s = score(b_.load(products_, place), query, key);
    uint32_t p = exp(b_.binary(Op::Sub, s.value, base));
    if (const uint32_t seen = b_.both(s.seen, more_seen); seen != kNone) p = b_.select(seen, p, number(0));
    const uint32_t d = times(times(p, b_.binary(Op::Sub, b_.load(others_, place), delta)), number(scale_));
    b_.store(products_, place, p);
    b_.store(others_, place, d);
  }

  void keys_and_values() {
    b_.begin_launch();
    const Expr keys_batch = b_.begin(Bind::Grid, "b", k_batch_);
    tile_ = b_.begin(Bind::Grid, "b", b_.ceil_div(keys_, kRows));
    begin_threads();
    const uint32_t q_rows = row_tile("q_rows", depth_), q_pairs = pair_tile("q_pairs", depth_),
                   dy_rows = row_tile("dy_rows", width_), dy_pairs = pair_tile("dy_pairs", width_),
                   bases = b_.buffer("bases", Memory::Shared, Type::F32, p_.number(kKeys)),
                   deltas = b_.buffer("deltas", Memory::Shared, Type::F32, p_.number(kKeys));
    const uint32_t k = registers("k", type_, depth_ / 16 * 8), v = registers("v", type_, width_ / 16 * 8),
                   dk = registers("dk", Type::F32, depth_ / 8 * 4), dv = registers("dv", Type::F32, width_ / 8 * 4);
    declare();
    batch_ = b_.scaled(keys_batch, group_);
    load_own(kK, depth_, k);
    load_own(kV, width_, v);
    clear(dk, depth_ / 8 * 4);
    clear(dv, width_ / 8 * 4);

    batch_ = p_.add(b_.scaled(keys_batch, group_), b_.begin_unless_one(Bind::Serial, "g", p_.number(group_)));
    // A causal query sees no key behind it: tiles of queries before this one's keys give nothing.
    const Expr tiles = b_.ceil_div(queries_, kRows), skipped = causal_ ? p_.min(tile_, tiles) : kZero;
    const Expr j = b_.begin(Bind::Serial, "j", p_.sub(tiles, skipped));
    const Expr first = b_.scaled(p_.add(j, skipped), kRows);
    b_.barrier(BarrierScope::Block);
    fill(kQ, depth_, first, q_rows, q_pairs);
    fill(kDy, width_, first, dy_rows, dy_pairs);
    const bool opened = b_.begin_if(b_.below(thread_, p_.number(kRows)));
    const Expr mine = query_at(p_.add(first, thread_));
    b_.store(bases, thread_, base_of(b_.load(w_.input(kLse), mine)));
    b_.store(deltas, thread_, b_.load(w_.input(kDelta), mine));
    b_.end_if(opened);
    b_.barrier(BarrierScope::Block);
    multiply_rows(products_, k, q_rows, depth_);
    multiply_rows(others_, v, dy_rows, width_);
    const Expr n = b_.begin(Bind::Unroll, "n", p_.number(kRows / 8));
    for (int64_t e = 0; e < 4; ++e) {
      const Expr column = p_.add(b_.scaled(n, 8), p_.add(b_.scaled(pair_, 2), p_.number(e % 2)));
      const Expr query = p_.add(first, column);
      differentiate(at(n, 4, e), query, own_[e / 2], b_.load(bases, column), b_.load(deltas, column),
                    b_.below(query, queries_));
    }
    b_.end();
    multiply_pairs(dv, dy_pairs, width_, [&](Expr c, int64_t e) { return b_.load(products_, at(c, 8, e)); });
    multiply_pairs(dk, q_pairs, depth_, [&](Expr c, int64_t e) { return b_.load(others_, at(c, 8, e)); });
    b_.end();
    b_.end_unless_one();
    store_own(kDk, dk, keys_batch, keys_, depth_, nullptr);
    store_own(kDv, dv, keys_batch, keys_, width_, nullptr);
    for (int i = 0; i < 4; ++i) b_.end();
    b_.end_launch();
  }

  void queries() {
    b_.begin_launch();
    batch_ = b_.begin(Bind::Grid, "b", q_batch_);
    tile_ = b_.begin(Bind::Grid, "b", b_.ceil_div(queries_, kRows));
    begin_threads();
    const uint32_t k_rows = row_tile("k_rows", depth_), k_pairs = pair_tile("k_pairs", depth_),
                   v_rows = row_tile("v_rows", width_);
    const uint32_t q = registers("q", type_, depth_ / 16 * 8), dy = registers("dy", type_, width_ / 16 * 8),
                   dq = registers("dq", Type::F32, depth_ / 8 * 4);
    declare();
    load_own(kQ, depth_, q);
    load_own(kDy, width_, dy);
    clear(dq, depth_ / 8 * 4);
    uint32_t base[2], delta[2];
    for (int64_t r = 0; r < 2; ++r) {
      base[r] = base_of(b_.load(w_.input(kLse), query_at(own_[r])));
      delta[r] = b_.load(w_.input(kDelta), query_at(own_[r]));
    }
    Expr tiles = b_.ceil_div(keys_, kKeys);
    if (causal_) tiles = p_.min(tiles, p_.add(tile_, kOne));
    const Expr j = b_.begin(Bind::Serial, "j", tiles);
    const Expr first = b_.scaled(j, kKeys);
    b_.barrier(BarrierScope::Block);
    fill(kK, depth_, first, k_rows, k_pairs);
    fill(kV, width_, first, v_rows, kNone);
    b_.barrier(BarrierScope::Block);
    multiply_rows(products_, q, k_rows, depth_);
    multiply_rows(others_, dy, v_rows, width_);
    const Expr n = b_.begin(Bind::Unroll, "n", p_.number(kKeys / 8));
    for (int64_t e = 0; e < 4; ++e) {
      const Expr key = p_.add(p_.add(first, b_.scaled(n, 8)), p_.add(b_.scaled(pair_, 2), p_.number(e % 2)));
      differentiate(at(n, 4, e), own_[e / 2], key, base[e / 2], delta[e / 2], kNone);
    }
    b_.end();
    multiply_pairs(dq, k_pairs, depth_, [&](Expr c, int64_t e) { return b_.load(others_, at(c, 8, e)); });
    b_.end();
    store_own(kDq, dq, batch_, queries_, depth_, nullptr);
    for (int i = 0; i < 4; ++i) b_.end();
    b_.end_launch();
  }

  Expr q_batch_ = kOne, k_batch_ = kOne;
  int64_t group_ = 1;  // heads of queries that share a head of keys
  uint32_t products_ = 0, others_ = 0;
};

}  // namespace

void write_attention_backward(NodeWriter& w, bool vectors) { AttentionBackwardWriter(w, vectors).run(); }

}  // namespace tessera::kit
