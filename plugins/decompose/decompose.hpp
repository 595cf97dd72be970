// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <tessera/plugin.hpp>

namespace tessera::passes {

// Replaces composites by the decomposition in their record, repeatedly, until none of the named ops is left. An empty list
// names every composite. Composites stay whole by default, because backends say themselves what they do not take; this pass is
// for looking at primitives, for exporters, and for backends under test. Later passes may assume: none of the named ops occurs.
bool decompose_composites(sdk::Graph g, const std::vector<std::string>& ops);

}  // namespace tessera::passes
