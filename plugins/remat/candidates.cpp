// SPDX-License-Identifier: Apache-2.0
#include "candidates.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "chain.hpp"
#include "closure.hpp"

namespace tessera::remat {

namespace {

constexpr double kAnyPrice = 1e9;  // picoseconds a byte: whatever it takes
constexpr double kNear = 1.3;      // times a peak: what simulated ones may be off
constexpr size_t kCuts = 16, kCutsOfSegments = 6, kJoints = 12, kJointsOfCuts = 8, kThresholds = 6, kOfChain = 96;

// Costs behind which the next one is furthest away, as those of products and of what stands between them; the furthest first.
std::vector<int64_t> thresholds(const Problem& p) {
  std::vector<int64_t> costs;
  for (const Node& n : p.nodes)
    if (!n.must_save && !n.must_recompute) costs.push_back(n.cost);
  std::sort(costs.begin(), costs.end());
  costs.erase(std::unique(costs.begin(), costs.end()), costs.end());
  std::vector<std::pair<double, int64_t>> gaps;  // how many times the next cost is, negative; and the one below it
  for (size_t i = 0; i < costs.size(); ++i)
    gaps.emplace_back(i + 1 == costs.size()
                          ? -HUGE_VAL
                          : -static_cast<double>(costs[i + 1]) / static_cast<double>(std::max<int64_t>(1, costs[i])),
                      costs[i]);
  std::sort(gaps.begin(), gaps.end());
  std::vector<int64_t> out;
  for (size_t i = 0; i < std::min(gaps.size(), kThresholds); ++i) out.push_back(gaps[i].second);
  return out;
}

Plan joined_at(const Problem& p, const Separators& separators, const Plan& late, const Plan& early, size_t at) {
  Plan out;
  out.recompute = late.recompute;
  for (uint32_t n = 0; n < separators.nodes[at]; ++n) out.recompute[n] = early.recompute[n];
  complete(p, out);
  return out;
}

class Search {
 public:
  Search(const Problem& p, const Schedule& s, Measure measure)
      : p_(p), s_(s), measure_(measure), separators_(find_separators(s, p.nodes.size())) {}

  std::vector<Candidate> run(size_t most, Hull* hull) {
    Plan all;  // what must not be kept is computed again; everything else is kept
    complete(p_, all);
    add(std::move(all));
    Hull whole = lower_hull(p_, kCuts);
    for (const Plan& plan : whole.plans) add(plan);
    const size_t count = separators_.nodes.size();
    for (size_t k = 1; k < count; k = k < 4 ? k + 1 : k + k / 2) {
      std::vector<uint8_t> keep = separators_.anywhere;
      for (size_t i = count; i-- > 0;)
        if ((count - 1 - i) % k == k - 1) keep[separators_.nodes[i]] = 1;
      for (const Plan& plan : lower_hull(p_, kCutsOfSegments, keep).plans) add(plan);
    }
    keep_the_best();
    join_neighbours();
    for (Plan& plan : chain_plans(p_, s_, separators_, kOfChain)) add(std::move(plan));
    keep_the_best();
    thin(most);
    if (measure_ == Measure::kPeak) {
      add_what_keeps_less(whole);
      add_what_costs_little();
      std::stable_sort(found_.begin(), found_.end(),
                       [](const Candidate& x, const Candidate& y) { return x.plan.cost < y.plan.cost; });
    }
    if (hull) *hull = std::move(whole);
    return std::move(found_);
  }

 private:
  void add(Plan plan) {
    Candidate c{std::move(plan), 0};
    c.bytes = measure_ == Measure::kKept ? c.plan.saved_bytes : peak_bytes(s_, c.plan);
    found_.push_back(std::move(c));
  }

  void keep_the_best() {
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      return a.plan.cost != b.plan.cost ? a.plan.cost < b.plan.cost : a.bytes < b.bytes;
    });
    std::vector<Candidate> best;
    for (Candidate& c : found_)
      if (best.empty() || c.bytes < best.back().bytes) best.push_back(std::move(c));
    found_ = std::move(best);
  }

  // The earlier layers, whose backward comes last, by the plan that keeps less.
  void join_neighbours() {
    const size_t plans = found_.size();
    for (size_t i = 0; i + 1 < plans; ++i)
      for (Plan& plan : joined(p_, separators_, found_[i].plan, found_[i + 1].plan, kJoints)) add(std::move(plan));
  }

  // The plans, and what joining each with the next one at some separators gives.
  std::vector<Plan> joined_pairs(const std::vector<Plan>& plans) const {
    std::vector<Plan> out = plans;
    for (size_t i = 0; i + 1 < plans.size(); ++i)
      for (Plan& plan : joined(p_, separators_, plans[i], plans[i + 1], kJointsOfCuts)) out.push_back(std::move(plan));
    return out;
  }

  // Peaks are simulated, and a plan that keeps less than all cheaper ones may have a lower one when it is lowered.
  void add_what_keeps_less(const Hull& whole) {
    std::vector<Plan> plans = joined_pairs(whole.plans);
    std::stable_sort(plans.begin(), plans.end(), [](const Plan& x, const Plan& y) {
      return x.cost != y.cost ? x.cost < y.cost : x.saved_bytes < y.saved_bytes;
    });
    int64_t least_kept = INT64_MAX;
    for (const Plan& plan : plans) {
      if (plan.saved_bytes >= least_kept) continue;
      least_kept = plan.saved_bytes;
      const int64_t bytes = peak_bytes(s_, plan);
      if (is_far_above(bytes, plan.cost)) continue;
      const auto worse = [&](const Candidate& c) {
        return c.plan.cost <= plan.cost && c.bytes <= bytes && c.plan.saved_bytes <= plan.saved_bytes;
      };
      if (std::none_of(found_.begin(), found_.end(), worse)) found_.push_back({plan, bytes});
    }
  }

  // Of every layer all is computed again that costs no more than a threshold, where less is kept for it. The simulation sees
  // no use in computing again what is read at once where the halves meet; once fused with its reader, it takes no memory at
  // all. Two of these plans are joined like others.
  void add_what_costs_little() {
    std::vector<Plan> plans;
    for (const int64_t threshold : thresholds(p_)) {
      std::vector<uint8_t> keep;
      for (const Node& n : p_.nodes) keep.push_back(n.cost > threshold && !n.must_recompute);
      plans.push_back(minimum_closure(p_, kAnyPrice, keep));
    }
    std::sort(plans.begin(), plans.end(), [](const Plan& x, const Plan& y) { return x.cost < y.cost; });
    for (const Plan& plan : joined_pairs(plans)) {
      const int64_t bytes = peak_bytes(s_, plan);
      const auto same = [&](const Candidate& c) { return c.plan.recompute == plan.recompute; };
      if (!is_far_above(bytes, plan.cost) && std::none_of(found_.begin(), found_.end(), same)) found_.push_back({plan, bytes});
    }
  }

  // Than the peaks of plans that cost no more.
  bool is_far_above(int64_t bytes, int64_t cost) const {
    return std::any_of(found_.begin(), found_.end(), [&](const Candidate& c) {
      return c.plan.cost <= cost && static_cast<double>(bytes) > kNear * static_cast<double>(c.bytes);
    });
  }

  // Leaves out plans whose bytes lie close to those of others.
  void thin(size_t most) {
    if (found_.size() <= most || most < 2) return;
    const double first = static_cast<double>(found_.front().bytes), last = static_cast<double>(found_.back().bytes);
    std::vector<Candidate> kept;
    for (size_t i = 0; i < found_.size(); ++i) {
      const double due = first + (last - first) * static_cast<double>(kept.size()) / static_cast<double>(most - 1);
      if (static_cast<double>(found_[i].bytes) <= due || i + 1 == found_.size()) kept.push_back(std::move(found_[i]));
    }
    found_ = std::move(kept);
  }

  const Problem& p_;
  const Schedule& s_;
  const Measure measure_;
  const Separators separators_;
  std::vector<Candidate> found_;
};

}  // namespace

std::vector<Candidate> candidates(const Problem& problem, const Schedule& schedule, Measure measure, size_t most, Hull* hull) {
  return Search(problem, schedule, measure).run(most, hull);
}

std::vector<Plan> joined(const Problem& p, const Separators& separators, const Plan& late, const Plan& early, size_t most) {
  const size_t count = separators.nodes.size(), step = std::max<size_t>(1, count / most);
  std::vector<Plan> out;
  for (size_t at = step - 1; at < count; at += step) out.push_back(joined_at(p, separators, late, early, at));
  return out;
}

std::vector<Plan> plans_of_kinds(const Problem& p, size_t most) {
  using Kind = std::pair<int64_t, int64_t>;  // cost, bytes
  std::vector<Kind> kind_of;
  for (const Node& n : p.nodes) kind_of.emplace_back(n.cost, 0);
  for (const Value& v : p.values) kind_of[v.node].second += v.bytes;
  std::map<Kind, int64_t> bytes;
  for (size_t n = 0; n < p.nodes.size(); ++n)
    if (!p.nodes[n].must_save && !p.nodes[n].must_recompute && kind_of[n].second > 0) bytes[kind_of[n]] += kind_of[n].second;
  std::vector<std::pair<int64_t, Kind>> kinds;
  for (const auto& [kind, sum] : bytes) kinds.emplace_back(-sum, kind);
  std::sort(kinds.begin(), kinds.end());
  if (kinds.size() > most) kinds.resize(most);
  // Those of the furthest gap but one: the furthest lies behind all of them.
  const std::vector<int64_t> gaps = thresholds(p);
  const int64_t little = gaps.empty() ? 0 : gaps[std::min<size_t>(1, gaps.size() - 1)];
  std::vector<Plan> out;
  const auto add = [&](const std::vector<uint8_t>& keep) {
    Plan plan = minimum_closure(p, kAnyPrice, keep);
    const auto same = [&](const Plan& other) { return other.recompute == plan.recompute; };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(std::move(plan));
  };
  for (const auto& [sum, kind] : kinds) {
    std::vector<uint8_t> but_it, but_little_without_it, but_no_dearer;  // what is kept
    for (size_t n = 0; n < p.nodes.size(); ++n) {
      const bool may_keep = !p.nodes[n].must_recompute, of_it = kind_of[n] == kind;
      but_it.push_back(may_keep && !of_it);
      but_little_without_it.push_back(may_keep && (of_it || p.nodes[n].cost > little));
      but_no_dearer.push_back(may_keep && p.nodes[n].cost > kind.first);
    }
    add(but_it);
    if (kind.first <= little) add(but_little_without_it);
    add(but_no_dearer);
  }
  return out;
}

}  // namespace tessera::remat
