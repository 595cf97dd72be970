// SPDX-License-Identifier: Apache-2.0
// Attention in one pass over the keys, on matrix instructions (Dao 2023): a wave keeps 16 queries, their running maxima and
// sums and the weighted values in registers, while tiles of keys and values come through shared memory. Scores never reach
// memory.
//
// A row's maximum grows from tile to tile; what was summed before is scaled by exp(old - new). Probabilities are rounded to the
// operands' type before they meet the values, and divided by their sum behind that product.
#include "attention_tiles.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::kit {
namespace {

// The sizes of a mask's dimension are those of the scores, or 1.
bool mask_broadcasts(const sdk::Type& mask, std::span<const tsr_dim> to) {
  const auto sizes = mask.sizes();
  if (sizes.size() > to.size()) return false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const tsr_dim size = sizes[sizes.size() - 1 - d];
    if (size != 1 && size != to[to.size() - 1 - d]) return false;
  }
  return true;
}

class AttentionWriter : AttentionTiles {
 public:
  AttentionWriter(NodeWriter& w, bool vectors) : AttentionTiles(w, vectors, 0, 3) {}

  void run() {
    b_.begin_launch();
    Expr batch = kOne;
    for (size_t d = 0; d + 2 < q_shape_.size(); ++d) batch = p_.mul(batch, q_shape_[d]);
    batch_ = b_.begin(Bind::Grid, "b", batch);
    tile_ = b_.begin(Bind::Grid, "b", b_.ceil_div(queries_, kRows));
    begin_threads();
    declare();
    load_own(0, depth_, q_);

    Expr tiles = b_.ceil_div(keys_, kKeys);
    if (causal_) tiles = p_.min(tiles, p_.add(tile_, kOne));  // kRows == kKeys
    const Expr j = b_.begin(Bind::Serial, "j", tiles);
    const Expr first = b_.scaled(j, kKeys);
    b_.barrier(BarrierScope::Block);
    fill(1, depth_, first, shared_keys_, kNone);
    fill(2, width_, first, kNone, shared_values_);
    b_.barrier(BarrierScope::Block);
    multiply_rows(scores_, q_, shared_keys_, depth_);
    mask(first);
    multiply_values();
    b_.end();

    store();
    for (int i = 0; i < 4; ++i) b_.end();
    b_.end_launch();
  }

 private:
  uint32_t greater(uint32_t a, uint32_t b) { return b_.select(b_.binary(Op::Gt, b, a), b, a); }

  void declare() {
    shared_keys_ = row_tile("keys", depth_);
    shared_values_ = pair_tile("values", width_);
    q_ = registers("q", type_, depth_ / 16 * 8);
    scores_ = registers("s", Type::F32, kKeys / 8 * 4);
    sums_ = registers("o", Type::F32, width_ / 8 * 4);
    declare_tiles();
    greatest_ = registers("m", Type::F32, 2);
    total_ = registers("t", Type::F32, 2);
    for (int64_t r = 0; r < 2; ++r) {
      b_.store(greatest_, p_.number(r), number(-kInfinity));
      b_.store(total_, p_.number(r), number(0));
    }
    clear(sums_, width_ / 8 * 4);
  }

  // Scales and masks the scores, and takes their greatest into the rows' maxima.
  void mask(Expr first) {
    for (int64_t r = 0; r < 2; ++r) before_[r] = b_.load(greatest_, p_.number(r));
    const Expr n = b_.begin(Bind::Unroll, "n", p_.number(kKeys / 8));
    for (int64_t e = 0; e < 4; ++e) {
      const int64_t r = e / 2;
      const Expr key = p_.add(p_.add(first, b_.scaled(n, 8)), p_.add(b_.scaled(pair_, 2), p_.number(e % 2)));
      const Score made = score(b_.load(scores_, at(n, 4, e)), own_[r], key);
      const uint32_t s = made.seen == kNone ? made.value : b_.select(made.seen, made.value, number(-kInfinity));
      b_.store(scores_, at(n, 4, e), s);
      b_.store(greatest_, p_.number(r), greater(b_.load(greatest_, p_.number(r)), s));
    }
    b_.end();
    for (int64_t r = 0; r < 2; ++r) {
      uint32_t m = b_.load(greatest_, p_.number(r));
      for (const int64_t bits : {1, 2}) m = greater(m, b_.shuffle_xor(m, bits));
      b_.store(greatest_, p_.number(r), m);
      // A row that has seen no key: any number does, since all of its exponentials are 0.
      subtract_[r] = b_.select(b_.binary(Op::Eq, m, number(-kInfinity)), number(0), m);
      shrink_[r] = exp(b_.binary(Op::Sub, before_[r], subtract_[r]));
      b_.store(total_, p_.number(r), times(b_.load(total_, p_.number(r)), shrink_[r]));
    }
  }

  void multiply_values() {
    const Expr c = b_.begin(Bind::Unroll, "c", p_.number(width_ / 8));
    for (int64_t e = 0; e < 4; ++e) b_.store(sums_, at(c, 4, e), times(b_.load(sums_, at(c, 4, e)), shrink_[e / 2]));
    b_.end();
    multiply_pairs(sums_, shared_values_, width_, [&](Expr k, int64_t e) {
      const int64_t r = e / 2 % 2;
      const uint32_t v = exp(b_.binary(Op::Sub, b_.load(scores_, at(k, 8, e)), subtract_[r]));
      b_.store(total_, p_.number(r), b_.binary(Op::Add, b_.load(total_, p_.number(r)), v));
      return v;
    });
  }

  void store() {
    uint32_t by[2], total[2];
    for (int64_t r = 0; r < 2; ++r) {
      uint32_t t = b_.load(total_, p_.number(r));
      for (const int64_t bits : {1, 2}) t = b_.binary(Op::Add, t, b_.shuffle_xor(t, bits));
      total[r] = t;
      by[r] = b_.select(b_.binary(Op::Eq, t, number(0)), number(0), b_.binary(Op::Div, number(1), t));
    }
    store_own(0, sums_, batch_, queries_, width_, by);
    if (w_.node.num_results() == 1) return;
    // The logarithm of the sum of the exponentials; of no key at all it is -inf, as that of 0 is.
    for (int64_t r = 0; r < 2; ++r) {
      if (p_.nonnegative(p_.sub(own_[r], queries_))) continue;
      const uint32_t first = b_.binary(Op::Eq, b_.index(pair_), b_.index(kZero));  // the four lanes of a row agree
      const bool opened = b_.begin_if(b_.both(first, b_.below(own_[r], queries_)));
      const uint32_t lse = b_.binary(Op::Add, b_.load(greatest_, p_.number(r)), call("log_f32", total[r]));
      b_.store(w_.output(1), p_.add(p_.mul(batch_, queries_), own_[r]), lse);
      b_.end_if(opened);
    }
  }

  uint32_t shared_keys_ = 0, shared_values_ = 0, q_ = 0, scores_ = 0, sums_ = 0, greatest_ = 0, total_ = 0;
  uint32_t before_[2] = {}, subtract_[2] = {}, shrink_[2] = {};
};

}  // namespace

std::string why_no_attention(sdk::Node n, const GpuDescription& device) {
  const bool backward = n.is("attention_backward");
  const uint32_t first = backward ? 1 : 0;  // behind dy
  if (!device.mma) return "there is no matrix instruction for attention";
  const sdk::Type q = n.operand(first).type(), k = n.operand(first + 1).type(), v = n.operand(first + 2).type();
  if (q.dtype() != TSR_BF16 && q.dtype() != TSR_F16)
    return "matrix instructions for attention are not used for " + std::string(dtype_name(q.dtype()));
  const auto known = [](tsr_dim d, int64_t multiple) { return !TSR_DIM_IS_EXPR(d) && d > 0 && d % multiple == 0 && d <= 128; };
  if (!known(q.sizes().back(), 16) || !known(v.sizes().back(), backward ? 16 : 8))
    return "attention is generated for heads of up to 128 elements, a multiple of 16 in the queries and of 8 in the values, 16 "
           "for "
           "its gradient";
  const size_t rank = q.rank();
  if (k.rank() != rank || v.rank() != rank) return "the batch sizes of queries and keys differ";
  for (size_t d = 0; d + 2 < rank; ++d) {
    const tsr_dim x = q.sizes()[d], y = k.sizes()[d];
    if (y != v.sizes()[d]) return "the batch sizes of keys and values differ";
    const bool grouped = d + 3 == rank && !TSR_DIM_IS_EXPR(x) && !TSR_DIM_IS_EXPR(y) && y > 0 && x % y == 0;
    if (x != y && !grouped) return "the batch sizes of queries and keys differ";
  }
  if (n.has_operand(first + 3)) {
    std::vector<tsr_dim> scores(q.sizes().begin(), q.sizes().end());
    scores.back() = k.sizes()[rank - 2];
    if (!mask_broadcasts(n.operand(first + 3).type(), scores)) return "the mask's sizes are neither 1 nor those of the scores";
  }
  return {};
}

void write_attention(NodeWriter& w, bool vectors) {
  if (w.node.is("attention_backward")) return write_attention_backward(w, vectors);
  AttentionWriter(w, vectors).run();
}

}  // namespace tessera::kit
