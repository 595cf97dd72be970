// SPDX-License-Identifier: Apache-2.0
#include "neighbours.hpp"

#include <map>
#include <tuple>

namespace tessera::remat {

namespace {

// The last node of each kind among those that `which` names.
template <class Which>
std::vector<uint32_t> last_of_each_kind(const Problem& p, const Which& which) {
  std::vector<int64_t> bytes(p.nodes.size(), 0);
  std::vector<uint8_t> read(p.nodes.size(), 0);
  for (const Value& v : p.values) {
    bytes[v.node] += v.bytes;
    read[v.node] |= v.read;
  }
  using Kind = std::tuple<int64_t, int64_t, bool>;  // cost, bytes, whether it is read
  std::map<Kind, uint32_t> last;
  for (uint32_t n = 0; n < p.nodes.size(); ++n)
    if ((bytes[n] > 0 || read[n]) && which(n, bytes[n])) last[{p.nodes[n].cost, bytes[n], read[n]}] = n;
  std::vector<uint32_t> out;
  for (const auto& [kind, n] : last) out.push_back(n);
  return out;
}

}  // namespace

Plan with(const Problem& p, const Plan& plan, uint32_t node) {
  Plan out;
  out.recompute = plan.recompute;
  std::vector<uint32_t> stack{node};
  while (!stack.empty()) {
    const uint32_t n = stack.back();
    stack.pop_back();
    if (p.nodes[n].must_save || (out.recompute[n] && n != node)) continue;
    out.recompute[n] = 1;
    for (const uint32_t v : p.nodes[n].inputs)
      if (!plan.saved[v]) stack.push_back(p.values[v].node);
  }
  complete(p, out);
  return out;
}

Plan without(const Problem& p, const Plan& plan, uint32_t node) {
  Plan out;
  out.recompute = plan.recompute;
  out.recompute[node] = 0;
  complete(p, out);
  return out;
}

std::vector<Plan> one_more(const Problem& p, const Plan& plan, int64_t bytes) {
  const auto may = [&](uint32_t n, int64_t of_node) {
    return !plan.recompute[n] && !p.nodes[n].must_save && (of_node == 0 || of_node >= bytes);
  };
  std::vector<Plan> out;
  for (const uint32_t n : last_of_each_kind(p, may)) out.push_back(with(p, plan, n));
  return out;
}

std::vector<Plan> one_less(const Problem& p, const Plan& plan) {
  const auto may = [&](uint32_t n, int64_t) { return plan.recompute[n] && !p.nodes[n].must_recompute; };
  std::vector<Plan> out;
  for (const uint32_t n : last_of_each_kind(p, may)) out.push_back(without(p, plan, n));
  return out;
}

}  // namespace tessera::remat
