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

TEST_CASE("of equal layers the first and the last node of each kind are tried, and an output that is read") {
  const Problem p = layers(6);
  Plan kept;
  complete(p, kept);
  const std::vector<Plan> more = one_more(p, kept);
  // The first and the last product, which nobody needs so that the plan stays what it is; two activations; the output.
  REQUIRE(more.size() == 5);
  const auto has = [](const std::vector<Plan>& plans, const Plan& plan) {
    return std::any_of(plans.begin(), plans.end(), [&](const Plan& x) { return x.recompute == plan.recompute; });
  };
  for (const uint32_t n : {0u, 1u, 9u, 10u, 11u}) CHECK(has(more, with(p, kept, n)));
  const Plan output = with(p, kept, 11);
  CHECK(output.cost == 103);  // with the product that it reads
  CHECK(output.saved_bytes == kept.saved_bytes);
  const std::vector<Plan> less = one_less(p, output);
  REQUIRE(less.size() == 2);
  CHECK(has(less, kept));  // the product runs for it alone
  CHECK(has(less, without(p, output, 10)));
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
