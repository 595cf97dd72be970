// SPDX-License-Identifier: Apache-2.0
// The form of last resort: one thread for each point of the kernel, which runs the kernel's loops by itself. It computes every
// kernel, whatever its loops, so that a device of the family runs whatever lowers; other forms are there for speed.
//
// A thread reduces in the family's order all the same. That order is a tree whose shape does not depend on the data: halves of
// vectors, running values of threads, halves of threads, and the same again over the results of chunks. The tree's leaves are
// visited one after the other, with a running value for each level, so the body stands in the text once. What lies beyond the
// end is the identity, which combines without a trace, and is left out.
#include <algorithm>
#include <functional>
#include <utility>

#include "build.hpp"

namespace tessera::kit {
namespace {

constexpr size_t kLevelsUnknown = 3;  // of chunks of chunks, where only the launch knows how many there are

class GenericWriter {
 public:
  GenericWriter(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a)
      : k_(k), s_(s), o_(o), b_(k.name, d), copy_(b_, k, declare_buffers(b_, k, a)) {
    if (o.interleaved || !o.by_halves || !o.interleaved_runs)
      no_program("a thread of its own reduces in the family's order only");
    for (uint32_t i = 0; i < k.insts.size(); ++i)
      if (k.insts[i].op == Op::Second) no_program("a reduction with two results");
  }

  Program run() {
    IndexPool& p = b_.pool();
    const Space space = space_of(k_.parallel);
    b_.begin_launch();
    const Expr block = b_.begin(Bind::Grid, "b", b_.ceil_div(space.points, s_.threads));
    const Expr thread = b_.begin(Bind::Block, "t", p.number(s_.threads));
    const Expr point = p.add(b_.scaled(block, s_.threads), thread);
    const bool opened = b_.begin_if(b_.below(point, space.points));
    go_to(space, point);
    items(k_.body);
    b_.end_if(opened);
    b_.end();
    b_.end();
    b_.end_launch();
    return std::move(b_.p);
  }

 private:
  Space space_of(const std::vector<uint32_t>& axes) { return kit::space_of(b_, copy_, k_, axes); }
  void go_to(const Space& space, Expr point) { kit::go_to(b_, copy_, space, point); }

  // A running value: its registers, of one element each. Arg-reductions have the place as well.
  struct Slot {
    uint32_t a = kNone, b = kNone;
  };
  struct Reduction {
    uint32_t inst;
    Reducer reducer;
    Slot leaf;
  };

  void items(const std::vector<Item>& body) {
    for (const Item& i : body) {
      if (i.is_loop)
        loop(k_.loops[i.id]);
      else if (k_.insts[i.id].op != Op::Reduce)
        copy_.copy(i.id);
    }
  }

  // ---- loops

  void loop(const Loop& l) {
    const Space space = space_of(l.axes);
    const size_t before = taken_.size();
    std::vector<Reduction> all;
    std::vector<uint32_t> products, running;  // dots, which go from one point to the next
    for (const Item& i : l.body) {
      if (i.is_loop || k_.insts[i.id].op != Op::Reduce) continue;
      const Reducer r = reducer_of(k_, i.id);
      if (r.kind == ReduceKind::Welford || r.kind == ReduceKind::OnlineSoftmax)
        no_program(std::string("a reduction of kind ") + reduce_name(r.kind));
      if (r.kind == ReduceKind::Dot) {
        products.push_back(i.id);
        running.push_back(slot(r).a);
        clear(r, {running.back(), kNone});
      } else {
        all.push_back({i.id, r, slot(r)});
      }
    }
    if (!products.empty() || all.empty()) {
      serial(space, [&] {
        items(l.body);
        for (size_t i = 0; i < products.size(); ++i) {
          const Inst& x = k_.insts[products[i]];
          b_.store(running[i], kZero,
                   b_.multiply_add(copy_.value(x.args[0]), copy_.value(x.args[1]), b_.load(running[i], kZero)));
        }
      });
      for (size_t i = 0; i < products.size(); ++i) copy_.set_value(products[i], b_.load(running[i], kZero));
    }
    if (all.empty()) {
      taken_.resize(before);
      return;
    }
    const auto leaf = [&](Expr at) {
      for (const Reduction& r : all) clear(r.reducer, r.leaf);
      const bool opened = b_.begin_if(b_.below(at, space.points));
      go_to(space, at);
      items(l.body);
      for (const Reduction& r : all) {
        const Inst& x = k_.insts[r.inst];
        b_.store(r.leaf.a, kZero, copy_.value(x.args[0]));
        if (r.leaf.b != kNone) b_.store(r.leaf.b, kZero, b_.index(at));
      }
      b_.end_if(opened);
    };
    const std::vector<Reduction>* const outer = std::exchange(all_, &all);
    const std::vector<Slot> results =
        l.across ? across(levels(space.points, true), kZero, leaf) : along(levels(space.points, false), kZero, leaf);
    for (size_t i = 0; i < all.size(); ++i) {
      const Slot& r = results[i];
      copy_.set_value(all[i].inst, b_.load(r.b != kNone ? r.b : r.a, kZero));
    }
    all_ = outer;
    taken_.resize(before);
  }

  // The axes as loops inside each other, in their order.
  void serial(const Space& space, const std::function<void()>& body) {
    for (size_t g = 0; g < space.groups.size(); ++g)
      copy_.set_axis(space.groups[g].inner, b_.begin_unless_one(Bind::Serial, "r", space.extents[g]));
    body();
    for (size_t g = 0; g < space.groups.size(); ++g) b_.end_unless_one();
  }

  // Element counts of each level: the loop's own points, then chunks of them, until one is left; of an unknown number as many
  // as there can be.
  std::vector<Expr> levels(Expr n, bool across) {
    IndexPool& p = b_.pool();
    const int64_t most = across ? o_.run * o_.fan : o_.chunk();  // what one chunk can have
    std::vector<Expr> counts = {n};
    for (;;) {
      const auto known = p.as_number(counts.back());
      if (known && *known <= most) return counts;
      if (!known && counts.size() == kLevelsUnknown) {
        b_.p.require.push_back({n, most * most * most});
        return counts;
      }
      const Expr chunk = across ? block_of(counts.back()) : p.number(most);
      counts.push_back(p.floordiv(p.add(counts.back(), p.sub(chunk, kOne)), chunk));
    }
  }
  Expr block_of(Expr count) { return b_.scaled(run_of(b_.pool(), o_, count), o_.fan); }

  using Leaf = std::function<void(Expr at)>;

  // The result of chunk `chunk` of the last of these levels.
  std::vector<Slot> along(std::vector<Expr> counts, Expr chunk, const Leaf& leaf) {
    IndexPool& p = b_.pool();
    const Expr n = counts.back();
    counts.pop_back();
    const int64_t known = p.as_number(n).value_or(o_.chunk());
    const int64_t steps = known <= SimtOrder::kRow ? 1 : o_.steps;
    const Expr first = b_.scaled(chunk, o_.chunk());
    const auto vector = [&](Expr row) {
      return halves(1, std::min(known, SimtOrder::kVector), row, n,
                    [&](Expr at) { return level(counts, at, leaf, &GenericWriter::along); });
    };
    const auto thread = [&](Expr at) {
      const std::vector<Slot> running = fresh();
      const Expr s = b_.begin_unless_one(Bind::Serial, "s", p.number(steps));
      take(running, vector(p.add(at, b_.scaled(s, SimtOrder::kRow))));
      b_.end_unless_one();
      return running;
    };
    const int64_t row = std::min(known, SimtOrder::kRow);
    return halves(SimtOrder::kVector, (row + SimtOrder::kVector - 1) / SimtOrder::kVector, first, n, thread);
  }

  std::vector<Slot> across(std::vector<Expr> counts, Expr block, const Leaf& leaf) {
    IndexPool& p = b_.pool();
    const Expr n = counts.back();
    counts.pop_back();
    const auto known = p.as_number(n);
    const Expr length = run_of(p, o_, n);
    const auto run = [&](Expr at) {
      const std::vector<Slot> running = fresh();
      // A single run may be shorter than the others are.
      const Expr turns =
          known ? p.number(std::max<int64_t>(1, std::min(*p.as_number(length), (*known + o_.fan - 1) / o_.fan))) : length;
      const Expr i = b_.begin_unless_one(Bind::Serial, "i", turns);
      take(running, level(counts, p.add(at, b_.scaled(i, o_.fan)), leaf, &GenericWriter::across));
      b_.end_unless_one();
      return running;
    };
    return halves(1, std::min(known.value_or(o_.fan), o_.fan), p.mul(block, b_.scaled(length, o_.fan)), n, run);
  }

  // An element of a level: a point of the loop, or a chunk of the level below.
  std::vector<Slot> level(const std::vector<Expr>& below, Expr at, const Leaf& leaf,
                          std::vector<Slot> (GenericWriter::*chunk)(std::vector<Expr>, Expr, const Leaf&)) {
    if (!below.empty()) return (this->*chunk)(below, at, leaf);
    leaf(at);
    std::vector<Slot> out;
    for (const Reduction& r : *all_) out.push_back(r.leaf);
    return out;
  }

  // Places `stride` apart from `first` on, combined by halves: j with j + n / 2 and so on, of which `used` may have elements.
  // The last halves are the even and the odd places, so places come in the order of their bits reversed, and a running value
  // for each bit waits for its other half. One loop for all bits: compilers take long over deep nests.
  std::vector<Slot> halves(int64_t stride, int64_t used, Expr first, Expr count,
                           const std::function<std::vector<Slot>(Expr)>& part) {
    if (used <= 1) return part(first);
    IndexPool& p = b_.pool();
    std::vector<std::vector<Slot>> running;
    for (int64_t n = 1; n < used; n *= 2) running.push_back(fresh());
    const size_t bits = running.size();
    const Expr i = b_.begin(Bind::Serial, "h", p.number(int64_t{1} << bits));
    Expr place = kZero;
    for (size_t k = 0; k < bits; ++k) {
      const Expr bit = p.mod(p.floordiv(i, p.number(int64_t{1} << k)), p.number(2));
      place = p.add(place, b_.scaled(bit, int64_t{1} << (bits - 1 - k)));
    }
    const Expr at = p.add(first, b_.scaled(place, stride));
    const bool opened = b_.begin_if(b_.below(at, count));
    take(running[0], part(at));
    b_.end_if(opened);
    for (size_t k = 1; k < bits; ++k) {
      const int64_t whole = int64_t{1} << k;
      b_.begin_if(b_.binary(Op::Eq, b_.index(p.mod(i, p.number(whole))), b_.index(p.number(whole - 1))));
      take(running[k], running[k - 1]);
      for (size_t r = 0; r < all_->size(); ++r) clear((*all_)[r].reducer, running[k - 1][r]);
    }
    for (size_t k = 1; k < bits; ++k) b_.end();
    b_.end();
    return running.back();
  }

  // ---- running values

  // A register that no running value has.
  uint32_t take_register(Type t) {
    for (const uint32_t b : made_)
      if (b_.p.buffers[b].type == t && std::find(taken_.begin(), taken_.end(), b) == taken_.end())
        return taken_.emplace_back(b);
    made_.push_back(b_.buffer("v", Memory::Register, t, kOne));
    return taken_.emplace_back(made_.back());
  }
  Slot slot(const Reducer& r) {
    const bool place = r.kind == ReduceKind::ArgMax || r.kind == ReduceKind::ArgMin;
    return {take_register(r.type), place ? take_register(Type::I64) : kNone};
  }
  void clear(const Reducer& r, const Slot& s) {
    b_.store(s.a, kZero, b_.identity(r));
    if (s.b != kNone) b_.store(s.b, kZero, b_.constant(Type::I64, ~uint64_t{0}));
  }
  std::vector<Slot> fresh() {
    std::vector<Slot> out;
    for (const Reduction& r : *all_) {
      out.push_back(slot(r.reducer));
      clear(r.reducer, out.back());
    }
    return out;
  }
  void take(const std::vector<Slot>& running, const std::vector<Slot>& next) {
    for (size_t i = 0; i < running.size(); ++i) {
      const Reducer& r = (*all_)[i].reducer;
      const Slot &x = running[i], &y = next[i];
      const uint32_t a = b_.load(x.a, kZero), b = b_.load(y.a, kZero);
      if (x.b == kNone) {
        b_.store(x.a, kZero, b_.combine(r, a, b));
        continue;
      }
      const uint32_t at = b_.load(x.b, kZero), other = b_.load(y.b, kZero);
      const uint32_t first = b_.comes_first(r, a, at, b, other);
      b_.store(x.a, kZero, b_.select(first, a, b));
      b_.store(x.b, kZero, b_.select(first, at, other));
    }
  }
  Kernel& k_;
  SimtSchedule s_;
  SimtOrder o_;
  ProgramBuilder b_;
  KernelCopy copy_;
  const std::vector<Reduction>* all_ = nullptr;  // of the loop that is being written
  std::vector<uint32_t> made_, taken_;           // registers: all, and those in use
};

}  // namespace

Program generic_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a) {
  return GenericWriter(k, s, d, o, a).run();
}

}  // namespace tessera::kit
