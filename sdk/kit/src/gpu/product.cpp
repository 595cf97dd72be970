// SPDX-License-Identifier: Apache-2.0
// Products: a block computes a square of rows and columns. Both operands come through shared memory in steps along the
// contracted dimension, whatever is computed before the product while they are brought there; each thread keeps a small
// rectangle of sums in registers, and computes what follows from them at the end.
//
// Which of the kernel's axes are rows and which are columns follows from what each operand depends on, so a convolution is a
// product too: its rows are positions, its columns features, its contracted dimension channels and taps.
//
// A sum takes its products in the order of the contracted dimension, by fused multiply-add, from 0: the order of the form for
// which a thread computes a point alone. Beyond the end the left operand is 0 and the right one -0, whose product changes no
// sum, -0 included.
#include <algorithm>

#include "product_parts.hpp"

namespace tessera::kit {
namespace {

class ProductWriter : ProductParts {
 public:
  ProductWriter(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a) : ProductParts(k, s, d, a) {
    if (s.tile % s.rows != 0 || s.tile % s.vector != 0 || s.threads != s.tile / s.rows * (s.tile / s.vector))
      no_program("threads that do not fill the tile");
    if (s.threads % d.wave != 0) no_program("threads that are no whole waves");
    if (s.tile * s.unroll % s.threads != 0) no_program("a step that threads do not share evenly");
  }

  Program run() {
    IndexPool& p = b_.pool();
    const Space batch = space_of(b_, copy_, k_, batch_), rows = space_of(b_, copy_, k_, rows_),
                columns = space_of(b_, copy_, k_, columns_), depth = space_of(b_, copy_, k_, loop_->axes);
    const int64_t tile = s_.tile, step = s_.unroll;
    b_.begin_launch();
    // Blocks that follow each other share rows.
    const Expr z = begin_unless_one(batch.points), i = begin_unless_one(b_.ceil_div(rows.points, tile)),
               j = begin_unless_one(b_.ceil_div(columns.points, tile));
    const Expr thread = b_.begin(Bind::Block, "t", p.number(s_.threads));
    const Expr across = p.number(tile / s_.vector);
    const Expr y = p.floordiv(thread, across), x = p.mod(thread, across);
    const Expr first_row = b_.scaled(i, tile), first_column = b_.scaled(j, tile);
    // 16 bytes between the columns of the operands' tiles keep their rows aligned and in different banks.
    const int64_t pitch = tile + 16 / type_bytes(type_);
    const uint32_t left = b_.buffer("left", Memory::Shared, type_, p.number(pitch * step)),
                   right = b_.buffer("right", Memory::Shared, type_, p.number(pitch * step));
    const uint32_t sums = b_.buffer("sums", Memory::Register, type_, p.number(int64_t{s_.rows} * s_.vector)),
                   a = b_.buffer("a", Memory::Register, type_, p.number(s_.rows)),
                   b = b_.buffer("b", Memory::Register, type_, p.number(s_.vector));
    const Expr clear = b_.begin(Bind::Unroll, "c", p.number(int64_t{s_.rows} * s_.vector));
    b_.store(sums, clear, b_.constant(type_, uint64_t{0}));
    b_.end();

    go_to(b_, copy_, batch, z);
    const Expr k = b_.begin(Bind::Serial, "k", b_.ceil_div(depth.points, step));
    const Expr first = b_.scaled(k, step);
    fill(left, 0, rows, first_row, depth, first, thread, pitch, constant_bits(type_, 0.0));
    fill(right, 1, columns, first_column, depth, first, thread, pitch, is_float(type_) ? constant_bits(type_, -0.0) : 0);
    b_.barrier(BarrierScope::Block);
    const Expr kk = b_.begin(Bind::Unroll, "d", p.number(step));
    b_.load_elements(left, p.add(b_.scaled(kk, pitch), b_.scaled(y, s_.rows)), a, kZero, s_.rows);
    b_.load_elements(right, p.add(b_.scaled(kk, pitch), b_.scaled(x, s_.vector)), b, kZero, s_.vector);
    each_sum([&](Expr r, Expr c, Expr number) {
      b_.store(sums, number, b_.multiply_add(b_.load(a, r), b_.load(b, c), b_.load(sums, number)));
    });
    b_.end();
    b_.barrier(BarrierScope::Block);
    b_.end();

    go_to(b_, copy_, batch, z);
    each_sum([&](Expr r, Expr c, Expr number) {
      const Expr row = p.add(p.add(first_row, b_.scaled(y, s_.rows)), r),
                 column = p.add(p.add(first_column, b_.scaled(x, s_.vector)), c);
      const bool opened = b_.begin_if(b_.both(b_.below(row, rows.points), b_.below(column, columns.points)));
      go_to(b_, copy_, rows, row);
      go_to(b_, copy_, columns, column);
      copy_.set_value(dot_, b_.load(sums, number));
      for (const Item& item : k_.body)
        if (!item.is_loop) copy_.copy(item.id);
      b_.end_if(opened);
    });
    b_.end();
    for (const Expr e : {z, i, j})
      if (e != kZero) b_.end();
    b_.end_launch();
    return std::move(b_.p);
  }

 private:
  // A step of one operand, to shared memory: [step][tile]. Neighbouring threads load what lies side by side.
  void fill(uint32_t shared, size_t operand, const Space& space, Expr first, const Space& depth, Expr first_depth, Expr thread,
            int64_t pitch, uint64_t beyond) {
    IndexPool& p = b_.pool();
    const uint32_t value = k_.insts[dot_].args[operand];
    const bool along = contiguous_along(value, loop_->axes);
    const int64_t each = int64_t{s_.tile} * s_.unroll / s_.threads;
    const Expr e = b_.begin_unless_one(Bind::Unroll, "e", p.number(each));
    const Expr number = p.add(b_.scaled(e, s_.threads), thread);
    const Expr fast = p.number(along ? s_.unroll : s_.tile);
    const Expr slow_at = p.floordiv(number, fast), fast_at = p.mod(number, fast);
    const Expr in_tile = along ? slow_at : fast_at, in_step = along ? fast_at : slow_at;
    const Expr point = p.add(first, in_tile), at = p.add(first_depth, in_step);
    const uint32_t ok = b_.both(b_.below(point, space.points), b_.below(at, depth.points));
    go_to(b_, copy_, space, point);
    go_to(b_, copy_, depth, at);
    std::map<uint32_t, uint32_t> known;
    uint32_t v = evaluate(value, ok, known);
    if (ok != kNone) v = b_.select(ok, v, b_.constant(type_, beyond));
    b_.store(shared, p.add(b_.scaled(in_step, pitch), in_tile), v);
    b_.end_unless_one();
  }

  template <class F>
  void each_sum(const F& f) {
    IndexPool& p = b_.pool();
    const Expr r = b_.begin_unless_one(Bind::Unroll, "r", p.number(s_.rows));
    const Expr c = b_.begin_unless_one(Bind::Unroll, "c", p.number(s_.vector));
    f(r, c, p.add(b_.scaled(r, s_.vector), c));
    b_.end_unless_one();
    b_.end_unless_one();
  }
};

}  // namespace

Program product_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a) {
  return ProductWriter(k, s, d, a).run();
}

// How many rows and columns a product has; nothing where a symbol says so. Throws TSR-K041 where it is none.
ProductSize product_size(Kernel& k) {
  ProductSize out;
  const Loop* loop = nullptr;
  for (const Loop& l : k.loops) loop = &l;
  uint32_t dot = kNone;
  for (uint32_t i = 0; i < k.insts.size(); ++i)
    if (k.insts[i].op == Op::Reduce && static_cast<ReduceKind>(k.insts[i].id) == ReduceKind::Dot) dot = i;
  if (!loop || dot == kNone) no_program("it has no product");
  const auto uses = [&](uint32_t id, uint32_t axis) {
    return any_below(k, id, [&](const Inst& x) {
      return (x.op == Op::Load || x.op == Op::Index) && k.pool.uses(x.index, AtomKind::Axis, axis);
    });
  };
  const auto times = [&](std::optional<int64_t>& n, uint32_t axis) {
    const auto more = k.pool.as_number(k.pool.extent(axis));
    n = n && more ? std::optional(*n * *more) : std::nullopt;
  };
  out.rows = out.columns = out.depth = out.batch = 1;
  for (const uint32_t axis : k.parallel) {
    const bool l = uses(k.insts[dot].args[0], axis), r = uses(k.insts[dot].args[1], axis);
    times(l == r ? out.batch : l ? out.rows : out.columns, axis);
  }
  for (const uint32_t axis : loop->axes) times(out.depth, axis);
  return out;
}

}  // namespace tessera::kit
