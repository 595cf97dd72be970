// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plugin.hpp>

namespace tessera::passes {

// Erases pure nodes whose results nobody reads, in nested regions too, in one backward sweep.
// A node that defines an unbacked symbol stays while a later size names that symbol.
// Later passes may assume: every pure node has a used result, or defines a size that is used.
bool eliminate_dead_code(sdk::Graph g);

}  // namespace tessera::passes
