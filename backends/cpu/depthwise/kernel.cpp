// SPDX-License-Identifier: Apache-2.0
// Convolution of one channel, compiled once per instruction set (contraction allowed, as for products). Several rows at a time keep enough
// independent sums under way where rows are short.
#include "depthwise/tables.hpp"
#include "gemm/isa/lanes.hpp"

#define CPU_CAT2(a, b) a##b
#define CPU_CAT(a, b)  CPU_CAT2(a, b)

namespace cpu {
namespace {

struct Sum {
  static Vec first(const DepthwiseArgs& d) { return splat(d.bias); }
  static Vec weight(const DepthwiseArgs& d, int t) { return splat(d.weights[t]); }
  static Vec step(Vec sum, Vec w, Vec x) { return sum + w * x; }
};
struct Max {
  static Vec first(const DepthwiseArgs&) { return splat(-__builtin_inff()); }
  static Vec weight(const DepthwiseArgs&, int) { return Vec{}; }
  static Vec step(Vec best, Vec, Vec x) { return (x > best) | (x != x) ? x : best; }
};

template <class Op, int Rows>
void rows_at(const DepthwiseArgs& d, int64_t y) {
  const float* in = d.in + y * d.in_row;
  float* out = d.out + y * d.out_row;
  for (int64_t x = 0; x < d.cols; x += kLanes) {
    Vec sum[Rows];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) sum[r] = Op::first(d);
    for (int t = 0; t < d.taps; ++t) {
      const Vec w = Op::weight(d, t);
      const float* from = in + d.offsets[t] + x;
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) sum[r] = Op::step(sum[r], w, load(from + r * d.in_row));
    }
    const int64_t left = d.cols - x;
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      if (left >= kLanes)
        store(out + r * d.out_row + x, sum[r]);
      else
        std::memcpy(out + r * d.out_row + x, &sum[r], static_cast<size_t>(left) * sizeof(float));
    }
  }
}

template <class Op>
void all_rows(const DepthwiseArgs& d) {
  int64_t y = 0;
  for (; y + 4 <= d.rows; y += 4) rows_at<Op, 4>(d, y);
  for (; y < d.rows; ++y) rows_at<Op, 1>(d, y);
}

}  // namespace

void CPU_CAT(depthwise_, CPU_ISA_NAME)(const DepthwiseArgs& d) { all_rows<Sum>(d); }
void CPU_CAT(window_max_, CPU_ISA_NAME)(const DepthwiseArgs& d) { all_rows<Max>(d); }

}  // namespace cpu
