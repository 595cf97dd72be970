// SPDX-License-Identifier: Apache-2.0
// Steps on finished results, a vector at a time. Included by the files that are compiled per instruction set, where contraction is allowed: so no step
// may hold a product that is added to something, and each ends in a barrier.
#pragma once

#include "../tables.hpp"
#include "lanes.hpp"

namespace cpu {
namespace {

// Both bounds propagate NaN of x; they are no NaN themselves.
[[gnu::always_inline]] inline Vec limited(Vec x, Vec lo, Vec hi) {
  const Vec a = x < lo ? lo : x;
  return a > hi ? hi : a;
}

// z / 6, rounded as a division rounds, for a fraction of its cycles: the quotient by the rounded reciprocal is off by one unit at most, and one step with the
// remainder, which is exact, rounds it (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Where the remainder is 0
// or NaN the first quotient is right, with the sign of its zero; quotients that may be subnormal are divided.
[[gnu::always_inline]] inline Vec sixth(Vec z) {
#if defined(__AVX512F__)
  const __m512 a = reinterpret_cast<__m512>(z), y = _mm512_set1_ps(1.0f / 6.0f), six = _mm512_set1_ps(6.0f);
  const __m512 q = _mm512_mul_ps(a, y), r = _mm512_fnmadd_ps(six, q, a);
  const __mmask16 inexact = _mm512_cmp_ps_mask(r, _mm512_setzero_ps(), _CMP_NEQ_OQ);
  if (__builtin_expect(_mm512_mask_cmp_ps_mask(inexact, _mm512_abs_ps(q), _mm512_set1_ps(0x1p-100f), _CMP_LT_OQ) != 0, 0))
    return z / splat(6.0f);
  return reinterpret_cast<Vec>(_mm512_mask3_fmadd_ps(r, y, q, inexact));
#else
  return z / splat(6.0f);
#endif
}

// What an add or mul takes for the n results from row i, column j of the tile on.
[[gnu::always_inline]] inline Vec other(const FinishStep& s, const FinishArgs& a, int64_t i, int64_t j, int n) {
  switch (s.mode) {
    case FinishStep::kDense: return load_some(s.data + a.at + i * a.ld + j, n);
    case FinishStep::kRow: return load_some(s.data + a.col + j, n);
    case FinishStep::kColumn: return splat(s.data[a.row + i]);
    default: return splat(s.lo);
  }
}

// All steps on z, the n results from row i, column j of the tile on.
[[gnu::always_inline]] inline Vec finished(Vec z, const FinishArgs& a, int64_t i, int64_t j, int n) {
  for (int k = 0; k < a.num_steps; ++k) {
    const FinishStep& s = a.steps[k];
    switch (s.kind) {
      case FinishStep::kAdd: z = z + other(s, a, i, j, n); break;
      case FinishStep::kMul: z = z * other(s, a, i, j, n); break;
      case FinishStep::kRelu: z = (z > 0) | (z != z) ? z : Vec{}; break;
      case FinishStep::kClamp: z = limited(z, splat(s.lo), splat(s.hi)); break;
      case FinishStep::kHardswish: z = sixth(z * limited(z + splat(3.0f), Vec{}, splat(6.0f))); break;
    }
    __asm__("" : "+x"(z));
  }
  return z;
}

[[maybe_unused]] void finish_tile(const FinishArgs& a) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; j += kLanes) {
      float* y = a.y + i * a.ld + j;
      const int n = lanes_of(a.cols - j);
      store_some(y, finished(load_some(y, n), a, i, j, n), n);
    }
}

}  // namespace
}  // namespace cpu
