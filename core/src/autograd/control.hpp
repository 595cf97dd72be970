// SPDX-License-Identifier: Apache-2.0
// Gradients of ops with regions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

struct ControlGradient {
  std::vector<tsr_id> of_operands;  // TSR_NONE: none is wanted, or it is zero
  std::vector<tsr_id> regions;      // hold `grad` nodes that are to be expanded
};

// Of a `cond` or `scan`: nodes before `before` that run the regions again and ask for their gradients there. The backward half
// so keeps what goes into a region, not what is computed in it. `wanted`: whether an operand is differentiated. Nothing for
// other ops, and where a size depends on data.
std::optional<ControlGradient> build_control_gradient(Graph& graph, tsr_id node, std::span<const tsr_id> of_results,
                                                      const std::function<bool(tsr_id)>& wanted, tsr_id before);

// Of a `while_loop` that counts from one constant to another, so that its number of turns is known: the results of the `scan`
// of so many turns that computes the same, made before it. Nothing for other nodes.
std::optional<std::vector<tsr_id>> scan_of_loop(Graph& graph, tsr_id node);

}  // namespace tessera::core
