// SPDX-License-Identifier: Apache-2.0
// Operands of broadcasting ops whose sizes decide only at run time which of them is repeated.
#pragma once

#include <optional>

#include "ir/graph.hpp"

namespace tessera::core {

// Where a dimension of two operands is of unknown equality and one of them may be 1 at run time, both are widened to their
// common size by `broadcast_to` nodes, so that the op itself sees equal sizes: kernels choose what they repeat when they are
// compiled, a view chooses its strides when the sizes are known. Sizes that a call has given (hints) are left alone: there a
// guard chooses, and another call gets an entry of its own. Returns the node to create instead of `spec`; nothing when there is
// nothing to widen. The nodes go before `before`.
std::optional<NodeSpec> widened(Graph& graph, const OpRecord& record, const NodeSpec& spec, tsr_id region, tsr_id before);

}  // namespace tessera::core
