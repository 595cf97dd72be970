// SPDX-License-Identifier: Apache-2.0
// Random graphs for property tests: valid by construction, the same for the same seed and op set.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ir/graph.hpp"

namespace tessera::test {

struct RandomGraphOptions {
  uint32_t max_nodes = 16;  // of the body; nested regions have a few more
  uint32_t max_region_depth = 2;
  bool symbolic = true;   // symbols, expressions, assumptions
  bool unbound = false;   // symbols may be the size of no input: what then reads one cannot be planned (TSR-R023)
  bool states = true;     // params and states; else args only
  bool devices = true;    // some graphs live on null:0
  bool odd_names = true;  // names that need quotes, locations, NaN payloads
  // Only dtypes in this bit set (bit number: tsr_dtype); 0: all of them.
  uint64_t dtypes = 0;
  // Out: one value per symbol (in table order) for which every size is 0 or more and every assumption holds. May be null.
  std::vector<int64_t>* witness = nullptr;
};

// Committed. Ops are drawn from `ops`: each record's patterns are matched against values at hand, and what is missing is made
// with `constant` and `full` where the op set has them. Ops that refuse the draw are dropped, and so are those that need an
// assumption which the witness does not satisfy: the graph can run, unless `unbound`.
std::unique_ptr<core::Graph> random_graph(const core::OpRegistry& ops, uint64_t seed, const RandomGraphOptions& options = {});

}  // namespace tessera::test
