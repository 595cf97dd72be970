// SPDX-License-Identifier: Apache-2.0
// Scatters: a thread owns all elements that the updates it applies can reach, so that updates come in their order without
// atomics.
#include "node_program.hpp"

namespace tessera::kit {
namespace {

// What an update makes of an element, both of the storage type.
uint32_t updated(NodeWriter& w, std::string_view how, uint32_t old, uint32_t update) {
  if (how == "none") return update;
  const Type type = w.b.type_of(old);
  if (type == Type::Bool) {
    const bool any = how == "add" || how == "max";
    return any ? w.either(old, update) : w.both(old, update);
  }
  const uint32_t a = w.widened(old), b = w.widened(update);
  if (how == "add" || how == "mul") return w.convert(w.b.binary(how == "add" ? Op::Add : Op::Mul, a, b), type);
  const uint32_t keeps = w.either(w.is_nan(a), w.b.binary(how == "max" ? Op::Gt : Op::Lt, a, b));
  return w.b.select(keeps, old, update);
}

void apply(NodeWriter& w, std::string_view how, uint32_t inside, Expr to, Expr update_at) {
  const bool opened = w.b.begin_if(inside);
  const uint32_t update = w.b.load(w.input(2), update_at);
  w.b.store(w.output(0), to, how == "none" ? update : updated(w, how, w.b.load(w.output(0), to), update));
  w.b.end_if(opened);
}

}  // namespace

// A thread for each line along the axis.
void write_scatter(NodeWriter& w) {
  IndexPool& p = w.pool();
  const std::string how(w.node.attr("reduction").as_string());
  const std::vector<Expr> sizes = w.shape(w.input(0)), updates = w.shape(w.input(1));
  const size_t axis = w.axis("axis", w.input(0));
  std::vector<Expr> lines = sizes;
  lines[axis] = kOne;
  w.each(w.points(lines), [&](Expr line) {
    std::vector<Expr> at = p.position(line, lines);
    const Expr i = w.b.begin(Bind::Serial, "i", sizes[axis]);
    at[axis] = i;
    const Expr element = p.linear(at, sizes);
    w.b.store(w.output(0), element, w.b.load(w.input(0), element));
    w.b.end();
    uint32_t reached = kNone;  // by updates at all
    for (size_t d = 0; d < sizes.size(); ++d)
      if (d != axis) reached = w.b.both(reached, w.b.below(at[d], updates[d]));
    const bool opened = w.b.begin_if(reached);
    const Expr j = w.b.begin(Bind::Serial, "j", updates[axis]);
    at[axis] = j;
    const Expr from = p.linear(at, updates);
    const NodeWriter::Checked index = w.checked(w.input(1), from, sizes[axis]);
    at[axis] = index.at;
    apply(w, how, index.inside, p.linear(at, sizes), from);
    w.b.end();
    w.b.end_if(opened);
  });
}

// ---- scatter_nd: the gradient of an embedding is one
//
// Updates come in order, without atomics: tuples of indices are sorted by the slice that they name, those of one slice stay in
// their order, and a thread that owns some elements of a slice applies that slice's updates one after the other.

namespace {

constexpr int64_t kRead = 8;   // keys that are compared, and updates that are loaded, at once
constexpr int64_t kParts = 8;  // of the keys, each of which threads of their own compare, where there are many
constexpr int64_t kFewTuples = 2048;

class SliceScatter {
 public:
  explicit SliceScatter(NodeWriter& w) : w_(w), how_(w.node.attr("reduction").as_string()) {
    IndexPool& p = w.pool();
    sizes_ = w.shape(w.input(0));
    const std::vector<Expr> indices = w.shape(w.input(1));
    depth_ = static_cast<size_t>(*p.as_number(indices.back()));
    slices_ = w.points({sizes_.begin(), sizes_.begin() + static_cast<std::ptrdiff_t>(depth_)});
    width_ = w.points({sizes_.begin() + static_cast<std::ptrdiff_t>(depth_), sizes_.end()});
    tuples_ = w.points({indices.begin(), indices.end() - 1});
    key_ = fits(slices_) ? Type::I32 : Type::I64;
    place_ = fits(tuples_) ? Type::I32 : Type::I64;
    padded_ = w.b.scaled(w.b.ceil_div(tuples_, kRead), kRead);
    keys_ = workspace("keys", key_, padded_);
    sorted_ = workspace("sorted", key_, tuples_);
    order_ = workspace("order", place_, tuples_);
    starts_ = workspace("starts", place_, p.add(slices_, kOne));
  }

  void write() {
    find_keys();
    sort();
    find_starts();
    apply();
  }

 private:
  // As a number of 32 bits, with two more behind the last.
  bool fits(Expr count) const {
    const auto n = w_.pool().as_number(count);
    return n && *n < (int64_t{1} << 31) - 2;
  }
  uint32_t workspace(const char* name, Type t, Expr extent) { return w_.b.buffer(name, Memory::Workspace, t, extent); }
  ProgramBuilder& b() { return w_.b; }
  uint32_t number(Type t, Expr e) { return w_.convert(w_.b.index(e), t); }

  // The slice that each tuple names. Tuples that name none come behind all slices, and what fills the last vector behind
  // those.
  void find_keys() {
    IndexPool& p = w_.pool();
    w_.each(padded_, [&](Expr j) {
      const uint32_t key = w_.variable(key_);
      w_.set(key, number(key_, p.add(slices_, kOne)));
      const bool opened = w_.b.begin_if(w_.b.below(j, tuples_));
      Expr at = kZero;
      uint32_t inside = kNone;
      for (size_t d = 0; d < depth_; ++d) {
        const NodeWriter::Checked index = w_.checked(
            w_.input(1), p.add(w_.b.scaled(j, static_cast<int64_t>(depth_)), p.number(static_cast<int64_t>(d))), sizes_[d]);
        at = p.add(p.mul(at, sizes_[d]), index.at);
        inside = w_.b.both(inside, index.inside);
      }
      const uint32_t slice = number(key_, at);
      w_.set(key, inside == kNone ? slice : w_.b.select(inside, slice, number(key_, slices_)));
      w_.b.end_if(opened);
      w_.b.store(keys_, j, w_.get(key));
    });
  }

  // A tuple's place is how many come before it: those of smaller keys, and earlier ones of the same key. That takes a
  // comparison for each pair. Where there are many, several threads share those of one tuple, for one thread each is too few
  // for a device.
  void sort() {
    IndexPool& p = w_.pool();
    const auto known = p.as_number(tuples_);
    const int64_t parts = known && *known < kFewTuples ? 1 : kParts;
    const uint32_t counts = parts == 1 ? kNone : workspace("counts", place_, b().scaled(tuples_, parts));
    const Expr vectors = b().ceil_div(tuples_, kRead), share = b().ceil_div(vectors, parts);
    w_.each(b().scaled(tuples_, parts), [&](Expr point) {
      const Expr j = parts == 1 ? point : p.mod(point, tuples_), part = parts == 1 ? kZero : p.floordiv(point, tuples_);
      const Expr begin = p.mul(part, share), end = p.min(p.add(begin, share), vectors), own = p.floordiv(j, p.number(kRead));
      const uint32_t mine = b().load(keys_, j), count = w_.variable(place_);
      w_.set(count, b().constant(place_, 0));
      compare(begin, p.min(end, own), count, [&](Expr, uint32_t other) { return b().binary(Op::Le, other, mine); });
      compare(p.max(begin, own), p.min(end, p.add(own, kOne)), count, [&](Expr at, uint32_t other) {
        const uint32_t earlier = b().binary(Op::Lt, b().index(at), b().index(j));
        return w_.either(b().binary(Op::Lt, other, mine), w_.both(b().binary(Op::Eq, other, mine), earlier));
      });
      compare(p.max(begin, p.add(own, kOne)), end, count,
              [&](Expr, uint32_t other) { return b().binary(Op::Lt, other, mine); });
      if (parts == 1)
        put(j, mine, w_.get(count));
      else
        b().store(counts, point, w_.get(count));
    });
    if (parts == 1) return;
    w_.each(tuples_, [&](Expr j) {
      uint32_t count = b().load(counts, j);
      for (int64_t k = 1; k < parts; ++k)
        count = b().binary(Op::Add, count, b().load(counts, p.add(b().scaled(tuples_, k), j)));
      put(j, b().load(keys_, j), count);
    });
  }
  // Adds to `count` how many of the keys of vectors [from, to) `before` holds for.
  template <class F>
  void compare(Expr from, Expr to, uint32_t count, const F& before) {
    IndexPool& p = w_.pool();
    const uint32_t others = b().buffer("others", Memory::Register, key_, p.number(kRead));
    const Expr i = b().begin(Bind::Serial, "i", p.max(kZero, p.sub(to, from)));
    // The minimum changes nothing, and shows the verifier that the place exists.
    const Expr first = b().scaled(p.min(p.add(from, i), p.sub(b().ceil_div(tuples_, kRead), kOne)), kRead);
    b().load_elements(keys_, first, others, kZero, kRead);
    const Expr u = b().begin(Bind::Unroll, "u", p.number(kRead));
    const uint32_t counts = before(p.add(first, u), b().load(others, u));
    w_.set(count, b().binary(Op::Add, w_.get(count), w_.convert(counts, place_)));
    b().end();
    b().end();
  }
  void put(Expr j, uint32_t key, uint32_t count) {
    const Expr place = w_.pool().value(count);
    b().store(order_, place, number(place_, j));
    b().store(sorted_, place, key);
  }

  // How many updates belong to slices before this one, by bisection.
  void find_starts() {
    IndexPool& p = w_.pool();
    constexpr int64_t kMostSteps = 48;
    int64_t steps = kMostSteps;
    if (const auto n = p.as_number(tuples_))
      for (steps = 0; (int64_t{1} << steps) <= *n;) ++steps;
    w_.each(p.add(slices_, kOne), [&](Expr slice) {
      const uint32_t low = w_.variable(place_), high = w_.variable(place_), one = w_.b.constant(place_, 1);
      w_.set(low, w_.b.constant(place_, 0));
      w_.set(high, number(place_, tuples_));
      const uint32_t mine = number(key_, slice);
      if (steps > 0) {
        w_.b.begin(Bind::Serial, "s", p.number(steps));
        const uint32_t from = w_.get(low), to = w_.get(high), open = w_.b.binary(Op::Lt, from, to);
        const uint32_t middle = w_.b.binary(Op::Add, from, w_.b.binary(Op::Shr, w_.b.binary(Op::Sub, to, from), one));
        const uint32_t key = w_.b.load_or(sorted_, p.value(middle), open, w_.b.constant(key_, 0));
        const uint32_t before = w_.b.binary(Op::Lt, key, mine);
        w_.set(low, w_.b.select(w_.both(open, before), w_.b.binary(Op::Add, middle, one), from));
        w_.set(high, w_.b.select(w_.both(open, w_.no(before)), middle, to));
        w_.b.end();
      }
      w_.b.store(starts_, slice, w_.get(low));
    });
  }

  // Some elements of a slice, side by side, for each thread.
  void apply() {
    IndexPool& p = w_.pool();
    const Type type = w_.b.p.buffers[w_.input(0)].type;
    int64_t side = 16 / type_bytes(type);
    while (side > 1 && !w_.b.p.divisible(width_, side)) side /= 2;
    if (width_ == kZero) return;
    const Expr vectors = p.floordiv(width_, p.number(side));
    w_.each(p.mul(slices_, vectors), [&](Expr point) {
      const Expr slice = p.floordiv(point, vectors), first = w_.b.scaled(p.mod(point, vectors), side);
      const Expr at = p.add(p.mul(slice, width_), first);
      const uint32_t values = w_.b.buffer("values", Memory::Register, type, p.number(side));
      w_.b.load_elements(w_.input(0), at, values, kZero, side);
      const Expr from = p.value(w_.convert(w_.b.load(starts_, slice), Type::I64)),
                 to = p.value(w_.convert(w_.b.load(starts_, p.add(slice, kOne)), Type::I64));
      const auto update_at = [&](Expr i) {
        return p.add(p.mul(p.value(w_.convert(w_.b.load(order_, i), Type::I64)), width_), first);
      };
      if (how_ == "none") {  // the last one wins
        const bool any = w_.b.begin_if(w_.b.binary(Op::Lt, w_.b.index(from), w_.b.index(to)));
        w_.b.load_elements(w_.input(2), update_at(p.sub(to, kOne)), values, kZero, side);
        w_.b.end_if(any);
      } else {
        const uint32_t updates = w_.b.buffer("updates", Memory::Register, type, p.number(kRead * side));
        const Expr i = w_.b.begin(Bind::Serial, "i", w_.b.ceil_div(p.sub(to, from), kRead));
        for (const bool loads : {true, false}) {
          const Expr u = w_.b.begin(Bind::Unroll, "u", p.number(kRead));
          const Expr number = p.add(from, p.add(w_.b.scaled(i, kRead), u));
          const bool exists = w_.b.begin_if(w_.b.binary(Op::Lt, w_.b.index(number), w_.b.index(to)));
          if (loads) {
            w_.b.load_elements(w_.input(2), update_at(number), updates, w_.b.scaled(u, side), side);
          } else {
            const Expr v = w_.b.begin_unless_one(Bind::Unroll, "v", p.number(side));
            const uint32_t update = w_.b.load(updates, p.add(w_.b.scaled(u, side), v));
            w_.b.store(values, v, updated(w_, how_, w_.b.load(values, v), update));
            w_.b.end_unless_one();
          }
          w_.b.end_if(exists);
          w_.b.end();
        }
        w_.b.end();
      }
      w_.b.store_elements(w_.output(0), at, values, kZero, side);
    });
  }

  NodeWriter& w_;
  std::string how_;
  std::vector<Expr> sizes_;
  size_t depth_ = 0;
  Expr slices_ = kOne, width_ = kOne, tuples_ = kOne, padded_ = kOne;
  Type key_ = Type::I64, place_ = Type::I64;
  uint32_t keys_ = kNone, sorted_ = kNone, order_ = kNone, starts_ = kNone;
};

}  // namespace

void write_scatter_nd(NodeWriter& w) {
  if (is_large(w.pool(), w.b.p.buffers[w.output(0)])) w.may_overwrite(0);
  SliceScatter(w).write();
}

}  // namespace tessera::kit
