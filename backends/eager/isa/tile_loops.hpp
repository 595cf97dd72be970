// SPDX-License-Identifier: Apache-2.0
// Loops over tiles. A plain loop with a `simd` pragma: the compiler vectorises it for the ISA this file is compiled for. The
// pragma also states that output and input are either disjoint or the same memory.
#pragma once

#include "../tile.hpp"

namespace eager {
namespace {

#define EAGER_SIMD _Pragma("omp simd")

template <class T, class R = T, class F>
[[gnu::always_inline]] inline void map1(const TileArgs& a, F f) {
  const T* x = static_cast<const T*>(a.in[0]);
  R* y = static_cast<R*>(a.out);
  EAGER_SIMD
  for (int64_t i = 0; i < a.n; ++i) y[i] = f(x[i]);
}

template <class T, class R = T, class F>
[[gnu::always_inline]] inline void map2(const TileArgs& t, F f) {
  const T* a = static_cast<const T*>(t.in[0]);
  const T* b = static_cast<const T*>(t.in[1]);
  R* y = static_cast<R*>(t.out);
  if (t.step[0] == t.step[1]) {
    if (t.step[0] == 0) {
      const R v = f(*a, *b);
      for (int64_t i = 0; i < t.n; ++i) y[i] = v;
      return;
    }
    EAGER_SIMD
    for (int64_t i = 0; i < t.n; ++i) y[i] = f(a[i], b[i]);
  } else if (t.step[0] == 0) {
    const T s = *a;
    EAGER_SIMD
    for (int64_t i = 0; i < t.n; ++i) y[i] = f(s, b[i]);
  } else {
    const T s = *b;
    EAGER_SIMD
    for (int64_t i = 0; i < t.n; ++i) y[i] = f(a[i], s);
  }
}

// For what does not vectorise: one loop, any steps.
template <class T, class R = T, class F>
inline void map2_scalar(const TileArgs& t, F f) {
  const T* a = static_cast<const T*>(t.in[0]);
  const T* b = static_cast<const T*>(t.in[1]);
  R* y = static_cast<R*>(t.out);
  for (int64_t i = 0; i < t.n; ++i) y[i] = f(a[i * t.step[0]], b[i * t.step[1]]);
}

}  // namespace
}  // namespace eager
