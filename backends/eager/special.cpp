// SPDX-License-Identifier: Apache-2.0
#include "special.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace eager {

// M. Giles 2010, "Approximating the erfinv function" (the f32 polynomials as a start), then two Newton steps with erf or erfc,
// which square the error each.
double erfinv(double x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (!(x >= -1 && x <= 1)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 1 || x == -1) return x * inf;
  if (x == 0) return x;
  double w = -std::log((1 - x) * (1 + x)), p;
  if (w < 5) {
    w -= 2.5;
    p = 2.81022636e-08;
    for (double c : {3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
                     0.246640727, 1.50140941})
      p = c + p * w;
  } else {
    w = std::sqrt(w) - 3;
    p = -0.000200214257;
    for (double c :
         {0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682})
      p = c + p * w;
  }
  double y = p * x;
  constexpr double two_over_sqrt_pi = 1.1283791670955125739;
  for (int i = 0; i < 2; ++i) {
    // Near the ends 1 - |x| is exact and erfc keeps its digits.
    double error = std::erf(y) - x;
    if (std::fabs(x) >= 0.5) error = ((1 - std::fabs(x)) - std::erfc(std::fabs(y))) * (x < 0 ? -1 : 1);
    y -= error / (two_over_sqrt_pi * std::exp(-y * y));
  }
  return y;
}

// Recurrence up to 16, then the asymptotic series (Abramowitz and Stegun 6.3.18); reflection for negative x. In long double:
// the terms cancel near the roots.
double digamma(double v) {
  using L = long double;
  if (v == 0) return std::copysign(std::numeric_limits<double>::infinity(), -v);
  if (v == -std::numeric_limits<double>::infinity()) return std::numeric_limits<double>::quiet_NaN();
  if (v == std::numeric_limits<double>::infinity()) return v;
  L x = v, sum = 0;
  if (v < 0) {
    if (v == std::floor(v)) return std::numeric_limits<double>::quiet_NaN();
    constexpr L pi = 3.14159265358979323846264338327950288L;
    sum = -pi / std::tan(pi * (x - std::trunc(x)));  // tan has period pi
    x = 1 - x;
  }
  while (x < 16) {
    sum -= 1 / x;
    x += 1;
  }
  const L z = 1 / (x * x);
  L s = 0;  // B_2n / 2n, the highest first
  for (L c : {1.0L / 12, -691.0L / 32760, 1.0L / 132, -1.0L / 240, 1.0L / 252, -1.0L / 120, 1.0L / 12}) s = c + s * z;
  return static_cast<double>(sum + std::log(x) - 0.5L / x - s * z);
}

double log_gamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

}  // namespace eager
