// SPDX-License-Identifier: Apache-2.0
// The order in which numbers are combined: a function of their count, not of ISA, threads or layout.
//
//   count <= 4096 (a chunk): lane j of L takes elements j, j + L, j + 2L, .. in turn, starting from the identity; then lanes j
//   and j + L/2 are combined for j < L/2, and so on by halves. L is 32 from 128 elements on, 8 below. more: chunk c of 4096
//   goes to lane c mod 8 of a second level, which is combined by halves too.
//
// 32 lanes are two AVX-512, four AVX2 or eight SSE registers of f32, so each ISA keeps them in registers and hides add latency.
#pragma once

#include <cstring>
#include <limits>

#include "../tile.hpp"

namespace eager {
namespace {

inline constexpr int64_t kLongLanes = 32, kShortLanes = 8, kLongFrom = 128;

struct SumOp {
  template <class T>
  static constexpr T identity() {
    return T(0);
  }
  template <class X>
  [[gnu::always_inline]] static X run(X a, X b) {
    return a + b;
  }
};
struct ProdOp {
  template <class T>
  static constexpr T identity() {
    return T(1);
  }
  template <class X>
  [[gnu::always_inline]] static X run(X a, X b) {
    return a * b;
  }
};
// NaN wins. Written for scalars and for vectors alike.
struct MaxOp {
  template <class T>
  static constexpr T identity() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  }
  template <class X>
  [[gnu::always_inline]] static X run(X a, X b) {
    return ((a != a) | (a > b)) ? a : b;
  }
};
struct MinOp {
  template <class T>
  static constexpr T identity() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  }
  template <class X>
  [[gnu::always_inline]] static X run(X a, X b) {
    return ((a != a) | (a < b)) ? a : b;
  }
};

template <class R, class T>
[[gnu::always_inline]] inline T fold_lanes(T* lanes, int64_t n) {
  for (int64_t w = n / 2; w > 0; w /= 2)
    for (int64_t j = 0; j < w; ++j) lanes[j] = R::run(lanes[j], lanes[j + w]);
  return lanes[0];
}

// Second level: results of chunks 0, 1, 2, .. in order.
template <class R, class T>
struct ChunkFold {
  T lanes[kShortLanes];
  int64_t count = 0;
  ChunkFold() {
    for (T& x : lanes) x = R::template identity<T>();
  }
  void add(T x) {
    lanes[count % kShortLanes] = count < kShortLanes ? x : R::run(lanes[count % kShortLanes], x);
    ++count;
  }
  T result() { return count == 1 ? lanes[0] : fold_lanes<R>(lanes, kShortLanes); }
};

}  // namespace
}  // namespace eager
