// SPDX-License-Identifier: Apache-2.0
// Convolution of one channel, compiled once per instruction set (contraction allowed, as for products). Several rows at a time
// keep enough independent sums under way where rows are short.
#include "depthwise/direct.hpp"
#include "depthwise/tables.hpp"
#include "gemm/isa/finish.hpp"
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

template <class Op, Chain C, int Rows>
void rows_at(const DepthwiseArgs& d, int64_t y) {
  const float* in = d.in + y * d.in_row;
  float* out = d.out + y * d.out_row;
  for (int64_t x = 0; x < d.cols; x += kLanes) {
    Vec sum[Rows];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) sum[r] = Op::first(d);
    for (int t = 0; t < d.taps; ++t) {
      const Vec w = Op::weight(d, t);
      const float* from = in + d.offsets[t] + x;
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) sum[r] = Op::step(sum[r], w, load(from + r * d.in_row));
    }
    const int64_t left = d.cols - x;
    const auto put = [&](int r, int n) __attribute__((always_inline)) {
      const Vec z = finished<C>(kept(sum[r]), d.finish, 0, (y + r) * d.out_row + x, n);
      store_some(out + r * d.out_row + x, z, n);
    };
    if (left >= kLanes) {
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) put(r, kLanes);
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) put(r, static_cast<int>(left));
    }
  }
}

template <class Op, Chain C>
void all_rows(const DepthwiseArgs& d) {
  for (int64_t y = 0; y < d.rows;) {
    const int64_t left = d.rows - y;
    switch (left) {
      case 1: return rows_at<Op, C, 1>(d, y);
      case 2: return rows_at<Op, C, 2>(d, y);
      case 3: return rows_at<Op, C, 3>(d, y);
      case 4: return rows_at<Op, C, 4>(d, y);
      case 5: return rows_at<Op, C, 5>(d, y);
      case 6: return rows_at<Op, C, 6>(d, y);
      case 7: return rows_at<Op, C, 7>(d, y);
      case 8: return rows_at<Op, C, 8>(d, y);
      default: break;
    }
    if (left == 14) {  // as 7 and 7, not 8 and 6
      rows_at<Op, C, 7>(d, y);
      y += 7;
    } else {
      rows_at<Op, C, 8>(d, y);
      y += 8;
    }
  }
}

void copy_row(const float* from, int64_t n, int64_t stride, float* to) {
  int64_t c = 0;
  if (stride == 1) {
    for (; c + kLanes <= n; c += kLanes) store(to + c, load(from + c));
    if (c < n) store_some(to + c, load_some(from + c, static_cast<int>(n - c)), static_cast<int>(n - c));
    return;
  }
#if defined(__AVX2__)
  if (stride == 2) {
    for (; c < n; c += kLanes) {
      const int64_t wanted = 2 * (n - c) - 1;  // elements from here to the last one
      const Vec a = load_some(from + 2 * c, lanes_of(wanted));
      const Vec b = load_some(from + 2 * c + kLanes, wanted > kLanes ? lanes_of(wanted - kLanes) : 0);
      store_some(to + c, every_second<0>(a, b), lanes_of(n - c));
    }
    return;
  }
#endif
  for (; c < n; ++c) to[c] = from[c * stride];
}

void copy_plane(const PlaneCopy& p) {
  for (int64_t f = 0; f < p.stride; ++f) {
    const int64_t shift = f - p.low;  // column c is the plane's column shift + c * stride
    const int64_t first = shift >= 0 ? 0 : (-shift + p.stride - 1) / p.stride;
    int64_t end = p.in_row > shift ? (p.in_row - shift + p.stride - 1) / p.stride : 0;
    if (end > p.columns) end = p.columns;
    if (end <= first) continue;
    const float* from = p.plane + p.skip + shift + first * p.stride;
    float* to = p.to + f * p.phase + p.first * p.row + first;
    for (int64_t y = 0; y < p.rows; ++y, from += p.in_row, to += p.row) copy_row(from, end - first, p.stride, to);
  }
}

}  // namespace

void CPU_CAT(copy_plane_, CPU_ISA_NAME)(const PlaneCopy& p) { copy_plane(p); }
void CPU_CAT(depthwise_, CPU_ISA_NAME)(const DepthwiseArgs& d) {
  switch (chain_of(d.finish)) {
    case Chain::kNone: return all_rows<Sum, Chain::kNone>(d);
    case Chain::kRelu: return all_rows<Sum, Chain::kRelu>(d);
    case Chain::kHardswish: return all_rows<Sum, Chain::kHardswish>(d);
    default: return all_rows<Sum, Chain::kAny>(d);
  }
}
#if defined(__AVX2__)
void CPU_CAT(depthwise_direct_, CPU_ISA_NAME)(const DirectArgs& d) { d.taps == 3 ? direct_of<3>(d) : direct_of<5>(d); }
#endif
void CPU_CAT(window_max_, CPU_ISA_NAME)(const DepthwiseArgs& d) { all_rows<Max, Chain::kNone>(d); }

}  // namespace cpu
