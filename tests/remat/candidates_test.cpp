// SPDX-License-Identifier: Apache-2.0
// The memory of a plan against a walk that looks at every value at every step, and the plans that a budget chooses from.
#include "candidates.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <random>

#include "random_cases.hpp"

using namespace tessera::remat;

namespace {

// The same by definition: instances of values, each with the steps at which it is written and read.
int64_t peak_by_definition(const Case& c, const Plan& plan) {
  using Instance = std::pair<uint32_t, bool>;  // value, copy
  struct Step {
    std::vector<Instance> reads, writes;
    bool fuses = false, late = false;
  };
  std::vector<Step> steps;
  std::vector<uint8_t> copied(c.problem.nodes.size(), 0);
  const auto again = [&](uint32_t v) { return v < c.problem.values.size() && plan.recompute[c.problem.values[v].node]; };
  const std::function<bool(uint32_t)> needed = [&](uint32_t n) {  // by the forward half
    if (!plan.recompute[n] || c.schedule.outputs[n]) return true;
    for (uint32_t m = n + 1; m < c.problem.nodes.size(); ++m) {
      const auto& in = c.problem.nodes[m].inputs;
      if (std::find(in.begin(), in.end(), n) != in.end() && needed(m)) return true;
    }
    return false;
  };
  const std::function<void(uint32_t)> copy = [&](uint32_t n) {
    if (copied[n]++) return;
    std::vector<uint32_t> inputs = c.problem.nodes[n].inputs;
    std::sort(inputs.begin(), inputs.end());
    for (const uint32_t v : inputs)
      if (again(v)) copy(v);
  };
  for (const Item& item : c.schedule.items) {
    Step s;
    if (!item.backward) {
      if (!needed(item.node)) continue;
      for (const uint32_t v : item.reads) s.reads.push_back({v, false});
      for (const uint32_t v : item.writes) s.writes.push_back({v, false});
    } else {
      std::vector<uint8_t> before = copied;
      for (const uint32_t v : item.reads)
        if (again(v)) copy(v);
      for (uint32_t n = 0; n < copied.size(); ++n) {
        if (!copied[n] || before[n]) continue;
        Step made;
        made.fuses = c.schedule.items[c.schedule.item_of[n]].fuses;
        made.late = true;
        for (const uint32_t v : c.problem.nodes[n].inputs) made.reads.push_back({v, again(v)});
        made.writes.push_back({n, true});
        steps.push_back(made);
      }
      for (const uint32_t v : item.reads) s.reads.push_back({v, again(v)});
      for (const uint32_t v : item.writes) s.writes.push_back({v, false});
    }
    s.fuses = item.fuses;
    s.late = item.backward;
    steps.push_back(s);
  }
  // Whether one kernel may hold all steps from one to another.
  const auto in_a_row = [&](size_t from, size_t to) {
    for (size_t u = from; u <= to; ++u)
      if (!steps[u].fuses || steps[u].late != steps[from].late) return false;
    return true;
  };
  int64_t most = 0;
  for (size_t t = 0; t < steps.size(); ++t) {
    int64_t now = 0;
    std::map<Instance, size_t> written;
    for (size_t u = 0; u <= t; ++u)
      for (const Instance& i : steps[u].writes) written[i] = u;
    for (const auto& [instance, at] : written) {
      bool live = at == t, passes = steps[at].fuses;
      for (size_t u = at; u < steps.size(); ++u)
        if (std::find(steps[u].reads.begin(), steps[u].reads.end(), instance) != steps[u].reads.end())
          passes = passes && in_a_row(at, u);
      if (passes) continue;
      for (size_t u = t; u < steps.size(); ++u)
        live |= std::find(steps[u].reads.begin(), steps[u].reads.end(), instance) != steps[u].reads.end();
      if (live) now += c.schedule.bytes[instance.first];
    }
    most = std::max(most, now);
  }
  return most;
}

// Nodes of one value each, which the next one reads, and the backward half from the last to the first.
Case chain(uint32_t nodes, const std::function<int64_t(uint32_t)>& cost) {
  constexpr int64_t kBytes = 1000;
  Case c;
  for (uint32_t n = 0; n < nodes; ++n) {
    Node node;
    node.cost = cost(n);
    if (n > 0) node.inputs.push_back(n - 1);
    c.problem.values.push_back({n, kBytes, true});
    c.schedule.item_of.push_back(n);
    c.schedule.items.push_back({false, n, node.inputs, {n}});
    c.schedule.bytes.push_back(kBytes);
    c.problem.nodes.push_back(std::move(node));
  }
  for (uint32_t n = nodes; n-- > 0;) {
    const auto out = static_cast<uint32_t>(c.schedule.bytes.size());
    Item item{true, 0, {n}, {out}};
    if (n + 1 < nodes) item.reads.push_back(out - 1);
    c.schedule.bytes.push_back(kBytes);
    c.schedule.items.push_back(std::move(item));
  }
  c.schedule.outputs.assign(c.schedule.bytes.size(), 0);
  return c;
}

}  // namespace

TEST_CASE("the peak of a plan is that of a walk over its steps") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Case c = random_case(random, std::uniform_int_distribution<int>(1, 9)(random));
    for (Item& i : c.schedule.items) i.fuses = round % 2 == 1 && random() % 3 != 0;
    for (int k = 0; k < 8; ++k) {
      Plan plan;
      for (size_t n = 0; n < c.problem.nodes.size(); ++n) plan.recompute.push_back(random() & 1);
      complete(c.problem, plan);
      INFO("problem " << round << ", plan " << k);
      REQUIRE(peak_bytes(c.schedule, plan) == peak_by_definition(c, plan));
    }
  }
}

TEST_CASE("candidates rise in cost, each is there once, and no plan beats the bound") {
  std::mt19937 random(8);
  for (int round = 0; round < 1000; ++round) {
    const Case c = random_case(random, std::uniform_int_distribution<int>(2, 9)(random));
    Hull hull;
    const std::vector<Candidate> found = candidates(c.problem, c.schedule, Measure::kPeak, 40, &hull);
    REQUIRE_FALSE(found.empty());
    CHECK(found.front().plan.cost == 0);
    for (size_t i = 1; i < found.size(); ++i) {
      CHECK(found[i].plan.cost >= found[i - 1].plan.cost);
      for (size_t k = 0; k < i; ++k) CHECK(found[i].plan.recompute != found[k].plan.recompute);
    }
    for (uint32_t bits = 0; bits < 1u << c.problem.nodes.size(); ++bits) {
      Plan plan;
      for (size_t n = 0; n < c.problem.nodes.size(); ++n) plan.recompute.push_back(bits >> n & 1);
      complete(c.problem, plan);
      REQUIRE(static_cast<double>(plan.cost) >= hull.bound(plan.saved_bytes) - 1e-6);
    }
  }
}

TEST_CASE("a deep chain is computed again segment by segment") {
  // Equal layers: with one segment of k layers live at a time, n / k + k activations are in memory instead of n.
  constexpr uint32_t kLayers = 64;
  const Case c = chain(kLayers, [](uint32_t) { return 100; });
  const std::vector<Candidate> found = candidates(c.problem, c.schedule, Measure::kPeak, 40, nullptr);
  CHECK(found.front().bytes >= kLayers * 1000);
  CHECK(found.back().bytes <= 22 * 1000);
  CHECK(found.size() > 8);
}

TEST_CASE("what costs little is computed again in every layer, also where the halves meet") {
  // Layers of a product and of what follows it, whose value alone is read: the last one is read at once.
  constexpr uint32_t kLayers = 4;
  const Case c = chain(2 * kLayers, [](uint32_t n) { return n % 2 == 0 ? 1000 : 1; });
  const std::vector<Candidate> found = candidates(c.problem, c.schedule, Measure::kPeak, 40, nullptr);
  CHECK(std::any_of(found.begin(), found.end(), [](const Candidate& x) { return x.plan.cost == kLayers; }));
}

TEST_CASE("plans of kinds compute one kind again, everything that costs little but one, or all up to one") {
  // Layers of a product and two nodes of different cost, all read by the backward half.
  constexpr uint32_t kLayers = 4;
  const Case c = chain(3 * kLayers, [](uint32_t n) { return n % 3 == 0 ? 1000 : n % 3; });
  const std::vector<Plan> plans = plans_of_kinds(c.problem, 12);
  const auto has = [&](std::initializer_list<uint32_t> kinds) {
    return std::any_of(plans.begin(), plans.end(), [&](const Plan& plan) {
      for (uint32_t n = 0; n < 3 * kLayers; ++n)
        if (plan.recompute[n] != (std::find(kinds.begin(), kinds.end(), n % 3) != kinds.end())) return false;
      return true;
    });
  };
  CHECK(has({0}));
  CHECK(has({1}));
  CHECK(has({2}));
  CHECK(has({1, 2}));
  CHECK(has({0, 1, 2}));
  CHECK(plans.size() == 5);  // each once: of what costs little, each without one kind is the other kind alone
  CHECK(plans_of_kinds(c.problem, 1).size() <= 3);
}

TEST_CASE("two plans are joined at separators") {
  constexpr uint32_t kLayers = 6;
  const Case c = chain(kLayers, [](uint32_t) { return 100; });
  const Separators separators = find_separators(c.schedule, kLayers);
  REQUIRE(separators.nodes.size() >= 2);
  Plan more, less;  // keeps everything, and nothing
  complete(c.problem, more);
  less.recompute.assign(kLayers, 1);
  complete(c.problem, less);
  const std::vector<Plan> plans = joined(c.problem, separators, more, less, 64);
  REQUIRE(plans.size() == separators.nodes.size());
  for (size_t i = 0; i < plans.size(); ++i)
    for (uint32_t n = 0; n < kLayers; ++n)
      CHECK(plans[i].recompute[n] == (n < separators.nodes[i] ? less.recompute[n] : more.recompute[n]));
  CHECK(joined(c.problem, {}, more, less, 64).empty());
  CHECK(joined(c.problem, separators, more, less, 1).size() == 1);
}
