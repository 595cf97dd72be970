// SPDX-License-Identifier: Apache-2.0
// What a graph will cost, without code generation.
#pragma once

#include "ir/graph_services.hpp"

namespace tessera::core {

class Graph;
class Plan;

// The sum over the steps of a plan. Symbols take their hint, else the smallest value of their range (at least 2). Workspaces are
// unknown before code generation and count as 0. The model: docs/runtime.md.
Estimate estimate_plan(Graph& graph, Plan& plan);

}  // namespace tessera::core
