// SPDX-License-Identifier: Apache-2.0
// What is compiled once per instruction set for convolutions by Winograd's minimal filtering F(m x m, 3 x 3), m = 2 or 4: Lavin
// and Gray, "Fast algorithms for convolutional neural networks", 2015. A block of m x m results is A^T [(G g G^T) (B^T d B)] A
// of the (m + 2) x (m + 2) input values d and the filter g, the product in the middle element by element: 16 multiplications
// instead of 36, or 36 instead of 144, and with sums over channels in between as many matrix products. m = 2, of the points 0,
// 1, -1 and infinity:
//   B^T = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1], A^T = [1 1 1 0; 0 1 -1 -1], G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1]
// m = 4, of the points 0, p, -p, q, -q and infinity, where p = sqrt(1/2) and q = sqrt(2): pairs of inverses keep all constants
// near 1, so that sums of some hundred channels come out with two to three times the rounding error of the sums of all products
// (root mean square; 0, 1, -1, 2 and -2 have five times).
//   B^T = [1 0 -5/2 0 1 0; 0 -2p -2 p 1 0; 0 2p -2 -p 1 0; 0 -q/2 -1/2 q 1 0; 0 q/2 -1/2 -q 1 0; 0 1 0 -5/2 0 1]
//   A^T = [1 1 1 1 1 0; 0 p -p q -q 0; 0 1/2 1/2 2 2 0; 0 p/2 -p/2 2q -2q 1]
//   G = [1 0 0; -2/3 -2p/3 -1/3; -2/3 2p/3 -1/3; 1/6 q/6 1/3; 1/6 -q/6 1/3; 0 0 1]
#pragma once

#include <cstdint>

#include "gemm/tables.hpp"

namespace cpu {

// B^T d B of `blocks` blocks that lie beside each other, in `channels` channels.
struct WinogradIn {
  const float* x;         // channel 0, row 0, column 0
  int64_t plane;          // floats between channels
  int64_t height, width;  // of a plane; what lies outside is 0
  int64_t row, column;    // where the first block begins; the next one begins m columns further
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
  int rows, columns;     // of results that exist: rows 1 to m, columns at most m * blocks
  const float* bias;     // [channels], or null
  float* y;              // row 0, column 0 of channel 0
  int64_t plane, width;  // floats between channels, and between rows
  FinishArgs finish;     // of row 0: its `at`, `row` (the channel), `col` and `ld`
};

// G g G^T in f32, for blocks of 2 x 2: of the filters [outputs][channels][3][3] of one panel, of which channels [from, to) are
// written.
struct WinogradFilters {
  const float* g;  // of the panel's first output channel
  int outputs;     // at most nr
  int64_t channels, from, to;
  float* u;  // point p of channel c and output channel o goes to u[(p * channels + c) * nr + o]: for o up to nr, which is whole
  int nr;    // vectors; beyond `outputs` some finite value, or what the last filter gives
};

struct WinogradIsa {
  int size;                                 // m
  int most;                                 // blocks at a time
  void (*filters)(const WinogradFilters&);  // null for blocks of 4 x 4, whose filters winograd_pack alone transforms
  void (*in)(const WinogradIn&);
  bool (*out)(const WinogradOut&);  // whether all sums, before bias and steps, are finite
};

// Of m = `size`, 2 or 4.
const WinogradIsa& winograd_baseline(int size);
const WinogradIsa& winograd_avx2(int size);
const WinogradIsa& winograd_avx512(int size);

}  // namespace cpu
