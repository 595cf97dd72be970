// SPDX-License-Identifier: Apache-2.0
#include "compile/estimate.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compile/assign.hpp"
#include "compile/kernel_costs.hpp"
#include "compile/known_kernels.hpp"
#include "ir/graph.hpp"
#include "ir/op_callback.hpp"
#include "ir/records.hpp"
#include "memory/device.hpp"
#include "plan/compile_options.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plan/plan_kernels.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

// What a backend without a model of its own is measured against. The figures rank plans; they are not a promise of time.
struct Machine {
  double bytes_per_second = 20e9, flops_per_second = 50e9,
         seconds_per_launch = 200e-9;  // orders of magnitude of one CPU socket
};

// A device that describes itself: a byte that is kept and the kernel that would compute it again must be priced by the same
// memory.
Machine machine_of(tsr_device d) {
  constexpr double kSecondsPerDeviceLaunch = 2e-6;
  Machine m;
  void* self = nullptr;
  const Device* const known = d == kNoDevice ? nullptr : find_device(d);
  const tsr_device_table* const table = known ? known->table(&self) : nullptr;
  if (!table) return m;
  tsr_device_info info{};
  info.struct_size = sizeof info;
  throw_if(table->info(self, known->index(), &info));
  if (info.bytes_per_second <= 0 || info.flops_per_second <= 0) return m;
  return {info.bytes_per_second, info.flops_per_second, kSecondsPerDeviceLaunch};
}

}  // namespace

double seconds_per_byte(tsr_device device) { return 1 / machine_of(device).bytes_per_second; }

namespace {

// What the op itself says of a call at the hints of symbols; false: it says nothing.
bool op_cost(const Graph& g, const Step& step, const std::vector<int64_t>& hints, tsr_cost& cost) {
  if (!step.record || !step.record->impl || !step.record->impl->cost) return false;
  const auto call = RuntimeCall::make(g, step.node, [&](tsr_dim d) { return hint_size(g, d, hints); });
  const OpRecord& op = *step.record;
  throw_if(op_callback(op, "cost", [&] { return op.impl->cost(op.impl->self, &call->call, &cost); }));
  return true;
}

// By a model of the device. The op's own figures count where they are given; else one operation per element.
double predicted_seconds(Graph& g, const Plan& plan, const Step& step, const std::vector<int64_t>& hints, tsr_cost cost,
                         bool modelled, const Machine& machine) {
  if (step.kind == TSR_STEP_KERNEL && step.backend) {
    const tsr_backend& table = step.backend->as<tsr_backend>();
    if (table.cost)
      if (const double s = step.backend->call("cost", [&] { return table.cost(step.backend->self, g.handle(), step.node); });
          s >= 0)
        return s;
  }
  if (!modelled) {
    const auto bytes = [&](uint32_t slot) {
      if (slot == kNone) return 0.0;
      const Slot& s = plan.slots[slot];
      double n = dtype_bits(s.dtype) / 8.0;
      for (uint32_t k = 0; k < s.rank; ++k) {
        const DimRef& d = plan.dims_of(slot)[k];
        n *= static_cast<double>(d.slot < 0 ? d.number : hint_size(g, g.value(s.value).type->sizes[k], hints));
      }
      return n;
    };
    for (const uint32_t slot : step.inputs) cost.bytes_read += bytes(slot);
    for (const uint32_t slot : step.outputs) cost.bytes_written += bytes(slot);
    cost.flops = cost.bytes_written / 4;
  }
  return machine.seconds_per_launch +
         std::max((cost.bytes_read + cost.bytes_written) / machine.bytes_per_second, cost.flops / machine.flops_per_second);
}

// Where a step's time passes. A copy from or to the host is one of the host's.
tsr_device device_of(const Plan& plan, const Step& step) {
  if (step.kind == TSR_STEP_KERNEL) return step.device;
  if (step.kind != TSR_STEP_COPY || step.inputs.empty() || step.outputs.empty()) return kCpu;
  const tsr_device from = plan.slots[step.inputs[0]].device, to = plan.slots[step.outputs[0]].device;
  return from == kCpu ? kCpu : to;
}

}  // namespace

std::vector<StepCost> step_costs(Graph& g, const Plan& plan, const std::vector<int64_t>& hints,
                                 const CompileOptions* measured) {
  std::vector<std::optional<KernelCost>> kernels(plan.steps.size());
  if (measured && measured->measure_costs) kernels = kernel_costs(g, plan, *measured);
  std::map<tsr_device, Machine> machines;
  std::vector<StepCost> out(plan.steps.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const Step& step = *plan.steps[i];
    if (step.control) continue;  // its regions have plans of their own
    tsr_cost cost{};
    cost.struct_size = sizeof cost;
    const bool modelled = op_cost(g, step, hints, cost);
    if (kernels[i] && kernels[i]->seconds >= 0) {
      out[i].seconds = kernels[i]->seconds;
      out[i].workspace_bytes = kernels[i]->workspace_bytes;
      out[i].in_place = kernels[i]->in_place;
      out[i].strided = kernels[i]->strided;
      out[i].unaligned = kernels[i]->unaligned;
      continue;
    }
    if (step.kind == TSR_STEP_VIEW) continue;
    const tsr_device d = device_of(plan, step);
    const auto [machine, fresh] = machines.try_emplace(d);
    if (fresh) machine->second = machine_of(d);
    out[i].seconds = predicted_seconds(g, plan, step, hints, cost, modelled, machine->second);
    out[i].guessed = kernels[i] && !modelled && !(step.backend && step.backend->as<tsr_backend>().cost);
  }
  return out;
}

namespace {

int64_t peak_of_section(const Graph& g, const Plan& plan, const std::vector<int64_t>& hints) {
  int64_t peak = 0;
  for (const auto& layout : layouts_at_hints(plan, hints)) {
    peak += layout->peak_bytes;
    for (const Instruction& x : layout->program) {
      const Step& step = *plan.steps[x.step];
      if (!step.control) continue;
      int64_t worst = 0;
      for (const auto& region : step.control->regions) worst = std::max(worst, peak_of_section(g, *region, hints));
      peak += worst;
    }
  }
  return peak;
}

// `costs`: of plans and the plans nested in them.
using CostsOfPlans = std::unordered_map<const Plan*, std::vector<StepCost>>;

// What compile_kernels() does to a plan once it has kernels, by what is known of them from other plans.
void drop_copies_and_costs(Plan& plan, std::vector<StepCost>& costs) {
  std::unordered_map<const Step*, size_t> index;
  for (size_t i = 0; i < plan.steps.size(); ++i) index.emplace(plan.steps[i].get(), i);
  drop_copies(plan);
  std::vector<StepCost> kept;
  for (const auto& s : plan.steps) kept.push_back(costs[index.at(s.get())]);
  costs = std::move(kept);
}

void find_costs(Graph& g, Plan& plan, const std::vector<int64_t>& hints, const CompileOptions* measured, CostsOfPlans& out) {
  std::vector<StepCost> costs = step_costs(g, plan, hints, measured);
  for (size_t i = 0; i < costs.size(); ++i) {
    Step& step = *plan.steps[i];
    step.expected_workspace = costs[i].workspace_bytes;
    if (!step.kernel.launch) {
      step.kernel.in_place = costs[i].in_place;
      step.kernel.strided = costs[i].strided;
      step.kernel.unaligned = costs[i].unaligned;
    }
    if (!step.control) continue;
    for (const auto& region : step.control->regions) find_costs(g, *region, hints, measured, out);
  }
  drop_copies_and_costs(plan, costs);
  out.emplace(&plan, std::move(costs));
}

Estimate estimate_section(Graph& g, const Plan& plan, const std::vector<int64_t>& hints, const CostsOfPlans& all) {
  Estimate e;
  const std::vector<StepCost>& costs = all.at(&plan);
  for (const auto& layout : layouts_at_hints(plan, hints)) {
    e.peak_bytes += layout->peak_bytes;
    for (const Instruction& x : layout->program) {
      const Step& step = *plan.steps[x.step];
      if (!step.control) {
        e.seconds += costs[x.step].seconds;
        continue;
      }
      // One branch, the dearer; a loop of unknown length counts one iteration.
      Estimate worst;
      for (const auto& region : step.control->regions) {
        const Estimate r = estimate_section(g, *region, hints, all);
        worst.peak_bytes = std::max(worst.peak_bytes, r.peak_bytes);
        worst.seconds = std::max(worst.seconds, r.seconds);
      }
      if (step.control->kind == ControlPlan::kScan)
        worst.seconds *= static_cast<double>(hint_size(g, g.attr(step.node, "length")->i, hints));
      e.peak_bytes += worst.peak_bytes;
      e.seconds += worst.seconds;
    }
  }
  return e;
}

}  // namespace

Estimate estimate_plan(Graph& graph, Plan& plan, const CompileOptions* measured) {
  const std::vector<int64_t> hints = hint_values(graph);
  CostsOfPlans costs;
  find_costs(graph, plan, hints, measured, costs);
  if (measured && measured->known) measured->known->tell(graph, plan);
  plan.finish();
  return estimate_section(graph, plan, hints, costs);
}

int64_t peak_bytes(Graph& graph, Plan& plan) {
  plan.finish();
  return peak_bytes_of_finished(graph, plan);
}

int64_t peak_bytes_of_finished(const Graph& graph, const Plan& plan) {
  return peak_of_section(graph, plan, hint_values(graph));
}

int64_t peak_bytes_at(const Graph& graph, const Plan& plan, const std::vector<int64_t>& values) {
  return peak_of_section(graph, plan, values);
}

}  // namespace tessera::core
