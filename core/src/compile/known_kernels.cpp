// SPDX-License-Identifier: Apache-2.0
#include "compile/known_kernels.hpp"

#include <algorithm>
#include <vector>

#include "compile/kernel_key.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"

namespace tessera::core {

namespace {

// Operands that are views count as others: where an operand lies changes neither.
std::string key_of(const Graph& g, tsr_id node, const std::vector<int64_t>& hints) {
  return kernel_key(g, node, std::vector<uint8_t>(g.num_nodes(), 0), hints);
}

}  // namespace

bool KnownKernels::learn(const Graph& g, const Plan& plan) {
  const std::vector<int64_t> hints = hint_values(g);
  bool news = false;
  for (const auto& layout : layouts_at_hints(plan, hints))
    for (const Instruction& x : layout->program) {
      const Step& s = *plan.steps[x.step];
      if (x.kind != Instruction::kLaunch || s.node == TSR_NONE) continue;
      const Known now{x.workspace_bytes, s.kernel.in_place};
      if (now == Known()) continue;
      Known& known = known_[key_of(g, s.node, hints)];
      news = news || !(known == now);
      known = now;
    }
  return news;
}

void KnownKernels::tell(const Graph& g, Plan& plan) const {
  if (known_.empty()) return;
  const std::vector<int64_t> hints = hint_values(g);
  for (const auto& s : plan.steps) {
    if (s->kind != TSR_STEP_KERNEL || !s->backend || s->kernel.launch || s->node == TSR_NONE) continue;
    const auto at = known_.find(key_of(g, s->node, hints));
    if (at == known_.end()) continue;
    s->expected_workspace = std::max(s->expected_workspace, at->second.workspace);
    s->kernel.in_place = at->second.in_place;
  }
}

}  // namespace tessera::core
