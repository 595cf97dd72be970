// SPDX-License-Identifier: Apache-2.0
#include "plan/executor_layout.hpp"

#include <algorithm>

#include "ir/graph.hpp"
#include "log/log.hpp"
#include "memory/device.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "support/escaped.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

const tsr_executor& table_of(const Factory& executor) { return executor.as<tsr_executor>(); }

// The device that a step runs on without the help of the host or of another device; kNoDevice: there is none.
tsr_device device_of(const Plan& plan, const Instruction& e) {
  const Step& step = *plan.steps[e.step];
  if (e.kind == Instruction::kLaunch) return step.device;
  // A state is written back by the host, which first looks at what the kernels have found.
  if (e.kind != Instruction::kCopy || (step.copy & kCopyWriteback)) return kNoDevice;
  const tsr_device from = plan.slots[e.inputs[0]].device, to = plan.slots[e.outputs[0]].device;
  return from == to ? to : kNoDevice;
}

// The rows of a stretch with what each has to wait for, and the memory that they use.
class TableMaker {
 public:
  TableMaker(const Plan& plan, const SectionLayout& layout, size_t begin, size_t end, uint32_t queue)
      : p_(plan), l_(layout), begin_(begin), end_(end), queue_(queue), slots_(plan.slots.size()) {}

  tsr_step_table make(const int64_t* dims) {
    add_roots();
    for (tsr_slot& s : slots_) s.root = TSR_NONE;
    for (size_t i = begin_; i < end_; ++i) add_row(l_.program[i]);
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].waits = waits_[i].data();
      rows_[i].num_waits = static_cast<uint32_t>(waits_[i].size());
    }
    tsr_step_table t{};
    t.struct_size = sizeof t;
    t.steps = rows_.data();
    t.count = rows_.size();
    t.stride = sizeof(tsr_step);
    t.num_slots = static_cast<uint32_t>(slots_.size());
    t.name = p_.graph->tables().name;
    t.slots = slots_.data();
    t.slot_stride = sizeof(tsr_slot);
    t.roots = roots_.data();
    t.num_roots = roots_.size();
    t.root_stride = sizeof(tsr_root);
    if (queue_ != kNone) {
      t.queues = &p_.queues[queue_];
      t.num_queues = 1;
    }
    t.bounded = l_.bounded;
    t.dims = dims;
    t.num_dims = p_.program.num_slots();
    return t;
  }

 private:
  struct Access {
    int64_t low, high;  // bytes of the root, [low, high)
    uint32_t row;
    bool write;
  };

  void add_roots() {
    const auto add = [&](uint32_t kind, uint32_t number, tsr_device d, int64_t bytes, void* address) {
      roots_.push_back({kind, number, d, 0, bytes, address});
    };
    for (uint32_t i = 0; i < p_.inputs.size(); ++i) add(TSR_ROOT_INPUT, i, p_.inputs[i].device, -1, nullptr);
    for (uint32_t j = 0; j < p_.output_slots.size(); ++j)
      add(TSR_ROOT_OUTPUT, j, p_.slots[p_.output_slots[j]].device, -1, nullptr);
    for (uint32_t d = 0; d < p_.num_dynamic; ++d) add(TSR_ROOT_OUTPUT, TSR_NONE, kCpu, -1, nullptr);  // of control steps
    for (uint32_t d = 0; d < p_.arena_devices.size(); ++d)
      add(TSR_ROOT_ARENA, d, p_.arena_devices[d], l_.arena_bytes[d], nullptr);
    for (uint32_t c = 0; c < p_.constants.size(); ++c)
      add(TSR_ROOT_CONSTANT, c, p_.constants[c].device, -1, p_.constants[c].data);
    touched_.resize(roots_.size());
  }

  void add_slot(uint32_t slot) {
    const Slot& s = p_.slots[slot];
    const Resolved& r = l_.slots[slot];
    uint32_t root = TSR_NONE;
    if (r.place == Resolved::kRoot) root = r.index;
    if (r.place == Resolved::kFixed) root = p_.num_roots() + r.index;
    slots_[slot] = {root, s.dtype, s.rank, s.device, r.offset, r.sizes, r.strides, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u, 0};
  }

  void add_row(const Instruction& e) {
    const Step& s = *p_.steps[e.step];
    tsr_step row = step_row(p_, s, e.workspace_bytes);
    row.inputs = e.inputs.data();
    row.num_inputs = static_cast<uint32_t>(e.inputs.size());
    row.outputs = e.outputs.data();
    row.num_outputs = static_cast<uint32_t>(e.outputs.size());
    row.queue = queue_ == kNone ? TSR_NONE : 0;
    row.workspace_root = e.workspace_root;
    row.workspace_offset = e.workspace_offset;
    row.site = s.site;
    const auto number = static_cast<uint32_t>(rows_.size());
    rows_.push_back(row);
    std::vector<uint32_t>& waits = waits_.emplace_back();
    for (const uint32_t slot : e.inputs) touch(slot, number, false, &waits);
    for (const uint32_t slot : e.outputs) touch(slot, number, true, &waits);
    if (e.workspace_bytes > 0)
      touch(e.workspace_root, {e.workspace_offset, e.workspace_offset + e.workspace_bytes, number, true}, &waits);
    std::sort(waits.begin(), waits.end());
    waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  }

  void touch(uint32_t slot, uint32_t row, bool write, std::vector<uint32_t>* waits) {
    if (slot == kNone) return;
    add_slot(slot);
    const Slot& s = p_.slots[slot];
    const Resolved& r = l_.slots[slot];
    if (r.place != Resolved::kRoot) return;
    int64_t low = 0, high = 0;
    for (uint32_t k = 0; k < s.rank; ++k) {
      if (r.sizes[k] == 0) return;
      (r.strides[k] < 0 ? low : high) += (r.sizes[k] - 1) * r.strides[k];
    }
    const int64_t bits = dtype_bits(static_cast<tsr_dtype>(s.dtype));
    touch(r.index, {r.offset + low * bits / 8, r.offset + ((high + 1) * bits + 7) / 8, row, write}, waits);
  }

  // Waits for those who wrote the bytes, and a write for those who read them too. What a write covers whole is forgotten: who
  // touches it later waits for the write.
  void touch(uint32_t root, const Access& a, std::vector<uint32_t>* waits) {
    std::vector<Access>& before = touched_[root];
    for (const Access& b : before)
      if (b.row != a.row && b.low < a.high && a.low < b.high && (a.write || b.write)) waits->push_back(b.row);
    if (a.write) std::erase_if(before, [&](const Access& b) { return b.row != a.row && a.low <= b.low && b.high <= a.high; });
    before.push_back(a);
  }

  const Plan& p_;
  const SectionLayout& l_;
  const size_t begin_, end_;
  const uint32_t queue_;
  std::vector<tsr_step> rows_;
  std::vector<std::vector<uint32_t>> waits_;
  std::vector<tsr_slot> slots_;
  std::vector<tsr_root> roots_;
  std::vector<std::vector<Access>> touched_;  // by root
};

// Whether a step outside of [begin, end) uses a root.
bool used_outside(const Plan& plan, const SectionLayout& layout, uint32_t root, size_t begin, size_t end) {
  const auto uses = [&](const std::vector<uint32_t>& slots) {
    return std::any_of(slots.begin(), slots.end(), [&](uint32_t s) {
      return s != kNone && layout.slots[s].place == Resolved::kRoot && layout.slots[s].index == root;
    });
  };
  for (size_t i = 0; i < layout.program.size(); ++i) {
    const Instruction& e = layout.program[i];
    if (i >= begin && i < end) continue;
    if (uses(e.inputs) || uses(e.outputs) || e.workspace_root == root) return true;
  }
  return uses(plan.output_slots);
}

}  // namespace

std::shared_ptr<const ExecutorLayout> ExecutorLayout::make(const Plan& plan, const SectionLayout& layout, const int64_t* dims,
                                                           const Factory& executor) {
  const tsr_executor& table = table_of(executor);
  const auto declined = [&](const std::string& why) -> std::shared_ptr<const ExecutorLayout> {
    if (log_enabled(Artifact::kPerfHints))
      log_write(Artifact::kPerfHints,
                "executor '" + executor.name + "' does not run graph '" + std::string(plan.graph->tables().name) + "': " + why);
    return nullptr;
  };
  std::shared_ptr<ExecutorLayout> e(new ExecutorLayout(plan, executor));
  const std::string kind = core::device(device_intern(table.device)).kind();
  const auto& program = layout.program;
  for (size_t i = 0; i < program.size();) {
    const tsr_device d = device_of(plan, program[i]);
    size_t end = i + 1;
    if (d != kNoDevice && core::device(d).kind() == kind) {
      while (end < program.size() && device_of(plan, program[end]) == d) ++end;
      if (end - i > e->end_ - e->begin_) {
        e->begin_ = i;
        e->end_ = end;
        e->device_ = d;
      }
    }
    i = end;
  }
  if (e->end_ == 0) return declined("no step of it runs on '" + kind + "' alone");
  e->queue_ = plan.queue_of(e->device_);
  const uint32_t d = plan.arena_index(e->device_);
  if ((table.capabilities & TSR_EXECUTOR_OWNS_MEMORY) && d < plan.arena_devices.size() && layout.arena_bytes[d] > 0 &&
      !used_outside(plan, layout, plan.arena_root(layout.section, d), e->begin_, e->end_))
    e->arena_ = d;
  TableMaker maker(plan, layout, e->begin_, e->end_, e->queue_);
  const tsr_step_table steps = maker.make(dims);
  const char* why = nullptr;
  executor.call("prepare", [&] { return table.prepare(executor.self, &steps, &e->prepared_, &why); });
  if (!e->prepared_) return declined(why ? why : "it declines");
  return e;
}

ExecutorLayout::~ExecutorLayout() {
  try {
    if (prepared_) table_of(executor_).release(executor_.self, prepared_);
  } catch (...) {
    log_warning("an exception left release of executor '" + executor_.name + "': " + what_was_thrown());
  }
}

bool ExecutorLayout::run(const tsr_executor_call& call) const {
  int taken = 1;
  try {
    executor_.call("run", [&] { return table_of(executor_).run(executor_.self, prepared_, &call, &taken); });
  } catch (const Error& e) {
    throw Error(e.family(), e.code(),
                "executor '" + executor_.name + "', graph '" + std::string(plan_.graph->tables().name) + "' on device '" +
                    core::device(device_).name() + "': " + e.message(),
                e.hint().empty() ? "set executor.name = \"\" to run the graph step by step" : e.hint());
  }
  return taken != 0;
}

}  // namespace tessera::core
