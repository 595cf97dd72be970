// SPDX-License-Identifier: Apache-2.0
// Where nodes run, in the form that diagrams take.
#pragma once

#include <vector>

#include "trace/diagram.hpp"

namespace tessera::core {

class Plan;
struct Assignment;

// By node id. From an assignment no kernel is known yet. The texts live as long as the backends and the plan.
std::vector<Placement> placements(const Graph& graph, const std::vector<Assignment>& assignment);
std::vector<Placement> placements(const Plan& plan);

}  // namespace tessera::core
