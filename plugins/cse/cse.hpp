// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plugin.hpp>

namespace tessera::passes {

// Replaces each pure node by an earlier one of the same region with the same op, operands (in either order when the op is
// commutative), attributes and result types. Nodes with regions are left alone.
// Later passes may assume: no two pure nodes of one region compute the same thing by the same op.
bool eliminate_common_subexpressions(sdk::Graph g);

}  // namespace tessera::passes
