// SPDX-License-Identifier: Apache-2.0
// A plane with its padding, in the order in which the taps of a window read it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conv_shape.hpp"
#include "depthwise/tables.hpp"

namespace cpu {

// Where the columns of a padded plane lie: those with the same remainder modulo the stride beside each other.
struct Phases {
  static constexpr int64_t kBehind = 16;  // floats that a kernel may read behind a row
  int64_t stride, columns, row, rows;
  explicit Phases(const ConvShape& s)
      : stride(s.a.stride[1]),
        // As far as a tap reaches.
        columns(std::max<int64_t>(0, s.out[1] + (s.kernel[1] - 1) * s.a.dilation[1] / stride)),
        row((columns + kBehind + 15) / 16 * 16),
        rows(std::max<int64_t>(0, (s.out[0] - 1) * s.a.stride[0] + (s.kernel[0] - 1) * s.a.dilation[0] + 1)) {}
  int64_t floats() const { return stride * rows * row + kBehind; }
  int64_t bytes() const { return (floats() * 4 + 63) / 64 * 64; }
  // Of the tap (ky, kx).
  int64_t offset(const ConvShape& s, int64_t ky, int64_t kx) const {
    const int64_t at = kx * s.a.dilation[1];
    return (at % stride * rows + ky * s.a.dilation[0]) * row + at / stride;
  }
  // What a kernel copies of every plane to the same place `to`, which `clear` has filled with the padding once.
  void clear(float padding, float* to) const { std::fill_n(to, floats(), padding); }
  // Of the rows that results in rows [first, end) read.
  PlaneCopy copy(const ConvShape& s, int64_t first, int64_t end, float* to) const {
    PlaneCopy p{};
    const int64_t top = first * s.a.stride[0], bottom = rows - (s.out[0] - end) * s.a.stride[0];
    const int64_t y0 = std::clamp<int64_t>(s.a.low[0], top, bottom), y1 = std::clamp<int64_t>(s.a.low[0] + s.in[0], y0, bottom);
    p.in_row = s.in[1], p.skip = (y0 - s.a.low[0]) * s.in[1];
    p.to = to, p.row = row, p.phase = rows * row;
    p.first = y0, p.rows = y1 - y0;
    p.stride = stride, p.low = s.a.low[1], p.columns = columns;
    return p;
  }
};

}  // namespace cpu
