// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// What `half`, a part of `whole` whose sizes have the same handles, needs besides the values that it reads, so that every size
// in it is known: inputs of `whole` whose dimensions give one, and results of `whole` whose sizes depend on data. A size that
// neither has is left to the plan, which refuses it.
std::vector<tsr_id> values_for_sizes(const Graph& half, const Graph& whole);

}  // namespace tessera::core
