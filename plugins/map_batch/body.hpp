// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "part.hpp"

namespace tessera::map_batch {

// Puts a scan in the place of the part, whose region computes one item: constants are constants of the region, what members
// read by rows are slices, the rest is read whole.
void map_part(sdk::Graph g, const Part& part, int64_t items);

}  // namespace tessera::map_batch
