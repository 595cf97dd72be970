// SPDX-License-Identifier: Apache-2.0
// The minimum closure against all plans that there are, on random problems.
#include "closure.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

using namespace tessera::remat;

namespace {

Problem random_problem(std::mt19937& random) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Problem p;
  const int nodes = draw(1, 10);
  for (int n = 0; n < nodes; ++n) {
    Node node;
    node.cost = draw(1, 1000);
    node.must_save = draw(0, 9) == 0;
    node.must_recompute = !node.must_save && draw(0, 9) == 0;
    for (uint32_t v = 0; v < p.values.size(); ++v)
      if (draw(0, 2) == 0) node.inputs.push_back(v);
    p.nodes.push_back(node);
    const int results = draw(0, 4) == 0 ? 2 : 1;
    for (int r = 0; r < results; ++r) p.values.push_back({static_cast<uint32_t>(n), 64 * draw(0, 20), draw(0, 2) == 0});
  }
  return p;
}

std::vector<Plan> all_plans(const Problem& p) {
  std::vector<Plan> out;
  for (uint32_t bits = 0; bits < 1u << p.nodes.size(); ++bits) {
    Plan plan;
    for (size_t n = 0; n < p.nodes.size(); ++n) plan.recompute.push_back(bits >> n & 1);
    complete(p, plan);
    out.push_back(plan);
  }
  return out;
}

}  // namespace

TEST_CASE("a minimum closure equals the best of all plans") {
  std::mt19937 random(35);
  size_t mixed = 0;  // plans that both save and compute again: the interesting ones
  for (int round = 0; round < 1000; ++round) {
    const Problem p = random_problem(random);
    const std::vector<Plan> plans = all_plans(p);
    for (const double price : {0.0, 0.25, 1.0, 4.0, 1000.0}) {  // whole picoseconds for multiples of 64 bytes
      double best = lagrangian(plans[0], price);
      for (const Plan& plan : plans) best = std::min(best, lagrangian(plan, price));
      const Plan found = minimum_closure(p, price);
      INFO("problem " << round << ", price " << price);
      REQUIRE(lagrangian(found, price) == best);
      mixed += found.saved_bytes > 0 && found.cost > 0;
    }
  }
  CHECK(mixed > 500);
}

TEST_CASE("no plan beats the bound of the hull, and the plans of the hull are in order") {
  std::mt19937 random(36);
  for (int round = 0; round < 1000; ++round) {
    const Problem p = random_problem(random);
    const Hull hull = lower_hull(p, 64);
    const std::vector<Plan> plans = all_plans(p);
    for (const Plan& plan : plans) REQUIRE(static_cast<double>(plan.cost) >= hull.bound(plan.saved_bytes));
    // Each plan of the hull is the best of those that save no more.
    for (const Plan& found : hull.plans)
      for (const Plan& plan : plans) REQUIRE((plan.saved_bytes > found.saved_bytes || plan.cost >= found.cost));
    for (size_t i = 1; i < hull.plans.size(); ++i) {
      REQUIRE(hull.plans[i].saved_bytes < hull.plans[i - 1].saved_bytes);
      REQUIRE(hull.plans[i].cost > hull.plans[i - 1].cost);
    }
  }
}
