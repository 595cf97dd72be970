// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// Puts the body of a `fused` node in its place, node by node.
void inline_fused(Graph& graph, tsr_id node);

}  // namespace tessera::core
