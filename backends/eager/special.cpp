// SPDX-License-Identifier: Apache-2.0
#include "special.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace eager {

// M. Giles 2010, "Approximating the erfinv function" (the f32 polynomials as a start), then two Newton steps with erf or erfc, which
// square the error each.
double erfinv(double x) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (!(x >= -1 && x <= 1)) return std::numeric_limits<double>::quiet_NaN();
  if (x == 1 || x == -1) return x * inf;
  if (x == 0) return x;
  double w = -std::log((1 - x) * (1 + x)), p;
  if (w < 5) {
    w -= 2.5;
    p = 2.81022636e-08;
    for (double c : {3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164, 0.246640727, 1.50140941})
      p = c + p * w;
  } else {
    w = std::sqrt(w) - 3;
    p = -0.000200214257;
    for (double c : {0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047, 1.00167406, 2.83297682})
      p = c + p * w;
  }
  double y = p * x;
  constexpr double two_over_sqrt_pi = 1.1283791670955125739;
  for (int i = 0; i < 2; ++i) {
    // Near the ends 1 - |x| is exact and erfc keeps its digits.
    const double error = std::fabs(x) < 0.5 ? std::erf(y) - x : std::copysign((1 - std::fabs(x)) - std::erfc(std::fabs(y)), x);
    y -= error / (two_over_sqrt_pi * std::exp(-y * y));
  }
  return y;
}

// Recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18); reflection for negative x.
double digamma(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
    const double fraction = x - std::floor(x);  // tan has period 1 in x
    return digamma(1 - x) - M_PI / std::tan(M_PI * fraction);
  }
  double sum = 0;
  while (x < 10) {
    sum -= 1 / x;
    x += 1;
  }
  if (x == std::numeric_limits<double>::infinity()) return x;
  const double z = 1 / (x * x);
  double s = 0;  // B_2n / 2n, the highest first
  for (double c : {1.0 / 12, -691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12}) s = c + s * z;
  return sum + std::log(x) - 0.5 / x - s * z;
}

double log_gamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

}  // namespace eager
