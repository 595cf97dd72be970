// SPDX-License-Identifier: Apache-2.0
// Contributions to one gradient that come from slices of its value: zeros everywhere but where the slice was. Those of slices
// that cover the value, as of queries, keys and values in one product, are put side by side: adding them would write and read
// the whole value for each.
#pragma once

#include <optional>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// Of one value, as contributions come in. Holds them until they cover it.
class Parts {
 public:
  bool empty() const { return contributions_.empty(); }
  // Takes a contribution that pads with zeros at one axis, the one of those that it holds already. False: it is none.
  bool take(Graph& graph, tsr_id contribution);
  // Once what it holds covers the value and nothing overlaps: the contribution that takes the place of all of them, made before
  // a node. It has the elements of their sum, but for the sign of zeros. Holds nothing then.
  std::optional<tsr_id> joined(Graph& graph, tsr_id before);
  // What it holds, in the order in which it came. Holds nothing then.
  std::vector<tsr_id> release();
  void replace(tsr_id value, tsr_id by);

 private:
  std::vector<tsr_id> contributions_;
  uint32_t axis_ = 0;
  tsr_dim size_ = 0;  // of what they cover together, if none overlaps
};

}  // namespace tessera::core
