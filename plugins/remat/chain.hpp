// SPDX-License-Identifier: Apache-2.0
// Plans of graphs that are chains of segments, by dynamic programming over what the segments keep.
#pragma once

#include <cstddef>
#include <vector>

#include "problem.hpp"
#include "schedule.hpp"

namespace tessera::remat {

// Plans that keep some of the separators, at most `most` of them, whatever the budget.
//
// A segment lies between two separators that are kept, so nothing of it depends on what the others do. For each, ways to divide
// it into kept and computed again are simulated in its own stretch of the backward half: bytes that it keeps while later
// segments run backward, bytes at its own peak, and time. Equal segments are solved once. Then the segments are put together
// from the last one, whose backward comes first: where the segments behind it need `d` bytes besides what comes before them,
// a segment that keeps s and has the peak p makes that max(d + s, p) (Beaumont et al. 2019, arXiv:1911.13214, for chains;
// Zhao et al. 2023, Rockmate, for their segments).
std::vector<Plan> chain_plans(const Problem& problem, const Schedule& schedule, const Separators& separators, size_t most);

}  // namespace tessera::remat
