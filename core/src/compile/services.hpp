// SPDX-License-Identifier: Apache-2.0
// What the compiler offers to passes and partitioners through tsr_graph_api: evaluation of constant nodes, and estimates.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;
struct CompileOptions;

// Names the compile options that the services use on this thread while it lives. Without one, evaluate_node has the ops' own
// host kernels only, and estimate knows no backend. Scopes nest.
class ServiceScope {
 public:
  explicit ServiceScope(const CompileOptions& options) noexcept;
  ~ServiceScope();
  ServiceScope(const ServiceScope&) = delete;
  static const CompileOptions* current() noexcept;

 private:
  const CompileOptions* previous_;
};

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
// The remaining stages without code generation: assignment, decomposition and memory planning on a copy of the graph.
// Symbols take their hint, else the smallest value of their range (at least 2). Workspaces are unknown before code generation and count as 0.
Estimate estimate(const Graph& graph);

}  // namespace tessera::core
