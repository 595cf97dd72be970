// SPDX-License-Identifier: Apache-2.0
// Passes that run when every node has its backend: fusion.
#pragma once

#include <vector>

#include "context/context.hpp"
#include "pass/pass_manager.hpp"

namespace tessera::core {

struct LatePasses {
  std::vector<BoundPass> passes;
  PassOptions options;
};

// Runs them over an assigned graph, under the caller's ServiceScope. True: the graph changed and has to be assigned again.
inline bool run_late_passes(Graph& graph, const LatePasses& late) {
  bool changed = false;
  for (const PassRun& r : run_passes(graph, late.passes, late.options).runs) changed |= r.changed;
  return changed;
}

}  // namespace tessera::core
