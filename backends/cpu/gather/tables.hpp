// SPDX-License-Identifier: Apache-2.0
// What is compiled once per instruction set to gather panels of input values for convolutions.
#pragma once

#include <cstdint>

namespace cpu {

// out[k][j] for `count` rows of `width` columns from depth k0 on: depth k is the tap k % taps of channel k / taps. Column j of
// it is x[channel * plane + tap_at[tap] + column_at[j]] where bit j of seen[tap] is set, else 0. Reads and writes nothing else.
struct GatherArgs {
  const float* x;
  int64_t plane;
  int taps;
  const int64_t* tap_at;     // [taps]
  int width;                 // at most nr
  const int64_t* column_at;  // [width]
  const uint32_t* seen;      // [taps]
  int64_t step;              // between columns that lie in one row of the output
  bool near;                 // columns lie within 2^31 elements of each other
  int64_t k0, count;
  float* out;
};
using Gather = void(const GatherArgs&);

Gather gather_baseline, gather_avx2, gather_avx512;  // nr 8, 16, 32

// Columns that follow each other in every row, to panels of nr: out[j / nr * step + k * nr + j % nr] = from[k * row + j] for j
// < cols and k < count.
struct SpreadArgs {
  const float* from;
  int64_t row;
  int cols;
  int64_t count;
  float* out;
  int64_t step;
};
using Spread = void(const SpreadArgs&);

Spread spread_baseline, spread_avx2, spread_avx512;  // nr 8, 16, 32

// Columns of which those of a vector follow each other: out[k][v * lanes + j] for `count` rows of two vectors, the first
// `vectors` of which are written. Row k is the tap k % taps of channel k / taps, and column j of its vector v is x[channel *
// plane + tap_at[tap] + vector_at[v] + j].
struct PickArgs {
  const float* x;
  int64_t plane;
  int taps;
  const int64_t* tap_at;  // [taps]
  int vectors;            // 1 or 2
  int64_t vector_at[2];
  int64_t k0, count;
  float* out;
};
using Pick = void(const PickArgs&);

Pick pick_baseline, pick_avx2, pick_avx512;  // nr 8, 16, 32

}  // namespace cpu
