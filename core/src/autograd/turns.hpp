// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// How often the second region of a `while_loop` runs, where that is a number: one of the carried integers begins at a constant,
// the second region adds a constant to it or subtracts one, and the first region compares it with a constant.
std::optional<int64_t> number_of_turns(const Graph& graph, tsr_id node);

}  // namespace tessera::core
