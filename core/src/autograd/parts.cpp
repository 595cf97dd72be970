// SPDX-License-Identifier: Apache-2.0
#include "autograd/parts.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ir/graph.hpp"

namespace tessera::core {

namespace {

struct Part {
  tsr_id value;  // what is padded
  uint32_t axis;
  tsr_dim low, size;
};

// Nothing where a contribution is no value that is padded with zeros at one axis.
std::optional<Part> part_of(const Graph& g, tsr_id contribution) {
  const tsr_id n = g.value(contribution).def_node;
  if (n == TSR_NONE || std::strcmp(g.node(n).op, "pad") != 0) return std::nullopt;
  const tsr_node& pad = g.node(n);
  if (pad.num_operands > 1 && pad.operands[1] != TSR_NONE) return std::nullopt;
  const tsr_attr *low = g.attr(n, "low"), *high = g.attr(n, "high");
  const tsr_attr *interior = g.attr(n, "interior"), *mode = g.attr(n, "mode");
  if (mode && std::strcmp(mode->s, "constant") != 0) return std::nullopt;
  const tsr_type& type = *g.value(pad.operands[0]).type;
  std::optional<uint32_t> axis;
  for (uint32_t i = 0; i < type.rank; ++i) {
    if (interior && i < interior->count && interior->ints[i] != 0) return std::nullopt;
    if (low->ints[i] == 0 && high->ints[i] == 0) continue;
    if (axis) return std::nullopt;
    axis = i;
  }
  if (!axis) return std::nullopt;
  return Part{pad.operands[0], *axis, low->ints[*axis], type.sizes[*axis]};
}

bool is_same(const Graph& g, tsr_dim a, tsr_dim b) { return g.sizes().compare(TSR_EQ, a, b) == TSR_TRUE; }

}  // namespace

bool Parts::take(Graph& g, tsr_id contribution) {
  const std::optional<Part> part = part_of(g, contribution);
  if (!part || (!contributions_.empty() && part->axis != axis_)) return false;
  axis_ = part->axis;
  size_ = contributions_.empty() ? part->size : g.sizes().add(size_, part->size);
  contributions_.push_back(contribution);
  return true;
}

std::optional<tsr_id> Parts::joined(Graph& g, tsr_id before) {
  if (contributions_.empty()) return std::nullopt;
  const tsr_type& whole = *g.value(contributions_[0]).type;
  if (!is_same(g, size_, whole.sizes[axis_])) return std::nullopt;
  std::vector<Part> left;
  for (const tsr_id c : contributions_) left.push_back(*part_of(g, c));
  NodeSpec concat;
  for (tsr_dim at = 0; !left.empty();) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const Part& p) { return is_same(g, p.low, at); });
    if (next == left.end()) return std::nullopt;
    concat.operands.push_back(next->value);
    at = g.sizes().add(at, next->size);
    left.erase(next);
  }
  tsr_attr axis{};
  axis.name = "axis";
  axis.kind = TSR_ATTR_INT;
  axis.i = axis_;
  concat.op = "concat";
  concat.attrs = {axis};
  concat.loc = g.node(g.value(contributions_[0]).def_node).loc;
  contributions_.clear();
  return g.node(g.create_node(concat, g.node(before).parent, before)).results[0];
}

std::vector<tsr_id> Parts::release() { return std::exchange(contributions_, {}); }

void Parts::replace(tsr_id value, tsr_id by) { std::replace(contributions_.begin(), contributions_.end(), value, by); }

}  // namespace tessera::core
