// SPDX-License-Identifier: Apache-2.0
#include "plan/pointwise.hpp"

#include <cstring>
#include <unordered_set>
#include <vector>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

bool same_shape(const tsr_type& a, const tsr_type& b) {
  if (a.rank != b.rank) return false;
  for (uint32_t k = 0; k < a.rank; ++k)
    if (a.sizes[k] != b.sizes[k]) return false;
  return true;
}

bool is_one_number(const tsr_type& t) {
  for (uint32_t k = 0; k < t.rank; ++k)
    if (t.sizes[k] != 1) return false;
  return true;
}

bool computes_elements(const Graph& g, tsr_id n) {
  return g.record_of(n).has(kElementwise) || std::strcmp(g.node(n).op, "cast") == 0;
}

// The part of a group's region that a value belongs to: all nodes that it is joined with by values, other than constants.
class GroupPart {
 public:
  GroupPart(const Graph& g, const tsr_type& shape) : g_(g), shape_(shape) {}

  // False: something in it is not computed element by element, or has another shape.
  bool add_users(tsr_id value) {
    for (const tsr_use& u : g_.uses(value)) {
      if (u.node == TSR_NONE) return false;  // the group gives it back as it is
      if (!same_shape(*g_.value(g_.node(u.node).results[0]).type, shape_) || !add(u.node)) return false;
    }
    return true;
  }
  bool holds(tsr_id node) const { return nodes_.contains(node); }

 private:
  bool add(tsr_id first) {
    std::vector<tsr_id> waiting{first};
    while (!waiting.empty()) {
      const tsr_id n = waiting.back();
      waiting.pop_back();
      if (!nodes_.insert(n).second) continue;
      const tsr_node& x = g_.node(n);
      if (g_.record_of(n).has(kConstant)) continue;
      if (!computes_elements(g_, n) || x.num_results != 1) return false;
      const tsr_type& type = *g_.value(x.results[0]).type;
      const bool number = is_one_number(type) && !is_one_number(shape_);
      if (!number && !same_shape(type, shape_)) return false;
      for (uint32_t k = 0; k < x.num_operands; ++k)
        if (x.operands[k] != TSR_NONE && g_.value(x.operands[k]).def_node != TSR_NONE)
          waiting.push_back(g_.value(x.operands[k]).def_node);
      for (const tsr_use& u : g_.uses(x.results[0]))
        if (u.node != TSR_NONE) waiting.push_back(u.node);
    }
    return true;
  }

  const Graph& g_;
  const tsr_type& shape_;
  std::unordered_set<tsr_id> nodes_;
};

}  // namespace

bool is_pointwise(const Graph& g, tsr_id node, uint32_t output, uint32_t operand) {
  const tsr_node& x = g.node(node);
  const tsr_type& from = *g.value(x.operands[operand]).type;
  const tsr_type& to = *g.value(x.results[output]).type;
  if (!same_shape(from, to) || dtype_bits(from.dtype) != dtype_bits(to.dtype)) return false;
  if (std::strcmp(x.op, "fused") != 0) return computes_elements(g, node);
  const tsr_region& body = g.region(x.regions[0]);
  GroupPart part(g, to);
  const tsr_id def = g.value(body.outputs[output]).def_node;
  return def != TSR_NONE && part.add_users(body.inputs[operand]) && part.holds(def) &&
         same_shape(*g.value(body.outputs[output]).type, to);
}

}  // namespace tessera::core
