// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "groups.hpp"

namespace tessera::passes {

sdk::Node copy_node(sdk::Graph g, sdk::Node n, const std::vector<tsr_id>& operands, tsr_id region, tsr_id before) {
  const tsr_node raw = n.raw();
  std::vector<const tsr_type*> results;
  for (uint32_t i = 0; i < raw.num_results; ++i) results.push_back(n.result(i).type().p);
  const std::string name(n.result().name());
  tsr_node_desc d{};
  d.struct_size = sizeof d;
  d.op = raw.op;
  d.operands = operands.data();
  d.num_operands = raw.num_operands;
  d.attrs = raw.attrs;
  d.num_attrs = raw.num_attrs;
  d.num_results = raw.num_results;
  d.result_types = results.data();
  d.loc = raw.loc;
  d.result_name = name.c_str();
  d.marks = raw.marks;
  tsr_id made = TSR_NONE;
  sdk::check(g.api().node_create(g.handle(), &d, region, before, &made));
  return g.node(made);
}

sdk::Node make_group(sdk::Graph g, const kit::Piece& piece, const std::string& backend) {
  const tsr_graph_api& api = g.api();
  std::vector<const tsr_type*> types;
  std::vector<tsr_id> operands;
  for (const sdk::Value& v : piece.inputs) {
    types.push_back(v.type().p);
    operands.push_back(v.id);
  }
  tsr_id region = TSR_NONE;
  sdk::check(api.region_create(g.handle(), types.data(), static_cast<uint32_t>(types.size()), &region));
  std::map<tsr_id, tsr_id> inner;
  for (size_t i = 0; i < operands.size(); ++i) inner[operands[i]] = g.inputs(region)[i];

  const auto copy = [&](sdk::Node n) {
    std::vector<tsr_id> ids;
    for (uint32_t i = 0; i < n.num_operands(); ++i) ids.push_back(n.has_operand(i) ? inner.at(n.operand(i).id) : TSR_NONE);
    const sdk::Node made = copy_node(g, n, ids, region, TSR_NONE);
    for (uint32_t i = 0; i < n.num_results(); ++i) inner[n.result(i).id] = made.result(i).id;
  };
  for (const sdk::Node& n : piece.nodes) {
    for (uint32_t i = 0; i < n.num_operands(); ++i)  // literals come along
      if (n.has_operand(i) && !inner.count(n.operand(i).id)) copy(n.operand(i).def());
    copy(n);
  }
  std::vector<tsr_id> outputs;
  for (const sdk::Value& v : piece.outputs) outputs.push_back(inner.at(v.id));
  sdk::check(api.region_set_outputs(g.handle(), region, outputs.data(), static_cast<uint32_t>(outputs.size())));

  const sdk::Node last = piece.nodes.back();
  const tsr_attr attrs[] = {sdk::attr_string("backend", backend.c_str())};
  // Results have the types of what they replace. Inferred ones have the device of an operand, and there may be none.
  std::vector<const tsr_type*> results;
  for (const sdk::Value& v : piece.outputs) results.push_back(v.type().p);
  tsr_node_desc d{};
  d.struct_size = sizeof d;
  d.op = "fused";
  d.operands = operands.data();
  d.num_operands = static_cast<uint32_t>(operands.size());
  d.attrs = attrs;
  d.num_attrs = 1;
  d.regions = &region;
  d.num_regions = 1;
  d.num_results = static_cast<uint32_t>(results.size());
  d.result_types = results.data();
  d.loc = last.raw().loc;
  tsr_id id = TSR_NONE;
  sdk::check(api.node_create(g.handle(), &d, last.raw().parent, last.raw().next, &id));
  const sdk::Node made = g.node(id);
  uint32_t marks = 0;
  for (const sdk::Node& n : piece.nodes) marks |= n.marks();
  g.set_marks(made, marks);
  return made;
}

void replace_by_group(sdk::Graph g, const kit::Piece& piece, sdk::Node fused) {
  std::vector<std::string> names;
  for (size_t i = 0; i < piece.outputs.size(); ++i) {
    names.emplace_back(piece.outputs[i].name());
    g.replace_uses(piece.outputs[i], fused.result(static_cast<uint32_t>(i)));
  }
  for (size_t i = piece.nodes.size(); i-- > 0;) {
    const sdk::Node& n = piece.nodes[i];
    bool read = false;
    for (uint32_t k = 0; k < n.num_results(); ++k) read = read || n.result(k).num_uses() > 0;
    if (!read) g.erase(n);
  }
  for (size_t i = 0; i < names.size(); ++i) g.set_name(fused.result(static_cast<uint32_t>(i)), names[i].c_str());
}

sdk::Node form(sdk::Graph g, const kit::Piece& piece, const std::string& backend) {
  const sdk::Node fused = make_group(g, piece, backend);
  replace_by_group(g, piece, fused);
  return fused;
}

}  // namespace tessera::passes
