// SPDX-License-Identifier: Apache-2.0
// Reductions along few and long rows, such as the sum of a whole tensor: many blocks share a row. In the first launch each
// group of
// 32 threads reduces some chunks of a row as the family's order has them and leaves their results; the next launches reduce
// those by the same rule, until one is left. So the bits are those of a row that one block reduces.
#include <algorithm>

#include "build.hpp"

namespace tessera::kit {
namespace {

class SplitWriter {
 public:
  SplitWriter(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a)
      : k_(k), s_(s), o_(o), b_(k.name, d), buffers_(declare_buffers(b_, k, a)), copy_(b_, k, buffers_) {
    if (k.loops.size() != 1 || k.loops[0].across) no_program("several loops, or one across rows");
    if (o.interleaved || !o.by_halves) no_program("an order of reductions that needs whole rows");
    for (const Item& i : k.loops[0].body) {
      if (i.is_loop) no_program("loops inside each other");
      const Inst& x = k.insts[i.id];
      if (x.op == Op::Store) no_program("a value of every point");
      if (x.op != Op::Reduce) continue;
      if (!plain_reduction(k, i.id)) no_program("a reduction of a kind that is not plain");
      reductions_.push_back(i.id);
      reducers_.push_back(reducer_of(k, i.id));
    }
    if (s.threads % std::max(SimtOrder::kThreads, int64_t{d.wave}) != 0) no_program("threads that are no whole groups");
  }

  Program run() {
    IndexPool& p = b_.pool();
    const Space rows = space_of(b_, copy_, k_, k_.parallel), columns = space_of(b_, copy_, k_, k_.loops[0].axes);
    Expr count = columns.points;
    std::vector<uint32_t> from;  // partial results of the level before; none: the kernel's own values
    constexpr size_t kLevelsUnknown = 3;
    for (size_t level = 0;; ++level) {
      const auto known = p.as_number(count);
      const bool last = known ? *known <= o_.chunk() : level + 1 == kLevelsUnknown;
      if (last && !known) b_.p.require.push_back({columns.points, o_.chunk() * o_.chunk() * o_.chunk()});
      const Expr chunks = last ? kOne : b_.ceil_div(count, o_.chunk());
      std::vector<uint32_t> to;
      for (const Reducer& r : reducers_)
        if (!last)
          to.push_back(
              b_.buffer(std::string(reduce_name(r.kind)) + "_partial", Memory::Workspace, r.type, p.mul(rows.points, chunks)));
      launch(rows, columns, count, chunks, from, to);
      if (last) return std::move(b_.p);
      from = to;
      count = chunks;
    }
  }

 private:
  void launch(const Space& rows, const Space& columns, Expr count, Expr chunks, const std::vector<uint32_t>& from,
              const std::vector<uint32_t>& to) {
    IndexPool& p = b_.pool();
    const bool last = to.empty();
    const int64_t groups = last ? std::max<int64_t>(1, b_.p.wave / SimtOrder::kThreads) : s_.threads / SimtOrder::kThreads;
    const int64_t each = last ? 1 : s_.unroll;
    b_.begin_launch();
    const Expr row = b_.begin_unless_one(Bind::Grid, "b", rows.points);
    const Expr block = b_.begin_unless_one(Bind::Grid, "b", b_.ceil_div(chunks, groups * each));
    const Expr group = b_.begin(Bind::Block, "t", p.number(groups)),
               lane = b_.begin(Bind::Block, "t", p.number(SimtOrder::kThreads));
    go_to(b_, copy_, rows, row);
    std::vector<uint32_t> values, running;
    for (const Reducer& r : reducers_) {
      values.push_back(b_.buffer("values", Memory::Register, r.type, p.number(SimtOrder::kVector)));
      running.push_back(b_.buffer("running", Memory::Register, r.type, p.number(each)));
    }
    // Loads of all chunks first, so that they are on their way together.
    std::vector<Load> loads;
    if (from.empty()) loads = loads_of(columns, each);
    for (size_t i = 0; i < reducers_.size() && !from.empty(); ++i)
      loads.push_back({kNone, from[i], register_of(reducers_[i].type, each), width_of(count)});
    const auto chunk_of = [&](Expr u) { return p.add(b_.scaled(p.add(b_.scaled(block, groups), group), each), u); };
    const auto element_of = [&](Expr u, Expr step) {
      return p.add(p.add(b_.scaled(chunk_of(u), o_.chunk()), b_.scaled(step, SimtOrder::kRow)),
                   b_.scaled(lane, SimtOrder::kVector));
    };
    const auto place_of = [&](Expr u, Expr step) { return b_.scaled(p.add(b_.scaled(u, o_.steps), step), SimtOrder::kVector); };
    {
      const Expr u = b_.begin_unless_one(Bind::Unroll, "u", p.number(each)),
                 step = b_.begin_unless_one(Bind::Unroll, "s", p.number(o_.steps));
      for (const Load& l : loads) {
        const Expr h = b_.begin_unless_one(Bind::Unroll, "h", p.number(SimtOrder::kVector / l.width));
        const Expr element = p.add(element_of(u, step), b_.scaled(h, l.width));
        const bool opened = b_.begin_if(b_.below(element, count));
        Expr at = p.add(p.mul(row, count), element);
        if (l.inst != kNone) {
          go_to(b_, copy_, columns, element);
          at = copy_.index(k_.insts[l.inst].index);
        }
        b_.load_elements(l.from, at, l.registers, p.add(place_of(u, step), b_.scaled(h, l.width)), l.width);
        b_.end_if(opened);
        b_.end_unless_one();
      }
      b_.end_unless_one();
      b_.end_unless_one();
    }
    const Expr u = b_.begin_unless_one(Bind::Unroll, "u", p.number(each));
    for (size_t i = 0; i < reducers_.size(); ++i) b_.store(running[i], u, b_.identity(reducers_[i]));
    const Expr step = b_.begin_unless_one(Bind::Unroll, "s", p.number(o_.steps));
    const Expr v = b_.begin(Bind::Unroll, "v", p.number(SimtOrder::kVector));
    for (size_t i = 0; i < reducers_.size(); ++i) b_.store(values[i], v, b_.identity(reducers_[i]));
    const Expr element = p.add(element_of(u, step), v), place = p.add(place_of(u, step), v);
    const bool opened = b_.begin_if(b_.below(element, count));
    if (from.empty()) {
      go_to(b_, copy_, columns, element);
      for (const Item& item : k_.body)
        if (!item.is_loop && before_loop(item.id)) copy_.copy(item.id);
      for (const Load& l : loads) copy_.set_value(l.inst, b_.load(l.registers, place));
      for (const Item& item : k_.loops[0].body)
        if (k_.insts[item.id].op != Op::Reduce && !loaded(loads, item.id)) copy_.copy(item.id);
      for (size_t i = 0; i < reducers_.size(); ++i) b_.store(values[i], v, copy_.value(k_.insts[reductions_[i]].args[0]));
    } else {
      for (size_t i = 0; i < reducers_.size(); ++i) b_.store(values[i], v, b_.load(loads[i].registers, place));
    }
    b_.end_if(opened);
    b_.end();
    for (size_t i = 0; i < reducers_.size(); ++i) {
      const uint32_t vector = b_.combine_halves(reducers_[i], values[i], kZero, SimtOrder::kVector);
      b_.store(running[i], u, b_.combine(reducers_[i], b_.load(running[i], u), vector));
    }
    b_.end_unless_one();
    std::vector<uint32_t> results;
    for (size_t i = 0; i < reducers_.size(); ++i)
      results.push_back(b_.combine_lanes(reducers_[i], b_.load(running[i], u), SimtOrder::kThreads));
    const uint32_t first = b_.binary(Op::Eq, b_.index(lane), b_.constant(Type::I64, 0));
    const uint32_t mine = b_.both(first, b_.below(chunk_of(u), chunks));
    const bool stores = b_.begin_if(mine);
    if (last)
      finish(results);
    else
      for (size_t i = 0; i < results.size(); ++i) b_.store(to[i], p.add(p.mul(row, chunks), chunk_of(u)), results[i]);
    b_.end_if(stores);
    b_.end_unless_one();
    b_.end();
    b_.end();
    b_.end_unless_one();
    b_.end_unless_one();
    b_.end_launch();
  }

  void finish(const std::vector<uint32_t>& results) {
    for (size_t i = 0; i < results.size(); ++i) copy_.set_value(reductions_[i], results[i]);
    for (const Item& item : k_.body)
      if (!item.is_loop) copy_.copy(item.id);
  }
  // Does an instruction stand before the loop? Its operands then do not come from it.
  bool before_loop(uint32_t id) const {
    for (const Item& item : k_.body) {
      if (item.is_loop) return false;
      if (item.id == id) return k_.insts[id].op != Op::Store;
    }
    return false;
  }

  struct Load {
    uint32_t inst, from, registers;
    int64_t width;  // elements that are loaded at once, inside or outside together
  };
  static bool loaded(const std::vector<Load>& loads, uint32_t id) {
    return std::any_of(loads.begin(), loads.end(), [&](const Load& l) { return l.inst == id; });
  }
  uint32_t register_of(Type t, int64_t each) {
    return b_.buffer("loaded", Memory::Register, t, b_.pool().number(each * o_.steps * SimtOrder::kVector));
  }
  int64_t width_of(Expr count) {
    int64_t width = SimtOrder::kVector;
    while (width > 1 && !b_.p.divisible(count, width)) width /= 2;
    return width;
  }
  std::vector<Load> loads_of(const Space& columns, int64_t each) {
    std::vector<Load> out;
    if (columns.groups.size() != 1) return out;
    for (const Item& item : k_.loops[0].body) {
      const Inst& x = k_.insts[item.id];
      if (!contiguous_load(k_, x, columns.groups[0].inner)) continue;
      out.push_back({item.id, buffers_[x.id], register_of(x.type, each), width_of(columns.points)});
    }
    return out;
  }

  Kernel& k_;
  SimtSchedule s_;
  SimtOrder o_;
  ProgramBuilder b_;
  std::vector<uint32_t> buffers_;
  KernelCopy copy_;
  std::vector<uint32_t> reductions_;
  std::vector<Reducer> reducers_;
};

}  // namespace

Program split_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a) {
  return SplitWriter(k, s, d, o, a).run();
}

}  // namespace tessera::kit
