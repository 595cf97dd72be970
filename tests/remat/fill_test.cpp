// SPDX-License-Identifier: Apache-2.0
// Plans between two corners of a hull.
#include "fill.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "closure.hpp"

namespace tessera::remat {
namespace {

// `sizes.size()` products of one kept input, each read by the backward half behind an elementwise node that is not kept.
Problem products(const std::vector<std::pair<int64_t, int64_t>>& costs_and_bytes) {
  Problem p;
  p.values.push_back({0, 0, true});
  p.nodes.push_back({0, true, false, false, {}});
  for (const auto& [cost, bytes] : costs_and_bytes) {
    const auto product = static_cast<uint32_t>(p.nodes.size());
    p.nodes.push_back({cost, false, false, false, {0}});
    p.values.push_back({product, bytes, false});
    p.nodes.push_back({1, false, false, true, {static_cast<uint32_t>(p.values.size() - 1)}});
    p.values.push_back({product + 1, bytes, true});
  }
  return p;
}

int64_t cheapest(const Problem& p, int64_t bytes) {
  int64_t best = INT64_MAX;
  for (uint32_t bits = 0; bits < (1u << p.nodes.size()); ++bits) {
    Plan plan;
    plan.recompute.resize(p.nodes.size());
    for (size_t n = 0; n < p.nodes.size(); ++n) plan.recompute[n] = (bits >> n) & 1;
    complete(p, plan);
    if (plan.saved_bytes <= bytes) best = std::min(best, plan.cost);
  }
  return best;
}

TEST_CASE("of equal products only as many run again as the budget asks for") {
  const Problem p = products(std::vector<std::pair<int64_t, int64_t>>(8, {100, 1000}));
  Plan plan;
  complete(p, plan);
  REQUIRE(plan.saved_bytes == 8000);
  for (const int64_t bytes : {8000, 7999, 5500, 3000, 1, 0}) {
    const Plan found = fill(p, plan, bytes);
    CHECK(found.saved_bytes <= bytes);
    CHECK(found.cost == (8000 - bytes + 999) / 1000 * 101);
  }
}

TEST_CASE("the last step takes what suffices, not what is cheapest per byte") {
  // The first is cheapest per byte; then 300 bytes are too many, and the small product frees them.
  const Problem p = products({{900, 1000}, {100, 100}, {400, 350}, {950, 1000}});
  Plan plan;
  complete(p, plan);
  const Plan found = fill(p, plan, plan.saved_bytes - 1300);
  CHECK(found.saved_bytes == plan.saved_bytes - 1350);
  CHECK(found.cost == 901 + 401);
}

TEST_CASE("a plan that no single node can bring under the budget stays what it is, and saves more") {
  Problem p = products({{100, 1000}, {100, 1000}});
  for (Node& n : p.nodes) n.must_save = true;
  Plan plan;
  complete(p, plan);
  CHECK(fill(p, plan, 500).saved_bytes == plan.saved_bytes);
}

TEST_CASE("from the corners of the hull it is within a few parts in a hundred of brute force") {
  std::mt19937 random(7);
  double worst = 0, sum = 0;
  int cases = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<std::pair<int64_t, int64_t>> list(6);
    for (auto& [cost, bytes] : list) {
      bytes = 100 * (1 + random() % 20);
      cost = bytes * (8 + random() % 5);
    }
    const Problem p = products(list);
    const Hull hull = lower_hull(p, 16);
    const int64_t most = hull.plans.front().saved_bytes;
    for (const int share : {90, 70, 50, 30, 10}) {
      const int64_t bytes = most * share / 100;
      int64_t best = INT64_MAX;
      for (const Plan& start : hull.plans) {
        const Plan found = fill(p, start, bytes);
        REQUIRE(found.saved_bytes <= bytes);
        best = std::min(best, found.cost);
      }
      const double above = static_cast<double>(best) / static_cast<double>(cheapest(p, bytes)) - 1;
      CHECK(above >= 0);
      worst = std::max(worst, above);
      sum += above;
      ++cases;
    }
  }
  INFO("worst " << worst << " mean " << sum / cases);
  CHECK(sum / cases < 0.02);
  CHECK(worst < 0.25);
}

}  // namespace
}  // namespace tessera::remat
