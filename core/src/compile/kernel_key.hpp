// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// What makes two kernels one: op, attributes, regions, types and views of the operands, and the sizes at the hints of symbols.
// Names and places in the program do not count. `is_view`: by node, of the views of the plan.
std::string kernel_key(const Graph& graph, tsr_id node, const std::vector<uint8_t>& is_view, const std::vector<int64_t>& hints);

}  // namespace tessera::core
