// SPDX-License-Identifier: Apache-2.0
// The worklist rewrite driver.
#pragma once

#include <span>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// Applies the patterns to every live node, nested regions included, until none fires: first in program order, then whatever an
// edit could have enabled (created nodes, users of changed values, producers that lost a use). Pure nodes whose results are
// unused are erased on the way, but for those that define unbacked symbols. Patterns with greater benefit are tried first; ties
// keep the given order. Returns whether anything changed. Throws TSR-B010 when the rules do not settle (two rules that undo
// each other).
bool rewrite(Graph& graph, std::span<const tsr_pattern* const> patterns);

}  // namespace tessera::core
