// SPDX-License-Identifier: Apache-2.0
// Keys and values of which several heads of queries share one, repeated for attention that takes a head of keys for each:
//   reshape(broadcast_to([B, heads, 1, keys, width]) to [B, heads, group, keys, width]) to [B, heads * group, keys, width].
// Attention takes them as they were, and sums its gradient over a group itself, in a precision of the backend's.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "recognise.hpp"

namespace tessera::passes {
namespace {

using V = sdk::Value;

// What is repeated, as [B, heads, 1, keys, width], and how often.
struct Repeated {
  V one;
  int64_t group = 0;
};

std::optional<Repeated> repeated(V x) {
  const sdk::Node flat = x.def();
  const sdk::Node wide = flat && flat.is("reshape") ? flat.operand(0).def() : sdk::Node{};
  if (!wide || !wide.is("broadcast_to")) return std::nullopt;
  const V one = wide.operand(0);
  const auto from = one.type().sizes(), to = wide.result().type().sizes(), out = x.type().sizes();
  if (from.size() != 5 || to.size() != 5 || out.size() != 4 || from[2] != 1 || TSR_DIM_IS_EXPR(to[2]) || to[2] < 2)
    return std::nullopt;
  if (TSR_DIM_IS_EXPR(from[1]) || from[0] != to[0] || from[1] != to[1] || from[3] != to[3] || from[4] != to[4])
    return std::nullopt;
  if (out[0] != to[0] || out[1] != to[1] * to[2] || out[2] != to[3] || out[3] != to[4]) return std::nullopt;
  return Repeated{one, to[2]};
}

// The same as [B, heads, keys, width].
V heads_of(sdk::Graph g, V one, sdk::Graph::At here) {
  const auto from = one.type().sizes();
  const std::array<tsr_dim, 4> sizes{from[0], from[1], from[3], from[4]};
  if (const sdk::Node d = one.def(); d && (d.is("expand_dims") || d.is("reshape"))) {
    const auto before = d.operand(0).type().sizes();
    if (std::equal(before.begin(), before.end(), sizes.begin(), sizes.end())) return d.operand(0);
  }
  return g.op(here, "reshape", {one}, {sdk::attr_dims("shape", sizes)});
}

sdk::Node only_user(sdk::Graph g, V v) {  // none: others use it too, or it leaves the graph
  return v.num_uses() == 1 && v.uses()[0].node != TSR_NONE ? g.node(v.uses()[0].node) : sdk::Node{};
}
// The sum over each group of a gradient, where nothing else is made of it; none: it is used otherwise.
sdk::Node sum_over_groups(sdk::Graph g, V gradient, int64_t group) {
  const sdk::Node apart = only_user(g, gradient);
  if (!apart || !apart.is("reshape")) return {};
  const auto from = gradient.type().sizes(), to = apart.result().type().sizes();
  if (to.size() != 5 || to[0] != from[0] || to[2] != group || to[1] * group != from[1] || to[3] != from[2] || to[4] != from[3])
    return {};
  const sdk::Node sum = only_user(g, apart.result());
  const auto axes = sum && sum.is("reduce_sum") ? sum.attr("axes").as_ints() : std::span<const int64_t>();
  return axes.size() == 1 && (axes[0] == 2 || axes[0] == -3) ? sum : sdk::Node{};
}

bool group_heads_of(sdk::Graph g, sdk::Node n) {
  const bool backward = n.is("attention_backward") || n.is("attention_y_backward");
  if (!backward && !n.is("attention") && !n.is("attention_lse")) return false;
  const uint32_t first = backward ? 1 : 0;  // behind dy
  const V q = n.operand(first), keys = n.operand(first + 1), values = n.operand(first + 2);
  const auto here = sdk::Graph::before(n);
  const auto k = repeated(keys), v = repeated(values);
  if (!k || !v || k->group != v->group || q.type().rank() != 4 || q.type().size(1) != keys.type().size(1)) return false;
  sdk::Node sums[2];
  if (backward)
    for (uint32_t i = 0; i < 2; ++i)
      if (sums[i] = sum_over_groups(g, n.result(1 + i), k->group); !sums[i]) return false;
  std::vector<V> operands;
  for (uint32_t i = 0; i < n.num_operands(); ++i) operands.push_back(n.has_operand(i) ? n.operand(i) : g.none());
  operands[first + 1] = heads_of(g, k->one, here), operands[first + 2] = heads_of(g, v->one, here);
  const std::string op(n.op());
  const sdk::Node grouped = g.create(here, op.c_str(), operands, n.attrs());
  g.set_marks(grouped, n.marks());
  if (sdk::log_enabled("passes"))
    sdk::log("passes", "recognise: heads-in-groups of " + std::to_string(k->group) + " at " + g.print(n));
  std::vector<std::string> names;
  for (uint32_t i = 0; i < n.num_results(); ++i) {
    names.emplace_back(n.result(i).name());  // free once the node is gone
    if (backward && i > 0) {
      const V sum = sums[i - 1].result();
      const auto sizes = sum.type().sizes();
      const std::vector<tsr_dim> shape(sizes.begin(), sizes.end());
      g.replace_uses(sum,
                     g.op(sdk::Graph::before(sums[i - 1]), "reshape", {grouped.result(i)}, {sdk::attr_dims("shape", shape)}));
    } else {
      g.replace_uses(n.result(i), grouped.result(i));
    }
  }
  for (const sdk::Node& sum : sums) {
    if (!sum) continue;
    const sdk::Node apart = sum.operand(0).def();
    g.erase(sum);
    g.erase(apart);
  }
  g.erase(n);
  for (uint32_t i = 0; i < names.size(); ++i) g.set_name(grouped.result(i), names[i].c_str());
  return true;
}

}  // namespace

bool group_heads(sdk::Graph g) {
  std::vector<sdk::Node> nodes;
  for (const sdk::Node& n : g.nodes()) nodes.push_back(n);
  bool changed = false;
  for (const sdk::Node& n : nodes) changed |= group_heads_of(g, n);
  return changed;
}

}  // namespace tessera::passes
