// SPDX-License-Identifier: Apache-2.0
// What is compiled once per instruction set for convolutions of one channel with one filter.
#pragma once

#include <cstdint>

#include "gemm/tables.hpp"

namespace cpu {

// out[y][x] = bias + sum over t of weights[t] * in[y * in_row + x + offsets[t]], added in the order of t. Reads up to 16 floats
// behind the last column that a tap needs; writes `rows` rows of `cols` floats, out_row apart, and nothing else. The plane of
// results is one row to `finish`.
struct DepthwiseArgs {
  const float* in;
  int64_t in_row;
  const float* weights;    // [taps]
  const int64_t* offsets;  // [taps]
  int taps;
  float bias;
  float* out;
  int64_t out_row;
  int64_t rows, cols;
  FinishArgs finish;
};
// Rows [first, first + rows) of a padded plane from the plane's rows, which begin at `plane` + skip, in_row apart: row y of
// phase f goes to to + f * phase + y * row, where column c of it (of `columns`) is the plane's column f + c * stride - low, as
// far as there is one.
struct PlaneCopy {
  const float* plane;
  int64_t in_row, skip;
  float* to;
  int64_t row, phase;
  int64_t first, rows;
  int64_t stride, low, columns;
};
// The same without a copy: rows [first, end) of the results of one plane as it lies in memory. Square filters of 3 or 5 taps a
// side, stride 1 or 2 both ways. `out` and `finish` are those of the plane's first result.
struct DirectArgs {
  const float* plane;
  int64_t rows, cols, low[2];  // of the plane; the padding above and to the left
  int taps, stride;            // of a side
  const float* weights;
  float bias;
  float* out;
  int64_t out_cols, first, end;
  FinishArgs finish;
};
using CopyPlane = void(const PlaneCopy&);
using Depthwise = void(const DepthwiseArgs&);
using DepthwiseDirect = void(const DirectArgs&);
// The greatest of the taps, without weights, bias and steps; NaN wins, and the first of equal values.
using WindowMax = void(const DepthwiseArgs&);

CopyPlane copy_plane_baseline, copy_plane_avx2, copy_plane_avx512;
Depthwise depthwise_baseline, depthwise_avx2, depthwise_avx512;
DepthwiseDirect depthwise_direct_avx2, depthwise_direct_avx512;
WindowMax window_max_baseline, window_max_avx2, window_max_avx512;

}  // namespace cpu
