// SPDX-License-Identifier: Apache-2.0
// What no plan can do: the least time computed again that a peak allows.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"
#include "schedule.hpp"

namespace tessera::remat {

// Pairs (peak, cost) by falling peak and rising cost: no plan whose peak is below the peak of a pair costs less than that pair
// and all before it. Peaks are of values, without results that the caller gets.
struct Bound {
  struct Step {
    int64_t peak, cost;
  };
  std::vector<Step> steps;
  // No plan with at most this peak computes less again, in picoseconds.
  int64_t at(int64_t peak) const;
};

// A dynamic programme over the forward half from its end: for each node that is needed, keep what it gives or compute it once
// more and need what it reads. Where the nodes so far need `d` bytes besides what earlier ones keep, keeping v makes it d + v.
// The backward half meets the nodes in that order, too. At a product of its main path (Item::product), what it reads is in
// memory together with all that is kept for those that depend on it, while values of later layers may be gone: so it makes d
// the larger one of d and what it reads. Only what every lowering has in memory counts: fusion may leave out what passes
// between nodes element by element, and may run what does not depend on each other in any order. `products`: false leaves these
// places out, so that the only peak is where the halves meet. Empty where there are too many ways to be needed.
Bound lower_bound(const Problem& problem, const Schedule& schedule, bool products);

}  // namespace tessera::remat
