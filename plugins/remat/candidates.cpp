// SPDX-License-Identifier: Apache-2.0
#include "candidates.hpp"

#include <algorithm>

#include "chain.hpp"

namespace tessera::remat {

namespace {

constexpr size_t kCuts = 16, kCutsOfSegments = 6, kJoints = 12, kOfChain = 96;

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
    if (hull) *hull = std::move(whole);
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

  void join_neighbours() {
    const size_t plans = found_.size(), count = separators_.nodes.size();
    const size_t step = std::max<size_t>(1, count / kJoints);
    for (size_t i = 0; i + 1 < plans; ++i)
      for (size_t at = step - 1; at < count; at += step) {
        const Plan &more = found_[i].plan, &less = found_[i + 1].plan;
        Plan joined;
        joined.recompute = more.recompute;
        for (uint32_t n = 0; n < separators_.nodes[at]; ++n) joined.recompute[n] = less.recompute[n];
        complete(p_, joined);
        add(std::move(joined));
      }
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

}  // namespace tessera::remat
