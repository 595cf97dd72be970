// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::core {

class Graph;

// Lets readers in the backward half (nodes marked TSR_MARK_BACKWARD) of what the nodes with again[id] != 0 compute read copies
// instead, which stand before the first such reader: computed as late as possible, they take memory as briefly as possible. A
// copy reads copies where its operands have them. Nodes that nobody reads any more are erased. One transaction; true: the graph
// changed.
bool recompute(Graph& graph, const std::vector<uint8_t>& again);

}  // namespace tessera::core
