// SPDX-License-Identifier: Apache-2.0
// The f32 functions of the library against the C library in f64, in units in the last place of the result.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "tessera/kit/interpret.hpp"
#include "tessera/kit/ir.hpp"

using namespace tessera::kit;

namespace {

float value_of(const Function& f, float x) {
  const uint64_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>(static_cast<uint32_t>(interpret(f, {&bits, 1})));
}
double ulp(double x) { return std::ldexp(1.0, (x == 0 ? -126 : std::max(std::ilogb(x), -126)) - 23); }

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

struct Row {
  const char* name;
  double (*right)(double);
  double range, bound;
  bool of_operand;  // the bound is in units of x: what cancels
};
constexpr Row kRows[] = {
    {"exp_f32", [](double x) { return std::exp(x); }, 88, 0.9, false},
    {"tanh_f32", [](double x) { return std::tanh(x); }, 12, 0.75, false},
    {"sigmoid_f32", sigmoid, 100, 1.25, false},
    {"silu_f32", [](double x) { return x * sigmoid(x); }, 100, 2.0, false},
    {"erf_f32", [](double x) { return std::erf(x); }, 5, 1.0, false},
    {"gelu_f32", [](double x) { return x * phi(x); }, 8, 1.65, true},
    {"gelu_tables_f32", [](double x) { return x * phi(x); }, 8, 1.4, true},
    {"cube_f32", [](double x) { return x * x * x; }, 1000, 0.51, false},
    {"rsqrt_f32", [](double x) { return 1 / std::sqrt(x); }, 0, 0.501, false},
    {"erfc_f32", [](double x) { return std::erfc(x); }, 10.5, 0.51, false},
    {"cbrt_f32", [](double x) { return std::cbrt(x); }, 1e30, 0.51, false},
    {"log_f32", [](double x) { return std::log(std::abs(x)); }, 0, 0.51, false},
};

}  // namespace

TEST_CASE("functions are as good as their table says") {
  for (const Row& row : kRows) {
    const Function& f = function(function_named(row.name));
    std::mt19937_64 random(3);
    double worst = 0;
    float at = 0;
    const auto look = [&](float x) {
      const double want = row.right(static_cast<double>(x)), got = static_cast<double>(value_of(f, x));
      if (want == got || std::abs(want) > static_cast<double>(std::numeric_limits<float>::max())) return;
      const double error = std::abs(got - want) / ulp(row.of_operand ? static_cast<double>(x) : want);
      if (error > worst) worst = error, at = x;
    };
    for (int i = 0; i < 60000; ++i) {
      const double u = static_cast<double>(random() >> 11) * 0x1p-53 * 2 - 1;
      if (row.range == 0) {
        look(std::abs(std::bit_cast<float>(static_cast<uint32_t>(random() % 0x7f800000))));
      } else {
        look(static_cast<float>(u * row.range));
        look(static_cast<float>(u * std::min(row.range, 2.0)));
        look(static_cast<float>(std::ldexp(u, -static_cast<int>(random() % 100))));
      }
    }
    INFO(row.name << ": " << worst << " ulp at " << at);
    CHECK(worst <= row.bound);
  }
}

TEST_CASE("functions at the ends of their range") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto of = [](const char* name, float x) { return value_of(function(function_named(name)), x); };
  CHECK(of("tanh_f32", inf) == 1);
  CHECK(of("tanh_f32", -inf) == -1);
  CHECK(of("tanh_f32", 20) == 1);
  CHECK(std::signbit(of("tanh_f32", -0.0f)));
  CHECK(of("sigmoid_f32", inf) == 1);
  CHECK(of("sigmoid_f32", -inf) == 0);
  CHECK(of("sigmoid_f32", -1e30f) == 0);
  CHECK(of("sigmoid_f32", -100) > 0);  // subnormal
  CHECK(of("silu_f32", inf) == inf);
  CHECK(std::isnan(of("silu_f32", -inf)));
  CHECK(of("silu_f32", -1e30f) == 0);
  CHECK(of("silu_f32", -100) < 0);
  CHECK(of("erf_f32", inf) == 1);
  CHECK(of("erf_f32", -7) == -1);
  CHECK(std::signbit(of("erf_f32", -0.0f)));
  CHECK(of("erfc_f32", inf) == 0);
  CHECK(of("erfc_f32", -inf) == 2);
  CHECK(of("erfc_f32", 10.05f) > 0);  // subnormal
  CHECK(of("erfc_f32", 1e30f) == 0);
  CHECK(of("cbrt_f32", -inf) == -inf);
  CHECK(of("cbrt_f32", -0x1p-149f) == static_cast<float>(std::cbrt(-0x1p-149)));
  CHECK(std::signbit(of("cbrt_f32", -0.0f)));
  CHECK(of("rsqrt_f32", 0.0f) == inf);
  CHECK(of("rsqrt_f32", inf) == 0);
  CHECK(std::isnan(of("rsqrt_f32", -1)));
  CHECK(of("exp_f32", inf) == inf);
  CHECK(of("exp_f32", -inf) == 0);
  for (const char* gelu : {"gelu_f32", "gelu_tables_f32"}) {
    INFO(gelu);
    CHECK(of(gelu, inf) == inf);
    CHECK(std::isnan(of(gelu, -inf)));  // as x times what is 0
    CHECK(of(gelu, 3e38f) == 3e38f);
    CHECK(of(gelu, -1e30f) == 0);
    CHECK(std::signbit(of(gelu, -0.0f)));
    CHECK(of(gelu, 1e-40f) > 0);  // subnormal
  }
  for (const char* name : {"tanh_f32", "sigmoid_f32", "silu_f32", "erf_f32", "exp_f32", "gelu_f32", "gelu_tables_f32",
                           "cube_f32", "log_f32", "erfc_f32", "cbrt_f32", "rsqrt_f32"}) {
    INFO(name);
    CHECK(std::isnan(of(name, nan)));
  }
}
