// SPDX-License-Identifier: Apache-2.0
// Loops over dims of several operands at once; neighbours that are one stride apart merge.
#pragma once

#include <cstdint>

namespace cpu {

inline constexpr int kMaxRank = 32;

template <int N>
struct Nest {
  int rank = 0;
  int64_t sizes[kMaxRank];
  int64_t strides[N][kMaxRank];

  // Adds an inner dim of `size` with one stride for each operand.
  void push(int64_t size, const int64_t (&step)[N]) {
    if (size == 1) return;
    if (rank > 0) {
      bool merges = true;
      for (int i = 0; i < N; ++i) merges = merges && strides[i][rank - 1] == size * step[i];
      if (merges) {
        sizes[rank - 1] *= size;
        for (int i = 0; i < N; ++i) strides[i][rank - 1] = step[i];
        return;
      }
    }
    sizes[rank] = size;
    for (int i = 0; i < N; ++i) strides[i][rank] = step[i];
    ++rank;
  }
  int64_t total() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
  // Offsets of element `index` in row-major order.
  void at(int64_t index, int64_t (&out)[N]) const {
    for (int64_t& o : out) o = 0;
    for (int d = rank - 1; d >= 0; --d) {
      const int64_t i = d == 0 ? index : index % sizes[d];
      index /= sizes[d];
      for (int k = 0; k < N; ++k) out[k] += i * strides[k][d];
    }
  }
};

}  // namespace cpu
