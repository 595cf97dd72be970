// SPDX-License-Identifier: Apache-2.0
// Products of bf16 and f16 on matrix instructions of four waves, which read both operands from shared memory: a block computes
// a tile, each of its groups 64 rows of it. Several steps of the contracted dimension lie in shared memory (`vector` of the
// schedule): while one is multiplied, later ones are on their way, by copies of the device's. Where it has none, or an operand
// is computed or does not lie side by side, there are two steps, and threads write the next one, which they have in registers,
// and bring the one after it, element by element if need be.
//
// An operand whose lines lie side by side is written as it is and read `turned`. Sums are those of product_matrix.cpp.
#include "product_parts.hpp"

namespace tessera::kit {
namespace {

class GroupWriter : ProductParts {
 public:
  GroupWriter(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a) : ProductParts(k, s, d, a) {
    if (!d.mma_group || d.wave != kLanes) no_program("a device without matrix instructions of four waves");
    factor_type_ = matrix_factors(k, dot_);
    if (factor_type_ == Type::None) no_program("factors that are neither bf16 nor f16");
    tile_columns_ = int64_t{s.rows} * 8;
    if (s.tile % kGroupRows != 0 || (tile_columns_ != 64 && tile_columns_ != 128 && tile_columns_ != 256) ||
        s.unroll % kGroupBlock != 0 || s.threads != s.tile / kGroupRows * kGroupThreads)
      no_program("groups that do not fill the tile");
    if (s.vector > 8 || (s.vector > 1 && !d.copies)) no_program("copies of steps that overtake each other");
    for (const int64_t lines : {int64_t{s.tile}, tile_columns_})
      if (lines * s.unroll % (int64_t{s.threads} * kPart) != 0) no_program("a step that threads do not share evenly");
  }

  Program run() {
    IndexPool& p = b_.pool();
    const Space batch = space_of(b_, copy_, k_, batch_), rows = space_of(b_, copy_, k_, rows_),
                columns = space_of(b_, copy_, k_, columns_), depth = space_of(b_, copy_, k_, loop_->axes);
    const int64_t step = s_.unroll;
    b_.begin_launch();
    const Expr z = begin_unless_one(batch.points), i = begin_unless_one(b_.ceil_div(rows.points, s_.tile)),
               j = begin_unless_one(b_.ceil_div(columns.points, tile_columns_));
    const Expr wave = b_.begin(Bind::Warp, "w", p.number(s_.threads / kLanes)),
               lane = b_.begin(Bind::Lane, "l", p.number(kLanes));
    const Expr thread = p.add(b_.scaled(wave, kLanes), lane);
    go_to(b_, copy_, batch, z);
    Side left = side(0, rows, depth, b_.scaled(i, s_.tile), s_.tile, "left", constant_bits(factor_type_, 0.0)),
         right =
             side(1, columns, depth, b_.scaled(j, tile_columns_), tile_columns_, "right", constant_bits(factor_type_, -0.0));
    const uint32_t sums = b_.buffer("sums", Memory::Register, Type::F32, p.number(tile_columns_ / 2));
    const Expr clear = b_.begin(Bind::Unroll, "c", p.number(tile_columns_ / 2));
    b_.store(sums, clear, b_.constant(Type::F32, uint64_t{0}));
    b_.end();

    const Expr group = p.floordiv(wave, p.number(kGroupThreads / kLanes));
    GroupShape shape;
    shape.columns = tile_columns_, shape.depth = step;
    shape.pitch = {left.pitch, right.pitch}, shape.turned = {left.turned, right.turned};
    const int64_t to_group = left.turned ? left.pitch : kGroupRows * kGroupBlock;
    const auto place = [&](const Side& x, Expr of) { return b_.scaled(p.mod(of, p.number(steps())), x.size); };
    const auto multiply = [&](Expr k) {
      b_.mma_group(factor_type_, {sums, kZero}, {left.shared, p.add(place(left, k), b_.scaled(group, to_group))},
                   {right.shared, place(right, k)}, shape);
    };
    const auto each = [&](Expr of, auto&& f) {
      f(left, of);
      f(right, of);
    };
    const auto fetch_step = [&](const Side& x, Expr of) { fetch(x, depth, b_.scaled(of, step), thread); };
    const auto copy_step = [&](const Side& x, Expr of) { copy(x, depth, b_.scaled(of, step), place(x, of), thread); };
    const Expr all = b_.ceil_div(depth.points, step);
    if (s_.vector == 1) {
      each(kZero, fetch_step);
      const Expr k = b_.begin(Bind::Serial, "k", all);
      each(k, [&](const Side& x, Expr of) { put(x, place(x, of), thread); });
      b_.mma_wait({sums, kZero}, tile_columns_);
      b_.barrier(BarrierScope::Block);
      multiply(k);
      each(p.add(k, kOne), fetch_step);
      b_.end();
      b_.mma_wait({sums, kZero}, tile_columns_);
    } else {
      // Behind the barrier all threads have waited for the product of the step before, and what is copied takes its place.
      const int64_t ahead = s_.vector - 1;
      for (int64_t n = 0; n < ahead; ++n) {
        each(p.number(n), copy_step);
        b_.copy_end();
      }
      const Expr k = b_.begin(Bind::Serial, "k", all);
      b_.copy_wait(ahead - 1);
      b_.barrier(BarrierScope::Block);
      multiply(k);
      each(p.add(k, p.number(ahead)), copy_step);
      b_.copy_end();
      b_.mma_wait({sums, kZero}, tile_columns_);
      b_.end();
      b_.copy_wait(0);
    }

    finish(rows, columns, sums, p.add(left.first, b_.scaled(wave, 16)), right.first, lane);
    b_.end();
    b_.end();
    for (const Expr x : {z, i, j})
      if (x != kZero) b_.end();
    b_.end_launch();
    return std::move(b_.p);
  }

 private:
  static constexpr int64_t kLanes = 32;
  static constexpr int64_t kPart = 8;  // elements that a thread brings at once: 16 bytes

  struct Side {
    const Space* space;
    Expr first;  // line of the tile
    int64_t lines, pitch, size;
    bool turned, together;  // 8 lines, or 8 elements along the depth, are one access
    bool along;             // neighbouring threads bring what lies along the depth
    uint32_t factor, shared, fetched;
    uint64_t beyond;  // what stands beyond the end of the contracted dimension
  };

  Side side(size_t operand, const Space& space, const Space& depth, Expr first, int64_t lines, const char* name,
            uint64_t beyond) {
    IndexPool& p = b_.pool();
    Side x{};
    x.space = &space, x.first = first, x.lines = lines, x.beyond = beyond;
    x.factor = k_.insts[k_.insts[dot_].args[operand]].args[0];
    x.along = contiguous_along(x.factor, loop_->axes);
    x.together = side_by_side(x, space, depth, false);
    x.turned = !x.together && side_by_side(x, space, depth, true);
    x.together = x.together || x.turned;
    if (s_.vector > 1 && !x.together) no_program("a factor that no copy of the device's brings");
    x.pitch = kGroupBlock * (x.turned ? s_.unroll : lines);
    x.size = lines * s_.unroll;
    x.shared = b_.buffer(name, Memory::Shared, factor_type_, p.number(steps() * x.size), Access::InOut, 1024);
    if (s_.vector == 1)
      x.fetched =
          b_.buffer(std::string("of_") + name, Memory::Register, factor_type_, p.number(lines * s_.unroll / s_.threads));
    return x;
  }

  // Is an operand read as it lies in memory, 8 elements along the depth, or of 8 lines, at a time?
  bool side_by_side(const Side& side, const Space& space, const Space& depth, bool lines) {
    IndexPool& p = b_.pool();
    const Inst& x = k_.insts[side.factor];
    const Space& along = lines ? space : depth;
    if (x.op != Op::Load || x.args[0] != kNone || k_.buffers[x.id].access != Access::In || !b_.p.divisible(along.points, kPart))
      return false;
    std::vector<uint32_t> values;
    k_.pool.collect(x.index, AtomKind::Value, values);
    if (!values.empty()) return false;
    // At any place: axes that no loop has.
    const auto any = [&](const Space& s, int64_t each) {
      return b_.scaled(p.axis(b_.p.add_axis("any", b_.ceil_div(s.points, each))), each);
    };
    const Expr line = any(space, lines ? kPart : 1), deep = any(depth, lines ? 1 : kPart);
    go_to(b_, copy_, space, line);
    go_to(b_, copy_, depth, deep);
    const Expr from = copy_.index(x.index);
    if (!b_.p.divisible(from, kPart)) return false;
    for (int64_t v = 1; v < kPart; ++v) {
      go_to(b_, copy_, along, p.add(lines ? line : deep, p.number(v)));
      if (p.as_number(p.sub(copy_.index(x.index), from)) != v) return false;
    }
    return true;
  }

  int64_t steps() const { return std::max(2, s_.vector); }  // in shared memory
  Expr count(const Side& x) { return b_.pool().number(x.lines * s_.unroll / s_.threads / kPart); }

  // Of the part with that number of a thread: its first line and its first element along the depth.
  struct Place {
    Expr line, deep;
  };
  Place place(const Side& x, Expr part, Expr thread) {
    IndexPool& p = b_.pool();
    const Expr number = p.add(b_.scaled(part, s_.threads), thread);
    if (x.turned) {
      const Expr eights = p.number(x.lines / kPart);
      return {b_.scaled(p.mod(number, eights), kPart), p.floordiv(number, eights)};
    }
    if (x.along) {
      const Expr parts = p.number(s_.unroll / kPart);
      return {p.floordiv(number, parts), b_.scaled(p.mod(number, parts), kPart)};
    }
    return {p.mod(number, p.number(x.lines)), b_.scaled(p.floordiv(number, p.number(x.lines)), kPart)};
  }

  void fetch(const Side& x, const Space& depth, Expr first_depth, Expr thread) {
    IndexPool& p = b_.pool();
    const Expr part = b_.begin_unless_one(Bind::Unroll, "g", count(x));
    const Place at = place(x, part, thread);
    bring(x.factor, x.together, *x.space, p.add(x.first, at.line), depth, p.add(first_depth, at.deep), x.fetched,
          b_.scaled(part, kPart), kPart, x.beyond);
    b_.end_unless_one();
  }

  // Where the part with that place lies in shared memory, behind the step's beginning.
  Expr shared_place(const Side& x, const Place& at) {
    IndexPool& p = b_.pool();
    const Expr along = x.turned ? at.line : at.deep, other = x.turned ? at.deep : at.line,
               piece = p.floordiv(along, p.number(8));
    return p.add(p.add(b_.scaled(p.floordiv(along, p.number(kGroupBlock)), x.pitch), b_.scaled(other, kGroupBlock)),
                 b_.scaled(low_bits_differ(piece, other), kPart));
  }
  // The lowest three bits of x xor y.
  Expr low_bits_differ(Expr x, Expr y) {
    IndexPool& p = b_.pool();
    const auto bit = [&](int64_t of) {
      return b_.scaled(p.mod(p.add(p.floordiv(x, p.number(of)), p.floordiv(y, p.number(of))), p.number(2)), of);
    };
    return p.add(bit(1), p.add(bit(2), bit(4)));
  }
  void put(const Side& x, Expr from, Expr thread) {
    const Expr part = b_.begin_unless_one(Bind::Unroll, "g", count(x));
    b_.store_elements(x.shared, b_.pool().add(from, shared_place(x, place(x, part, thread))), x.fetched, b_.scaled(part, kPart),
                      kPart);
    b_.end_unless_one();
  }

  // Begins to bring a step; what it has beyond the ends is 0: sums begin at 0.0, which no product of zeros changes.
  void copy(const Side& x, const Space& depth, Expr first_depth, Expr step, Expr thread) {
    IndexPool& p = b_.pool();
    if (p.nonnegative(p.sub(first_depth, depth.points))) return;  // beyond the end as a whole
    const Expr part = b_.begin_unless_one(Bind::Unroll, "g", count(x));
    const Place at = place(x, part, thread);
    const Expr line = p.add(x.first, at.line), deep = p.add(first_depth, at.deep), to = p.add(step, shared_place(x, at));
    go_to(b_, copy_, *x.space, line);
    go_to(b_, copy_, depth, deep);
    const Inst& load = k_.insts[x.factor];
    // A condition of the copy's own: branches beside a matrix instruction that goes on make compilers wait for it.
    b_.copy({x.shared, to}, {copy_.buffer(load.id), copy_.index(load.index)}, kPart,
            b_.both(b_.below(line, x.space->points), b_.below(deep, depth.points)));
    b_.end_unless_one();
  }

  // What follows from the sums, where they are.
  void finish(const Space& rows, const Space& columns, uint32_t sums, Expr first_row, Expr first_column, Expr lane) {
    IndexPool& p = b_.pool();
    const std::map<uint32_t, uint32_t> pairs = pairs_of(rows, columns);
    const Expr n = b_.begin(Bind::Unroll, "n", p.number(tile_columns_ / 8)), h = b_.begin(Bind::Unroll, "h", p.number(2));
    finish_pair(rows, columns, p.add(p.add(first_row, p.floordiv(lane, p.number(4))), b_.scaled(h, 8)),
                p.add(p.add(first_column, b_.scaled(n, 8)), b_.scaled(p.mod(lane, p.number(4)), 2)), sums,
                p.add(b_.scaled(n, 4), b_.scaled(h, 2)), pairs);
    b_.end();
    b_.end();
  }

  Type factor_type_ = Type::None;
  int64_t tile_columns_ = 0;
};

}  // namespace

Program group_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a) {
  return GroupWriter(k, s, d, a).run();
}

}  // namespace tessera::kit
