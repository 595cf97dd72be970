// SPDX-License-Identifier: Apache-2.0
// The partitioners: save_all, recompute_all, policy, min_cut and budget.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bound.hpp"
#include "candidates.hpp"
#include "fill.hpp"
#include "joint.hpp"

namespace tessera::remat {
namespace {

constexpr size_t kMostPlans = 64;
constexpr size_t kFilled = 8;  // plans that keep too much, from which one that keeps just enough is looked for

// Picoseconds that keeping a byte takes: it is written in the forward half and read in the backward half.
double price_of_a_byte(const tsr_partition& p) { return 2 * p.seconds_per_byte * kPicoseconds; }

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

  // The plans of one graph, with the peaks that the host has found for them.
  class Choice {
   public:
    Choice(sdk::Graph g, const sdk::Options& options, tsr_partition& p, Measure measure)
        : p_(p),
          stride_(p.num_nodes <= kSmall    ? 1
                  : p.num_nodes <= kMedium ? 3
                                           : kStride),
          joint_(make_joint(g, p, options)) {
      const size_t most = measure == Measure::kPeak ? kMostPlans : SIZE_MAX;
      plans_ = candidates(joint_.problem, joint_.schedule, measure, most, &hull_);
      usual_ = minimum_closure(joint_.problem, price_of_a_byte(p));
      complete(joint_.problem, all_);
      where_halves_meet_ = lower_bound(joint_.problem, joint_.schedule, false);
      at_products_ = lower_bound(joint_.problem, joint_.schedule, true);
    }
    size_t size() const { return plans_.size(); }
    const Plan& usual() const { return usual_; }
    const Plan& all() const { return all_; }  // keeps everything that may be kept
    const Plan& plan(size_t i) const { return plans_[i].plan; }

    int64_t peak(const Plan& plan) {
      std::vector<uint8_t> in_backward(p_.in_backward, p_.in_backward + p_.num_nodes);
      tsr_partition trial = p_;
      trial.in_backward = in_backward.data();
      put(joint_, plan, trial);
      int64_t bytes = 0;
      sdk::check(p_.evaluate(p_.host, in_backward.data(), &bytes, nullptr));
      return bytes;
    }
    int64_t peak(size_t i) {
      const auto [at, fresh] = peaks_.try_emplace(i, 0);
      if (fresh) at->second = peak(plans_[i].plan);
      return at->second;
    }
    Plan fill_up(const Plan& plan, int64_t kept) const { return fill(joint_.problem, plan, kept); }
    // Bytes of which a plan takes no more than a budget has: its peak, or what it keeps and `besides`.
    int64_t need(const Plan& plan, int64_t peak) const {
      return besides_ < 0 ? peak : std::max(peak, plan.saved_bytes + besides_);
    }
    int64_t need(size_t i) { return need(plans_[i].plan, peak(i)); }
    void count_kept(int64_t besides) { besides_ = std::max<int64_t>(0, besides); }
    // Too far above a budget for it to be worth lowering the plan.
    bool is_far(const Plan& plan, int64_t bytes) const { return is_far(peak_bytes(joint_.schedule, plan), bytes); }
    size_t first_dearer_than(int64_t cost) const {
      size_t i = 0;
      while (i + 1 < size() && plans_[i].plan.cost < cost) ++i;
      return i;
    }
    void give(const Plan& plan, int64_t peak) {
      put(joint_, plan, p_);
      p_.peak_bytes = peak;
      if (p_.step_seconds > 0)
        p_.bound_gap = std::max(0.0, static_cast<double>(plan.cost) - bound(plan, peak)) / kPicoseconds / p_.step_seconds;
    }
    // A plan that fits, or size(): none does. Costs rise along the row, and exact peaks fall on the whole, but not from each
    // plan to the next. Lowering a plan takes as long as compiling it: of a large graph every ninth is looked at, but for those
    // whose simulated peak is far above; before the first of them that fits every third, and then each. A larger budget never
    // finds a plan of a higher cost: it begins where the smaller one begins, or before, and stops where that one stops, or
    // before.
    size_t first_within(int64_t bytes, size_t from = 0) {
      size_t to = size();
      while (from + kStride < to && is_far(from, from + kStride, bytes)) from += kStride;
      for (size_t stride = stride_; stride > 0; stride /= 3) {
        size_t at = std::min(from + stride, to) - 1;
        while (need(at) > bytes) {
          if (at + 1 == size()) return size();
          from = at + 1;
          at = std::min(from + stride, to) - 1;
        }
        to = at + 1;
      }
      return to - 1;
    }
    // For a budget that nothing fits: of the plans with the smallest simulated peaks.
    size_t smallest() {
      std::vector<size_t> by_bytes(size());
      std::iota(by_bytes.begin(), by_bytes.end(), 0);
      std::stable_sort(by_bytes.begin(), by_bytes.end(), [&](size_t a, size_t b) { return plans_[a].bytes < plans_[b].bytes; });
      for (size_t i = 0; i < std::min(size(), kStride); ++i) (void)peak(by_bytes[i]);
      return std::min_element(peaks_.begin(), peaks_.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
          ->first;
    }

   private:
    // No plan of this peak computes less again: what is kept is in memory at once when the backward half begins, beside the
    // results, and at its products beside what those read.
    double bound(const Plan& plan, int64_t peak) const {
      if (peak < 0) return hull_.bound(plan.saved_bytes);
      const int64_t bytes = std::max<int64_t>(0, peak - joint_.output_bytes);
      return std::max(
          {hull_.bound(bytes), static_cast<double>(where_halves_meet_.at(bytes)), static_cast<double>(at_products_.at(bytes))});
    }

    bool is_far(int64_t simulated, int64_t bytes) const {
      return static_cast<double>(simulated + joint_.output_bytes) > kFar * static_cast<double>(bytes);
    }
    bool is_far(size_t from, size_t to, int64_t bytes) const {
      return std::all_of(plans_.begin() + static_cast<ptrdiff_t>(from), plans_.begin() + static_cast<ptrdiff_t>(to),
                         [&](const Candidate& c) { return is_far(c.bytes, bytes); });
    }

    static constexpr size_t kStride = 9;
    static constexpr size_t kSmall = 1000, kMedium = 3000;  // nodes: each plan, or every third, is lowered in milliseconds
    static constexpr double kFar = 1.3;  // times a budget; simulated peaks, which guess what is fused, are within a quarter
    tsr_partition& p_;
    const size_t stride_;  // 9, 3 or 1
    const Joint joint_;
    Hull hull_;
    Bound where_halves_meet_, at_products_;
    std::vector<Candidate> plans_;
    Plan usual_, all_;
    int64_t besides_ = -1;
    std::map<size_t, int64_t> peaks_;
  };

  void partition(sdk::Graph g, const sdk::Options& options, tsr_partition& p) override {
    const bool of_kept = p.budget_bytes < 0 && options.get_string("share_of", "peak") == "kept";
    Choice choice(g, options, p, of_kept ? Measure::kKept : Measure::kPeak);
    if (p.budget_bytes < 0 && p.budget_fraction >= 1) return choice.give(choice.usual(), -1);
    if (of_kept) return give_share_of_kept(choice, p);
    if (p.budget_bytes < 0) return give_share(choice, p);
    const int64_t bytes = p.budget_bytes;
    size_t i = choice.first_within(bytes);
    if (i == choice.size()) {
      i = choice.smallest();
      p.feasible = choice.peak(i) <= bytes;
    }
    choice.give(choice.plan(i), choice.peak(i));
  }

  // A share of what the backward half reads: no more than that is kept, and the peak is lower by the rest. Where no plan does,
  // the one with the smallest peak. What is fastest when nothing is asked stays as long as it fits; what takes its place costs
  // more.
  static void give_share(Choice& choice, tsr_partition& p) {
    const Plan& all = choice.all();
    const int64_t most = choice.peak(all);
    const auto freed = static_cast<int64_t>(std::llround((1 - p.budget_fraction) * static_cast<double>(all.saved_bytes)));
    p.budget_bytes = most - freed;  // the host holds the compiled program to it
    choice.count_kept(most - all.saved_bytes);
    const Plan& usual = choice.usual();
    if (!choice.is_far(usual, p.budget_bytes)) {
      const int64_t usual_peak = choice.peak(usual);
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
