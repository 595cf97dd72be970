// SPDX-License-Identifier: Apache-2.0
// The f64 functions that the kit computes itself: what the interpreter makes of them, against values of mpmath's and against
// the C library in long double.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "tessera/kit/interpret.hpp"
#include "tessera/kit/ir.hpp"

using namespace tessera::kit;

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity(), kLargest = std::numeric_limits<double>::max(),
                 kTiny = std::numeric_limits<double>::denorm_min();

double value_of(const Function& f, double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  return std::bit_cast<double>(interpret(f, {&bits, 1}));
}

// The distance of neighbours at x; of subnormal numbers where x is one or 0.
long double unit(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0L, x == 0 ? -1074 : std::max(exponent - 53, -1074));
}

// As scripts/double_functions.py --points prints them: the f64 nearest to f(x), and what that leaves in units of its last
// place.
struct Point {
  double x, nearest, rest;
};
// clang-format off
constexpr Point kErfc[] = {
    {-0x1.8000000000000p+2, 0x1.0000000000000p+1, -0.0485},
    {-0x1.6000000000000p+2, 0x1.fffffffffffdfp+0, -0.1368},
    {-0x1.2000000000000p+1, 0x1.ffa023b018cdap+0, 0.1214},
    {-0x1.0000000000000p+0, 0x1.d7bb3d3a08445p+0, 0.3883},
    {-0x1.8000000000000p-1, 0x1.b60e4bace8730p+0, -0.2884},
    {-0x1.e000000000000p-2, 0x1.7e1beaa50a3e7p+0, 0.3500},
    {-0x1.999999999999ap-4, 0x1.1cca5ea24fb33p+0, 0.2542},
    {-0x1.0624dd2f1a9fcp-10, 0x1.0049f30e0134ep+0, -0.1761},
    {-0x1.79ca10c924223p-67, 0x1.0000000000000p+0, 0.0001},
    {0x1.79ca10c924223p-67, 0x1.0000000000000p+0, -0.0001},
    {0x1.12e0be826d695p-30, 0x1.fffffff64eab0p-1, 0.0071},
    {0x1.47ae147ae147bp-7, 0x1.fa390f6666a12p-1, 0.4124},
    {0x1.0000000000000p-2, 0x1.728558ee694fcp-1, -0.2818},
    {0x1.e861fbb24bffap-2, 0x1.0000000000007p-1, 0.1547},
    {0x1.0000000000000p-1, 0x1.eb02147ce245cp-2, -0.3423},
    {0x1.b000000000000p-1, 0x1.dcb8cae2d747fp-3, -0.4349},
    {0x1.0000000000000p+0, 0x1.4226162fbddd5p-3, -0.1064},
    {0x1.33afb7e90ff97p+0, 0x1.6d4731cb31cbdp-4, -0.4453},
    {0x1.4000000000000p+0, 0x1.3bcd133aa0ffcp-4, -0.0240},
    {0x1.8000000000000p+0, 0x1.15aaa8ec85205p-5, -0.1192},
    {0x1.0000000000000p+1, 0x1.328f5ec350e67p-8, -0.4473},
    {0x1.6db6db6db6db7p+1, 0x1.bf37512335aeep-15, -0.0534},
    {0x1.8000000000000p+1, 0x1.729df6503422ap-16, 0.0459},
    {0x1.1000000000000p+2, 0x1.fcae93fb7323cp-30, 0.3024},
    {0x1.8000000000000p+2, 0x1.8cf81557d20b6p-56, 0.1035},
    {0x1.3000000000000p+3, 0x1.a4480db60fe17p-135, 0.4467},
    {0x1.c000000000000p+3, 0x1.82af24bbe81ddp-288, 0.3362},
    {0x1.4400000000000p+4, 0x1.2dd03980220acp-597, -0.4293},
    {0x1.9ae147ae147aep+4, 0x1.0fff830e212a7p-957, 0.4680},
    {0x1.a400000000000p+4, 0x1.46b841565ab3ep-1000, 0.3830},
    {0x1.a800000000000p+4, 0x1.3df6725a60cf5p-1019, 0.0633},
    {0x1.a8b020c49ba5ep+4, 0x1.038a055f6d35cp-1022, 0.3818},
    {0x1.a99999999999ap+4, 0x0.0c860a467b1a5p-1022, -0.0829},
    {0x1.ae66666666666p+4, 0x0.000000163dc09p-1022, -0.2834},
    {0x1.b000000000000p+4, 0x0.0000000019e0fp-1022, 0.0503},
    {0x1.b333333333333p+4, 0x0.0000000000002p-1022, 0.0623},
    {0x1.b3851eb851eb8p+4, 0x0.0000000000001p-1022, -0.3060},
};
constexpr Point kCbrt[] = {
    {0x0.0000000000001p-1022, 0x1.0000000000000p-358, 0.0000},
    {0x0.0000000000bdcp-1022, 0x1.cf5bcda230497p-355, -0.2706},
    {-0x0.03739a252b281p-1022, -0x1.331196e81869ap-343, -0.1595},
    {0x1.0000000000000p-1022, 0x1.428a2f98d728bp-341, -0.1166},
    {0x1.56e1fc2f8f359p-997, 0x1.bff2ee48e0530p-333, -0.0917},
    {-0x1.bff2ee48e0530p-333, -0x1.347c8aaebcb7ap-111, 0.1514},
    {0x1.4f8b588e368f1p-17, 0x1.60fb8a566f628p-6, -0.4180},
    {0x1.0000000000000p-3, 0x1.0000000000000p-1, 0.0000},
    {0x1.3333333333333p-2, 0x1.56bfea66ef78dp-1, -0.0576},
    {0x1.0000000000000p-1, 0x1.965fea53d6e3dp-1, -0.4895},
    {0x1.fffffffffffffp-1, 0x1.0000000000000p+0, -0.1667},
    {0x1.0000000000000p+0, 0x1.0000000000000p+0, 0.0000},
    {0x1.0000000000001p+0, 0x1.0000000000000p+0, 0.3333},
    {0x1.0000000000000p+1, 0x1.428a2f98d728bp+0, -0.1166},
    {-0x1.8000000000000p+1, -0x1.7137449123ef6p+0, -0.3628},
    {0x1.6000000000000p+2, 0x1.c3e27449db536p+0, 0.0985},
    {0x1.fffffffffffffp+2, 0x1.0000000000000p+1, -0.1667},
    {0x1.0000000000000p+3, 0x1.0000000000000p+1, 0.0000},
    {0x1.4000000000000p+3, 0x1.13c484138704fp+1, -0.2088},
    {0x1.b000000000000p+4, 0x1.8000000000000p+1, 0.0000},
    {0x1.f440000000000p+9, 0x1.400da6abc3915p+3, -0.1856},
    {-0x1.c6bf526340000p+49, -0x1.86a0000000000p+16, 0.0000},
    {0x1.b69b4ba630f35p+56, 0x1.e64376fdb3d7ap+18, -0.0370},
    {0x1.249ad2594c37dp+332, 0x1.a8e327ba6c9c9p+110, -0.3998},
    {0x1.7e43c8800759cp+996, 0x1.249ad2594c37dp+332, 0.0082},
    {0x1.fffffffffffffp+1023, 0x1.428a2f98d728bp+341, -0.3266},
};
// clang-format on

double error_at(const Function& f, const Point& p) {
  return std::abs(static_cast<double>((static_cast<long double>(value_of(f, p.x)) - p.nearest) / unit(p.nearest)) - p.rest);
}

struct Sweep {
  const Function& f;
  long double (*right)(long double);
  double worst = 0, at = 0;
  void look(double x) {
    const long double want = right(x);
    const double error = static_cast<double>(std::abs(value_of(f, x) - want) / unit(static_cast<double>(want)));
    if (!(error <= worst)) worst = error, at = x;
  }
};

}  // namespace

TEST_CASE("erfc of f64 is within an ulp") {
  const Function& f = function(function_named("erfc_f64"));
  for (const Point& p : kErfc) {
    INFO("erfc(" << p.x << ") = " << value_of(f, p.x));
    CHECK(error_at(f, p) <= 0.8);
  }
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> everywhere(-6.5, 27.3), near(-1.5, 3), subnormal(26.5, 27.3);
  Sweep s{f, [](long double x) { return std::erfc(x); }};
  for (int i = 0; i < 100000; ++i) {
    s.look(everywhere(random));
    s.look(near(random));
    s.look(std::ldexp(near(random), -static_cast<int>(random() % 70)));
    s.look(subnormal(random));
  }
  INFO(s.worst << " ulp at " << s.at);
  CHECK(s.worst <= 0.8);

  CHECK(value_of(f, kInfinite) == 0);
  CHECK(value_of(f, -kInfinite) == 2);
  CHECK(value_of(f, 27.3) == 0);
  CHECK(value_of(f, 1e300) == 0);
  CHECK(!std::signbit(value_of(f, kLargest)));
  CHECK(value_of(f, -40) == 2);
  CHECK(value_of(f, -kLargest) == 2);
  CHECK(value_of(f, 0.0) == 1);
  CHECK(value_of(f, -0.0) == 1);
  CHECK(value_of(f, kTiny) == 1);
  CHECK(std::isnan(value_of(f, std::nan(""))));
}

TEST_CASE("cbrt of f64 is all but correctly rounded") {
  const Function& f = function(function_named("cbrt_f64"));
  for (const Point& p : kCbrt) {
    INFO("cbrt(" << p.x << ") = " << value_of(f, p.x));
    CHECK(error_at(f, p) <= 0.501);
  }
  std::mt19937_64 random(12);
  std::uniform_real_distribution<double> octaves(1, 8);
  Sweep s{f, [](long double x) { return std::cbrt(x); }};
  for (int i = 0; i < 100000; ++i) {
    const double any = std::bit_cast<double>(random()), subnormal = std::bit_cast<double>(random() & 0x800fffffffffffffull);
    if (std::isfinite(any)) s.look(any);
    s.look(subnormal);
    s.look(octaves(random));
  }
  for (int64_t n = 1; n < 20000; ++n) {
    const auto x = static_cast<double>(n);
    CHECK(value_of(f, x * x * x) == x);
  }
  INFO(s.worst << " ulp at " << s.at);
  CHECK(s.worst <= 0.502);  // the C library's own last bit included

  CHECK(value_of(f, kInfinite) == kInfinite);
  CHECK(value_of(f, -kInfinite) == -kInfinite);
  CHECK(value_of(f, 0.0) == 0);
  CHECK(!std::signbit(value_of(f, 0.0)));
  CHECK(std::signbit(value_of(f, -0.0)));
  CHECK(std::isnan(value_of(f, std::nan(""))));
}
