// SPDX-License-Identifier: Apache-2.0
// Vectors of the instruction set that a file is compiled for. Everything here has internal linkage: one copy per instruction
// set.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cpu {
namespace {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));

[[gnu::always_inline]] inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
[[gnu::always_inline]] inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
#if defined(__AVX2__) && !defined(__AVX512F__)
// All bits of the first n lanes.
[[gnu::always_inline]] inline __m256i mask_of_first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
#endif
// How many of them there are left to do.
[[gnu::always_inline]] inline int lanes_of(int64_t left) { return left < kLanes ? static_cast<int>(left) : kLanes; }
// The first n lanes.
[[gnu::always_inline]] inline void store_some(float* p, Vec v, int n) {
#if defined(__AVX512F__)
  if (__builtin_constant_p(n) && n == kLanes) return store(p, v);
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), reinterpret_cast<__m512>(v));
#elif defined(__AVX2__)
  if (n == kLanes) return store(p, v);
  // Masked stores take up to forty instructions' time on processors with AVX2 alone.
  __m128 rest = _mm256_castps256_ps128(reinterpret_cast<__m256>(v));
  if (n & 4) {
    _mm_storeu_ps(p, rest);
    rest = _mm256_extractf128_ps(reinterpret_cast<__m256>(v), 1);
    p += 4;
  }
  if (n & 2) {
    _mm_storel_pi(reinterpret_cast<__m64*>(p), rest);
    rest = _mm_movehl_ps(rest, rest);
    p += 2;
  }
  if (n & 1) _mm_store_ss(p, rest);
#else
  if (n == kLanes) return store(p, v);
  for (int i = 0; i < n; ++i) p[i] = v[i];
#endif
}
// The first n lanes, zeros behind them; reads nothing else.
[[gnu::always_inline]] inline Vec load_some(const float* p, int n) {
#if defined(__AVX512F__)
  if (__builtin_constant_p(n) && n == kLanes) return load(p);
  return reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p));
#elif defined(__AVX2__)
  if (n == kLanes) return load(p);
  return reinterpret_cast<Vec>(_mm256_maskload_ps(p, mask_of_first(n)));
#else
  if (n == kLanes) return load(p);
  Vec v{};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
#endif
}
// v with zeros behind its first n lanes.
[[gnu::always_inline]] inline Vec first_lanes(Vec v, int n) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_mov_ps(static_cast<__mmask16>((1u << n) - 1), reinterpret_cast<__m512>(v)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_and_ps(reinterpret_cast<__m256>(v), _mm256_castsi256_ps(mask_of_first(n))));
#else
  for (int i = n; i < kLanes; ++i) v[i] = 0.0f;
  return v;
#endif
}
// Every second lane of two vectors in a row, from lane First (0 or 1) on.
template <int First, int... I>
[[gnu::always_inline]] inline Vec every_second(Vec a, Vec b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (First + 2 * I)...);
}
template <int First>
[[gnu::always_inline]] inline Vec every_second(Vec a, Vec b) {
  return every_second<First>(a, b, std::make_integer_sequence<int, kLanes>());
}
// What is computed from x must not contract with what x is.
[[gnu::always_inline]] inline Vec kept(Vec x) {
  __asm__("" : "+x"(x));
  return x;
}
// x - 0 is x, and the compiler knows; 0 + x would turn -0 into 0.
[[gnu::always_inline]] inline Vec splat(float x) { return x - Vec{}; }

}  // namespace
}  // namespace cpu
