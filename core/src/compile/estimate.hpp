// SPDX-License-Identifier: Apache-2.0
// What a graph will cost, without code generation.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph_services.hpp"

namespace tessera::core {

class Graph;
class Plan;
struct Step;

// The sum over the steps of a plan. Symbols take their hint, else the smallest value of their range (at least 2). Workspaces are
// unknown before code generation and count as 0. The model: docs/runtime.md.
Estimate estimate_plan(Graph& graph, Plan& plan);
// What estimate_plan() says of the peak, workspaces included where the plan has its kernels.
int64_t peak_bytes(Graph& graph, Plan& plan);
// Of moving a byte to or from memory.
double seconds_per_byte();
// One kernel of the plan. `hints`: of the graph's symbols (hint_values).
double step_seconds(Graph& graph, const Plan& plan, const Step& step, const std::vector<int64_t>& hints);

}  // namespace tessera::core
