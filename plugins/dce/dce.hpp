// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plugin.hpp>

namespace tessera::passes {

// Erases pure nodes whose results nobody reads, in nested regions too, in one backward sweep.
// Later passes may assume: every pure node has at least one used result.
bool eliminate_dead_code(sdk::Graph g);

}  // namespace tessera::passes
