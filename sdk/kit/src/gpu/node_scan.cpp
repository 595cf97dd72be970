// SPDX-License-Identifier: Apache-2.0
// Running sums, products and extremes; sorting, and searching what is sorted.
#include "node_program.hpp"

namespace tessera::kit {
namespace {

// A tensor around one axis: [before, n, behind].
struct Around {
  Expr before = kOne, n = kOne, behind = kOne;

  Around(IndexPool& p, const std::vector<Expr>& shape, size_t axis) {
    for (size_t d = 0; d < shape.size(); ++d) {
      Expr& part = d < axis ? before : d == axis ? n : behind;
      part = p.mul(part, shape[d]);
    }
  }
  Expr lines(IndexPool& p) const { return p.mul(before, behind); }
  // Element `i` of a line.
  Expr at(IndexPool& p, Expr line, Expr i, Expr size) const {
    const Expr outer = p.floordiv(line, behind), inner = p.mod(line, behind);
    return p.add(p.mul(p.add(p.mul(outer, size), i), behind), inner);
  }
};

uint32_t constant_of(NodeWriter& w, Type t, int64_t x) { return w.b.constant(t, constant_bits(t, x)); }

void running_total(NodeWriter& w, const Around& x, Expr line, bool product) {
  IndexPool& p = w.pool();
  const Type type = w.b.p.buffers[w.input(0)].type, wide = compute_type(type);
  const bool exclusive = w.node.attr("exclusive").as_bool(), reverse = w.node.attr("reverse").as_bool();
  const uint32_t total = w.variable(wide);
  w.set(total, constant_of(w, wide, product ? 1 : 0));
  const Expr i = w.b.begin(Bind::Serial, "i", x.n);
  const Expr at = x.at(p, line, reverse ? p.sub(p.sub(x.n, kOne), i) : i, x.n);
  const uint32_t before = w.get(total);
  const uint32_t now = w.b.binary(product ? Op::Mul : Op::Add, before, w.widened(w.b.load(w.input(0), at)));
  w.set(total, now);
  w.b.store(w.output(0), at, w.convert(exclusive ? before : now, type));
  w.b.end();
}

void running_extreme(NodeWriter& w, const Around& x, Expr line, bool greatest) {
  IndexPool& p = w.pool();
  const Type type = w.b.p.buffers[w.input(0)].type;
  const uint32_t best = w.variable(type), place = w.variable(Type::I64);
  w.set(best, constant_of(w, type, 0));
  w.set(place, w.b.constant(Type::I64, 0));
  const Expr i = w.b.begin(Bind::Serial, "i", x.n);
  const Expr at = x.at(p, line, i, x.n);
  const uint32_t v = w.b.load(w.input(0), at), a = w.widened(v), b = w.widened(w.get(best));
  // NaN counts as the extreme, and the last of equals is taken.
  uint32_t takes = w.either(w.is_nan(a), w.both(w.no(w.is_nan(b)), w.b.binary(greatest ? Op::Ge : Op::Le, a, b)));
  takes = w.either(takes, w.b.binary(Op::Eq, w.b.index(i), w.b.constant(Type::I64, 0)));
  w.set(best, w.b.select(takes, v, w.get(best)));
  w.set(place, w.b.select(takes, w.b.index(i), w.get(place)));
  w.b.store(w.output(0), at, w.get(best));
  w.b.store(w.output(1), at, w.get(place));
  w.b.end();
}

}  // namespace

void write_scan(NodeWriter& w) {
  const Around x(w.pool(), w.shape(w.input(0)), w.axis("axis", w.input(0)));
  w.each(x.lines(w.pool()), [&](Expr line) {
    if (w.node.is("cumsum") || w.node.is("cumprod"))
      running_total(w, x, line, w.node.is("cumprod"));
    else
      running_extreme(w, x, line, w.node.is("cummax"));
  });
}

// Every element counts how many come before it: that is its place.
void write_sort(NodeWriter& w) {
  IndexPool& p = w.pool();
  const bool top = w.node.is("topk");
  const size_t axis = w.axis("axis", w.input(0));
  const Around x(p, w.shape(w.input(0)), axis);
  const Expr kept = w.shape(w.output(0))[axis];
  const bool descending = w.node.attr(top ? "largest" : "descending").as_bool();
  w.each(p.mul(x.lines(p), x.n), [&](Expr point) {
    const Expr line = p.floordiv(point, x.n), i = p.mod(point, x.n);
    const uint32_t v = w.b.load(w.input(0), x.at(p, line, i, x.n)), mine = w.widened(v);
    const uint32_t count = w.variable(Type::I64);
    w.set(count, w.b.constant(Type::I64, 0));
    const Expr j = w.b.begin(Bind::Serial, "j", x.n);
    const uint32_t other = w.widened(w.b.load(w.input(0), x.at(p, line, j, x.n)));
    const uint32_t before = descending ? w.less(mine, other) : w.less(other, mine),
                   behind = descending ? w.less(other, mine) : w.less(mine, other);
    const uint32_t first = w.b.binary(Op::Lt, w.b.index(j), w.b.index(i));
    const uint32_t counts = w.either(before, w.both(w.no(behind), first));
    w.set(count, w.b.binary(Op::Add, w.get(count), w.convert(counts, Type::I64)));
    w.b.end();
    const uint32_t place = w.get(count);
    const bool opened = w.b.begin_if(top ? w.b.binary(Op::Lt, place, w.b.index(kept)) : kNone);
    const Expr to = x.at(p, line, p.value(place), kept);
    w.b.store(w.output(0), to, v);
    w.b.store(w.output(1), to, w.b.index(i));
    w.b.end_if(opened);
  });
}

// Bisection: `low` is how many elements are known to stand before the value.
void write_search(NodeWriter& w) {
  IndexPool& p = w.pool();
  const std::vector<Expr>& sorted = w.shape(w.input(0));
  const std::vector<Expr>& values = w.shape(w.input(1));
  const bool right = w.node.attr("right").as_bool();
  const Expr n = sorted.back();
  constexpr int64_t kMostSteps = 48;
  int64_t steps = kMostSteps;
  if (const auto known = p.as_number(n))
    for (steps = 0; (int64_t{1} << steps) <= *known;) ++steps;
  w.each(w.points(values), [&](Expr point) {
    const Expr row = sorted.size() == 1 ? kZero : p.mul(p.floordiv(point, values.back()), n);
    const uint32_t v = w.widened(w.b.load(w.input(1), point));
    const uint32_t low = w.variable(Type::I64), high = w.variable(Type::I64);
    w.set(low, w.b.constant(Type::I64, 0));
    w.set(high, w.b.index(n));
    if (steps > 0) {
      w.b.begin(Bind::Serial, "s", p.number(steps));
      const uint32_t from = w.get(low), to = w.get(high), open = w.b.binary(Op::Lt, from, to);
      const uint32_t middle = w.b.binary(Op::Shr, w.b.binary(Op::Add, from, to), w.b.constant(Type::I64, 1));
      const Type type = w.b.p.buffers[w.input(0)].type;
      const uint32_t x = w.widened(
          w.b.load_or(w.input(0), p.add(row, p.value(middle)), open, w.b.constant(type, constant_bits(type, int64_t{0}))));
      const uint32_t before = right ? w.no(w.less(v, x)) : w.less(x, v);
      const uint32_t up = w.both(open, before), down = w.both(open, w.no(before));
      w.set(low, w.b.select(up, w.b.binary(Op::Add, middle, w.b.constant(Type::I64, 1)), from));
      w.set(high, w.b.select(down, middle, to));
      w.b.end();
    }
    w.b.store(w.output(0), point, w.get(low));
  });
}

}  // namespace tessera::kit
