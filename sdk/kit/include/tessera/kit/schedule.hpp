// SPDX-License-Identifier: Apache-2.0
// How a kernel is spread over a CPU's vectors and threads. Chosen from the kernel's index expressions and a description of the
// device; it never changes a bit of the results.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

struct Device {
  int cores = 1;
  int vector_bytes = 32;  // of one register: 16, 32 or 64
  bool tables = false;    // picks from 32 f32 in one instruction, see use_tables()
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 16 << 20;  // l1, l2 per core
  double memory_bandwidth = 20e9, cache_bandwidth = 80e9;                // bytes per second, all cores; beyond and inside l3
};

struct Schedule {
  // Whose points lie side by side in a vector: an axis of the loops (a row is reduced lane by lane) or a parallel one. kNone:
  // scalars.
  uint32_t lane_axis = kNone;
  bool lanes_in_loop = false;
  int width = 1;      // lanes of a vector, maybe several registers
  int64_t block = 1;  // points of a parallel lane axis per unit of work
  // A parallel axis along which accesses are contiguous that are scattered along the lanes (a transpose). Units then take
  // tile_points of it, and go through them for each vector, so that every cache line that was touched is used up. kNone: none.
  uint32_t tile_axis = kNone;
  int64_t tile_points = 1;
  // What is read across the lanes comes from rows a multiple of 4 KiB apart, or of 2 KiB where elements have two bytes: a unit
  // computes from its block's copy, and copies the next unit's meanwhile. Only choose_schedule sets it: sizes are whole blocks
  // then, and one operand is read so. Where little is computed, vectors have no more than eight lanes.
  bool double_buffers = false;
  // Only the launch knows the sizes: blocks are double-buffered where these turn out so, and all tensors together have no more
  // bytes than this. 0: never.
  int64_t double_buffer_bytes = 0;
  // One reduction along other axes than the lanes: its points are walked row by row, each over all lanes of the unit, whose
  // running values are in memory. What is read then are long stretches.
  bool row_by_row = false;
  bool split = false;  // one reduction is spread over units, chunk by chunk; a second phase joins them
  // numerics = "relaxed": a value of a half type that the kernel goes on with is not rounded to it. choose_schedule leaves it
  // false.
  bool relaxed = false;
  int64_t unit_points = 0;  // points of one unit, 0: known only at launch
};

// The default choice of an analytic model; see docs/kernel_kit.md.
Schedule choose_schedule(Kernel& k, const Device& device);
// The same with blocks that are double-buffered, and with their sizes.
Schedule double_buffered(Schedule s);
// Bytes: lines that far apart share a set of the first-level cache. Two sets by turns are as bad for what takes twice as many
// rows for the same bytes.
inline constexpr int64_t same_set(int element_bytes) { return element_bytes == 2 ? 2048 : 4096; }
// Of a kernel that lower_window() made: rows in the lanes, and of up to kWindowPoints rows and as many columns one unit.
inline constexpr int64_t kWindowPoints = 512;
Schedule window_schedule(const Kernel& k, const Device& device);

}  // namespace tessera::kit
