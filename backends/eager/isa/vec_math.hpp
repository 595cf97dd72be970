// SPDX-License-Identifier: Apache-2.0
// Elementary functions as branch-free scalar code that the compiler vectorises. Every ISA executes the same IEEE operations in the
// same order (no contraction), so the results are the same bits everywhere.
//
// Two families. `f*` compute in f32 (about 1 ulp): the functions that activations and softmax spend their time in. `d*` compute in
// f64 with errors near 1e-14 and serve f32 functions that round once at the end (0.5 ulp): no hi/lo arithmetic needed.
// Polynomials: Cephes (S. Moshier) for expf and tanhf; erff after N. Juffa; the f64 ones are Taylor and atanh series.
#pragma once

#include <cstdint>
#include <limits>

namespace eager {
namespace {

template <class To, class From>
[[gnu::always_inline]] inline To bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, x);
}
template <class T>
inline constexpr T kInf = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T kNan = std::numeric_limits<T>::quiet_NaN();

[[gnu::always_inline]] inline float fabs_(float x) { return bits<float>(bits<uint32_t>(x) & 0x7fffffffu); }
[[gnu::always_inline]] inline double fabs_(double x) { return bits<double>(bits<uint64_t>(x) & 0x7fffffffffffffffull); }
[[gnu::always_inline]] inline float copysign_(float m, float s) {
  return bits<float>((bits<uint32_t>(m) & 0x7fffffffu) | (bits<uint32_t>(s) & 0x80000000u));
}
[[gnu::always_inline]] inline double copysign_(double m, double s) {
  return bits<double>((bits<uint64_t>(m) & 0x7fffffffffffffffull) | (bits<uint64_t>(s) & 0x8000000000000000ull));
}

// ---- f32

[[gnu::always_inline]] inline float fexp(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  const float t = c * 1.44269504088896341f + 12582912.0f;  // 1.5 * 2^23: the integer lands in the low mantissa bits
  const float n = t - 12582912.0f;
  const int32_t i = bits<int32_t>(t) - 0x4B400000;
  const float r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * (r * r) + r) + 1.0f;
  const int32_t i1 = i >> 1;  // two factors: n reaches from -150 (subnormals) to 128
  const float y = (p * bits<float>((i1 + 127) << 23)) * bits<float>((i - i1 + 127) << 23);
  return x != x ? x : y;
}

[[gnu::always_inline]] inline float ftanh(float x) {
  const float a = fabs_(x);
  const float big = 1.0f - 2.0f / (fexp(a + a) + 1.0f);
  const float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float small = (p * z) * x + x;
  return a >= 0.625f ? copysign_(big, x) : small;
}

[[gnu::always_inline]] inline float fsigmoid(float x) { return 1.0f / (1.0f + fexp(-x)); }

[[gnu::always_inline]] inline float ferf(float a) {
  const float t = fabs_(a);
  const float s = a * a;
  float r = -1.72853470e-5f * t + 3.83197126e-4f;
  const float u = -3.88396438e-3f * t + 2.42546219e-2f;
  r = r * s + u;
  r = r * t - 1.06777877e-1f;
  r = r * t - 6.34846687e-1f;
  r = r * t - 1.28717512e-1f;
  r = r * t - t;
  const float big = copysign_(1.0f - fexp(r), a);
  float q = -5.96761703e-4f;
  q = q * s + 4.99119423e-3f;
  q = q * s - 2.67681349e-2f;
  q = q * s + 1.12819925e-1f;
  q = q * s - 3.76125336e-1f;
  q = q * s + 1.28379166e-1f;
  const float small = q * a + a;
  // Beyond 4 the polynomial in the exponent turns around; erf is 1 to f32 from 3.93 on.
  return t > 4.0f ? copysign_(1.0f, a) : t > 0.927734375f ? big : (a != a ? a : small);
}

// ---- f64, for f32 results

[[gnu::always_inline]] inline double dexp(double x) {
  double c = x > 710.0 ? 710.0 : x;
  c = c < -745.5 ? -745.5 : c;
  const double t = c * 1.4426950408889634 + 6755399441055744.0;
  const double n = t - 6755399441055744.0;
  const int64_t i = bits<int64_t>(t) - 0x4338000000000000ll;
  const double r = (c - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  double p = 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = (p * (r * r) + r) + 1.0;
  // i / 2 by an arithmetic shift that AVX2 lacks for 64 bits: shift the biased value instead.
  const int64_t i1 = static_cast<int64_t>(static_cast<uint64_t>(i + 2048) >> 1) - 1024;
  const double y = (p * bits<double>((i1 + 1023) << 52)) * bits<double>((i - i1 + 1023) << 52);
  return x != x ? x : y;
}

// x: any f32 value, or a product of such (positive normal f64, zero, negative, infinite, NaN).
[[gnu::always_inline]] inline double dlog(double x) {
  const int64_t b = bits<int64_t>(x);
  // Exponent such that the mantissa m lies in [sqrt(1/2), sqrt(2)).
  const int64_t e = static_cast<int64_t>(static_cast<uint64_t>(b - 0x3fe6a09e667f3bcdll) >> 52);
  const int64_t k = e < 2048 ? e : e - 4096;
  const double m = bits<double>(b - static_cast<int64_t>(static_cast<uint64_t>(k) << 52));
  const double kd = bits<double>(k + 0x4338000000000000ll) - 6755399441055744.0;
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 21;
  p = p * z + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  const double y = kd * 0x1.62e42fefa39efp-1 + (2.0 * s + (2.0 * s) * (p * z));
  return x > 0.0 ? (x == kInf<double> ? x : y) : (x == 0.0 ? -kInf<double> : kNan<double>);
}

[[gnu::always_inline]] inline double dexpm1(double x) {
  double p = 1.0 / 40320;
  p = p * x + 1.0 / 5040;
  p = p * x + 1.0 / 720;
  p = p * x + 1.0 / 120;
  p = p * x + 1.0 / 24;
  p = p * x + 1.0 / 6;
  p = p * x + 0.5;
  const double small = (p * (x * x)) + x;
  return fabs_(x) < 0.03125 ? small : dexp(x) - 1.0;
}

[[gnu::always_inline]] inline double dlog1p(double x) {
  const double u = 1.0 + x;
  const double d = u - 1.0;
  const double y = dlog(u) * (x / d);  // W. Kahan: the rounding error of u cancels
  return d == 0.0 ? x : (u == kInf<double> || u <= 0.0 ? dlog(u) : y);
}

// sin (phase 0) and cos (phase 1) for |x| < 2^20; the caller handles the rest.
[[gnu::always_inline]] inline double dsincos(double x, int64_t phase) {
  const double t = x * 0x1.45f306dc9c883p-1 + 6755399441055744.0;
  const double n = t - 6755399441055744.0;
  const int64_t q = bits<int64_t>(t) + phase;
  const double r = ((x - n * 0x1.921fb54400000p+0) - n * 0x1.0b4611a600000p-34) - n * 0x1.3198a2e037073p-69;
  const double z = r * r;
  double s = 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = (s * z) * r + r;
  double c = 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = c * z - 0.5;
  c = c * z + 1.0;
  const double y = (q & 1) ? c : s;
  return bits<double>(bits<int64_t>(y) ^ ((q & 2) << 62));
}

}  // namespace
}  // namespace eager
