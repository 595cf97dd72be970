// SPDX-License-Identifier: Apache-2.0
// Plans that differ from a given one by a single decision.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tessera::remat {

// The plan in which a node runs again too, with all that it needs and nobody has kept.
Plan with(const Problem& problem, const Plan& plan, uint32_t node);
// The plan in which a node no longer runs again, nor what only it needs.
Plan without(const Problem& problem, const Plan& plan, uint32_t node);

// One node more runs again that gives at least so many bytes, or one node less. Of nodes that cost the same and give as
// many bytes, as those of equal layers, the last one is tried: which of them it is matters less than of which kind it is,
// and plans put together layer by layer compute the first ones again already. A node that gives no bytes of its own is
// tried where the backward half reads it: fused with its reader, computing it again may be faster than reading it. So may
// keeping one that costs next to nothing.
std::vector<Plan> one_more(const Problem& problem, const Plan& plan, int64_t bytes);
std::vector<Plan> one_less(const Problem& problem, const Plan& plan);

}  // namespace tessera::remat
