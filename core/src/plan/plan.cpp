// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <algorithm>

#include "ir/graph.hpp"
#include "log/log.hpp"
#include "memory/device.hpp"
#include "plan/device_constants.hpp"
#include "plan/layout.hpp"
#include "plugin/plugin_host.hpp"
#include "support/escaped.hpp"

namespace tessera::core {

Plan::~Plan() {
  primary.reset();  // what an executor has made of it goes before the kernels
  for (const auto& s : steps) {
    try {
      if (s->kernel.destroy) s->kernel.destroy(s->kernel.self);
    } catch (...) {
      log_warning("an exception left destroy of a kernel of backend '" + (s->backend ? s->backend->name : "") +
                  "': " + what_was_thrown());
    }
    if (s->site != 0) unregister_site(s->site);
    if (s->kernel.held_bytes > 0) core::device(s->device).count_freed(s->kernel.held_bytes);
  }
  const bool placed = !placed_forms.empty() ||
                      std::any_of(constants.begin(), constants.end(), [](const Constant& c) { return c.device != kCpu; });
  constants.clear();
  placed_forms.clear();
  if (placed) drop_unused_constants();
  if (form_bytes > 0) core::device(kCpu).count_freed(form_bytes);
}

tsr_step step_row(const Plan& plan, const Step& s, int64_t workspace_bytes) {
  tsr_step row{};
  row.kind = s.kind;
  row.node = s.node;
  row.op = s.node == TSR_NONE ? "" : plan.graph->node(s.node).op;
  row.backend = s.kind == TSR_STEP_KERNEL && s.backend ? s.backend->name.c_str() : "host";
  row.kernel = s.kind == TSR_STEP_KERNEL && s.backend ? &s.kernel : nullptr;
  row.inputs = s.inputs.data();
  row.num_inputs = static_cast<uint32_t>(s.inputs.size());
  row.outputs = s.outputs.data();
  row.num_outputs = static_cast<uint32_t>(s.outputs.size());
  row.workspace_bytes = workspace_bytes;
  row.predicted_seconds = s.predicted_seconds;
  const int64_t runs = s.measured_runs.load(std::memory_order_relaxed);
  row.measured_seconds =
      runs ? static_cast<double>(s.measured_ns.load(std::memory_order_relaxed)) * 1e-9 / static_cast<double>(runs) : -1;
  if (s.node != TSR_NONE) row.loc = plan.graph->node(s.node).loc;
  row.workspace_root = TSR_NONE;
  return row;
}

StepTable::StepTable(const Plan& plan) {
  std::vector<int64_t> workspace;
  for (const auto& s : plan.steps) workspace.push_back(s->kernel.workspace ? -1 : 0);
  if (plan.primary)
    for (const Instruction& e : plan.primary->program) workspace[e.step] = e.workspace_bytes;
  for (size_t i = 0; i < plan.steps.size(); ++i) rows.push_back(step_row(plan, *plan.steps[i], workspace[i]));
  table.struct_size = sizeof table;
  table.steps = rows.data();
  table.count = rows.size();
  table.stride = sizeof(tsr_step);
  table.num_slots = static_cast<uint32_t>(plan.slots.size());
}

}  // namespace tessera::core
