// SPDX-License-Identifier: Apache-2.0
// Plans of chains against all plans that there are.
#include "chain.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "random_cases.hpp"

using namespace tessera::remat;

TEST_CASE("plans of a chain equal the best of all plans at every peak") {
  std::mt19937 random(12);
  size_t mixed = 0;
  for (int round = 0; round < 1000; ++round) {
    const Case c = random_chain(random, std::uniform_int_distribution<int>(1, 4)(random));
    const size_t nodes = c.problem.nodes.size();
    if (nodes > 8) continue;
    const Separators separators = find_separators(c.schedule, nodes);
    struct Point {
      int64_t cost, peak;
    };
    std::vector<Point> found;
    for (const Plan& plan : chain_plans(c.problem, c.schedule, separators, 1000)) {
      found.push_back({plan.cost, peak_bytes(c.schedule, plan)});
      mixed += plan.cost > 0 && plan.saved_bytes > 0;
    }
    REQUIRE_FALSE(found.empty());
    for (uint32_t bits = 0; bits < 1u << nodes; ++bits) {
      Plan plan;
      for (size_t n = 0; n < nodes; ++n) plan.recompute.push_back(bits >> n & 1);
      complete(c.problem, plan);
      const int64_t peak = peak_bytes(c.schedule, plan);
      INFO("problem " << round << ", plan " << bits << " of cost " << plan.cost << " and peak " << peak);
      REQUIRE(std::any_of(found.begin(), found.end(), [&](const Point& x) { return x.cost <= plan.cost && x.peak <= peak; }));
    }
  }
  CHECK(mixed > 500);
}

TEST_CASE("of equal layers, the earlier ones keep less") {
  // A layer keeps its end, of 1 unit; what is wide inside takes 8. With room for five wide ones, those of the other layers are
  // computed again, one at a time, in the room of what later layers have let go.
  constexpr uint32_t kLayers = 16;
  Case c;
  for (uint32_t l = 0; l < kLayers; ++l)
    for (uint32_t k = 0; k < 2; ++k) {
      const uint32_t n = 2 * l + k;
      Node node;
      node.cost = k == 0 ? 1000 : 10;
      node.must_save = k == 1;
      if (n > 0) node.inputs.push_back(n - 1);
      c.problem.nodes.push_back(node);
      c.problem.values.push_back({n, k == 0 ? 8 : 1, true});
      c.schedule.item_of.push_back(n);
      c.schedule.items.push_back({false, n, node.inputs, {n}});
      c.schedule.bytes.push_back(k == 0 ? 8 : 1);
    }
  for (uint32_t n = 2 * kLayers; n-- > 0;) {
    const auto out = static_cast<uint32_t>(c.schedule.bytes.size());
    Item item{true, 0, {n}, {out}};
    if (n + 1 < 2 * kLayers) item.reads.push_back(out - 1);
    c.schedule.bytes.push_back(1);
    c.schedule.items.push_back(item);
  }
  c.schedule.outputs.assign(c.schedule.bytes.size(), 0);
  const Separators separators = find_separators(c.schedule, c.problem.nodes.size());
  const std::vector<Plan> plans = chain_plans(c.problem, c.schedule, separators, 1000);
  const int64_t room = kLayers + 5 * 8 + 2;
  int64_t least = int64_t{1} << 60;
  for (const Plan& plan : plans)
    if (peak_bytes(c.schedule, plan) <= room) least = std::min(least, plan.cost);
  CHECK(least == (kLayers - 5) * 1000);
}
