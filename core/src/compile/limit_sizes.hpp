// SPDX-License-Identifier: Apache-2.0
// Up to which sizes a program keeps to a budget of memory.
#pragma once

#include <cstdint>

namespace tessera::core {

class Graph;
class Plan;

// Requires of the symbols of a graph's inputs that they stay below what `budget` bytes allow, where they have hints: below
// their hints times one factor, the largest at which the peak is within the budget. Calls beyond it get a program of their own,
// whose plan is made for their sizes. Nothing is required where no size that a call can have is too large.
void limit_sizes(Graph& graph, Plan& plan, int64_t budget);

}  // namespace tessera::core
