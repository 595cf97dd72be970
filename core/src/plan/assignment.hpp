// SPDX-License-Identifier: Apache-2.0
// Who runs a node, and the sizes to plan with before any are known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;
struct Factory;

// Of one node; a list of them has one entry per node id.
struct Assignment {
  enum Kind : unsigned char { kNone, kBackend, kHost, kView, kControl, kConstant, kTransfer, kRefused };
  // kRefused: nobody takes the node whole; it is decomposed before anything is planned.
  Kind kind = kNone;
  const Factory* backend = nullptr;  // kBackend
  std::string refusals = {};         // kBackend, kHost: what those before it in the order said, "cpu: too small; x: no kernel"
};

// Sizes to plan with before any are known: hints, else the smallest value of the range, at least 2.
std::vector<int64_t> hint_values(const Graph& graph);
int64_t hint_size(const Graph& graph, tsr_dim d, const std::vector<int64_t>& hints);

}  // namespace tessera::core
