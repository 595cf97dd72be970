// SPDX-License-Identifier: Apache-2.0
// What is compiled once per instruction set for convolutions by Winograd's minimal filtering F(2x2, 3x3): Lavin and Gray, "Fast algorithms for convolutional
// neural networks", 2015. A block of 2 x 2 results is A^T [(G g G^T) (B^T d B)] A of the 4 x 4 input values d and the filter g, the product in the
// middle element by element: 16 multiplications instead of 36, and with sums over channels in between 16 matrix products.
//   B^T = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1], A^T = [1 1 1 0; 0 1 -1 -1], G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1]
#pragma once

#include <cstdint>

#include "gemm/tables.hpp"

namespace cpu {

// B^T d B of `blocks` blocks that lie beside each other, in `channels` channels.
struct WinogradIn {
  const float* x;         // channel 0, row 0, column 0
  int64_t plane;          // floats between channels
  int64_t height, width;  // of a plane; what lies outside is 0
  int64_t row, column;    // where the first block begins; the next one begins two columns further
  int blocks;             // at most WinogradIsa::most
  int64_t channels;
  float* v;  // point p of channel c and block b goes to v[p * point + c * step + b]
  int64_t point, step;
  bool first;  // of its channel's `step` floats these are the first, and the others are written later, or never
};

// A^T m A of `blocks` blocks that lie beside each other, for the output channels of one panel.
struct WinogradOut {
  const float* m;  // point p of block b and channel o: m[p * point + b * step + o]
  int64_t point, step;
  int blocks, channels;  // channels: at most nr; m may be read up to nr
  int rows, columns;     // of results that exist: rows 1 or 2, columns at most 2 * blocks
  const float* bias;     // [channels], or null
  float* y;              // row 0, column 0 of channel 0
  int64_t plane, width;  // floats between channels, and between rows
  FinishArgs finish;     // of row 0: its `at`, `row` (the channel), `col` and `ld`
};

struct WinogradIsa {
  int most;  // blocks at a time
  void (*in)(const WinogradIn&);
  bool (*out)(const WinogradOut&);  // whether all sums, before bias and steps, are finite
};

const WinogradIsa& winograd_baseline();
const WinogradIsa& winograd_avx2();
const WinogradIsa& winograd_avx512();

}  // namespace cpu
