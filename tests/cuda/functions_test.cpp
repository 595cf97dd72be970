// SPDX-License-Identifier: Apache-2.0
// Functions of f64 that are better than CUDA's own, against long double.
#include <dlfcn.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tessera/kit/gpu/emit.hpp"

namespace {

constexpr double kLargest = std::numeric_limits<double>::max(), kTiny = std::numeric_limits<double>::denorm_min(),
                 kInfinite = std::numeric_limits<double>::infinity();

// How many distances of neighbours `got` is off; infinitely many where only one of both is a number.
double ulps(double got, long double want) {
  const auto rounded = static_cast<double>(want);
  if (!std::isfinite(rounded) || !std::isfinite(got))
    return got == rounded || (std::isnan(got) && std::isnan(rounded)) ? 0 : kInfinite;
  int exponent = 0;
  std::frexp(rounded, &exponent);
  return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, std::max(exponent - 53, -1074)));
}

using Unary = double (*)(double);
using Binary = double (*)(double, double);

// The functions of CUDA's prelude as the host's compiler compiles them, with the host's where they call CUDA's.
void* functions() {
  static void* library = [] {
    const std::string prelude = tessera::kit::cuda_dialect().prelude;
    const size_t begin = prelude.find("DEVICE double library_asin"), end = prelude.find("#define LIBRARY2", begin);
    REQUIRE(begin < end);
    const std::string base = std::filesystem::temp_directory_path() / ("tessera-functions-" + std::to_string(getpid()));
    std::ofstream(base + ".cpp") << "#include <cmath>\nusing i32 = int;\nusing std::hypot;\n#define DEVICE extern \"C\"\n"
                                    "static double abs_of(double x) { return std::fabs(x); }\n"
                                    "static double sqrt_of(double x) { return std::sqrt(x); }\n"
                                    "static double fma_of(double a, double b, double c) { return std::fma(a, b, c); }\n"
                                 << prelude.substr(begin, end - begin);
    const std::string command =
        FAKE_CUDA_COMPILER " -std=c++20 -O2 -ffp-contract=off -shared -fPIC -o " + base + ".so " + base + ".cpp";
    REQUIRE(std::system(command.c_str()) == 0);
    void* opened = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    for (const char* end_of : {".so", ".cpp"}) std::filesystem::remove(base + end_of);
    REQUIRE(opened);
    return opened;
  }();
  return library;
}
template <class F>
F function(const char* name) {
  return reinterpret_cast<F>(dlsym(functions(), name));
}

void check(double got, long double want, double x, double y) {
  const double off = ulps(got, want);
  if (off > 1) FAIL_CHECK("f(" << x << ", " << y << ") = " << got << ", " << off << " ulps off");
}

}  // namespace

TEST_CASE("CUDA's functions of f64 are within one ulp, as far as the library's are not") {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit(-1, 1), exponent(-1070, 1020);
  const std::vector<double> special = {0.0,     -0.0, 1,     -1,       0.5,       -0.5,      kTiny,      1e-310,
                                       -1e-310, 1.5,  1e300, kLargest, -kLargest, kInfinite, -kInfinite, std::nan("")};
  const auto inverse_sine = function<Unary>("library_asin");
  const auto length = function<Binary>("library_hypot");
  REQUIRE((inverse_sine && length));
  for (const double x : special) {
    check(inverse_sine(x), std::asin(static_cast<long double>(x)), x, 0);
    for (const double y : special)
      check(length(x, y), std::hypot(static_cast<long double>(x), static_cast<long double>(y)), x, y);
  }
  for (int i = 0; i < 200000; ++i) {
    const double near_one = std::copysign(1 - std::abs(unit(random)) * 1e-4, unit(random)), x = i % 4 ? unit(random) : near_one;
    check(inverse_sine(x), std::asin(static_cast<long double>(x)), x, 0);
    const double any = std::ldexp(unit(random), static_cast<int>(exponent(random)));
    const double other = any * std::ldexp(unit(random), i % 70 - 35);
    check(length(any, other), std::hypot(static_cast<long double>(any), static_cast<long double>(other)), any, other);
  }
}
