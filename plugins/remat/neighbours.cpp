// SPDX-License-Identifier: Apache-2.0
#include "neighbours.hpp"

#include <map>
#include <tuple>
#include <utility>

namespace tessera::remat {

namespace {

// The first and the last node of each kind among those that `which` names.
template <class Which>
std::vector<uint32_t> ends_of_kinds(const Problem& p, const Which& which) {
  std::vector<int64_t> bytes(p.nodes.size(), 0);
  std::vector<uint8_t> read(p.nodes.size(), 0);
  for (const Value& v : p.values) {
    bytes[v.node] += v.bytes;
    read[v.node] |= v.read;
  }
  using Kind = std::tuple<int64_t, int64_t, bool>;  // cost, bytes, whether it is read
  std::map<Kind, std::pair<uint32_t, uint32_t>> ends;
  for (uint32_t n = 0; n < p.nodes.size(); ++n)
    if (which(n) && (bytes[n] > 0 || read[n]))
      ends.try_emplace({p.nodes[n].cost, bytes[n], read[n]}, n, n).first->second.second = n;
  std::vector<uint32_t> out;
  for (const auto& [kind, of_kind] : ends) {
    out.push_back(of_kind.first);
    if (of_kind.second != of_kind.first) out.push_back(of_kind.second);
  }
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

std::vector<Plan> one_more(const Problem& p, const Plan& plan) {
  std::vector<Plan> out;
  for (const uint32_t n : ends_of_kinds(p, [&](uint32_t n) { return !plan.recompute[n] && !p.nodes[n].must_save; }))
    out.push_back(with(p, plan, n));
  return out;
}

std::vector<Plan> one_less(const Problem& p, const Plan& plan) {
  std::vector<Plan> out;
  for (const uint32_t n : ends_of_kinds(p, [&](uint32_t n) { return plan.recompute[n] && !p.nodes[n].must_recompute; }))
    out.push_back(without(p, plan, n));
  return out;
}

}  // namespace tessera::remat
