// SPDX-License-Identifier: Apache-2.0
// A node as its op's C++ callbacks see it at run time: every size is a number.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// Owns what `call` points at; attributes other than sizes are borrowed from the graph.
struct RuntimeCall {
  tsr_call call{};
  std::vector<tsr_type> types;  // of the operands
  std::vector<const tsr_type*> operands;
  std::vector<tsr_attr> attrs;
  std::vector<std::vector<int64_t>> dims;  // sizes of operands, then of DIMS attributes

  // `value` gives the number of a symbolic size.
  static std::unique_ptr<RuntimeCall> make(const Graph& graph, tsr_id node, const std::function<int64_t(tsr_dim)>& value);
};

}  // namespace tessera::core
