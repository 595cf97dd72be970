// SPDX-License-Identifier: Apache-2.0
// A plane with its padding, in the order in which the taps of a window read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "conv_shape.hpp"

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
  // `padding`: the value outside of the plane.
  void fill(const ConvShape& s, const float* plane, float padding, float* to) const {
    for (int64_t phase = 0; phase < stride; ++phase)
      for (int64_t y = 0; y < rows; ++y) {
        float* out = to + (phase * rows + y) * row;
        const int64_t iy = y - s.a.low[0];
        if (iy < 0 || iy >= s.in[0]) {
          std::fill_n(out, row, padding);
          continue;
        }
        // Column c holds input column phase + c * stride - low.
        const int64_t shift = phase - s.a.low[1];
        const int64_t first = std::clamp<int64_t>(shift >= 0 ? 0 : (-shift + stride - 1) / stride, 0, columns);
        const int64_t end = std::clamp<int64_t>(s.in[1] > shift ? (s.in[1] - shift + stride - 1) / stride : 0, first, columns);
        const float* from = plane + iy * s.in[1] + shift;
        std::fill_n(out, first, padding);
        if (stride == 1)
          std::memcpy(out + first, from + first, static_cast<size_t>(end - first) * 4);
        else
          for (int64_t c = first; c < end; ++c) out[c] = from[c * stride];
        std::fill_n(out + end, row - end, padding);
      }
  }
};

}  // namespace cpu
