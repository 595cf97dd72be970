// SPDX-License-Identifier: Apache-2.0
#include "fill.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "neighbours.hpp"

namespace tessera::remat {

namespace {

constexpr size_t kMostTried = 64;  // nodes in one step
constexpr size_t kMostAlike = 4;   // of them, of one cost and size: what they read may differ

// Nodes that could run again, by what they cost for each byte that they save by themselves.
std::vector<uint32_t> tried(const Problem& p, const Plan& plan) {
  std::vector<int64_t> saved(p.nodes.size(), 0);
  for (size_t v = 0; v < p.values.size(); ++v)
    if (plan.saved[v]) saved[p.values[v].node] += p.values[v].bytes;
  std::vector<std::pair<double, uint32_t>> order;
  std::map<std::pair<int64_t, int64_t>, size_t> alike;
  for (size_t n = p.nodes.size(); n-- > 0;)  // backward begins with the last ones: what runs again for it goes away soon
    if (saved[n] > 0 && !plan.recompute[n] && !p.nodes[n].must_save && alike[{p.nodes[n].cost, saved[n]}]++ < kMostAlike)
      order.emplace_back(static_cast<double>(p.nodes[n].cost) / static_cast<double>(saved[n]), static_cast<uint32_t>(n));
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<uint32_t> nodes;
  for (size_t i = 0; i < std::min(order.size(), kMostTried); ++i) nodes.push_back(order[i].second);
  return nodes;
}

}  // namespace

Plan fill(const Problem& problem, Plan plan, int64_t bytes) {
  Plan done;
  bool found = false;
  while (plan.saved_bytes > bytes) {
    Plan next;
    double best = 0;
    for (const uint32_t n : tried(problem, plan)) {
      Plan trial = with(problem, plan, n);
      const int64_t freed = plan.saved_bytes - trial.saved_bytes;
      if (freed <= 0) continue;
      if (trial.saved_bytes <= bytes) {
        if (!found || trial.cost < done.cost) done = std::move(trial);
        found = true;
        continue;
      }
      const double price = static_cast<double>(trial.cost - plan.cost) / static_cast<double>(freed);
      if (next.recompute.empty() || price < best) {
        next = std::move(trial);
        best = price;
      }
    }
    if (next.recompute.empty() || (found && next.cost >= done.cost)) break;
    plan = std::move(next);
  }
  return found ? done : plan;
}

}  // namespace tessera::remat
