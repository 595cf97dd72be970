// SPDX-License-Identifier: Apache-2.0
// The last steps of making a plan: where a static one lies in memory, and how calls run it.
#include <algorithm>

#include "ir/graph.hpp"
#include "log/log.hpp"
#include "memory/device.hpp"
#include "plan/compile_options.hpp"
#include "plan/executor_layout.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"

namespace tessera::core {

void Plan::finish() {
  for (const auto& s : steps)
    if (s->control)
      for (const auto& region_plan : s->control->regions) region_plan->finish();
  program.finish();
  for (const Slot& s : slots)
    for (uint32_t k = 0; k < s.rank; ++k) is_static = is_static && dims[s.dims + k].slot < 0;
  is_static = is_static && num_sections == 1;
  for (const auto& s : steps)
    if (s->control && s->control->length.slot >= 0) is_static = false;
  if (is_static && program.num_slots() > 0) {
    // Symbols that are mentioned without sizing a tensor (dim_value): dims still change from call to call, so kernels'
    // workspaces may too.
    is_static = std::none_of(inputs.begin(), inputs.end(), [](const InputSpec& i) { return !i.static_sizes; });
    is_static = is_static && !gets_sizes;
  }
  if (!is_static) return;
  std::vector<InputLayout> dense(inputs.size());
  for (size_t i = 0; i < dense.size(); ++i) {
    if (!inputs[i].strides.empty()) dense[i].strides = inputs[i].strides.data();  // plain numbers, or there would be none
    dense[i].give_away = inputs[i].donated && inputs[i].writeback != TSR_NONE && !nested;
  }
  std::vector<int64_t> values(std::max<size_t>(1, program.num_slots()), 0);
  primary = make_layout(*this, 0, values.data(), dense, nullptr);
}

// An executor is offered plans that have a queue, or the host, of its kind, and no sizes that depend on data.
void Plan::choose_executor(const CompileOptions& options) {
  if (!options.executor || measure || check_nan) return;
  const tsr_executor& table = options.executor->as<tsr_executor>();
  if (options.deterministic && !(table.capabilities & TSR_CAP_DETERMINISTIC)) {
    log_notice("executor '" + options.executor->name +
               "' does not promise the same bits on every run, and deterministic is on; plans run step by step");
    return;
  }
  const std::string& kind = core::device(device_intern(table.device)).kind();
  const auto is_kind = [&](tsr_device d) { return core::device(d).kind() == kind; };
  std::string why;
  if (num_sections > 1)
    why = "it has sizes that depend on data";
  else if (std::none_of(queues.begin(), queues.end(), is_kind) && !is_kind(kCpu))
    why = "no step runs on '" + kind + "'";
  if (why.empty()) {
    executor = options.executor;
    if (!is_static && (table.capabilities & TSR_EXECUTOR_BOUNDS)) bounds = program.upper_bounds();
  }
  if (!why.empty() && log_enabled(Artifact::kPerfHints))
    log_write(Artifact::kPerfHints, "executor '" + options.executor->name + "' does not run graph '" +
                                        std::string(graph->tables().name) + "': " + why);
  if (!executor || !primary) return;
  const std::vector<int64_t> values(std::max<size_t>(1, program.num_slots()), 0);
  primary->executor = ExecutorLayout::make(*this, *primary, values.data(), *executor);
}

}  // namespace tessera::core
