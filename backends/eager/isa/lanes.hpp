// SPDX-License-Identifier: Apache-2.0
// Reductions in the order of reduce_order.hpp, on vectors of this file's ISA.
#pragma once

#include "isa.hpp"
#include "reduce_order.hpp"
#include "tile_loops.hpp"

namespace eager {
namespace {

template <class T>
struct VecOf {
  typedef T type __attribute__((vector_size(EAGER_VECTOR_BYTES)));
  static constexpr int64_t width = EAGER_VECTOR_BYTES / sizeof(T);
};
template <class T>
using Vec = typename VecOf<T>::type;

template <class T>
[[gnu::always_inline]] inline Vec<T> vload(const T* p) {
  Vec<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
[[gnu::always_inline]] inline void vstore(T* p, Vec<T> v) {
  __builtin_memcpy(p, &v, sizeof v);
}

// The element as it is, squared, its magnitude, or its squared distance from a value: applied before combining.
struct AsIs {
  template <class X>
  [[gnu::always_inline]] X operator()(X x) const {
    return x;
  }
};
struct Squared {
  template <class X>
  [[gnu::always_inline]] X operator()(X x) const {
    return x * x;
  }
};
struct Magnitude {
  template <class X>
  [[gnu::always_inline]] X operator()(X x) const {
    return x < 0 ? -x : x;
  }
};
template <class T>
struct SquaredFrom {
  T mean;
  template <class X>
  [[gnu::always_inline]] X operator()(X x) const {
    const X d = x - mean;
    return d * d;
  }
};

template <class R, class T, class Map = AsIs>
T chunk(const T* x, int64_t n, Map map = {}) {
  if (n < kLongFrom) {
    T acc[kShortLanes];
    for (T& a : acc) a = R::template identity<T>();
    int64_t i = 0;
    for (; i + kShortLanes <= n; i += kShortLanes)
      for (int64_t j = 0; j < kShortLanes; ++j) acc[j] = R::run(acc[j], map(x[i + j]));
    for (int64_t j = 0; i + j < n; ++j) acc[j] = R::run(acc[j], map(x[i + j]));
    return fold_lanes<R>(acc, kShortLanes);
  }
  constexpr int64_t width = VecOf<T>::width, regs = kLongLanes / width < 1 ? 1 : kLongLanes / width;
  static_assert(width <= kLongLanes || sizeof(T) == 1);
  if constexpr (width <= kLongLanes) {
    Vec<T> acc[regs];
    for (auto& a : acc) a = R::template identity<T>() - Vec<T>{};
    int64_t i = 0;
    for (; i + kLongLanes <= n; i += kLongLanes)
#pragma GCC unroll 16
      for (int64_t j = 0; j < regs; ++j) acc[j] = R::run(acc[j], map(vload(x + i + j * width)));
    T lanes[kLongLanes];
    for (int64_t j = 0; j < regs; ++j) vstore(lanes + j * width, acc[j]);
    for (int64_t j = 0; i + j < n; ++j) lanes[j] = R::run(lanes[j], map(x[i + j]));
    return fold_lanes<R>(lanes, kLongLanes);
  } else {  // bytes: associative, so the order does not matter
    T acc = R::template identity<T>();
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) acc = R::run(acc, map(x[i]));
    return acc;
  }
}

template <class R, class T, class Map = AsIs>
T reduce_run(const T* x, int64_t n, Map map = {}) {
  if (n <= kChunk) return chunk<R>(x, n, map);
  ChunkFold<R, T> fold;
  for (int64_t i = 0; i < n; i += kChunk) fold.add(chunk<R>(x + i, n - i < kChunk ? n - i : kChunk, map));
  return fold.result();
}

}  // namespace
}  // namespace eager
