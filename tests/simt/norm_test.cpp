// SPDX-License-Identifier: Apache-2.0
// Why variance takes two passes (docs/kernel_kit.md): it keeps its digits where the mean is large.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <random>

#include "simt_support.hpp"
#include "tessera/kit/program/interpret.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

constexpr int64_t kElements = 4096;

double exact_variance(const std::vector<float>& x) {
  double mean = 0, sum = 0;
  for (const float v : x) mean += v;
  mean /= static_cast<double>(x.size());
  for (const float v : x) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(x.size());
}

// One sweep in f32: 256 running values by Welford's update, combined by halves as Chan, Golub and LeVeque do.
float one_sweep(const std::vector<float>& x) {
  struct Running {
    float mean = 0, squares = 0, count = 0;
  };
  std::vector<Running> all(256);
  for (size_t i = 0; i < x.size(); ++i) {
    Running& r = all[i % all.size()];
    r.count += 1;
    const float d = x[i] - r.mean;
    r.mean += d / r.count;
    r.squares += d * (x[i] - r.mean);
  }
  for (size_t half = all.size() / 2; half > 0; half /= 2)
    for (size_t j = 0; j < half; ++j) {
      Running &a = all[j], &b = all[j + half];
      const float d = b.mean - a.mean, count = a.count + b.count;
      a.squares += b.squares + d * d * (a.count * b.count / count);
      a.mean += d * (b.count / count);
      a.count = count;
    }
  return all[0].squares / all[0].count;
}

}  // namespace

TEST_CASE("variance in two passes keeps the digits that one sweep loses") {
  const SimtCase c{"variance", "graph @g(%x: f32[1, 4096]) {\n %a = variance %x {axes = [1]}\n return %a\n}\n", "", {}};
  SimtKernel k = lower_case(c);
  double worst_two = 0, worst_one = 0;
  for (const double mean : {0.0, 100.0, 10000.0}) {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    std::vector<float> x(kElements);
    for (float& v : x) v = static_cast<float>(mean + normal(random));
    Data data = case_data(k, c, 1, false);
    std::memcpy(data.pointers()[0], x.data(), x.size() * sizeof(float));
    Data want = data;
    REQUIRE(judge(k, c, {}, want) == 0);
    const kit::GpuDescription& d = kit::gpu_description("sim32");
    kit::Program p = make(k, c, choose(k, c, d, {}), d, {});
    REQUIRE(kit::interpret(p, data.pointers(), {}, 1) == 0);
    REQUIRE(case_difference(k, want, data) == "");
    float two = 0;
    std::memcpy(&two, data.pointers()[1], sizeof two);
    // correction = 1: the divisor is one less.
    const double exact = exact_variance(x);
    worst_two = std::max(worst_two, std::abs(two * (kElements - 1.0) / kElements - exact) / exact);
    worst_one = std::max(worst_one, std::abs(one_sweep(x) - exact) / exact);
  }
  // The mean is rounded by up to half a unit in its last place, whose square is 2.4e-7 where it is 10,000 times the deviation;
  // the sums add some roundings of 6e-8.
  CHECK(worst_two < 1e-6);
  CHECK(worst_one > 20 * worst_two);
}
