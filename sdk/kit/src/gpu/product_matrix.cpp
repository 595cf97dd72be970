// SPDX-License-Identifier: Apache-2.0
// Products of bf16 and f16 on matrix instructions: a block computes a square of rows and columns, each of its waves a rectangle
// of it. Both operands come through shared memory, contracted dimension innermost; while a wave multiplies one step of it, the
// next one is on its way to registers. What is computed before the product is computed while operands are brought, what follows
// from it at the end, as in product.cpp.
//
// Sums are of f32, in the order of the contracted dimension; how a matrix instruction rounds within its 16 is the device's.
#include "product_parts.hpp"

namespace tessera::kit {
namespace {

class MatrixWriter : ProductParts {
 public:
  MatrixWriter(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a) : ProductParts(k, s, d, a) {
    if (!d.mma || d.wave != kLanes) no_program("a device without matrix instructions");
    factor_type_ = matrix_factors(k, dot_);
    if (factor_type_ == Type::None) no_program("factors that are neither bf16 nor f16");
    if (s.tile % s.rows != 0 || s.rows % 16 != 0 || s.tile % kColumns != 0 || s.unroll % 16 != 0 ||
        s.threads != s.tile / s.rows * (s.tile / kColumns) * kLanes)
      no_program("waves that do not fill the tile");
    if (s.tile * s.unroll % (s.threads * kPart) != 0) no_program("a step that threads do not share evenly");
  }

  Program run() {
    IndexPool& p = b_.pool();
    const Space batch = space_of(b_, copy_, k_, batch_), rows = space_of(b_, copy_, k_, rows_),
                columns = space_of(b_, copy_, k_, columns_), depth = space_of(b_, copy_, k_, loop_->axes);
    const int64_t tile = s_.tile, step = s_.unroll, across = tile / kColumns, row_shares = s_.rows / 16,
                  column_shares = kColumns / 8;
    b_.begin_launch();
    const Expr z = begin_unless_one(batch.points), i = begin_unless_one(b_.ceil_div(rows.points, tile)),
               j = begin_unless_one(b_.ceil_div(columns.points, tile));
    const Expr wave = b_.begin(Bind::Warp, "w", p.number(s_.threads / kLanes)),
               lane = b_.begin(Bind::Lane, "l", p.number(kLanes));
    const Expr thread = p.add(b_.scaled(wave, kLanes), lane);
    const Expr first_row = b_.scaled(i, tile), first_column = b_.scaled(j, tile);
    const Expr wave_row = b_.scaled(p.floordiv(wave, p.number(across)), s_.rows),
               wave_column = b_.scaled(p.mod(wave, p.number(across)), kColumns);
    const Expr row = p.floordiv(lane, p.number(4)), pair = b_.scaled(p.mod(lane, p.number(4)), 2);
    pitch_ = step + kPart;
    const auto registers = [&](const char* name, Type t, int64_t n) {
      return b_.buffer(name, Memory::Register, t, p.number(n));
    };
    const int64_t each = tile * step / s_.threads;
    Side left{0,
              &rows,
              first_row,
              b_.buffer("left", Memory::Shared, factor_type_, p.number(tile * pitch_)),
              registers("of_left", factor_type_, each),
              constant_bits(factor_type_, 0.0)},
        right{1,
              &columns,
              first_column,
              b_.buffer("right", Memory::Shared, factor_type_, p.number(tile * pitch_)),
              registers("of_right", factor_type_, each),
              constant_bits(factor_type_, -0.0)};
    const uint32_t sums = registers("sums", Type::F32, row_shares * column_shares * 4), a = registers("a", factor_type_, 8),
                   b = registers("b", factor_type_, column_shares * 4);
    const Expr clear = b_.begin(Bind::Unroll, "c", p.number(row_shares * column_shares * 4));
    b_.store(sums, clear, b_.constant(Type::F32, uint64_t{0}));
    b_.end();

    go_to(b_, copy_, batch, z);
    fetch(left, depth, kZero, thread);
    fetch(right, depth, kZero, thread);
    const Expr k = b_.begin(Bind::Serial, "k", b_.ceil_div(depth.points, step));
    put(left, thread);
    put(right, thread);
    b_.barrier(BarrierScope::Block);
    fetch(left, depth, b_.scaled(p.add(k, kOne), step), thread);
    fetch(right, depth, b_.scaled(p.add(k, kOne), step), thread);
    const Expr d = b_.begin_unless_one(Bind::Unroll, "d", p.number(step / 16));
    const Expr n = b_.begin(Bind::Unroll, "n", p.number(column_shares));
    for (int64_t half = 0; half < 2; ++half)
      b_.load_elements(right.shared, at_share(p.add(p.add(wave_column, b_.scaled(n, 8)), row), d, pair, half), b,
                       p.add(b_.scaled(n, 4), p.number(2 * half)), 2);
    b_.end();
    const Expr m = b_.begin_unless_one(Bind::Unroll, "m", p.number(row_shares));
    for (int64_t part = 0; part < 4; ++part) {
      const Expr r = p.add(p.add(wave_row, b_.scaled(m, 16)), p.add(row, p.number(8 * (part % 2))));
      b_.load_elements(left.shared, at_share(r, d, pair, part / 2), a, p.number(2 * part), 2);
    }
    const Expr c = b_.begin(Bind::Unroll, "n", p.number(column_shares));
    b_.mma(factor_type_, {sums, p.add(b_.scaled(m, column_shares * 4), b_.scaled(c, 4))}, {a, kZero}, {b, b_.scaled(c, 4)});
    b_.end();
    b_.end_unless_one();
    b_.end_unless_one();
    b_.barrier(BarrierScope::Block);
    b_.end();

    go_to(b_, copy_, batch, z);
    const std::map<uint32_t, uint32_t> pairs = pairs_of(rows, columns);
    const Expr last_m = b_.begin_unless_one(Bind::Unroll, "m", p.number(row_shares));
    const Expr last_n = b_.begin(Bind::Unroll, "n", p.number(column_shares)), h = b_.begin(Bind::Unroll, "h", p.number(2));
    finish_pair(rows, columns, p.add(p.add(p.add(first_row, wave_row), b_.scaled(last_m, 16)), p.add(row, b_.scaled(h, 8))),
                p.add(p.add(p.add(first_column, wave_column), b_.scaled(last_n, 8)), pair), sums,
                p.add(p.add(b_.scaled(last_m, column_shares * 4), b_.scaled(last_n, 4)), b_.scaled(h, 2)), pairs);
    b_.end();
    b_.end();
    b_.end_unless_one();
    b_.end();
    b_.end();
    for (const Expr x : {z, i, j})
      if (x != kZero) b_.end();
    b_.end_launch();
    return std::move(b_.p);
  }

 private:
  static constexpr int64_t kLanes = 32;
  static constexpr int64_t kColumns = 32;  // of a wave
  static constexpr int64_t kPart = 8;      // elements along the contracted dimension that a thread brings at once: 16 bytes

  struct Side {
    size_t operand;
    const Space* space;
    Expr first;
    uint32_t shared, fetched;
    uint64_t beyond;  // what stands beyond the end of the contracted dimension
  };

  Expr at_share(Expr line, Expr d, Expr pair, int64_t half) {
    IndexPool& p = b_.pool();
    return p.add(b_.scaled(line, pitch_), p.add(p.add(b_.scaled(d, 16), pair), p.number(8 * half)));
  }

  // Which line of the tile, and which part of the step, a thread brings: neighbours bring what lies side by side.
  struct Place {
    Expr line, part;
  };
  Place place(const Side& side, Expr group, Expr thread) {
    IndexPool& p = b_.pool();
    const Expr number = p.add(b_.scaled(group, s_.threads), thread);
    if (contiguous_along(factor(side.operand), loop_->axes)) {
      const Expr parts = p.number(s_.unroll / kPart);
      return {p.floordiv(number, parts), p.mod(number, parts)};
    }
    return {p.mod(number, p.number(s_.tile)), p.floordiv(number, p.number(s_.tile))};
  }
  Expr groups() { return b_.pool().number(int64_t{s_.tile} * s_.unroll / s_.threads / kPart); }
  uint32_t factor(size_t operand) const { return k_.insts[k_.insts[dot_].args[operand]].args[0]; }

  void fetch(const Side& side, const Space& depth, Expr first_depth, Expr thread) {
    IndexPool& p = b_.pool();
    const Expr group = b_.begin_unless_one(Bind::Unroll, "g", groups());
    const Place at = place(side, group, thread);
    const Expr point = p.add(side.first, at.line), begin = p.add(first_depth, b_.scaled(at.part, kPart));
    go_to(b_, copy_, *side.space, point);
    bring(factor(side.operand), side_by_side(side, depth, begin), *side.space, point, depth, begin, side.fetched,
          b_.scaled(group, kPart), kPart, side.beyond);
    b_.end_unless_one();
  }

  // Is an operand read as it lies in memory, and its parts of a step one access each?
  bool side_by_side(const Side& side, const Space& depth, Expr begin) {
    IndexPool& p = b_.pool();
    const Inst& x = k_.insts[factor(side.operand)];
    if (x.op != Op::Load || x.args[0] != kNone || k_.buffers[x.id].access != Access::In || !b_.p.divisible(depth.points, kPart))
      return false;
    std::vector<uint32_t> values;
    k_.pool.collect(x.index, AtomKind::Value, values);
    if (!values.empty()) return false;
    go_to(b_, copy_, depth, begin);
    const Expr from = copy_.index(x.index);
    if (!b_.p.divisible(from, kPart)) return false;
    for (int64_t v = 1; v < kPart; ++v) {
      go_to(b_, copy_, depth, p.add(begin, p.number(v)));
      if (p.as_number(p.sub(copy_.index(x.index), from)) != v) return false;
    }
    return true;
  }

  void put(const Side& side, Expr thread) {
    IndexPool& p = b_.pool();
    const Expr group = b_.begin_unless_one(Bind::Unroll, "g", groups());
    const Place at = place(side, group, thread);
    b_.store_elements(side.shared, p.add(b_.scaled(at.line, pitch_), b_.scaled(at.part, kPart)), side.fetched,
                      b_.scaled(group, kPart), kPart);
    b_.end_unless_one();
  }

  Type factor_type_ = Type::None;
  int64_t pitch_ = 0;
};

}  // namespace

Type matrix_factors(const Kernel& k, uint32_t dot) {
  Type type = Type::None;
  if (k.insts[dot].type != Type::F32) return type;
  for (size_t i = 0; i < 2; ++i) {
    const Inst& x = k.insts[k.insts[dot].args[i]];
    if (x.op != Op::Convert) return Type::None;
    const Type from = k.insts[x.args[0]].type;
    if ((from != Type::BF16 && from != Type::F16) || (type != Type::None && from != type)) return Type::None;
    type = from;
  }
  return type;
}

Program matrix_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a) {
  return MatrixWriter(k, s, d, a).run();
}

}  // namespace tessera::kit
