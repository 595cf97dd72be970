// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// Whether result `output` of a node is computed element by element from its operand, so that a kernel with
// TSR_KERNEL_POINTWISE may write it where that lies: the node is of the trait `elementwise`, or a fused group in which both
// belong to one part of such nodes that all have the same shape, but for single numbers.
bool is_pointwise(const Graph& graph, tsr_id node, uint32_t output, uint32_t operand);

}  // namespace tessera::core
