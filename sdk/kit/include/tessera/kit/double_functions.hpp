// SPDX-License-Identifier: Apache-2.0
// cbrt and erfc, of which C libraries are up to 5 ulp off, as sequences of IEEE operations on f64 without branches. They are
// templates: the kit's builder makes text for every device from them, and a backend with loops of its own computes them on
// numbers. N has + - * /, unary -, and comparisons, with N and double, and these, found by argument-dependent lookup:
//   fma(N, N, N), abs(N), copysign(N, N), select(condition, N, N)
//   like(N, double) -> N      the constant, as a number of that kind
//   exponent(N) -> N          the biased exponent of what is positive and normal
//   scaled(N x, N t) -> N     x 2^n of t = n + kInteger, where x and the result are positive and normal
// scripts/double_functions.py computes the coefficients.
#pragma once

#include <cstddef>

namespace tessera::kit {

// Added to it, an integer up to 2^51 lands in the low bits of the mantissa.
inline constexpr double kInteger = 6755399441055744.0;  // 1.5 * 2^52

template <class N, std::size_t n>
[[gnu::always_inline]] inline N polynomial(N x, const double (&coefficients)[n]) {
  N p = like(x, coefficients[0]);
  for (std::size_t i = 1; i < n; ++i) p = p * x + coefficients[i];
  return p;
}

// The same by fused multiply-add, odd and even powers apart, so that half as many operations wait for each other.
template <class N, std::size_t n>
[[gnu::always_inline]] inline N by_halves(N x, const double (&coefficients)[n]) {
  const N z = x * x;
  N sums[2] = {like(x, coefficients[0]), like(x, coefficients[1])};
  for (std::size_t i = 2; i < n; ++i) sums[i % 2] = fma(sums[i % 2], z, like(x, coefficients[i]));
  return fma(sums[n % 2], x, sums[1 - n % 2]);
}

// The nearest integer, and the sum of which scaled() takes it.
template <class N>
struct Nearest {
  N n, sum;
};
template <class N>
[[gnu::always_inline]] inline Nearest<N> nearest(N x) {
  const N t = x + kInteger;
  return {t - kInteger, t};
}

// m^(1/3) of m = x 2^(-3k) in [1/2, 4): m r^2 with r near m^(-1/3), from a polynomial within 6e-4 by a step of third order to
// 1e-9, and for the root one of second order to some ulps. x: positive and normal.
template <class N>
struct CubeRoot {
  N m, r, root, k;  // k: as a sum for scaled()
};
template <class N>
[[gnu::always_inline]] inline CubeRoot<N> cube_root_of(N x) {
  constexpr double kInverse[] = {-0.0013592969141140623, 0.024008370339230027, -0.1776508048543318, 0.7166557740029667,
                                 -1.7218239506235191,    2.542920545288875,    -2.3647165646703363, 1.9814520324609797};
  const Nearest<N> k = nearest((exponent(x) - 1023.0) * (1.0 / 3));
  const N m = scaled(x, k.n * -3.0 + kInteger), p = polynomial(m, kInverse);
  const N h = 1.0 - m * p * (p * p), r = p + p * h * (h * (2.0 / 9) + 1.0 / 3), root = m * r * r;
  return {m, r, root + root * (1.0 - root * r) * (2.0 / 3), k.sum};
}

// A step of Newton's, with what the cube rounds off. At most 0.501 ulp.
template <class N>
[[gnu::always_inline]] inline N cbrt_of(N x) {
  const N a = abs(x);
  const auto small = a < 0x1p-1022;
  const CubeRoot<N> c = cube_root_of(select(small, a * 0x1p54, a));
  const N square = c.root * c.root, low = fma(c.root, c.root, -square);
  const N error = fma(low, c.root, fma(square, c.root, -c.m));
  const N y = scaled(fma(error * (-1.0 / 3), c.r * c.r, c.root), c.k);
  return select((a > 0.0) & (a <= 0x1.fffffffffffffp1023), copysign(select(small, y * 0x1p-18, y), x), x + x);
}
// Of an f32.
template <class N>
[[gnu::always_inline]] inline N narrow_cbrt_of(N x) {
  const N a = abs(x);
  const CubeRoot<N> c = cube_root_of(a);
  return select((a > 0.0) & (a <= 0x1p128), copysign(scaled(c.root, c.k), x), x);
}

// erfc(a) = exp(-a^2) P(t) / W(a) for a = |x|, and 2 minus that for negative x: one polynomial of t = (a - 3) / (a + 3) for all
// numbers, as M. Shepherd and J. Laframboise 1981 have it, with W(a) = (1 + a (b + c a)) / (1 + d a) of our own, which makes P
// nearly 1: neither t nor the terms of P but the last need more than f64. What the square, the last sum of P and both sides of
// the quotient round off is taken along. At most 0.8 ulp.
template <class N>
[[gnu::always_inline]] inline N erfc_of(N x) {
  constexpr double kTail[] = {5.229451155588706e-10,  -3.532055982032757e-10, -7.152034858768636e-09,  -7.071203684772415e-09,
                              4.7414386957355323e-08, 6.410953370335706e-08,  -1.4824396148085714e-07, -6.134759620802554e-07,
                              9.514832564615056e-07,  2.0817979697743514e-06, 5.569375256065448e-07,   -2.816398533075011e-05,
                              4.916691912699298e-05,  9.235233634309734e-06,  0.00012474487445813265,  -0.0015894848513704496,
                              0.005632111897885202,   -0.01063329738778957,   0.00990262030933959,     0.0035748380452271036,
                              -0.025030921206514282,  0.032008840294385735,   -0.004507557128328559,   -0.02107715578638419};
  constexpr double kConstant = 1.0160947699414193, kConstantLow = 8.370287176360688e-17;
  constexpr double kExp[] = {2.08266364270361e-09,
                             2.5112026312390627e-08,
                             2.755758172638332e-07,
                             2.7557234891684504e-06,
                             2.480158692692243e-05,
                             0.00019841269896354337,
                             0.0013888888889115366,
                             0.008333333333317046,
                             0.041666666666666095,
                             0.16666666666666682,
                             0.5};
  const N magnitude = abs(x), a = select(magnitude < 28.0, magnitude, like(x, 28.0));
  // What 1 + y z and the like round off, for a first part that is a multiple of the unit of the sum: a step more.
  const N one = like(x, 1.0), up_by = like(x, 41.0 / 64), second = like(x, 227.0 / 128), third = like(x, 73.0 / 64);
  const N over = fma(a, up_by, one), over_low = fma(a, up_by, one - over);
  const N inner = fma(a, third, second), inner_low = fma(a, third, second - inner);
  const N under = fma(a, inner, one), under_low = fma(a, inner_low, fma(a, inner, one - under));
  const N above = a + 3.0, both = 1.0 / (under * above), inverse = both * above;
  const N t = (a - 3.0) * (both * under), w = t * by_halves(t, kTail);

  const N p = w + kConstant, p_low = (kConstant - p + w) + kConstantLow;
  const N top = p * over, top_low = fma(p, over, -top) + fma(p, over_low, p_low * over);
  const N q = top * inverse, q_low = (fma(-q, under, top) + (top_low - q * under_low)) * inverse;

  // exp(-a^2) = 2^n exp(r); a multiple of the first part of log(2) is exact.
  const N square = a * a, square_low = fma(a, a, -square);
  const N n = nearest(square * -1.4426950408889634).n;
  const N r0 = fma(n, like(x, -0x1.62e42feep-1), -square), r = fma(n, like(x, -0x1.a39ef35793c76p-33), r0);
  const N r_low = fma(n, like(x, -0x1.a39ef35793c76p-33), r0 - r) - square_low;
  const N e0 = r * r * by_halves(r, kExp), e = fma(r_low, 1.0 + (r + e0), e0);
  // q exp(r), of which r q is the largest part but q.
  const N rq = r * q, y = q + rq;
  const N y_low = (q - y + rq) + (fma(r, q, -rq) + fma(e, q, fma(r + e, q_low, q_low)));

  // 2^n in two steps: the result may be subnormal.
  const Nearest<N> half = nearest(n * 0.5);
  const N up = scaled(one, half.sum), down = scaled(one, (n - half.n) + kInteger);
  const N high = y * up * down, rest = 2.0 - high, below_two = rest + ((2.0 - rest - high) - y_low * up * down);
  return select(x < 0.0, below_two, select(magnitude < 28.0, (y + y_low) * up * down, select(x > 0.0, like(x, 0.0), x)));
}
// Of an f32, to 1e-12, with the polynomial of (a - 3) / (a + 3).
template <class N>
[[gnu::always_inline]] inline N narrow_erfc_of(N x) {
  constexpr double kTail[] = {-4.8696771091520975e-06, -1.964532875935465e-05, 8.729558681333916e-06, 0.000126574904704347,
                              -0.00010636811792744477, -0.0007806403284055752, 0.001888846769732373,  0.0025295668582677663,
                              -0.023770519610166758,   0.06830800952635847,    -0.11927366387751662,  0.12964515948670802,
                              -0.04756229433072502,    -0.1356211061346619,    1.2530080582696261};
  constexpr double kExp[] = {2.4708324673690595e-05, 0.00019908944910529836, 0.0013889197180008217, 0.00833328179867118,
                             0.04166666440353234,    0.1666666678447269,     0.5000000000427369};
  const N magnitude = abs(x), a = select(magnitude > 12.0, like(x, 12.0), magnitude);  // NaN stays
  const N d = a + a + 1.0, above = a + 3.0, both = 1.0 / (d * above);
  const N p = polynomial((a - 3.0) * (both * d), kTail) * (both * above);
  const N square = a * a;
  const Nearest<N> n = nearest(square * -1.4426950408889634);
  const N r = n.n * -0.6931471805599453 - square, e = r * r * polynomial(r, kExp) + r;
  const N y = (p + p * e) * scaled(like(x, 1.0), n.sum);
  return select(x < 0.0, 2.0 - y, y);
}

}  // namespace tessera::kit
