// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "problem.hpp"

namespace tessera::remat {

// Lets single nodes more of a plan run again, the cheapest per byte first, until it saves at most `bytes`; the last of them is
// the cheapest that suffices. A minimum cut finds no plan between two corners of its hull, and where many nodes cost the same
// per byte, as the products of equal layers, those corners are far apart. A plan that saves more: single nodes do not suffice.
Plan fill(const Problem& problem, Plan plan, int64_t bytes);

}  // namespace tessera::remat
