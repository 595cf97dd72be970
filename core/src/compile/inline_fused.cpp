// SPDX-License-Identifier: Apache-2.0
#include "compile/inline_fused.hpp"

#include <unordered_map>
#include <vector>

#include "ir/graph.hpp"

namespace tessera::core {

void inline_fused(Graph& g, tsr_id node) {
  const auto made_from = static_cast<tsr_id>(g.num_values());
  const tsr_id region = g.node(node).regions[0], parent = g.node(node).parent;
  std::unordered_map<tsr_id, tsr_id> outer;  // values of the body, out here
  for (uint32_t i = 0; i < g.region(region).num_inputs; ++i) outer[g.region(region).inputs[i]] = g.node(node).operands[i];
  for (tsr_id n = g.region(region).first; n != TSR_NONE; n = g.node(n).next) {
    const tsr_node x = g.node(n);
    NodeSpec spec;
    spec.op = x.op;
    for (uint32_t i = 0; i < x.num_operands; ++i)
      spec.operands.push_back(x.operands[i] == TSR_NONE ? TSR_NONE : outer.at(x.operands[i]));
    spec.attrs.assign(x.attrs, x.attrs + x.num_attrs);
    for (uint32_t i = 0; i < x.num_results; ++i) {
      spec.result_types.push_back(*g.value(x.results[i]).type);
      spec.result_names.emplace_back(g.value(x.results[i]).name);
    }
    spec.typed = true;
    spec.loc = x.loc;
    spec.marks = x.marks;
    const tsr_id copy = g.create_node(spec, parent, node);
    for (uint32_t i = 0; i < x.num_results; ++i) outer[g.node(n).results[i]] = g.node(copy).results[i];
  }
  std::vector<tsr_id> results;
  for (uint32_t j = 0; j < g.region(region).num_outputs; ++j) results.push_back(outer.at(g.region(region).outputs[j]));
  g.replace_node(node, results, made_from);
}

}  // namespace tessera::core
