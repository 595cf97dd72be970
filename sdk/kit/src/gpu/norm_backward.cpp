// SPDX-License-Identifier: Apache-2.0
// The backward pass of a norm in one sweep: a block takes one run of rows (program/order.hpp), computes the gradient of each
// row from registers, and adds what the rows give to the gradients of weight and bias in registers too. Those sums are partial
// results across rows, which later launches fold.
#include <algorithm>
#include <map>

#include "rows.hpp"

namespace tessera::kit {
namespace {

// Does an instruction outside the loop stand behind it?
bool after_loop(const Kernel& k, uint32_t id) {
  bool after = false;
  for (const Item& item : k.body) {
    after = after || item.is_loop;
    if (!item.is_loop && item.id == id) return after;
  }
  return after;
}

// What the kernel of the rows stores, for each row, to each of its buffers.
std::map<uint32_t, uint32_t> stored_of_a_row(const Kernel& k) {
  std::map<uint32_t, uint32_t> out;
  for (const Item& item : k.body)
    if (!item.is_loop && k.insts[item.id].op == Op::Store) out[k.insts[item.id].id] = k.insts[item.id].args[0];
  return out;
}

constexpr int64_t kRegistersAside = 28;  // of a thread, for what is computed between those that hold its elements

// 32-bit registers of a thread that the program names.
int64_t registers_of(const Program& p, uint32_t launch) {
  int64_t n = 0;
  for (const ProgramBuffer& b : p.buffers)
    if (b.memory == Memory::Register && b.launch == launch) n += (*p.pool.as_number(b.extent) * type_bytes(b.type) + 3) / 4;
  return n;
}

}  // namespace

Program make_norm_backward(Kernel& rows, Kernel& columns, std::span<const uint32_t> shared, const SimtSchedule& s,
                           const GpuDescription& d, const SimtOrder& o, std::span<const uint32_t> links) {
  if (s.threads % d.wave != 0 || s.threads % SimtOrder::kThreads != 0) no_program("threads that are no whole waves");
  if (columns.loops.size() != 1 || !columns.loops[0].across) no_program("the second kernel is no single reduction across rows");
  if (columns.symbols.size() != rows.symbols.size() || shared.size() != columns.buffers.size())
    no_program("the kernels do not belong to each other");
  ProgramBuilder b(rows.name, d);
  IndexPool& p = b.pool();
  const std::vector<uint32_t> buffers = declare_buffers(b, rows, {}, links);
  const std::map<uint32_t, uint32_t> of_a_row = stored_of_a_row(rows);
  for (const uint32_t l : links)
    if (!of_a_row.count(l)) no_program("a value between the kernels that is not one of each row");
  KernelCopy sizes(b, columns, {});
  std::vector<uint32_t> column_buffers;
  for (size_t i = 0; i < columns.buffers.size(); ++i) {
    const Buffer& x = columns.buffers[i];
    column_buffers.push_back(shared[i] != kNone ? buffers[shared[i]]
                                                : b.buffer(x.name, Memory::Global, x.type, sizes.index(x.extent), x.access));
  }
  const Loop& l = columns.loops[0];
  const std::vector<AxisGroup> column_groups = collapse(columns, columns.parallel), row_groups = collapse(columns, l.axes);
  if (column_groups.size() != 1 || row_groups.size() != 1) no_program("gradients of more than one axis");
  const std::vector<uint32_t> row_axes = RowWriter::axes_of(row_groups);
  std::vector<Reducer> reducers;
  std::vector<uint32_t> reductions;
  for (const Item& item : l.body) {
    const Inst& x = columns.insts[item.id];
    if (item.is_loop || x.op == Op::Store || x.op == Op::Check) no_program("a reduction across rows that stores on its way");
    if (x.op != Op::Reduce) continue;
    if (!plain_reduction(columns, item.id)) no_program("a reduction of a kind that is not plain");
    reductions.push_back(item.id);
    reducers.push_back(reducer_of(columns, item.id));
  }

  RowWriter w(b, rows, o, {s.threads, 1, true, {links.begin(), links.end()}});
  if (w.width() != SimtOrder::kVector) no_program("its rows are no whole vectors of 8");
  KernelCopy copy(b, columns, column_buffers);
  const auto set = [&](Expr row, Expr column) {
    copy.set_axis(row_groups[0].inner, row);
    copy.set_axis(column_groups[0].inner, column);
    for (const uint32_t a : row_groups[0].outer) copy.set_axis(a, kZero);
    for (const uint32_t a : column_groups[0].outer) copy.set_axis(a, kZero);
  };
  if (copy.index(row_groups[0].extent) != w.rows() || copy.index(column_groups[0].extent) != w.columns())
    no_program("the kernels work on different shapes");
  const int64_t in_flight = s.rows;
  const bool ahead = s.unroll >= 2;
  const Expr run_rows = run_of(p, o, w.rows());
  const int64_t whole = p.as_number(run_rows).value_or(o.shortest_run());
  if (in_flight < 1 || whole % in_flight != 0 || (s.unroll != 1 && s.unroll != 2 && s.unroll != 4) ||
      (ahead && (in_flight != 1 || whole % 2 != 0)))
    no_program("runs that are no whole number of rows in flight");

  // Runs, in the order of the fold: run j of block c. Interleaved ones walk the block's rows by turns.
  const Expr block_rows = b.scaled(run_rows, o.fan);
  const Expr runs = o.interleaved_runs ? b.scaled(p.floordiv(p.add(w.rows(), p.sub(block_rows, kOne)), block_rows), o.fan)
                                       : p.floordiv(p.add(w.rows(), p.sub(run_rows, kOne)), run_rows);
  std::vector<uint32_t> workspaces;
  for (const Reducer& r : reducers)
    workspaces.push_back(
        b.buffer(std::string(reduce_name(r.kind)) + "_partial", Memory::Workspace, r.type, p.mul(runs, w.columns())));
  b.begin_launch();
  const Expr run = b.begin(Bind::Grid, "b", runs);
  const Expr warp = b.begin(Bind::Warp, "w", p.number(s.threads / d.wave)), lane = b.begin(Bind::Lane, "l", p.number(d.wave));
  w.place_threads(p.add(b.scaled(warp, d.wave / SimtOrder::kThreads), p.floordiv(lane, p.number(SimtOrder::kThreads))),
                  p.mod(lane, p.number(SimtOrder::kThreads)), kZero);
  std::vector<uint32_t> sums;
  for (const Reducer& r : reducers) {
    sums.push_back(b.buffer(std::string(reduce_name(r.kind)) + "_across", Memory::Register, r.type,
                            p.number(w.vectors() * SimtOrder::kVector)));
    const Expr j = b.begin(Bind::Unroll, "j", p.number(w.vectors() * SimtOrder::kVector));
    b.store(sums.back(), j, b.identity(r));
    b.end();
  }
  // Rows in flight: `rows` of them beside each other, or one that is computed while the next one is loaded: what the first loop
  // reads of it (`unroll` 2), or all that is read (4). What later loops read is on its way while the first one is computed.
  using Loops = RowWriter::Loops;
  const bool all_ahead = s.unroll == 4;
  const Loops before = all_ahead ? Loops::All : Loops::First;
  const int64_t stride = ahead ? 2 : in_flight;
  std::vector<RowWriter::Slot> slots;
  for (int64_t q = 0; q < stride; ++q) slots.push_back(w.slot(buffers, static_cast<int>(q)));
  const auto place = [&](RowWriter::Slot& slot, Expr in_run) {
    const Expr row = o.interleaved_runs
                         ? p.add(b.scaled(p.add(p.mul(p.floordiv(run, p.number(o.fan)), run_rows), in_run), o.fan),
                                 p.mod(run, p.number(o.fan)))
                         : p.add(p.mul(run, run_rows), in_run);
    const uint32_t exists = b.below(row, w.rows());
    w.set_row(slot, exists == kNone ? row : p.min(row, p.sub(w.rows(), kOne)), exists);
  };
  // What a row gives to the gradients of weight and bias.
  const auto add_up = [&](RowWriter::Slot& slot) {
    const bool exists = b.begin_if(slot.stores);
    w.each_vector([&](Expr vector, Expr column) {
      const bool opened = b.begin_if(w.inside(column));
      const Expr j = b.begin(Bind::Unroll, "j", p.number(SimtOrder::kVector));
      set(slot.row, p.add(column, j));
      const Expr at = p.add(b.scaled(vector, SimtOrder::kVector), j);
      for (const Item& item : columns.body)
        if (!item.is_loop && columns.insts[item.id].op != Op::Store && !after_loop(columns, item.id)) copy.copy(item.id);
      for (const Item& item : l.body) {
        const Inst& x = columns.insts[item.id];
        const std::string key = RowWriter::key_of(columns, x, column_groups[0].inner, row_axes);
        const auto held = key.empty() ? slot.held.end() : slot.held.find(std::to_string(shared[x.id]) + "[" + key + "]");
        if (x.op == Op::Reduce) {
          const auto i = static_cast<size_t>(std::find(reductions.begin(), reductions.end(), item.id) - reductions.begin());
          b.store(sums[i], at, b.combine(reducers[i], b.load(sums[i], at), copy.value(x.args[0])));
        } else if (x.op == Op::Load && shared[x.id] != kNone && rows.buffers[shared[x.id]].access != Access::In) {
          // What this row has just given: other threads may not have stored it yet.
          const auto value = of_a_row.find(shared[x.id]);
          if (value == of_a_row.end()) no_program("a gradient that reads what the other kernel stores of every point");
          copy.set_value(item.id, slot.copy.value(value->second));
        } else if (held != slot.held.end()) {
          copy.set_value(item.id, b.load(held->second, at));
        } else {
          copy.copy(item.id);
        }
      }
      b.end();
      b.end_if(opened);
    });
    b.end_if(exists);
  };
  place(slots[0], kZero);
  w.load(slots[0], /*of_row=*/false, before);
  for (RowWriter::Slot& slot : slots) slot.held = slots[0].held, slot.loaded = slots[0].loaded;
  // The results of a row's chunks lie in the other half of shared memory than those of the rows before.
  if (ahead) {
    w.load(slots[0], /*of_row=*/true, before);
    const Expr step = b.begin(Bind::Serial, "i", p.floordiv(run_rows, p.number(stride)));
    const Expr even = b.scaled(step, 2), odd = p.add(even, kOne), next = p.add(even, p.number(2));
    place(slots[0], even);
    if (!all_ahead) w.load(slots[0], true, Loops::Later);
    place(slots[1], odd);
    w.load(slots[1], true, before);
    place(slots[0], even);
    w.run({&slots[0]}, kZero, 2);
    add_up(slots[0]);
    if (!all_ahead) w.load(slots[1], true, Loops::Later);
    const bool more = b.begin_if(b.below(next, run_rows));
    place(slots[0], next);
    w.load(slots[0], true, before);
    b.end_if(more);
    place(slots[1], odd);
    w.run({&slots[1]}, kOne, 2);
    add_up(slots[1]);
    b.end();
  } else {
    const Expr step = b.begin(Bind::Serial, "i", p.floordiv(run_rows, p.number(stride)));
    std::vector<RowWriter::Slot*> all;
    for (int64_t q = 0; q < stride; ++q) {
      place(slots[static_cast<size_t>(q)], p.add(b.scaled(step, stride), p.number(q)));
      all.push_back(&slots[static_cast<size_t>(q)]);
    }
    for (RowWriter::Slot* slot : all) w.load(*slot, true, Loops::All);
    w.run(all, p.mod(step, p.number(2)), 2);
    for (RowWriter::Slot* slot : all) add_up(*slot);
    b.end();
  }
  w.each_vector([&](Expr vector, Expr column) {
    const bool opened = b.begin_if(w.inside(column));
    for (size_t i = 0; i < sums.size(); ++i)
      b.store_elements(workspaces[i], p.add(p.mul(run, w.columns()), column), sums[i], b.scaled(vector, SimtOrder::kVector),
                       SimtOrder::kVector);
    b.end_if(opened);
  });
  b.end();
  b.end();
  b.end();
  b.end_launch();
  fold_launches(b, {reducers, workspaces, runs, w.columns(), true}, o, [&](Expr column, const std::vector<uint32_t>& results) {
    copy.set_axis(column_groups[0].inner, column);
    for (size_t i = 0; i < results.size(); ++i) copy.set_value(reductions[i], results[i]);
    for (const Item& item : columns.body)
      if (!item.is_loop) copy.copy(item.id);
  });
  // Loads ahead do not make up for the second block of a unit.
  if (ahead && registers_of(b.p, 0) + kRegistersAside > std::min<int64_t>(d.max_registers, d.registers / s.threads / 2))
    no_program("rows in flight that do not fit into the registers of a thread");
  check_program(b.p, d);
  return std::move(b.p);
}

}  // namespace tessera::kit
