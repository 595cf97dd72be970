// SPDX-License-Identifier: Apache-2.0
// Attention in one pass over the keys, on matrix instructions (Dao 2023): a wave keeps 16 queries, their running maxima and
// sums and the weighted values in registers, while tiles of keys and values come through shared memory. Scores never reach
// memory.
//
// A row's maximum grows from tile to tile; what was summed before is scaled by exp(old - new). Probabilities are rounded to the
// operands' type before they meet the values, and divided by their sum behind that product.
#include <cmath>
#include <limits>

#include "node_program.hpp"
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

class AttentionWriter {
 public:
  AttentionWriter(NodeWriter& w, bool vectors)
      : w_(w),
        b_(w.b),
        p_(w.pool()),
        type_(b_.p.buffers[w.input(0)].type),
        q_shape_(w.shape(w.input(0))),
        k_shape_(w.shape(w.input(1))),
        queries_(q_shape_[q_shape_.size() - 2]),
        keys_(k_shape_[k_shape_.size() - 2]),
        depth_(*p_.as_number(q_shape_.back())),
        width_(*p_.as_number(w.shape(w.input(2)).back())),
        causal_(w.node.attr("causal").as_bool()),
        vectors_(vectors) {
    w.read_strided(3, vectors);
    scale_ = w.node.attr("scale").as_float();
    if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(depth_));
  }

  void run() {
    b_.begin_launch();
    Expr batch = kOne;
    for (size_t d = 0; d + 2 < q_shape_.size(); ++d) batch = p_.mul(batch, q_shape_[d]);
    batch_ = b_.begin(Bind::Grid, "b", batch);
    tile_ = b_.begin(Bind::Grid, "b", b_.ceil_div(queries_, kRows));
    const Expr wave = b_.begin(Bind::Warp, "w", p_.number(kWaves)), lane = b_.begin(Bind::Lane, "l", p_.number(kLanes));
    thread_ = p_.add(b_.scaled(wave, kLanes), lane);
    row_ = p_.floordiv(lane, p_.number(4));
    pair_ = p_.mod(lane, p_.number(4));
    for (int64_t r = 0; r < 2; ++r)
      query_[r] = p_.add(p_.add(b_.scaled(tile_, kRows), b_.scaled(wave, kRowsOfWave)), p_.add(row_, p_.number(8 * r)));
    declare();
    load_queries();

    Expr tiles = b_.ceil_div(keys_, kKeys);
    if (causal_) tiles = p_.min(tiles, p_.add(tile_, kOne));  // kRows == kKeys
    const Expr j = b_.begin(Bind::Serial, "j", tiles);
    const Expr first = b_.scaled(j, kKeys);
    b_.barrier(BarrierScope::Block);
    fill_keys(first);
    fill_values(first);
    b_.barrier(BarrierScope::Block);
    multiply_keys();
    mask(first);
    multiply_values();
    b_.end();

    store();
    for (int i = 0; i < 4; ++i) b_.end();
    b_.end_launch();
  }

 private:
  static constexpr int64_t kWaves = 4, kLanes = 32, kThreads = kWaves * kLanes;
  static constexpr int64_t kRowsOfWave = 16, kRows = kWaves * kRowsOfWave;  // queries
  static constexpr int64_t kKeys = 64;                                      // of a tile
  static constexpr int64_t kPad = 8;  // elements behind a row in shared memory: other banks
  static_assert(kRows == kKeys);
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  uint32_t number(double x) { return b_.constant(Type::F32, constant_bits(Type::F32, x)); }
  uint32_t exp(uint32_t x) {
    Inst i;
    i.op = Op::Call;
    i.type = Type::F32;
    i.id = function_named("exp_to_43_f32");
    i.args[0] = x;
    return b_.inst(i);
  }
  uint32_t times(uint32_t a, uint32_t b) { return b_.binary(Op::Mul, a, b); }
  uint32_t greater(uint32_t a, uint32_t b) { return b_.select(b_.binary(Op::Gt, b, a), b, a); }
  Expr at(Expr fragment, int64_t size, int64_t e = 0) { return p_.add(b_.scaled(fragment, size), p_.number(e)); }

  void declare() {
    const auto registers = [&](const char* name, Type t, int64_t n) {
      return b_.buffer(name, Memory::Register, t, p_.number(n));
    };
    shared_keys_ = b_.buffer("keys", Memory::Shared, type_, p_.number(kKeys * (depth_ + kPad)));
    shared_values_ = b_.buffer("values", Memory::Shared, type_, p_.number(kKeys * (width_ + kPad)));
    q_ = registers("q", type_, depth_ / 16 * 8);
    scores_ = registers("s", Type::F32, kKeys / 8 * 4);
    sums_ = registers("o", Type::F32, width_ / 8 * 4);
    left_ = registers("left", type_, 8);
    right_ = registers("right", type_, 4);
    row0_ = registers("x", type_, 8);
    row1_ = registers("y", type_, 8);
    pairs_ = registers("xy", type_, 16);
    out_ = registers("out", type_, 2);
    greatest_ = registers("m", Type::F32, 2);
    total_ = registers("t", Type::F32, 2);
    for (int64_t r = 0; r < 2; ++r) {
      b_.store(greatest_, p_.number(r), number(-kInfinity));
      b_.store(total_, p_.number(r), number(0));
    }
    clear(sums_, width_ / 8 * 4);
  }
  void clear(uint32_t buffer, int64_t n) {
    const Expr c = b_.begin(Bind::Unroll, "c", p_.number(n));
    b_.store(buffer, c, number(0));
    b_.end();
  }

  // Rows beyond the end are copies of the last one: their scores are cut off, their results never stored.
  Expr within(Expr row, Expr rows) { return p_.less(row, rows) ? row : p_.min(row, p_.sub(rows, kOne)); }

  void load_queries() {
    const Expr k = b_.begin_unless_one(Bind::Unroll, "k", p_.number(depth_ / 16));
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t r = 0; r < 2; ++r) {
        const Expr column = p_.add(at(k, 16, 8 * half), b_.scaled(pair_, 2));
        load(0, within(query_[r], queries_), column, q_, at(k, 8, half * 4 + r * 2), 2);
      }
    b_.end_unless_one();
  }

  // `n` elements of a row of queries, keys or values, from a column on. Consecutive heads of queries share a head of keys.
  void load(uint32_t operand, Expr row, Expr column, uint32_t registers, Expr to, int64_t n) {
    const std::vector<Expr>& shape = w_.shape(w_.input(operand));
    const size_t rank = shape.size();
    Expr from = p_.mul(row, w_.stride(operand, rank - 2)), rest = batch_;
    for (size_t d = rank - 2; d-- > 0;) {
      Expr here = d == 0 ? rest : p_.mod(rest, q_shape_[d]);
      rest = p_.floordiv(rest, q_shape_[d]);
      if (shape[d] != q_shape_[d]) here = p_.floordiv(here, p_.number(*p_.as_number(q_shape_[d]) / *p_.as_number(shape[d])));
      from = p_.add(from, p_.mul(here, w_.stride(operand, d)));
    }
    if (vectors_) return b_.load_elements(w_.input(operand), p_.add(from, column), registers, to, n);
    const Expr e = b_.begin(Bind::Unroll, "e", p_.number(n));
    const Expr place = p_.mul(p_.add(column, e), w_.stride(operand, rank - 1));
    b_.store(registers, p_.add(to, e), b_.load(w_.input(operand), p_.add(from, place)));
    b_.end();
  }

  // [key][depth]: two neighbours along the contracted dimension are 4 bytes.
  void fill_keys(Expr first) {
    const int64_t parts = depth_ / 8;
    each_part(kKeys * parts, [&](Expr n) {
      const Expr key = p_.floordiv(n, p_.number(parts)), part = b_.scaled(p_.mod(n, p_.number(parts)), 8);
      load(1, within(p_.add(first, key), keys_), part, row0_, kZero, 8);
      b_.store_elements(shared_keys_, p_.add(b_.scaled(key, depth_ + kPad), part), row0_, kZero, 8);
    });
  }
  // [key / 2][column][key % 2]: the same for the values, whose contracted dimension is that of the keys.
  void fill_values(Expr first) {
    const int64_t parts = width_ / 8;
    each_part(kKeys / 2 * parts, [&](Expr n) {
      const Expr two = p_.floordiv(n, p_.number(parts)), part = b_.scaled(p_.mod(n, p_.number(parts)), 8);
      const Expr key = p_.add(first, b_.scaled(two, 2));
      load(2, within(key, keys_), part, row0_, kZero, 8);
      load(2, within(p_.add(key, kOne), keys_), part, row1_, kZero, 8);
      const Expr e = b_.begin(Bind::Unroll, "e", p_.number(8));
      b_.store(pairs_, b_.scaled(e, 2), b_.load(row0_, e));
      b_.store(pairs_, p_.add(b_.scaled(e, 2), kOne), b_.load(row1_, e));
      b_.end();
      b_.store_elements(shared_values_, p_.add(b_.scaled(two, 2 * (width_ + kPad)), b_.scaled(part, 2)), pairs_, kZero, 16);
    });
  }
  template <class F>
  void each_part(int64_t count, const F& f) {
    const Expr i = b_.begin_unless_one(Bind::Unroll, "i", p_.number((count + kThreads - 1) / kThreads));
    const Expr n = p_.add(b_.scaled(i, kThreads), thread_);
    const bool opened = b_.begin_if(count % kThreads == 0 ? kNone : b_.below(n, p_.number(count)));
    f(n);
    b_.end_if(opened);
    b_.end_unless_one();
  }

  void multiply_keys() {
    clear(scores_, kKeys / 8 * 4);
    const Expr k = b_.begin_unless_one(Bind::Unroll, "k", p_.number(depth_ / 16));
    const Expr n = b_.begin(Bind::Unroll, "n", p_.number(kKeys / 8));
    const Expr key = p_.add(b_.scaled(n, 8), row_);
    for (int64_t half = 0; half < 2; ++half)
      b_.load_elements(shared_keys_, p_.add(b_.scaled(key, depth_ + kPad), p_.add(at(k, 16, 8 * half), b_.scaled(pair_, 2))),
                       right_, p_.number(2 * half), 2);
    b_.mma(type_, {scores_, at(n, 4)}, {q_, at(k, 8)}, {right_, kZero});
    b_.end();
    b_.end_unless_one();
  }

  // Scales and masks the scores, and takes their greatest into the rows' maxima.
  void mask(Expr first) {
    for (int64_t r = 0; r < 2; ++r) before_[r] = b_.load(greatest_, p_.number(r));
    const Expr n = b_.begin(Bind::Unroll, "n", p_.number(kKeys / 8));
    for (int64_t e = 0; e < 4; ++e) {
      const int64_t r = e / 2;
      const Expr key = p_.add(p_.add(first, b_.scaled(n, 8)), p_.add(b_.scaled(pair_, 2), p_.number(e % 2)));
      uint32_t s = times(b_.load(scores_, at(n, 4, e)), number(scale_));
      uint32_t seen = b_.below(key, keys_);
      if (causal_) seen = b_.both(seen, b_.binary(Op::Le, b_.index(key), b_.index(query_[r])));
      if (w_.node.has_operand(3)) {
        const uint32_t m = b_.load(w_.input(3), mask_at(within(query_[r], queries_), within(key, keys_)));
        if (b_.type_of(m) == Type::Bool)
          seen = b_.both(seen, m);
        else
          s = b_.binary(Op::Add, s, w_.convert(m, Type::F32));
      }
      if (seen != kNone) s = b_.select(seen, s, number(-kInfinity));
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
  Expr mask_at(Expr query, Expr key) {
    const std::vector<Expr>& shape = w_.shape(w_.input(3));
    Expr place = kZero, rest = batch_;
    std::vector<Expr> position(shape.size(), kZero);
    for (size_t d = 0; d < q_shape_.size(); ++d) {  // from the last dimension on
      Expr here = d == 0 ? key : d == 1 ? query : kZero;
      if (d >= 2) {
        const Expr size = q_shape_[q_shape_.size() - 1 - d];
        here = p_.mod(rest, size);
        rest = p_.floordiv(rest, size);
      }
      if (d < shape.size() && shape[shape.size() - 1 - d] != kOne) position[shape.size() - 1 - d] = here;
    }
    for (size_t d = 0; d < shape.size(); ++d) place = p_.add(p_.mul(place, shape[d]), position[d]);
    return place;
  }

  void multiply_values() {
    const Expr c = b_.begin(Bind::Unroll, "c", p_.number(width_ / 8));
    for (int64_t e = 0; e < 4; ++e) b_.store(sums_, at(c, 4, e), times(b_.load(sums_, at(c, 4, e)), shrink_[e / 2]));
    b_.end();
    const Expr k = b_.begin(Bind::Unroll, "k", p_.number(kKeys / 16));
    // The share of the scores that a lane holds is its share of a left factor.
    for (int64_t e = 0; e < 8; ++e) {
      const int64_t r = e / 2 % 2;
      const uint32_t v = exp(b_.binary(Op::Sub, b_.load(scores_, at(k, 8, e)), subtract_[r]));
      b_.store(total_, p_.number(r), b_.binary(Op::Add, b_.load(total_, p_.number(r)), v));
      b_.store(left_, p_.number(e), w_.convert(v, type_));
    }
    const Expr n = b_.begin(Bind::Unroll, "n", p_.number(width_ / 8));
    const Expr column = p_.add(b_.scaled(n, 8), row_);
    for (int64_t half = 0; half < 2; ++half) {
      const Expr two = p_.add(at(k, 8, 4 * half), pair_);
      b_.load_elements(shared_values_, p_.add(b_.scaled(two, 2 * (width_ + kPad)), b_.scaled(column, 2)), right_,
                       p_.number(2 * half), 2);
    }
    b_.mma(type_, {sums_, at(n, 4)}, {left_, kZero}, {right_, kZero});
    b_.end();
    b_.end();
  }

  void store() {
    uint32_t by[2];
    for (int64_t r = 0; r < 2; ++r) {
      uint32_t t = b_.load(total_, p_.number(r));
      for (const int64_t bits : {1, 2}) t = b_.binary(Op::Add, t, b_.shuffle_xor(t, bits));
      by[r] = b_.select(b_.binary(Op::Eq, t, number(0)), number(0), b_.binary(Op::Div, number(1), t));
    }
    for (int64_t r = 0; r < 2; ++r) {
      if (p_.nonnegative(p_.sub(query_[r], queries_))) continue;  // there are fewer
      const bool opened = b_.begin_if(b_.below(query_[r], queries_));
      const Expr row = w_.heads_last ? row_of_heads_last(query_[r]) : p_.add(p_.mul(batch_, queries_), query_[r]);
      const Expr n = b_.begin(Bind::Unroll, "n", p_.number(width_ / 8));
      for (int64_t e = 0; e < 2; ++e)
        b_.store(out_, p_.number(e), w_.convert(times(b_.load(sums_, at(n, 4, 2 * r + e)), by[r]), type_));
      b_.store_elements(w_.output(0), p_.add(b_.scaled(row, width_), p_.add(b_.scaled(n, 8), b_.scaled(pair_, 2))), out_, kZero,
                        2);
      b_.end();
      b_.end_if(opened);
    }
  }

  // The row of a result of [batch, queries, heads] rows.
  Expr row_of_heads_last(Expr query) {
    const Expr heads = q_shape_[q_shape_.size() - 3];
    const Expr first = p_.add(p_.mul(p_.floordiv(batch_, heads), queries_), query);
    return p_.add(p_.mul(first, heads), p_.mod(batch_, heads));
  }

  NodeWriter& w_;
  ProgramBuilder& b_;
  IndexPool& p_;
  Type type_;
  const std::vector<Expr>&q_shape_, &k_shape_;
  Expr queries_, keys_;
  int64_t depth_, width_;
  bool causal_, vectors_;
  double scale_ = 0;
  Expr batch_ = kZero, tile_ = kZero, thread_ = kZero, row_ = kZero, pair_ = kZero, query_[2] = {};
  uint32_t shared_keys_ = 0, shared_values_ = 0, q_ = 0, scores_ = 0, sums_ = 0, left_ = 0, right_ = 0, row0_ = 0, row1_ = 0,
           pairs_ = 0, out_ = 0, greatest_ = 0, total_ = 0;
  uint32_t before_[2] = {}, subtract_[2] = {}, shrink_[2] = {};
};

}  // namespace

std::string why_no_attention(sdk::Node n, const GpuDescription& device) {
  if (!device.mma) return "there is no matrix instruction for attention";
  const sdk::Type q = n.operand(0).type(), k = n.operand(1).type(), v = n.operand(2).type();
  if (q.dtype() != TSR_BF16 && q.dtype() != TSR_F16)
    return "matrix instructions for attention are not used for " + std::string(dtype_name(q.dtype()));
  const auto known = [](tsr_dim d, int64_t multiple) { return !TSR_DIM_IS_EXPR(d) && d > 0 && d % multiple == 0 && d <= 128; };
  if (!known(q.sizes().back(), 16) || !known(v.sizes().back(), 8))
    return "attention is generated for heads of up to 128 elements, a multiple of 16 in the queries and of 8 in the values";
  const size_t rank = q.rank();
  if (k.rank() != rank || v.rank() != rank) return "the batch sizes of queries and keys differ";
  for (size_t d = 0; d + 2 < rank; ++d) {
    const tsr_dim x = q.sizes()[d], y = k.sizes()[d];
    if (y != v.sizes()[d]) return "the batch sizes of keys and values differ";
    const bool grouped = d + 3 == rank && !TSR_DIM_IS_EXPR(x) && !TSR_DIM_IS_EXPR(y) && y > 0 && x % y == 0;
    if (x != y && !grouped) return "the batch sizes of queries and keys differ";
  }
  if (n.has_operand(3)) {
    std::vector<tsr_dim> scores(q.sizes().begin(), q.sizes().end());
    scores.back() = k.sizes()[rank - 2];
    if (!mask_broadcasts(n.operand(3).type(), scores)) return "the mask's sizes are neither 1 nor those of the scores";
  }
  return {};
}

void write_attention(NodeWriter& w, bool vectors) { AttentionWriter(w, vectors).run(); }

}  // namespace tessera::kit
