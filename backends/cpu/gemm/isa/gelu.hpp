// SPDX-License-Identifier: Apache-2.0
// gelu a vector at a time, operation by operation what the kernel kit's functions for it are (sdk/kit/src/math.cpp, where the
// polynomials come from): a gelu has the same bits behind a product as alone. Included by the files that are compiled per
// instruction set, where contraction is allowed: a product that is added to something is kept apart.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "lanes.hpp"
#include "tessera/kit/normal.hpp"

namespace cpu {
namespace {

// a * b + c, rounded once.
[[gnu::always_inline]] inline Vec fused(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_fmadd_ps(reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__FMA__)
  return reinterpret_cast<Vec>(
      _mm256_fmadd_ps(reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
  for (int i = 0; i < kLanes; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

// The first coefficient is that of the highest power.
template <int N>
[[gnu::always_inline]] inline Vec polynomial(Vec x, const float (&c)[N]) {
  Vec p = splat(c[0]);
#pragma GCC unroll 16
  for (int i = 1; i < N; ++i) p = fused(p, x, splat(c[i]));
  return p;
}

// How far n reaches in x * 2^n, from -159: to 128, or to 63.
enum class Reach { kAll, kTo63 };

// x * 2^n, rounded once; t: n + 1.5 * 2^23.
template <Reach R>
[[gnu::always_inline]] inline Vec scaled(Vec x, [[maybe_unused]] Vec n, [[maybe_unused]] Vec t) {
#if defined(__AVX512F__)
  // All lanes: GCC 12 warns of what the form without a mask does with the lanes that it does not leave out.
  return reinterpret_cast<Vec>(
      _mm512_maskz_scalef_ps(static_cast<__mmask16>(0xffff), reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(n)));
#else
  typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
  const auto power_of_two = [](Ints i) __attribute__((always_inline)) { return reinterpret_cast<Vec>((i + 127) << 23); };
  const Ints i = reinterpret_cast<Ints>(t) - 0x4B400000;
  if constexpr (R == Reach::kTo63) return (x * power_of_two(i + 64)) * splat(0x1p-64f);
  const Ints half = i >> 1;
  return (x * power_of_two(half)) * power_of_two(i - half);
#endif
}

constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to an integer

// For x up to 89, or 43.
template <Reach R>
[[gnu::always_inline]] inline Vec exp_by(Vec x) {
  const Vec c = x < -104.0f ? splat(-104.0f) : x;
  const Vec t = fused(c, splat(1.44269504088896341f), splat(kMagic));
  const Vec n = t - splat(kMagic);
  const Vec r = fused(n, splat(2.12194440e-4f), fused(n, splat(-0.693359375f), c));
  static constexpr float kExp[] = {
      0.0013863143976777792f, 0.008367440663278103f, 0.04166724532842636f, 0.16666534543037415f, 0.5f, 1.0f, 1.0f};
  return scaled<R>(polynomial(r, kExp), n, t);
}
[[gnu::always_inline]] inline Vec exp_to_43_f32(Vec x) { return exp_by<Reach::kTo63>(x); }
[[gnu::always_inline]] inline Vec exp_f32(Vec x) { return exp_by<Reach::kAll>(x > 89.0f ? splat(89.0f) : x); }

// To an integer, |x| up to 2^21.
[[gnu::always_inline]] inline Vec nearest(Vec x) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_roundscale_ps(static_cast<__mmask16>(0xffff), reinterpret_cast<__m512>(x), 8));
#else
  return kept(x + splat(kMagic)) - splat(kMagic);
#endif
}

#if defined(__AVX512DQ__)
// As gelu_tables_f32.
[[gnu::always_inline]] inline Vec gelu(Vec x) {
  using tessera::kit::kNormal;
  const Vec c = reinterpret_cast<Vec>(_mm512_maskz_range_ps(static_cast<__mmask16>(0xffff), reinterpret_cast<__m512>(x),
                                                            reinterpret_cast<__m512>(splat(tessera::kit::kNormalLimit)), 2));
  const Vec t = fused(c, splat(tessera::kit::kNormalSteps), splat(kMagic));
  const Vec d = fused(t - splat(kMagic), splat(-tessera::kit::kNormalStep), c);
  const auto coefficient = [&](int k) __attribute__((always_inline)) {
    return reinterpret_cast<Vec>(
        _mm512_permutex2var_ps(_mm512_load_ps(kNormal[k]), reinterpret_cast<__m512i>(t), _mm512_load_ps(kNormal[k] + 16)));
  };
  Vec y = coefficient(5);
#pragma GCC unroll 5
  for (int k = 4; k >= 0; --k) y = fused(y, d, coefficient(k));
  return x * y;
}
#else
// As gelu_f32.
[[gnu::always_inline]] inline Vec gelu(Vec x) {
  static constexpr float kEven[] = {3.9377689972752705e-05f, -0.00013693637447431684f, -0.052496179938316345f,
                                    -1.1511051654815674f};
  static constexpr float kOdd[] = {-2.834912720572902e-06f, -0.00018618024478200823f, 0.00706342002376914f,
                                   -0.4592081904411316f};
  static constexpr float kHalf[] = {7.676680979784578e-05f,
                                    0.0006699436926282942f,
                                    0.00480921845883131f,
                                    0.027751661837100983f,
                                    0.12011323869228363f,
                                    0.3465735912322998f,
                                    0.5f};
  const Vec m = x < 0 ? -x : x, a = m > 10.3125f ? splat(10.3125f) : m, z = kept(a * a);
  const Vec p = kept(fused(polynomial(z, kOdd), a, polynomial(z, kEven)) * a), n = nearest(p);
  const Vec tail = kept(scaled<Reach::kTo63>(polynomial(p - n, kHalf), n, p + splat(kMagic)));
  return x * (x > 0 ? splat(1.0f) - tail : tail);
}
#endif

[[gnu::always_inline]] inline Vec gelu_tanh(Vec x) {
  constexpr double kTwice = -1.5957691216057308;
  const Vec u = x * fused(x * x, splat(static_cast<float>(kTwice * 0.044715)), splat(static_cast<float>(kTwice)));
  return x / (splat(1.0f) + kept(exp_f32(kept(u))));
}

}  // namespace
}  // namespace cpu
