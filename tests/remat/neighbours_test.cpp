// SPDX-License-Identifier: Apache-2.0
// Plans one decision away from another.
#include "neighbours.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "random_cases.hpp"

namespace tessera::remat {
namespace {

size_t runs_again(const Plan& plan) { return static_cast<size_t>(std::count(plan.recompute.begin(), plan.recompute.end(), 1)); }

// Equal layers of a product, which nobody keeps, and an activation, which the backward half reads. The output of the last layer
// is the caller's: it takes no bytes.
Problem layers(size_t count) {
  Problem p;
  for (size_t k = 0; k < count; ++k) {
    const auto product = static_cast<uint32_t>(p.nodes.size());
    p.nodes.push_back({100, false, false, false, {}});
    if (k > 0) p.nodes.back().inputs.push_back(static_cast<uint32_t>(p.values.size() - 1));
    p.values.push_back({product, 64, false});
    p.nodes.push_back({3, false, false, true, {static_cast<uint32_t>(p.values.size() - 1)}});
    p.values.push_back({product + 1, k + 1 == count ? 0 : 64, true});
  }
  return p;
}

TEST_CASE("of equal layers the last node of each kind is tried, and an output that is read") {
  const Problem p = layers(6);
  Plan kept;
  complete(p, kept);
  const auto are = [](const std::vector<Plan>& plans, const std::vector<Plan>& expected) {
    return std::equal(plans.begin(), plans.end(), expected.begin(), expected.end(),
                      [](const Plan& x, const Plan& y) { return x.recompute == y.recompute; });
  };
  // By cost: the output, which gives no bytes, an activation, a product.
  CHECK(are(one_more(p, kept, 64), {with(p, kept, 11), with(p, kept, 9), with(p, kept, 10)}));
  CHECK(are(one_more(p, kept, 65), {with(p, kept, 11)}));
  const Plan output = with(p, kept, 11);
  CHECK(output.cost == 103);  // with the product that it reads
  CHECK(output.saved_bytes == kept.saved_bytes);
  CHECK(are(one_less(p, output), {kept, without(p, output, 10)}));  // the product runs for the output alone
}

TEST_CASE("a neighbour is a whole plan, and differs by its node and what hangs on it") {
  std::mt19937 random(11);
  size_t more = 0, less = 0;
  for (int round = 0; round < 300; ++round) {
    const Problem p = random_case(random, 12).problem;
    Plan plan;
    for (size_t n = 0; n < p.nodes.size(); ++n) plan.recompute.push_back(random() % 3 == 0);
    complete(p, plan);
    const auto is_whole = [&](const Plan& x) {
      Plan again;
      again.recompute = x.recompute;
      complete(p, again);
      return again.recompute == x.recompute && again.saved_bytes == x.saved_bytes && again.cost == x.cost;
    };
    for (uint32_t n = 0; n < p.nodes.size(); ++n) {
      if (plan.recompute[n]) {
        const Plan x = without(p, plan, n);
        CHECK(is_whole(x));
        CHECK(!x.recompute[n]);
        CHECK(x.cost < plan.cost);
        for (size_t k = 0; k < p.nodes.size(); ++k) CHECK((!x.recompute[k] || plan.recompute[k]));
        ++less;
      } else if (!p.nodes[n].must_save) {
        const Plan x = with(p, plan, n);
        CHECK(is_whole(x));
        if (p.values[n].read) {
          CHECK(x.recompute[n]);
          CHECK(runs_again(x) > runs_again(plan));
        }
        for (size_t k = 0; k < p.nodes.size(); ++k) CHECK((!plan.recompute[k] || x.recompute[k]));
        ++more;
      }
    }
  }
  CHECK(more > 500);
  CHECK(less > 500);
}

}  // namespace
}  // namespace tessera::remat
