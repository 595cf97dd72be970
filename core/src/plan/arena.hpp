// SPDX-License-Identifier: Apache-2.0
// Offsets for buffers with known lifetimes in one block of memory.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::core {

struct ArenaItem {
  int64_t bytes;
  uint32_t first, last;  // steps during which it lives, inclusive
  int64_t period = 0;    // bytes of a plane: see plan_arena_alike; 0: none
  int64_t offset = 0;    // out: a multiple of 64
};

// Gives every item an offset so that items alive at the same step do not overlap, and returns the bytes needed. Greedy by
// size, best fit among the gaps (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
// algorithm 3). Deterministic. Throws TSR-R001 when the total does not fit 62 bits.
int64_t plan_arena(std::span<ArenaItem> items);

// The same, with items of one period whole periods apart, in a region of their own. Threads cut the planes of such tensors
// alike, so a line of memory stays with the core that wrote it last; a line that a core with another last-level cache wrote
// last takes several times as long. Regions, the small ones first, share memory with nothing else as long as the arena has no
// more than `most` bytes then; others may. If it has more all the same, periods do not matter. An item whose size would grow by
// more than an eighth counts as one without a period.
int64_t plan_arena_alike(std::span<ArenaItem> items, int64_t most);

}  // namespace tessera::core
