// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plugin.hpp>

namespace tessera::passes {

// Brings the graph to one normal form with rules that keep every bit: constants stand on the right of commutative ops, chains
// of transposes, reshapes and exact casts are one op, and ops that return an operand are gone. The rules are rules.cpp, one per
// line. Later passes may assume: none of those rules applies.
bool canonicalize(sdk::Graph g);

}  // namespace tessera::passes
