// SPDX-License-Identifier: Apache-2.0
// Steps on a finished tile, in place. Included by the files that are compiled per instruction set, where contraction is allowed: so no step may
// hold a product that is added to something.
#pragma once

#include "../tables.hpp"

namespace cpu {
namespace {

// Both bounds propagate NaN of x; they are no NaN themselves.
[[gnu::always_inline]] inline float limited(float x, float lo, float hi) {
  const float a = x < lo ? lo : x;
  return a > hi ? hi : a;
}

template <class F>
[[gnu::always_inline]] inline void each(float* y, int n, F f) {
#pragma omp simd
  for (int j = 0; j < n; ++j) y[j] = f(y[j], j);
}

[[maybe_unused]] void finish_tile(const FinishArgs& a) {
  for (int i = 0; i < a.rows; ++i) {
    float* y = a.y + i * a.ld;
    for (int k = 0; k < a.num_steps; ++k) {
      const FinishStep& s = a.steps[k];
      const float* v = s.mode == FinishStep::kDense ? s.data + a.at + i * a.ld
                       : s.mode == FinishStep::kRow ? s.data + a.col
                                                    : nullptr;
      const float x = s.mode == FinishStep::kColumn ? s.data[a.row + i] : s.lo;
      switch (s.kind) {
        case FinishStep::kAdd:
          if (v)
            each(y, a.cols, [v](float z, int j) { return z + v[j]; });
          else
            each(y, a.cols, [x](float z, int) { return z + x; });
          break;
        case FinishStep::kMul:
          if (v)
            each(y, a.cols, [v](float z, int j) { return z * v[j]; });
          else
            each(y, a.cols, [x](float z, int) { return z * x; });
          break;
        case FinishStep::kRelu: each(y, a.cols, [](float z, int) { return z > 0 || z != z ? z : 0.0f; }); break;
        case FinishStep::kClamp: each(y, a.cols, [&s](float z, int) { return limited(z, s.lo, s.hi); }); break;
        case FinishStep::kHardswish:
          each(y, a.cols, [](float z, int) { return z * limited(z + 3.0f, 0.0f, 6.0f) / 6.0f; });
          break;
      }
    }
  }
}

}  // namespace
}  // namespace cpu
