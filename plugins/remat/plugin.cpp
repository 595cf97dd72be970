// SPDX-License-Identifier: Apache-2.0
// The partitioners: save_all, recompute_all, policy, min_cut and budget.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include "choice.hpp"
#include "closure.hpp"

namespace tessera::remat {
namespace {

constexpr size_t kFilled = 8;  // plans that keep too much, from which one that keeps just enough is looked for

void no_budget(const char* name, const tsr_partition& p) {
  if (p.budget_bytes < 0 && p.budget_fraction >= 1) return;
  throw sdk::Error(TSR_USER, "TSR-A013", std::string("partitioner '") + name + "' takes no budget",
                   "partitioner.name = \"budget\" keeps to one");
}

class SaveAll final : public sdk::Partitioner {
 public:
  explicit SaveAll(const char* name, const char* summary) : name_(name), summary_(summary) {}
  const char* summary() const override { return summary_; }
  void partition(sdk::Graph g, const sdk::Options& options, tsr_partition& p) override {
    no_budget(name_, p);
    const Joint joint = make_joint(g, p, options);
    Plan plan;
    complete(joint.problem, plan);
    put(joint, plan, p);
  }

 private:
  const char *name_, *summary_;
};

class RecomputeAll final : public sdk::Partitioner {
  const char* summary() const override {
    return "Computes everything again that may be, and keeps the program's inputs alone.";
  }
  void partition(sdk::Graph g, const sdk::Options& options, tsr_partition& p) override {
    no_budget("recompute_all", p);
    const Joint joint = make_joint(g, p, options);
    Plan plan;
    plan.recompute.assign(joint.problem.nodes.size(), 1);
    complete(joint.problem, plan);
    put(joint, plan, p);
  }
};

class MinCut final : public sdk::Partitioner {
  const char* summary() const override {
    return "Computes again what takes less time than writing and reading it; exact, by a minimum cut.";
  }
  void partition(sdk::Graph g, const sdk::Options& options, tsr_partition& p) override {
    no_budget("min_cut", p);
    const Joint joint = make_joint(g, p, options);
    put(joint, minimum_closure(joint.problem, price_of_a_byte(p)), p);
    p.bound_gap = 0;
  }
};

class Budget final : public sdk::Partitioner {
  const char* summary() const override { return "Computes as little again as a budget of memory at the peak allows."; }

  void partition(sdk::Graph g, const sdk::Options& options, tsr_partition& p) override {
    const bool of_kept = p.budget_bytes < 0 && options.get_string("share_of", "peak") == "kept";
    Choice choice(g, options, p, of_kept ? Measure::kKept : Measure::kPeak);
    if (p.budget_bytes < 0 && p.budget_fraction >= 1) return choice.give(choice.usual(), -1);
    if (of_kept) return give_share_of_kept(choice, p);
    if (p.budget_bytes < 0) return give_share(choice, p);
    give_within(choice, p);
  }

  static void give_within(Choice& choice, tsr_partition& p) {
    const int64_t bytes = p.budget_bytes;
    const bool small = choice.is_small();
    // A budget that is met anyway changes nothing, even where computing something again is faster.
    if (small && !choice.is_far(choice.all(), bytes))
      if (const int64_t peak = choice.peak(choice.all()); peak <= bytes) return choice.give(choice.all(), peak);
    size_t i = small ? choice.fastest_within(bytes) : choice.first_within(bytes);
    if (i == choice.size()) {
      i = choice.smallest();
      p.feasible = choice.peak(i) <= bytes;
    }
    small ? choice.give_as_lowered(i) : choice.give(choice.plan(i), choice.peak(i));
  }

  // A share of what the backward half reads: no more than that is kept, and the peak is lower by the rest. Where no plan does,
  // the one with the smallest peak. What is fastest when nothing is asked stays as long as it fits; what takes its place costs
  // more.
  static void give_share(Choice& choice, tsr_partition& p) {
    const Plan &all = choice.all(), &usual = choice.usual();
    // Whether the second one is needed is known when the first one is.
    const auto [most, peak_of_usual] =
        choice.is_side_by_side() ? choice.peaks(all, usual) : std::pair(choice.peak(all), int64_t{-1});
    const auto freed = static_cast<int64_t>(std::llround((1 - p.budget_fraction) * static_cast<double>(all.saved_bytes)));
    p.budget_bytes = most - freed;  // the host holds the compiled program to it
    choice.count_kept(most - all.saved_bytes);
    if (!choice.is_far(usual, p.budget_bytes)) {
      const int64_t usual_peak = peak_of_usual < 0 ? choice.peak(usual) : peak_of_usual;
      if (choice.need(usual, usual_peak) <= p.budget_bytes) return choice.give(usual, usual_peak);
    }
    size_t i = choice.first_within(p.budget_bytes, choice.first_dearer_than(usual.cost));
    if (i == choice.size()) i = choice.smallest();
    choice.give(choice.plan(i), choice.peak(i));
    p.budget_bytes = std::max(p.budget_bytes, choice.peak(i));
  }

  // A share of what the backward half reads, whatever the peak is: no plan is lowered.
  static void give_share_of_kept(Choice& choice, tsr_partition& p) {
    const auto most = static_cast<int64_t>(p.budget_fraction * static_cast<double>(choice.all().saved_bytes));
    Plan best = choice.usual();
    if (best.saved_bytes > most) {
      const auto better = [&](const Plan& a, const Plan& b) {
        if ((a.saved_bytes <= most) != (b.saved_bytes <= most)) return a.saved_bytes <= most;
        return a.saved_bytes <= most ? a.cost < b.cost : a.saved_bytes < b.saved_bytes;
      };
      size_t first = 0;  // that keeps little enough
      while (first < choice.size() && choice.plan(first).saved_bytes > most) ++first;
      if (first < choice.size()) best = choice.plan(first);
      for (size_t i = first - std::min(first, kFilled); i < first; ++i)
        if (Plan plan = choice.fill_up(choice.plan(i), most); better(plan, best)) best = std::move(plan);
    }
    choice.give(best, -1);
  }

  void front(sdk::Graph g, const sdk::Options& options, tsr_partition& p,
             const std::function<void(const tsr_partition&)>& each) override {
    Choice choice(g, options, p, Measure::kPeak);
    choice.is_small() ? front_as_lowered(choice, p, each) : front_by_cost(choice, p, each);
  }

  static void front_as_lowered(Choice& choice, tsr_partition& p, const std::function<void(const tsr_partition&)>& each) {
    int64_t last = choice.peak(choice.all());
    choice.give(choice.all(), last);
    each(p);
    for (const size_t i : choice.fastest_of_each_peak()) {
      if (choice.peak(i) >= last) continue;
      last = choice.peak(i);
      choice.give_as_lowered(i);
      each(p);
    }
  }

  static void front_by_cost(Choice& choice, tsr_partition& p, const std::function<void(const tsr_partition&)>& each) {
    for (size_t i = 0, last = 0; i < choice.size(); ++i) {
      if (i > 0 && choice.peak(i) >= choice.peak(last)) continue;  // costs more for no less memory
      last = i;
      choice.give(choice.plan(i), choice.peak(i));
      each(p);
    }
  }
};

}  // namespace
}  // namespace tessera::remat

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  namespace r = tessera::remat;
  plugin.add_partitioner("save_all",
                         std::make_unique<r::SaveAll>("save_all", "Keeps every activation that the backward half reads."));
  plugin.add_partitioner("policy",
                         std::make_unique<r::SaveAll>("policy", "Computes again what its list says, and keeps the rest."));
  plugin.add_partitioner("recompute_all", std::make_unique<r::RecomputeAll>());
  plugin.add_partitioner("min_cut", std::make_unique<r::MinCut>());
  plugin.add_partitioner("budget", std::make_unique<r::Budget>());
}
