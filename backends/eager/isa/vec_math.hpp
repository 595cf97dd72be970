// SPDX-License-Identifier: Apache-2.0
// Elementary functions as branch-free scalar code that the compiler vectorises. Every ISA executes the same IEEE operations in
// the same order (no contraction), so the results are the same bits everywhere.
//
// Two families. `fexp` computes in f32 (1 ulp): softmax lives on it. `d*` compute in f64 and serve f32 functions that round
// once at the end (0.5 ulp), which needs no hi/lo arithmetic; `dexp` and `dlog` are good to 1e-14, what ends in `_short` to
// 1e-9, enough for f32. Odd functions end in a product with x, not in a sum with it, so that -0 stays -0. Polynomials: Cephes
// (S. Moshier) for expf and tanhf; erfc after W. Press et al., Numerical Recipes 3rd ed. 6.2.2 (its Chebyshev series, 14 terms,
// as powers); the others are Taylor and atanh series.
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

// |x| up to 700; relative error 4e-10.
[[gnu::always_inline]] inline double dexp_short(double x) {
  double c = x > 700.0 ? 700.0 : x;
  c = c < -700.0 ? -700.0 : c;
  const double t = c * 1.4426950408889634 + 6755399441055744.0;
  const double n = t - 6755399441055744.0;
  const double r = c - n * 0.6931471805599453;
  double p = 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = (p * (r * r) + r) + 1.0;
  const double y = p * bits<double>((bits<int64_t>(t) - 0x4338000000000000ll + 1023) << 52);
  return x != x ? x : y;
}

[[gnu::always_inline]] inline double dtanh_short(double x) {
  const double a = fabs_(x);
  const double big = 1.0 - 2.0 / (dexp_short(a + a) + 1.0);
  const double z = x * x;
  double p = -5.70498872745e-3;
  p = p * z + 2.06390887954e-2;
  p = p * z - 5.37397155531e-2;
  p = p * z + 1.33314422036e-1;
  p = p * z - 3.33332819422e-1;
  const double small = x * (p * z + 1.0);
  return a >= 0.625 ? copysign_(big, x) : small;
}

[[gnu::always_inline]] inline double dsigmoid_short(double x) { return 1.0 / (1.0 + dexp_short(-x)); }

// erfc(z) for z >= 0; relative error 2e-9.
[[gnu::always_inline]] inline double derfc_short(double z) {
  const double t = 2.0 / (2.0 + z), y = 2.0 * t - 1.0;
  double p = 2.072307095552e-05;
  p = p * y + 1.3371503491072e-05;
  p = p * y - 0.0001546337908224;
  p = p * y - 3.2113772311552e-05;
  p = p * y + 0.00065795384776192;
  p = p * y - 0.000182782141716608;
  p = p * y - 0.002339277724046976;
  p = p * y + 0.00177066611862992;
  p = p * y + 0.008823558177643265;
  p = p * y - 0.009874534918291385;
  p = p * y - 0.04689548216099473;
  p = p * y + 0.04734341752106748;
  p = p * y + 0.6726432205460083;
  p = p * y - 0.6717940851517215;
  return t * dexp_short(p - z * z);
}

[[gnu::always_inline]] inline double derf_short(double x) {
  const double a = fabs_(x), z = x * x;
  const double big = copysign_(1.0 - derfc_short(a), x);
  double p = -1.0 / 9360;  // Taylor: (-1)^n / (n! (2n + 1))
  p = p * z + 1.0 / 1320;
  p = p * z - 1.0 / 216;
  p = p * z + 1.0 / 42;
  p = p * z - 0.1;
  p = p * z + 1.0 / 3;
  const double small = x * (1.1283791670955126 * (1.0 - p * z));
  return a > 0.5 ? big : small;
}

// The normal distribution function.
[[gnu::always_inline]] inline double dphi_short(double x) {
  const double tail = 0.5 * derfc_short(fabs_(x) * 0.7071067811865476);
  return x > 0 ? 1.0 - tail : tail;
}

// x: any f32 value, or a product of such (positive normal f64, zero, negative, infinite, NaN).
[[gnu::always_inline]] inline double dlog(double x) {
  const uint64_t b = bits<uint64_t>(x);
  // Exponent such that the mantissa m lies in [sqrt(1/2), sqrt(2)).
  const int64_t e = static_cast<int64_t>((b - 0x3fe6a09e667f3bcdull) >> 52);
  const int64_t k = e < 2048 ? e : e - 4096;
  const double m = bits<double>(b - (static_cast<uint64_t>(k) << 52));
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
  const double small = x * (p * x + 1.0);
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
  s = r * (s * z + 1.0);
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
