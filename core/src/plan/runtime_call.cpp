// SPDX-License-Identifier: Apache-2.0
#include "plan/runtime_call.hpp"

#include "ir/graph.hpp"

namespace tessera::core {

std::unique_ptr<RuntimeCall> RuntimeCall::make(const Graph& graph, tsr_id node, const std::function<int64_t(tsr_dim)>& value) {
  const tsr_node& n = graph.node(node);
  auto r = std::make_unique<RuntimeCall>();
  const auto number = [&](tsr_dim d) { return TSR_DIM_IS_EXPR(d) ? value(d) : d; };
  r->types.resize(n.num_operands);
  for (uint32_t i = 0; i < n.num_operands; ++i) {
    if (n.operands[i] == TSR_NONE) {
      r->operands.push_back(nullptr);
      continue;
    }
    const tsr_type& t = *graph.value(n.operands[i]).type;
    auto& sizes = r->dims.emplace_back();
    for (uint32_t k = 0; k < t.rank; ++k) sizes.push_back(number(t.sizes[k]));
    r->types[i] = t;
    r->types[i].sizes = sizes.data();  // the inner arrays stay where they are when `dims` grows
    r->types[i].strides = nullptr;
    r->operands.push_back(&r->types[i]);
  }
  for (uint32_t i = 0; i < n.num_attrs; ++i) {
    tsr_attr a = n.attrs[i];
    if (a.kind == TSR_ATTR_DIM) {
      a.i = number(a.i);
    } else if (a.kind == TSR_ATTR_DIMS) {
      auto& ints = r->dims.emplace_back();
      for (uint32_t k = 0; k < a.count; ++k) ints.push_back(number(a.ints[k]));
      a.ints = ints.data();
    }
    r->attrs.push_back(a);
  }
  r->call.struct_size = sizeof(tsr_call);
  r->call.op = n.op;
  r->call.operands = r->operands.data();
  r->call.num_operands = n.num_operands;
  r->call.attrs = r->attrs.data();
  r->call.num_attrs = n.num_attrs;
  return r;
}

}  // namespace tessera::core
