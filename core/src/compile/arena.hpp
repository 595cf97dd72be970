// SPDX-License-Identifier: Apache-2.0
// Offsets for buffers with known lifetimes in one block of memory.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::core {

struct ArenaItem {
  int64_t bytes;
  uint32_t first, last;  // steps during which it lives, inclusive
  int64_t offset = 0;    // out: a multiple of 64
};

// Gives every item an offset so that items alive at the same step do not overlap, and returns the bytes needed. Greedy by
// size, best fit among the gaps (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
// algorithm 3). Deterministic. Throws TSR-R001 when the total does not fit 62 bits.
int64_t plan_arena(std::span<ArenaItem> items);

}  // namespace tessera::core
