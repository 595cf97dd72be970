// SPDX-License-Identifier: Apache-2.0
// Squares of kLanes x kLanes elements transposed on the way from memory. Included by the files that are compiled per
// instruction set.
#pragma once

#include <cstring>
#include <utility>

#include "lanes.hpp"

namespace cpu {
namespace {

// Within each four lanes: elements of a and b in turn, from element 2 * Half of the four on.
template <int Half, int... I>
[[gnu::always_inline]] inline Vec interleaved(Vec a, Vec b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (I / 4 * 4 + 2 * Half + I % 4 / 2 + I % 2 * kLanes)...);
}
// Within each four lanes: two elements of a, then two of b, from element 2 * Half of the four on.
template <int Half, int... I>
[[gnu::always_inline]] inline Vec pairs(Vec a, Vec b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (I / 4 * 4 + 2 * Half + I % 2 + I % 4 / 2 * kLanes)...);
}

// Four elements from each of the rows first, first + 4, .. from byte `at` of them on.
[[gnu::always_inline]] inline Vec fours(const char* const* row, int first, int64_t at) {
#if defined(__AVX2__)
  const auto four = [&](int r) { return _mm_loadu_ps(reinterpret_cast<const float*>(row[first + r] + at)); };
#endif
#if defined(__AVX512F__)
  __m512 v = _mm512_castps128_ps512(four(0));
  v = _mm512_insertf32x4(v, four(4), 1);
  v = _mm512_insertf32x4(v, four(8), 2);
  return reinterpret_cast<Vec>(_mm512_insertf32x4(v, four(12), 3));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_insertf128_ps(_mm256_castps128_ps256(four(0)), four(4), 1));
#else
  Vec v;
  std::memcpy(&v, row[first] + at, sizeof v);
  return v;
#endif
}

// v[j] = element j, of four, behind byte `at` of each of kLanes rows. Loads of four elements do what moves values between
// fours; two rounds of shuffles are left, where whole rows in registers take log2(kLanes).
[[gnu::always_inline]] inline void load_transposed_four(const char* const* row, int64_t at, Vec* v) {
  constexpr std::make_integer_sequence<int, kLanes> all;
  const Vec a = fours(row, 0, at), b = fours(row, 1, at), c = fours(row, 2, at), d = fours(row, 3, at);
  const Vec ab = interleaved<0>(a, b, all), cd = interleaved<0>(c, d, all), ab2 = interleaved<1>(a, b, all),
            cd2 = interleaved<1>(c, d, all);
  v[0] = pairs<0>(ab, cd, all);
  v[1] = pairs<1>(ab, cd, all);
  v[2] = pairs<0>(ab2, cd2, all);
  v[3] = pairs<1>(ab2, cd2, all);
}
// The same of kLanes elements.
[[gnu::always_inline]] inline void load_transposed(const char* const* row, int64_t at, Vec (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int q = 0; q < kLanes; q += 4) load_transposed_four(row, at + 4 * q, v + q);
}

}  // namespace
}  // namespace cpu
