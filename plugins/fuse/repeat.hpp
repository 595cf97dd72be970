// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "groups.hpp"

namespace tessera::passes {

// Gives a group its own copies of nodes of another group where it reads what they give, and could compute that from less memory
// traffic: a tensor that was widened from bf16, which both halves of a norm's gradient need, or x * r of an x that it reads
// anyway. Nodes that only this group needs leave the other one. Others must be elementwise, without calls of functions, and at
// most eight for a value. Bits do not change.
//
// The copies, by node: the number of the group that each was made for. Groups that grow anew keep them out of other groups.
Copies repeat_cheap(sdk::Graph g, const Groups& groups);

}  // namespace tessera::passes
