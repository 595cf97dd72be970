// SPDX-License-Identifier: Apache-2.0
// The bound against all plans that there are.
#include "bound.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "closure.hpp"
#include "random_cases.hpp"

using namespace tessera::remat;

namespace {

// Problems of either kind, in which some items are products, and some values are read by items of the backward half that depend
// on no gradient and stand anywhere before the one that does.
Case random_problem(std::mt19937& random, int round) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Case c = round % 2 == 0 ? random_case(random, draw(2, 9)) : random_chain(random, draw(1, 3));
  std::vector<Item>& items = c.schedule.items;
  const size_t first = c.problem.nodes.size();
  for (size_t i = first; i < items.size(); ++i) {
    if (items[i].reads.empty() || items[i].reads[0] >= c.problem.values.size() || draw(0, 2)) continue;
    const auto w = static_cast<uint32_t>(c.schedule.bytes.size());
    c.schedule.bytes.push_back(64 * draw(1, 20));
    c.schedule.outputs.push_back(0);
    Item before{true, 0, {items[i].reads[0]}, {w}};
    items[i].reads[0] = w;
    items.insert(items.begin() + draw(static_cast<int>(first), static_cast<int>(i)), std::move(before));
    ++i;
  }
  for (Item& i : items) {
    i.product = draw(0, 2) != 0;
    i.fuses = !i.product && round % 4 < 2;
  }
  return c;
}

}  // namespace

TEST_CASE("no plan beats the bound at its peak") {
  std::mt19937 random(41);
  size_t higher = 0;  // bounds that the places of products have raised
  for (int round = 0; round < 1000; ++round) {
    const Case c = random_problem(random, round);
    const Bound meet = lower_bound(c.problem, c.schedule, false), products = lower_bound(c.problem, c.schedule, true);
    REQUIRE_FALSE(meet.steps.empty());
    for (uint32_t bits = 0; bits < 1u << c.problem.nodes.size(); ++bits) {
      const Plan plan = plan_of(c.problem, bits);
      const int64_t peak = peak_bytes(c.schedule, plan);
      INFO("problem " << round << ", plan " << bits << " of cost " << plan.cost << " and peak " << peak);
      REQUIRE(plan.cost >= meet.at(peak));
      REQUIRE(plan.cost >= products.at(peak));
      higher += products.at(peak) > meet.at(peak);
    }
  }
  CHECK(higher > 1000);
}

TEST_CASE("where the halves meet the bound is what the best plan of these bytes costs") {
  std::mt19937 random(42);
  for (int round = 0; round < 300; ++round) {
    const Case c = random_problem(random, round);
    const Bound meet = lower_bound(c.problem, c.schedule, false);
    for (int64_t bytes = 0; bytes < 64 * 100; bytes += 64) {
      int64_t least = -1;
      for (uint32_t bits = 0; bits < 1u << c.problem.nodes.size(); ++bits) {
        const Plan plan = plan_of(c.problem, bits);
        if (plan.saved_bytes <= bytes && (least < 0 || plan.cost < least)) least = plan.cost;
      }
      if (least >= 0) REQUIRE(meet.at(bytes) == least);
    }
  }
}
