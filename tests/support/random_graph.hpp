// SPDX-License-Identifier: Apache-2.0
// Random graphs for property tests: valid by construction, the same for the same seed and op set.
#pragma once

#include <cstdint>
#include <memory>

#include "ir/graph.hpp"

namespace tessera::test {

struct RandomGraphOptions {
  uint32_t max_nodes = 16;         // of the body; nested regions have a few more
  uint32_t max_region_depth = 2;
  bool symbolic = true;            // symbols, expressions, assumptions
  bool states = true;              // params and states; else args only
  bool devices = true;             // some graphs live on null:0
  bool odd_names = true;           // names that need quotes, locations, NaN payloads
  // Only dtypes in this bit set (bit number: tsr_dtype); 0: all of them.
  uint64_t dtypes = 0;
};

// Committed. Ops are drawn from `ops`: each record's patterns are matched against values at hand, and what is missing is made with
// `constant` and `full` where the op set has them. Ops that refuse the draw are dropped.
std::unique_ptr<core::Graph> random_graph(const core::OpRegistry& ops, uint64_t seed, const RandomGraphOptions& options = {});

}  // namespace tessera::test
