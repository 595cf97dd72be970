// SPDX-License-Identifier: Apache-2.0
// What passes and partitioners may ask of the compiler through tsr_graph_api. Declared here for the table; the compiler defines
// them (compile/services.cpp, compile/driver.cpp).
#pragma once

#include <cstdint>
#include <span>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// Computes the results of a pure node without regions whose operands are all results of constant-trait nodes and whose sizes
// are numbers. Runs on the fallback backend, or on the op's host kernel when the fallback does not compute (null). out[i] is
// dense host memory in the graph's scratch. Throws TSR-R022 when the node does not qualify or nothing here can run it, and what
// the kernel throws.
void evaluate_node(Graph& graph, tsr_id node, std::span<tsr_tensor> out);

// The first backend of the services' options that claims the node; null: none. See tsr_graph_api.backend_of.
const char* backend_of(Graph& graph, tsr_id node, uint64_t* capabilities);

struct Estimate {
  int64_t peak_bytes = 0;  // arena plus outputs of one run; inputs and constants, which exist before, are not counted
  double seconds = 0;      // sum over the steps; see docs/runtime.md for the model
};
// The stages of a compile up to the plan, on a copy of the graph.
Estimate estimate(const Graph& graph);

}  // namespace tessera::core
