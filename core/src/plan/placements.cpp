// SPDX-License-Identifier: Apache-2.0
#include "plan/placements.hpp"

#include "ir/graph.hpp"
#include "plan/assignment.hpp"
#include "plan/plan.hpp"
#include "plugin/plugin_host.hpp"

namespace tessera::core {

namespace {

constexpr Placement kIsView{"view", {}}, kOnHost{"host", {}};

void add(const Plan& plan, std::vector<Placement>& out) {
  for (const auto& s : plan.steps) {
    if (s->node != TSR_NONE && s->kind == TSR_STEP_KERNEL)
      out[s->node] = s->backend ? Placement{s->backend->name, s->kernel.name ? s->kernel.name : ""} : kOnHost;
    if (s->node != TSR_NONE && s->kind == TSR_STEP_VIEW) out[s->node] = kIsView;
    if (s->control)
      for (const auto& region : s->control->regions) add(*region, out);
  }
}

}  // namespace

std::vector<Placement> placements(const Graph& graph, const std::vector<Assignment>& assignment) {
  std::vector<Placement> out(graph.num_nodes());
  for (size_t n = 0; n < out.size() && n < assignment.size(); ++n) {
    const Assignment& a = assignment[n];
    if (a.kind == Assignment::kBackend) out[n].backend = a.backend->name;
    if (a.kind == Assignment::kHost) out[n] = kOnHost;
    if (a.kind == Assignment::kView) out[n] = kIsView;
  }
  return out;
}

std::vector<Placement> placements(const Plan& plan) {
  std::vector<Placement> out(plan.graph->num_nodes());
  add(plan, out);
  return out;
}

}  // namespace tessera::core
