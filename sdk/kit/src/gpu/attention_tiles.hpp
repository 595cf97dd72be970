// SPDX-License-Identifier: Apache-2.0
// What attention's programs and those of its gradient share: where rows of queries, keys and values lie, tiles of them in
// shared memory, and products of tiles on matrix instructions. A block has four waves, of 16 rows each.
#pragma once

#include <cmath>
#include <limits>

#include "node_program.hpp"

namespace tessera::kit {

class AttentionTiles {
 protected:
  // Operand `queries` of the node holds the queries, those behind it the keys, the values, and perhaps a mask. The first
  // `strided` operands are read where they lie.
  AttentionTiles(NodeWriter& w, bool vectors, uint32_t queries, uint32_t strided)
      : w_(w),
        b_(w.b),
        p_(w.pool()),
        q_operand_(queries),
        type_(b_.p.buffers[w.input(queries)].type),
        q_shape_(w.shape(w.input(queries))),
        k_shape_(w.shape(w.input(queries + 1))),
        queries_(q_shape_[q_shape_.size() - 2]),
        keys_(k_shape_[k_shape_.size() - 2]),
        depth_(*p_.as_number(q_shape_.back())),
        width_(*p_.as_number(w.shape(w.input(queries + 2)).back())),
        causal_(w.node.attr("causal").as_bool()),
        vectors_(vectors) {
    w.read_strided(strided, vectors);
    scale_ = w.node.attr("scale").as_float();
    if (scale_ == 0) scale_ = 1 / std::sqrt(static_cast<double>(depth_));
  }

  static constexpr int64_t kWaves = 4, kLanes = 32, kThreads = kWaves * kLanes;
  static constexpr int64_t kRowsOfWave = 16, kRows = kWaves * kRowsOfWave;  // of the tile that a block keeps
  static constexpr int64_t kKeys = 64;                                      // rows of a tile that comes through shared memory
  static constexpr int64_t kPad = 8;  // elements behind a row in shared memory: other banks
  static_assert(kRows == kKeys);
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  // ---- values
  uint32_t number(double x) { return b_.constant(Type::F32, constant_bits(Type::F32, x)); }
  uint32_t call(const char* function, uint32_t x) {
    Inst i;
    i.op = Op::Call;
    i.type = Type::F32;
    i.id = function_named(function);
    i.args[0] = x;
    return b_.inst(i);
  }
  uint32_t exp(uint32_t x) { return call("exp_to_43_f32", x); }
  uint32_t times(uint32_t a, uint32_t b) { return b_.binary(Op::Mul, a, b); }
  Expr at(Expr fragment, int64_t size, int64_t e = 0) { return p_.add(b_.scaled(fragment, size), p_.number(e)); }

  // ---- places
  // The axes of a block's threads; row_ and pair_ say which elements of a fragment a lane holds.
  void begin_threads() {
    const Expr wave = b_.begin(Bind::Warp, "w", p_.number(kWaves)), lane = b_.begin(Bind::Lane, "l", p_.number(kLanes));
    thread_ = p_.add(b_.scaled(wave, kLanes), lane);
    row_ = p_.floordiv(lane, p_.number(4));
    pair_ = p_.mod(lane, p_.number(4));
    for (int64_t r = 0; r < 2; ++r)
      own_[r] = p_.add(p_.add(b_.scaled(tile_, kRows), b_.scaled(wave, kRowsOfWave)), p_.add(row_, p_.number(8 * r)));
  }
  // Rows beyond the end are copies of the last one: what is made of them is cut off, or never stored.
  Expr within(Expr row, Expr rows) { return p_.less(row, rows) ? row : p_.min(row, p_.sub(rows, kOne)); }
  bool of_queries(uint32_t operand) const { return operand <= q_operand_; }
  Expr rows_of(uint32_t operand) const { return of_queries(operand) ? queries_ : keys_; }

  // `n` elements of a row of an operand, from a column on. Consecutive heads of queries share a head of keys.
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
  // The block's own rows of an operand as left factors, 16 columns after 16.
  void load_own(uint32_t operand, int64_t columns, uint32_t fragments) {
    const Expr k = b_.begin_unless_one(Bind::Unroll, "k", p_.number(columns / 16));
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t r = 0; r < 2; ++r) {
        const Expr column = p_.add(at(k, 16, 8 * half), b_.scaled(pair_, 2));
        load(operand, within(own_[r], rows_of(operand)), column, fragments, at(k, 8, half * 4 + r * 2), 2);
      }
    b_.end_unless_one();
  }
  Expr mask_at(uint32_t operand, Expr query, Expr key) {
    const std::vector<Expr>& shape = w_.shape(w_.input(operand));
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
  // A product of a query and a key, scaled and masked. `seen` says whether the query sees the key; kNone: certainly.
  struct Score {
    uint32_t value, seen;
  };
  Score score(uint32_t product, Expr query, Expr key) {
    Score s{times(product, number(scale_)), b_.below(key, keys_)};
    if (causal_) s.seen = b_.both(s.seen, b_.binary(Op::Le, b_.index(key), b_.index(query)));
    const uint32_t operand = q_operand_ + 3;
    if (!w_.node.has_operand(operand)) return s;
    const uint32_t m = b_.load(w_.input(operand), mask_at(operand, within(query, queries_), within(key, keys_)));
    if (b_.type_of(m) == Type::Bool)
      s.seen = b_.both(s.seen, m);
    else
      s.value = b_.binary(Op::Add, s.value, w_.convert(m, Type::F32));
    return s;
  }

  // ---- tiles
  uint32_t registers(const char* name, Type t, int64_t n) { return b_.buffer(name, Memory::Register, t, p_.number(n)); }
  void clear(uint32_t buffer, int64_t n) {
    const Expr c = b_.begin(Bind::Unroll, "c", p_.number(n));
    b_.store(buffer, c, number(0));
    b_.end();
  }
  void declare_tiles() {
    left_ = registers("left", type_, 8);
    right_ = registers("right", type_, 4);
    row0_ = registers("x", type_, 8);
    row1_ = registers("y", type_, 8);
    pairs_ = registers("xy", type_, 16);
    out_ = registers("out", type_, 2);
  }
  // [row][column]: two neighbours along the columns are 4 bytes, for products that contract these.
  uint32_t row_tile(const char* name, int64_t columns) {
    return b_.buffer(name, Memory::Shared, type_, p_.number(kKeys * (columns + kPad)));
  }
  // [row / 2][column][row % 2]: the same for products that contract the rows.
  uint32_t pair_tile(const char* name, int64_t columns) { return row_tile(name, columns); }

  // Rows of an operand from `first` on, into a tile of rows or of pairs or both.
  void fill(uint32_t operand, int64_t columns, Expr first, uint32_t rows, uint32_t pairs) {
    const int64_t parts = columns / 8;
    if (pairs == kNone) {
      each_part(kKeys * parts, [&](Expr n) {
        const Expr row = p_.floordiv(n, p_.number(parts)), part = b_.scaled(p_.mod(n, p_.number(parts)), 8);
        load(operand, within(p_.add(first, row), rows_of(operand)), part, row0_, kZero, 8);
        b_.store_elements(rows, p_.add(b_.scaled(row, columns + kPad), part), row0_, kZero, 8);
      });
      return;
    }
    each_part(kKeys / 2 * parts, [&](Expr n) {
      const Expr two = p_.floordiv(n, p_.number(parts)), part = b_.scaled(p_.mod(n, p_.number(parts)), 8);
      const Expr row = p_.add(first, b_.scaled(two, 2));
      load(operand, within(row, rows_of(operand)), part, row0_, kZero, 8);
      load(operand, within(p_.add(row, kOne), rows_of(operand)), part, row1_, kZero, 8);
      if (rows != kNone) {
        const Expr to = p_.add(b_.scaled(two, 2 * (columns + kPad)), part);
        b_.store_elements(rows, to, row0_, kZero, 8);
        b_.store_elements(rows, p_.add(to, p_.number(columns + kPad)), row1_, kZero, 8);
      }
      const Expr e = b_.begin(Bind::Unroll, "e", p_.number(8));
      b_.store(pairs_, b_.scaled(e, 2), b_.load(row0_, e));
      b_.store(pairs_, p_.add(b_.scaled(e, 2), kOne), b_.load(row1_, e));
      b_.end();
      b_.store_elements(pairs, p_.add(b_.scaled(two, 2 * (columns + kPad)), b_.scaled(part, 2)), pairs_, kZero, 16);
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

  // sums[16, kKeys] = own fragments[16, columns] times the transposed tile of rows[kKeys, columns].
  void multiply_rows(uint32_t sums, uint32_t fragments, uint32_t tile, int64_t columns) {
    clear(sums, kKeys / 8 * 4);
    const Expr k = b_.begin_unless_one(Bind::Unroll, "k", p_.number(columns / 16));
    const Expr n = b_.begin(Bind::Unroll, "n", p_.number(kKeys / 8));
    const Expr row = p_.add(b_.scaled(n, 8), row_);
    for (int64_t half = 0; half < 2; ++half)
      b_.load_elements(tile, p_.add(b_.scaled(row, columns + kPad), p_.add(at(k, 16, 8 * half), b_.scaled(pair_, 2))), right_,
                       p_.number(2 * half), 2);
    b_.mma(type_, {sums, at(n, 4)}, {fragments, at(k, 8)}, {right_, kZero});
    b_.end();
    b_.end_unless_one();
  }
  // sums[16, columns] += left[16, kKeys] times the tile of pairs[kKeys, columns]. `left` gives element e of the left factor for
  // rows 16 k and more: the share of products[16, kKeys] that a lane holds is its share of a left factor.
  template <class F>
  void multiply_pairs(uint32_t sums, uint32_t tile, int64_t columns, const F& left) {
    const Expr k = b_.begin(Bind::Unroll, "k", p_.number(kKeys / 16));
    for (int64_t e = 0; e < 8; ++e) b_.store(left_, p_.number(e), w_.convert(left(k, e), type_));
    const Expr n = b_.begin(Bind::Unroll, "n", p_.number(columns / 8));
    const Expr column = p_.add(b_.scaled(n, 8), row_);
    for (int64_t half = 0; half < 2; ++half) {
      const Expr two = p_.add(at(k, 8, 4 * half), pair_);
      b_.load_elements(tile, p_.add(b_.scaled(two, 2 * (columns + kPad)), b_.scaled(column, 2)), right_, p_.number(2 * half),
                       2);
    }
    b_.mma(type_, {sums, at(n, 4)}, {left_, kZero}, {right_, kZero});
    b_.end();
    b_.end();
  }
  // The row of a result of [batch, queries, heads] rows.
  Expr row_of_heads_last(Expr query) {
    const Expr heads = q_shape_[q_shape_.size() - 3];
    const Expr first = p_.add(p_.mul(p_.floordiv(batch_, heads), queries_), query);
    return p_.add(p_.mul(first, heads), p_.mod(batch_, heads));
  }

  // Stores the block's own rows, [batch, rows, columns], or [batch, rows, heads, columns] where the writer wants heads last;
  // `by`: what a row is multiplied by, or null.
  void store_own(uint32_t result, uint32_t sums, Expr batch, Expr rows, int64_t columns, const uint32_t* by) {
    for (int64_t r = 0; r < 2; ++r) {
      if (p_.nonnegative(p_.sub(own_[r], rows))) continue;  // there are fewer
      const bool opened = b_.begin_if(b_.below(own_[r], rows));
      const Expr row = w_.heads_last && result == 0 ? row_of_heads_last(own_[r]) : p_.add(p_.mul(batch, rows), own_[r]);
      const Expr n = b_.begin(Bind::Unroll, "n", p_.number(columns / 8));
      for (int64_t e = 0; e < 2; ++e) {
        const uint32_t v = b_.load(sums, at(n, 4, 2 * r + e));
        b_.store(out_, p_.number(e), w_.convert(by ? times(v, by[r]) : v, type_));
      }
      b_.store_elements(w_.output(result), p_.add(b_.scaled(row, columns), p_.add(b_.scaled(n, 8), b_.scaled(pair_, 2))), out_,
                        kZero, 2);
      b_.end();
      b_.end_if(opened);
    }
  }

  NodeWriter& w_;
  ProgramBuilder& b_;
  IndexPool& p_;
  const uint32_t q_operand_;
  Type type_;
  const std::vector<Expr>&q_shape_, &k_shape_;
  Expr queries_, keys_;
  int64_t depth_, width_;
  bool causal_, vectors_;
  double scale_ = 0;
  Expr batch_ = kZero, tile_ = kZero, thread_ = kZero, row_ = kZero, pair_ = kZero;
  Expr own_[2] = {};  // the rows of which this lane holds elements
  uint32_t left_ = 0, right_ = 0, row0_ = 0, row1_ = 0, pairs_ = 0, out_ = 0;
};

}  // namespace tessera::kit
