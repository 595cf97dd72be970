// SPDX-License-Identifier: Apache-2.0
// Does it pay to generate code for a graph? Compiling takes a fixed time once; what it saves per call is predicted from the
// sizes, by the same arithmetic on every machine: the decision depends on the graph and the options alone.
#pragma once

#include <cstdint>

#include "tessera/plugin.hpp"

namespace cpu {

struct Profitability {
  bool pays = true;
  double saved_seconds = 0;  // predicted, per call; a lower bound when it pays: counting ends there
  tessera::sdk::Node first;  // of the nodes that were counted
  static constexpr double kCompileSeconds =
      0.04;  // measured: clang's start in a process, and a batch of kernels on each thread
};

// Of all nodes of `g`, nested regions included. `calls`: how many calls may pass until it has paid; 0: it always pays. Sizes
// that are symbols count as their hint; without one, as 64. has_own_kernel: of what is computed without generated code.
Profitability predict_profitability(tessera::sdk::Graph g, int64_t calls, bool (*has_own_kernel)(const tessera::sdk::Node&));

}  // namespace cpu
