// SPDX-License-Identifier: Apache-2.0
// The part of a graph that is computed item by item.
#pragma once

#include <string>
#include <vector>

#include <tessera/plugin.hpp>

#include "rows.hpp"

namespace tessera::map_batch {

struct Part {
  struct Member {
    sdk::Node node;
    Rule rule;
  };
  std::vector<Member> members;     // in program order
  std::vector<sdk::Node> readers;  // nodes before the last member that depend on members: they belong behind it
  double flops = 0;                // of one item
};

// The nodes of the graph's body that have a rule and at least `min_rows` rows where they are multiplied with weights, without
// those that hang on no product, convolution or attention, unless all of it is wanted (`anything`). No path leaves them and
// comes back: where one would, what lies before or behind it is left out, whichever computes less. May be empty.
Part choose(sdk::Graph g, int64_t items, int64_t min_rows, bool anything);

}  // namespace tessera::map_batch
