// SPDX-License-Identifier: Apache-2.0
// Exponentials, logarithms, powers, trigonometry and special functions of one variable, in double.
#include <cmath>
#include <limits>
#include <numbers>

#include "elementwise.hpp"

namespace tessera::reference {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double pi = std::numbers::pi;

// Lanczos-free digamma: upward recurrence psi(x) = psi(x + 1) - 1/x to x >= 16, then the asymptotic series (Abramowitz and
// Stegun 6.3.18), whose first omitted term is below 1e-17 there; reflection (6.3.7) for x < 0. Poles: at 0 the sign decides,
// NaN at the negative integers, as torch.digamma.
double digamma_of(double x) {
  if (x == 0) return std::copysign(inf, -x);
  if (std::isinf(x)) return x > 0 ? inf : nan;
  double shift = 0;
  if (x < 0) {
    const double part = x - std::nearbyint(x);  // exact; tan has period pi
    if (part == 0) return nan;
    shift = -pi / std::tan(pi * part);
    x = 1 - x;
  }
  while (x < 16) {
    shift -= 1 / x;
    x += 1;
  }
  const double z = 1 / (x * x);
  const double series =
      z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return shift + std::log(x) - 0.5 / x - series;
}

// Winitzki's closed approximation as the start, then Newton's method on erf (on erfc near +-1, where erf has no digits left).
double erfinv_of(double y) {
  if (std::isnan(y) || std::fabs(y) > 1) return nan;
  if (std::fabs(y) == 1) return std::copysign(inf, y);
  if (y == 0) return y;
  const double a = 0.147, l = std::log1p(-y * y), t = 2 / (pi * a) + l / 2;
  double x = std::copysign(std::sqrt(std::sqrt(t * t - l / a) - t), y);
  if (x == 0) x = y * std::sqrt(pi) / 2;
  for (int i = 0; i < 8; ++i) {
    const double error = std::fabs(y) < 0.5 ? std::erf(x) - y : y > 0 ? (1 - y) - std::erfc(x) : std::erfc(-x) - (1 + y);
    const double slope = 2 / std::sqrt(pi) * std::exp(-x * x);
    const double step = error / slope;
    x -= step / (1 + x * step);  // Halley's correction: erf'' / erf' = -2x
    if (std::fabs(step) <= 1e-17 * std::fabs(x)) break;
  }
  return x;
}

double lgamma_of(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);  // std::lgamma writes a global
}

void exp(const Op& op) {
  unary(
      op, [](double x) { return std::exp(x); }, nullptr, [](Complex z) { return std::exp(z); });
}
void exp2(const Op& op) {
  unary(op, [](double x) { return std::exp2(x); });
}
void expm1(const Op& op) {
  unary(op, [](double x) { return std::expm1(x); });
}
void log(const Op& op) {
  unary(
      op, [](double x) { return std::log(x); }, nullptr, [](Complex z) { return std::log(z); });
}
void log2(const Op& op) {
  unary(op, [](double x) { return std::log2(x); });
}
void log10(const Op& op) {
  unary(op, [](double x) { return std::log10(x); });
}
void log1p(const Op& op) {
  unary(op, [](double x) { return std::log1p(x); });
}
void sqrt(const Op& op) {
  unary(
      op, [](double x) { return std::sqrt(x); }, nullptr, [](Complex z) { return std::sqrt(z); });
}
void rsqrt(const Op& op) {
  unary(op, [](double x) { return 1 / std::sqrt(x); });
}
// glibc's cbrt and erfc of f64 are up to 4 ulp off.
void cbrt(const Op& op) {
  unary(op, [](double x) { return static_cast<double>(std::cbrt(static_cast<long double>(x))); });
}
void sin(const Op& op) {
  unary(
      op, [](double x) { return std::sin(x); }, nullptr, [](Complex z) { return std::sin(z); });
}
void cos(const Op& op) {
  unary(
      op, [](double x) { return std::cos(x); }, nullptr, [](Complex z) { return std::cos(z); });
}
void tan(const Op& op) {
  unary(op, [](double x) { return std::tan(x); });
}
void asin(const Op& op) {
  unary(op, [](double x) { return std::asin(x); });
}
void acos(const Op& op) {
  unary(op, [](double x) { return std::acos(x); });
}
void atan(const Op& op) {
  unary(op, [](double x) { return std::atan(x); });
}
void sinh(const Op& op) {
  unary(op, [](double x) { return std::sinh(x); });
}
void cosh(const Op& op) {
  unary(op, [](double x) { return std::cosh(x); });
}
void tanh(const Op& op) {
  unary(
      op, [](double x) { return std::tanh(x); }, nullptr, [](Complex z) { return std::tanh(z); });
}
void asinh(const Op& op) {
  unary(op, [](double x) { return std::asinh(x); });
}
void acosh(const Op& op) {
  unary(op, [](double x) { return std::acosh(x); });
}
void atanh(const Op& op) {
  unary(op, [](double x) { return std::atanh(x); });
}
void erf(const Op& op) {
  unary(op, [](double x) { return std::erf(x); });
}
void erfc(const Op& op) {
  unary(op, [](double x) { return static_cast<double>(std::erfc(static_cast<long double>(x))); });
}
void erfinv(const Op& op) { unary(op, erfinv_of); }
void lgamma(const Op& op) { unary(op, lgamma_of); }
void digamma(const Op& op) { unary(op, digamma_of); }
void sigmoid(const Op& op) {
  unary(op, [](double x) { return 1 / (1 + std::exp(-x)); });
}

}  // namespace

std::span<const Entry> special_ops() {
  static constexpr Entry entries[] = {
      {"exp", exp},       {"exp2", exp2},     {"expm1", expm1},     {"log", log},         {"log2", log2}, {"log10", log10},
      {"log1p", log1p},   {"sqrt", sqrt},     {"rsqrt", rsqrt},     {"cbrt", cbrt},       {"sin", sin},   {"cos", cos},
      {"tan", tan},       {"asin", asin},     {"acos", acos},       {"atan", atan},       {"sinh", sinh}, {"cosh", cosh},
      {"tanh", tanh},     {"asinh", asinh},   {"acosh", acosh},     {"atanh", atanh},     {"erf", erf},   {"erfc", erfc},
      {"erfinv", erfinv}, {"lgamma", lgamma}, {"digamma", digamma}, {"sigmoid", sigmoid},
  };
  return entries;
}

}  // namespace tessera::reference
