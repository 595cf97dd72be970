// SPDX-License-Identifier: Apache-2.0
// A reduction across rows. A block has some columns and one block of rows as the family's order has them: each of its `fan`
// groups of 32 threads walks a run of rows, the results of runs meet in shared memory, and blocks of rows leave partial results
// that later launches fold. What the kernel stores of each point is stored on the way.
//
// A reduction along rows that do not lie side by side in memory, as those of a transposed matrix, is one too: its elements are
// the rows, and what lies side by side the columns. A block has a chunk, in the order along rows: a group does what several
// threads of that order do, one after the other, and shared memory holds what each of them has.
#include <algorithm>
#include <functional>
#include <map>

#include "build.hpp"

namespace tessera::kit {
namespace {

constexpr int64_t kLanes = 32;  // threads of a group, side by side along the columns
constexpr int64_t kGroups = 8;  // of a block, at most, for a chunk

// The part of a launch that the first one and those that fold have in common: what a group reduces is in registers, then its
// results are combined with the others' in shared memory.
class RunsWriter {
 public:
  struct Shape {
    Expr rows, columns, run;  // run: of an order across rows
    int64_t vector, unroll;
    std::vector<Reducer> reducers;
    bool across = true;
  };
  // `prepare(u, row, column)` makes the loads of row u of those in flight, `values(u, v, row, column)` gives an element of it
  // for each reducer, `store(row, column)` stores what else these make; `finish(block, column, results)` stores the results.
  using Prepare = std::function<void(Expr u, Expr row, Expr column)>;
  using Values = std::function<std::vector<uint32_t>(Expr u, Expr v, Expr row, Expr column)>;
  using Store = std::function<void(Expr row, Expr column)>;
  using Finish = std::function<void(Expr block, Expr column, const std::vector<uint32_t>&)>;

  RunsWriter(ProgramBuilder& b, const SimtOrder& o, Shape s) : b_(b), o_(o), s_(std::move(s)), groups_(o.fan) {
    if (s_.across) return;
    const int64_t rows = b.pool().as_number(s_.rows).value_or(o.chunk());
    steps_ = rows <= SimtOrder::kRow ? 1 : o.steps;
    threads_ = 1;
    while (threads_ < SimtOrder::kThreads && threads_ * SimtOrder::kVector < rows) threads_ *= 2;
    groups_ = std::min(threads_, kGroups);
  }

  void write(const Prepare& prepare, const Values& values, const Store& store, const Finish& finish) {
    IndexPool& p = b_.pool();
    const int64_t width = kLanes * s_.vector, results = this->results();
    const Expr by = b_.begin_unless_one(Bind::Grid, "b", blocks());
    const Expr bx = b_.begin(Bind::Grid, "b", b_.ceil_div(s_.columns, width));
    const Expr group = b_.begin_unless_one(Bind::Block, "t", p.number(groups_));
    const Expr lane = b_.begin(Bind::Block, "t", p.number(kLanes));
    const Expr column = p.add(b_.scaled(bx, width), b_.scaled(lane, s_.vector));
    std::vector<uint32_t> sums, meet;
    for (const Reducer& r : s_.reducers) {
      const std::string name = reduce_name(r.kind);
      sums.push_back(b_.buffer(name, Memory::Register, r.type, p.number(s_.vector)));
      meet.push_back(results == 1 ? kNone : b_.buffer(name + "_runs", Memory::Shared, r.type, p.number(results * width)));
    }
    if (s_.across) {
      clear(sums);
      const bool opened = b_.begin_if(b_.below(column, s_.columns));
      run(by, group, column, sums, prepare, values, store);
      b_.end_if(opened);
      put(sums, meet, group, lane);
    } else {
      const Expr q = b_.begin_unless_one(Bind::Serial, "q", p.number(threads_ / groups_));
      const Expr thread = p.add(b_.scaled(q, groups_), group);
      clear(sums);
      const bool opened = b_.begin_if(b_.below(column, s_.columns));
      chunk(by, thread, column, sums, prepare, values, store);
      b_.end_if(opened);
      if (results > 1) put(sums, meet, thread, lane);
      b_.end_unless_one();
    }
    if (results == 1)
      finish_alone(by, bx, lane, sums, finish);
    else
      meet_and_finish(by, bx, group, lane, meet, finish);
    b_.end();
    b_.end_unless_one();
    b_.end();
    b_.end_unless_one();
  }
  Expr blocks() {
    IndexPool& p = b_.pool();
    const Expr block_rows = s_.across ? b_.scaled(s_.run, o_.fan) : p.number(o_.chunk());
    return p.max(kOne, p.floordiv(p.add(s_.rows, p.sub(block_rows, kOne)), block_rows));
  }

 private:
  // A run of rows, `unroll` of them in flight.
  void run(Expr by, Expr group, Expr column, const std::vector<uint32_t>& sums, const Prepare& prepare, const Values& values,
           const Store& store) {
    IndexPool& p = b_.pool();
    const Expr block_rows = b_.scaled(s_.run, o_.fan);
    const Expr step = b_.begin_unless_one(Bind::Serial, "i", p.floordiv(s_.run, p.number(s_.unroll)));
    const auto row_of = [&](Expr u) {
      const Expr in_run = p.add(b_.scaled(step, s_.unroll), u);
      const Expr in_block = o_.interleaved_runs ? p.add(b_.scaled(in_run, o_.fan), group) : p.add(p.mul(group, s_.run), in_run);
      return p.add(p.mul(by, block_rows), in_block);
    };
    loads(row_of, column, s_.unroll, prepare);
    const Expr u = b_.begin_unless_one(Bind::Unroll, "u", p.number(s_.unroll));
    const bool in = b_.begin_if(b_.below(row_of(u), s_.rows));
    const Expr v = b_.begin_unless_one(Bind::Unroll, "v", p.number(s_.vector));
    const std::vector<uint32_t> x = values(u, v, row_of(u), p.add(column, v));
    for (size_t i = 0; i < sums.size(); ++i) b_.store(sums[i], v, b_.combine(s_.reducers[i], b_.load(sums[i], v), x[i]));
    b_.end_unless_one();
    store(row_of(u), column);
    b_.end_if(in);
    b_.end_unless_one();
    b_.end_unless_one();
  }

  // What a thread of the order along rows has of a chunk, vector by vector; all rows of a vector are in flight.
  void chunk(Expr by, Expr thread, Expr column, const std::vector<uint32_t>& sums, const Prepare& prepare, const Values& values,
             const Store& store) {
    IndexPool& p = b_.pool();
    const int64_t n = s_.vector;
    std::vector<uint32_t> vectors;
    for (const Reducer& r : s_.reducers)
      vectors.push_back(
          b_.buffer(std::string(reduce_name(r.kind)) + "_vector", Memory::Register, r.type, p.number(SimtOrder::kVector * n)));
    const Expr step = b_.begin_unless_one(Bind::Unroll, "s", p.number(steps_));
    const Expr first =
        p.add(b_.scaled(by, o_.chunk()), p.add(b_.scaled(step, SimtOrder::kRow), b_.scaled(thread, SimtOrder::kVector)));
    const auto row_of = [&](Expr u) { return p.add(first, u); };
    loads(row_of, column, SimtOrder::kVector, prepare);
    const Expr u = b_.begin(Bind::Unroll, "u", p.number(SimtOrder::kVector));
    const uint32_t exists = b_.below(row_of(u), s_.rows);
    const auto place = [&](Expr v) { return p.add(b_.scaled(v, SimtOrder::kVector), u); };
    if (exists != kNone)
      for (size_t i = 0; i < sums.size(); ++i) {
        const Expr v = b_.begin_unless_one(Bind::Unroll, "v", p.number(n));
        b_.store(vectors[i], place(v), b_.identity(s_.reducers[i]));
        b_.end_unless_one();
      }
    const bool in = b_.begin_if(exists);
    {
      const Expr v = b_.begin_unless_one(Bind::Unroll, "v", p.number(n));
      const std::vector<uint32_t> x = values(u, v, row_of(u), p.add(column, v));
      for (size_t i = 0; i < sums.size(); ++i) b_.store(vectors[i], place(v), x[i]);
      b_.end_unless_one();
      store(row_of(u), column);
    }
    b_.end_if(in);
    b_.end();
    for (size_t i = 0; i < sums.size(); ++i) {
      const Expr v = b_.begin_unless_one(Bind::Unroll, "v", p.number(n));
      const uint32_t vector =
          b_.combine_halves(s_.reducers[i], vectors[i], b_.scaled(v, SimtOrder::kVector), SimtOrder::kVector);
      b_.store(sums[i], v, b_.combine(s_.reducers[i], b_.load(sums[i], v), vector));
      b_.end_unless_one();
    }
    b_.end_unless_one();
  }

  template <class Row>
  void loads(const Row& row_of, Expr column, int64_t count, const Prepare& prepare) {
    const Expr u = b_.begin_unless_one(Bind::Unroll, "u", b_.pool().number(count));
    const bool in = b_.begin_if(b_.below(row_of(u), s_.rows));
    prepare(u, row_of(u), column);
    b_.end_if(in);
    b_.end_unless_one();
  }

  int64_t results() const { return s_.across ? groups_ : threads_; }  // of a column in a block, before they are combined
  void clear(const std::vector<uint32_t>& sums) {
    for (size_t i = 0; i < sums.size(); ++i) {
      const Expr v = b_.begin_unless_one(Bind::Unroll, "v", b_.pool().number(s_.vector));
      b_.store(sums[i], v, b_.identity(s_.reducers[i]));
      b_.end_unless_one();
    }
  }
  void put(const std::vector<uint32_t>& sums, const std::vector<uint32_t>& meet, Expr number, Expr lane) {
    for (size_t i = 0; i < sums.size(); ++i)
      b_.store_elements(meet[i], b_.pool().add(b_.scaled(number, kLanes * s_.vector), b_.scaled(lane, s_.vector)), sums[i],
                        kZero, s_.vector);
  }
  void finish_alone(Expr by, Expr bx, Expr lane, const std::vector<uint32_t>& sums, const Finish& finish) {
    IndexPool& p = b_.pool();
    const Expr v = b_.begin_unless_one(Bind::Unroll, "v", p.number(s_.vector));
    const Expr at = p.add(b_.scaled(bx, kLanes * s_.vector), p.add(b_.scaled(lane, s_.vector), v));
    const bool exists = b_.begin_if(b_.below(at, s_.columns));
    std::vector<uint32_t> results;
    for (const uint32_t s : sums) results.push_back(b_.load(s, v));
    finish(by, at, results);
    b_.end_if(exists);
    b_.end_unless_one();
  }
  void meet_and_finish(Expr by, Expr bx, Expr group, Expr lane, const std::vector<uint32_t>& meet, const Finish& finish) {
    IndexPool& p = b_.pool();
    const int64_t width = kLanes * s_.vector;
    b_.barrier(BarrierScope::Block);
    // One thread for each column, as far as they go.
    const int64_t threads = groups_ * kLanes, share = (width + threads - 1) / threads;
    const Expr j = b_.begin_unless_one(Bind::Unroll, "j", p.number(share));
    const Expr mine = p.add(b_.scaled(j, threads), p.add(b_.scaled(group, kLanes), lane));
    const Expr at = p.add(b_.scaled(bx, width), mine);
    const bool exists = b_.begin_if(b_.both(b_.below(mine, p.number(width)), b_.below(at, s_.columns)));
    std::vector<uint32_t> results;
    for (size_t i = 0; i < meet.size(); ++i) {
      std::vector<uint32_t> parts;
      for (int64_t r = 0; r < this->results(); ++r) parts.push_back(b_.load(meet[i], p.add(p.number(r * width), mine)));
      results.push_back(b_.combine_halves(s_.reducers[i], std::move(parts)));
    }
    finish(by, at, results);
    b_.end_if(exists);
    b_.end_unless_one();
  }

  ProgramBuilder& b_;
  const SimtOrder& o_;
  Shape s_;
  // Of a block: groups of 32 lanes. Of a chunk: vectors of each thread of the order, and how many of those there are.
  int64_t groups_, steps_ = 1, threads_ = 1;
};

void store_results(ProgramBuilder& b, const std::vector<uint32_t>& workspaces, Expr block, Expr columns, Expr column,
                   const std::vector<uint32_t>& results) {
  for (size_t i = 0; i < results.size(); ++i)
    b.store(workspaces[i], b.pool().add(b.pool().mul(block, columns), column), results[i]);
}

std::vector<uint32_t> make_workspaces(ProgramBuilder& b, const std::vector<Reducer>& reducers, Expr count, Expr columns) {
  std::vector<uint32_t> out;
  for (const Reducer& r : reducers)
    out.push_back(
        b.buffer(std::string(reduce_name(r.kind)) + "_partial", Memory::Workspace, r.type, b.pool().mul(count, columns)));
  return out;
}

}  // namespace

void fold_launches(ProgramBuilder& b, Fold f, const SimtOrder& o,
                   const std::function<void(Expr column, const std::vector<uint32_t>& results)>& finish) {
  IndexPool& p = b.pool();
  for (;;) {
    b.begin_launch();
    const Expr count = f.of_runs ? b.ceil_div(f.count, o.fan) : f.count;
    // Few rows: as many of them in flight as there may be.
    const auto known = p.as_number(count);
    // An unknown number of blocks must be few enough for this launch to be the last.
    if (!known) b.p.require.push_back({count, f.across ? o.run * o.fan : o.chunk()});
    const int64_t run = !f.across ? SimtOrder::kVector : known ? o.run_of(*known) : o.run;
    int64_t unroll = std::min<int64_t>(8, run);
    while (unroll < run && unroll < 32 && (!known || unroll * (o.interleaved_runs ? o.fan : 1) < *known)) unroll *= 2;
    RunsWriter w(b, o, {count, f.columns, p.number(run), 1, unroll, f.reducers, f.across});
    const Expr blocks = w.blocks();
    const bool last = !known || blocks == kOne;
    std::vector<uint32_t> next;
    if (!last) next = make_workspaces(b, f.reducers, blocks, f.columns);
    std::vector<uint32_t> held;
    for (const Reducer& r : f.reducers) held.push_back(b.buffer("partial", Memory::Register, r.type, p.number(unroll)));
    const auto element = [&](size_t i, Expr row, Expr column) {
      return b.load(f.workspaces[i], p.add(p.mul(row, f.columns), column));
    };
    w.write(
        [&](Expr u, Expr row, Expr column) {
          for (size_t i = 0; i < held.size(); ++i) {
            if (!f.of_runs) {
              b.store(held[i], u, element(i, row, column));
              continue;
            }
            std::vector<uint32_t> runs;
            for (int64_t j = 0; j < o.fan; ++j) {
              const Expr run = p.add(b.scaled(row, o.fan), p.number(j));
              const uint32_t exists = b.below(run, f.count), nothing = b.identity(f.reducers[i]);
              runs.push_back(exists == kNone
                                 ? element(i, run, column)
                                 : b.load_or(f.workspaces[i], p.add(p.mul(run, f.columns), column), exists, nothing));
            }
            b.store(held[i], u, b.combine_halves(f.reducers[i], std::move(runs)));
          }
        },
        [&](Expr u, Expr, Expr, Expr) {
          std::vector<uint32_t> values;
          for (const uint32_t h : held) values.push_back(b.load(h, u));
          return values;
        },
        [](Expr, Expr) {},
        [&](Expr block, Expr column, const std::vector<uint32_t>& results) {
          if (last)
            finish(column, results);
          else
            store_results(b, next, block, f.columns, column, results);
        });
    b.end_launch();
    if (last) return;
    f.workspaces = next;
    f.count = blocks;
    f.of_runs = false;
  }
}

Program columns_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a) {
  if (k.loops.size() != 1) no_program("it is no single reduction");
  const bool across = k.loops[0].across;
  if (!across && (o.interleaved || !o.by_halves)) no_program("a chunk of columns in another order than the family's");
  ProgramBuilder b(k.name, d);
  const std::vector<uint32_t> buffers = declare_buffers(b, k, a);
  IndexPool& p = b.pool();
  KernelCopy copy(b, k, buffers);
  const Loop& l = k.loops[0];
  std::vector<Reducer> reducers;
  std::vector<uint32_t> reductions;
  for (const Item& item : l.body) {
    const Inst& x = k.insts[item.id];
    if (item.is_loop || x.op == Op::Check) no_program("a reduction across rows that may fail on its way");
    if (x.op != Op::Reduce) continue;
    if (!plain_reduction(k, item.id))
      no_program(std::string("a reduction of kind ") + reduce_name(static_cast<ReduceKind>(x.id)));
    reductions.push_back(item.id);
    reducers.push_back(reducer_of(k, item.id));
  }
  // Columns are all parallel points, rows all points of the loop.
  const std::vector<AxisGroup> column_groups = collapse(k, k.parallel), row_groups = collapse(k, l.axes);
  Expr rows = kOne, columns = kOne;
  const auto set = [&](const std::vector<AxisGroup>& groups, Expr at) {
    std::vector<Expr> extents;
    for (const AxisGroup& g : groups) extents.push_back(copy.index(g.extent));
    const std::vector<Expr> position = groups.size() == 1 ? std::vector<Expr>{at} : p.position(at, extents);
    for (size_t g = 0; g < groups.size(); ++g) {
      copy.set_axis(groups[g].inner, position[g]);
      for (const uint32_t outer : groups[g].outer) copy.set_axis(outer, kZero);
    }
  };
  for (const AxisGroup& g : row_groups) rows = p.mul(rows, copy.index(g.extent));
  for (const AxisGroup& g : column_groups) columns = p.mul(columns, copy.index(g.extent));
  if (!b.p.divisible(columns, s.vector) || (column_groups.size() > 1 && s.vector > 1))
    no_program("its columns are no whole vectors");
  const Expr run = across ? run_of(p, o, rows) : p.number(SimtOrder::kVector);
  if (s.unroll < 1 || (!across && s.unroll != SimtOrder::kVector) ||
      p.as_number(run).value_or(o.shortest_run()) % s.unroll != 0)
    no_program("runs that are no whole number of loads in flight");

  // Instructions before and after the loop that the results do not need are made where they are used.
  const auto point = [&](bool after, const std::vector<uint32_t>& results) {
    for (size_t i = 0; i < results.size(); ++i) copy.set_value(reductions[i], results[i]);
    for (const Item& item : k.body) {
      if (item.is_loop) {
        if (!after) return;
        continue;
      }
      copy.copy(item.id);
    }
  };
  RunsWriter w(b, o, {rows, columns, run, s.vector, s.unroll, reducers, across});
  const Expr blocks = w.blocks();
  const bool one = blocks == kOne;
  std::vector<uint32_t> workspaces;
  if (!one) workspaces = make_workspaces(b, reducers, blocks, columns);
  b.begin_launch();
  std::map<uint32_t, uint32_t> held, stored;  // registers of loads, and of stores of whole vectors
  const uint32_t column_axis = column_groups.size() == 1 ? column_groups.back().inner : kNone;
  for (const Item& item : l.body) {
    const Inst& x = k.insts[item.id];
    if (column_axis == kNone) break;
    if (contiguous_load(k, x, column_axis)) {
      held[item.id] = b.buffer(k.buffers[x.id].name + "_v", Memory::Register, x.type, p.number(s.unroll * s.vector));
    } else if (x.op == Op::Store && x.args[1] == kNone && s.vector > 1) {
      const auto a = k.pool.affine(x.index, column_axis);
      if (a && a->coefficient == kOne)
        stored[item.id] = b.buffer(k.buffers[x.id].name + "_v", Memory::Register, k.buffers[x.id].type, p.number(s.vector));
    }
  }
  w.write(
      [&](Expr u, Expr row, Expr column) {
        set(row_groups, row);
        set(column_groups, column);
        for (const auto& [id, registers] : held) {
          const Inst& x = k.insts[id];
          b.load_elements(copy.buffer(x.id), copy.index(x.index), registers, b.scaled(u, s.vector), s.vector);
        }
      },
      [&](Expr u, Expr v, Expr row, Expr column) {
        set(row_groups, row);
        set(column_groups, column);
        point(false, {});
        std::vector<uint32_t> values;
        for (const Item& item : l.body) {
          const Inst& x = k.insts[item.id];
          const auto h = held.find(item.id), to = stored.find(item.id);
          if (x.op == Op::Reduce)
            values.push_back(copy.value(x.args[0]));
          else if (to != stored.end())
            b.store(to->second, v, copy.value(x.args[0]));
          else if (h != held.end())
            copy.set_value(item.id, b.load(h->second, p.add(b.scaled(u, s.vector), v)));
          else
            copy.copy(item.id);
        }
        return values;
      },
      [&](Expr row, Expr column) {
        set(row_groups, row);
        set(column_groups, column);
        for (const auto& [id, registers] : stored) {
          const Inst& x = k.insts[id];
          b.store_elements(copy.buffer(x.id), copy.index(x.index), registers, kZero, s.vector);
        }
      },
      [&](Expr block, Expr column, const std::vector<uint32_t>& results) {
        if (!one) return store_results(b, workspaces, block, columns, column, results);
        set(column_groups, column);
        point(true, results);
      });
  b.end_launch();
  if (!one)
    fold_launches(b, {reducers, workspaces, blocks, columns, false, across}, o,
                  [&](Expr column, const std::vector<uint32_t>& results) {
                    set(column_groups, column);
                    point(true, results);
                  });
  return std::move(b.p);
}

}  // namespace tessera::kit
