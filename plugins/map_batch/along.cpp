// SPDX-License-Identifier: Apache-2.0
#include "along.hpp"

#include <algorithm>
#include <string_view>

namespace tessera::map_batch {

namespace t = tessera::sdk;

namespace {

constexpr size_t kMost = 512;  // nodes that are looked at

// Made in less time than its result is read from memory.
bool is_cheap(const t::Node& n) {
  if (n.num_results() != 1 || !n.regions().empty() || n.is("constant")) return false;
  if (n.num_operands() == 0 || n.is("full")) return true;
  static constexpr std::string_view traits[] = {"quick", "view", "rearranges"};
  return std::any_of(std::begin(traits), std::end(traits),
                     [&](std::string_view x) { return t::Graph(n.g).has_trait(n.raw().op, x); });
}

bool is_pointwise(const t::Node& n) {
  static constexpr std::string_view traits[] = {"elementwise", "view"};
  return std::any_of(std::begin(traits), std::end(traits),
                     [&](std::string_view x) { return t::Graph(n.g).has_trait(n.raw().op, x); });
}

int64_t head_of(t::Type queries, t::Type keys, int64_t key_axis) {
  return queries.rank() < 2 ? -1 : queries.size(-2) * keys.size(key_axis);
}

}  // namespace

Along::Along(const Part& part) {
  for (const Part::Member& m : part.members) inside_.insert(m.node.id);
  for (const Part::Member& m : part.members) {
    const t::Node& n = m.node;
    const t::Type type = n.operand(0).type();
    if (n.is("softmax"))
      walk(n.operand(0), head_of(type, type, -1));
    else if (n.is("attention") && n.has_operand(3))
      walk(n.operand(3), head_of(type, n.operand(1).type(), -2));
  }
}

void Along::walk(t::Value v, int64_t head) {
  if (head <= 0 || scores_.size() > kMost || !scores_.emplace(v.id, head).second) return;
  const t::Node n = v.def();
  if (!n || !inside_.count(n.id) || !is_pointwise(n)) return;
  for (uint32_t i = 0; i < n.num_operands(); ++i)
    if (n.has_operand(i)) walk(n.operand(i), head);
}

bool Along::takes(t::Value v) {
  if (const auto known = known_.find(v.id); known != known_.end()) return known->second;
  const auto at = scores_.find(v.id);
  return at != scores_.end() && decide(v, at->second);
}

// As `fuse` takes operands into its groups: what is as large as a head, or made of positions alone.
bool Along::decide(t::Value v, int64_t head) {
  if (const auto known = known_.find(v.id); known != known_.end()) return known->second;
  const t::Node n = v.def();
  if (known_.size() > kMost || !n || inside_.count(n.id) || !is_cheap(n) || !v.type().is_static()) return known_[v.id] = false;
  bool positions = true;
  for (uint32_t i = 0; i < n.num_operands(); ++i) {
    if (!n.has_operand(i)) continue;
    const t::Value o = n.operand(i);
    const bool literal = o.def() && o.def().is("constant") && o.type().elements() == 1;
    positions = (literal || decide(o, head)) && positions;
  }
  return known_[v.id] = positions || v.type().elements() >= head;
}

}  // namespace tessera::map_batch
