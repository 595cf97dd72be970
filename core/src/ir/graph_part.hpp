// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// The part of a graph's body that computes `outputs` from `inputs`, as a graph of its own. Inputs of the graph keep their kind,
// key and name; other values become arguments. Sizes keep their handles, and large constants are shared. Every output must
// depend on the inputs and on constants alone.
std::unique_ptr<Graph> graph_part(const Graph& graph, std::string_view name, std::span<const tsr_id> inputs,
                                  std::span<const tsr_id> outputs);

// These nodes side by side, without marks: each reads arguments of its own, except for constants, and for views (by node),
// which are copied with it. All results are outputs, in order.
std::unique_ptr<Graph> graph_of_nodes(const Graph& graph, std::string_view name, std::span<const tsr_id> nodes,
                                      const std::vector<uint8_t>& is_view);

}  // namespace tessera::core
