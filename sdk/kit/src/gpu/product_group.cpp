// SPDX-License-Identifier: Apache-2.0
// Products of bf16 and f16 on matrix instructions of four waves, which read both operands from shared memory: a block computes
// a tile, each of its groups 64 rows of it. Steps of the contracted dimension lie in shared memory twice: while one is
// multiplied, threads write the next one, which they have in registers, and bring the one after it.
//
// An operand whose lines lie side by side is written as it is and read `turned`; one that is computed, or that lies otherwise,
// is brought element by element. Sums are those of product_matrix.cpp.
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
        s.unroll % 16 != 0 || s.threads != s.tile / kGroupRows * kGroupThreads)
      no_program("groups that do not fill the tile");
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
    fetch(left, depth, kZero, thread);
    fetch(right, depth, kZero, thread);
    const Expr k = b_.begin(Bind::Serial, "k", b_.ceil_div(depth.points, step));
    const Expr which = p.mod(k, p.number(2)), of_left = b_.scaled(which, left.size), of_right = b_.scaled(which, right.size);
    put(left, of_left, thread);
    put(right, of_right, thread);
    b_.mma_wait({sums, kZero}, tile_columns_);
    b_.barrier(BarrierScope::Block);
    const int64_t to_group = left.turned ? kGroupRows / kPart * left.pitch : kGroupRows * kPart;
    b_.mma_group(factor_type_, {sums, kZero}, {left.shared, p.add(of_left, b_.scaled(group, to_group))},
                 {right.shared, of_right}, shape);
    const Expr next = b_.scaled(p.add(k, kOne), step);
    fetch(left, depth, next, thread);
    fetch(right, depth, next, thread);
    b_.end();
    b_.mma_wait({sums, kZero}, tile_columns_);

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
    // 16 bytes more than the lines take: threads that write parts beside each other use other banks.
    x.pitch = (x.turned ? s_.unroll : lines) * kPart + kPart;
    x.size = (x.turned ? lines : s_.unroll) / kPart * x.pitch;
    x.shared = b_.buffer(name, Memory::Shared, factor_type_, p.number(2 * x.size));
    x.fetched = b_.buffer(std::string("of_") + name, Memory::Register, factor_type_, p.number(lines * s_.unroll / s_.threads));
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
    const Expr line = p.add(x.first, at.line), deep = p.add(first_depth, at.deep), to = b_.scaled(part, kPart);
    if (x.together) {
      const Expr c = b_.begin(Bind::Unroll, "c", p.number(kPart));
      b_.store(x.fetched, p.add(to, c), b_.constant(factor_type_, x.beyond));
      b_.end();
      const bool opened = b_.begin_if(b_.both(b_.below(line, x.space->points), b_.below(deep, depth.points)));
      go_to(b_, copy_, *x.space, line);
      go_to(b_, copy_, depth, deep);
      const Inst& load = k_.insts[x.factor];
      b_.load_elements(copy_.buffer(load.id), copy_.index(load.index), x.fetched, to, kPart);
      b_.end_if(opened);
    } else {
      go_to(b_, copy_, *x.space, line);
      const Expr v = b_.begin(Bind::Unroll, "v", p.number(kPart));
      const Expr place = p.add(deep, v);
      const uint32_t ok = b_.both(b_.below(line, x.space->points), b_.below(place, depth.points));
      go_to(b_, copy_, depth, place);
      std::map<uint32_t, uint32_t> known;
      uint32_t value = evaluate(x.factor, ok, known);
      if (ok != kNone) value = b_.select(ok, value, b_.constant(factor_type_, x.beyond));
      b_.store(x.fetched, p.add(to, v), value);
      b_.end();
    }
    b_.end_unless_one();
  }

  void put(const Side& x, Expr from, Expr thread) {
    IndexPool& p = b_.pool();
    const Expr part = b_.begin_unless_one(Bind::Unroll, "g", count(x));
    const Place at = place(x, part, thread);
    const Expr eight = p.floordiv(x.turned ? at.line : at.deep, p.number(kPart)), other = x.turned ? at.deep : at.line;
    b_.store_elements(x.shared, p.add(from, p.add(b_.scaled(eight, x.pitch), b_.scaled(other, kPart))), x.fetched,
                      b_.scaled(part, kPart), kPart);
    b_.end_unless_one();
  }

  // What follows from the sums, where they are.
  void finish(const Space& rows, const Space& columns, uint32_t sums, Expr first_row, Expr first_column, Expr lane) {
    IndexPool& p = b_.pool();
    const Expr n = b_.begin(Bind::Unroll, "n", p.number(tile_columns_ / 8)), e = b_.begin(Bind::Unroll, "e", p.number(4));
    const Expr row = p.add(p.add(first_row, p.floordiv(lane, p.number(4))), b_.scaled(p.floordiv(e, p.number(2)), 8));
    const Expr column =
        p.add(p.add(first_column, b_.scaled(n, 8)), p.add(b_.scaled(p.mod(lane, p.number(4)), 2), p.mod(e, p.number(2))));
    const bool opened = b_.begin_if(b_.both(b_.below(row, rows.points), b_.below(column, columns.points)));
    go_to(b_, copy_, rows, row);
    go_to(b_, copy_, columns, column);
    copy_.set_value(dot_, b_.load(sums, p.add(b_.scaled(n, 4), e)));
    for (const Item& item : k_.body)
      if (!item.is_loop) copy_.copy(item.id);
    b_.end_if(opened);
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
