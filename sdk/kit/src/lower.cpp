// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/lower.hpp"

#include <algorithm>
#include <cctype>

#include "axes.hpp"
#include "lowering.hpp"
#include "tessera/kit/verify.hpp"

namespace tessera::kit {
Lowered Lowering::run() {
  tensors();
  domain();
  for (Output& o : outputs_) o.level = visit(o.tensor, o.at, false);
  emit();
  merge_axes(k_);
  verify(k_);
  return {std::move(k_), std::move(table_.symbol_dims)};
}

void Lowering::tensors() {
  for (const sdk::Value& v : piece_.inputs) {
    const auto id = static_cast<uint32_t>(k_.buffers.size());
    const int t = table_.input(v, id);
    add_buffer(v, Access::In, table_.at(t).shape);
  }
  for (const sdk::Node& n : piece_.nodes) {
    if (n.is("constant")) continue;
    table_.add(n, false);
  }
  for (const sdk::Value& v : piece_.outputs) {
    int t = table_.find(v.id);
    if (t < 0) unfit("output %" + std::string(v.name()) + " is not computed by the piece");
    outputs_.push_back({t, static_cast<uint32_t>(k_.buffers.size()), {}, false, 0});
    add_buffer(v, Access::Out, table_.at(t).shape);
  }
  if (outputs_.empty()) unfit("it has no outputs");
}

void Lowering::add_buffer(sdk::Value v, Access access, const std::vector<Expr>& shape) {
  std::string name(v.name());
  for (char& c : name)
    if (!isalnum(static_cast<unsigned char>(c)) && c != '_') c = '_';
  const auto taken = [&](const std::string& s) {
    return std::any_of(k_.buffers.begin(), k_.buffers.end(), [&](const Buffer& b) { return b.name == s; });
  };
  std::string unique = name;
  for (int i = 1; taken(unique); ++i) unique = name + "_" + std::to_string(i);
  k_.buffers.push_back({unique, access, type_of(v.type().dtype()), pool_.product(shape)});
}

Lowered lower(const Piece& piece, const std::string& name, const LowerOptions& options) {
  return refined([&](const std::vector<Split>& splits) { return Lowering(piece, name, splits, options).run(); });
}

std::string why_not(sdk::Graph g, sdk::Node n, const LowerOptions& options) {
  Kernel k;
  TensorTable table(g, k.pool, &k, options);
  try {
    if (!n.regions().empty()) return "op '" + std::string(n.op()) + "' has regions";
    table.add(n, true);
    return {};
  } catch (const Unfit& u) {
    return u.why;
  }
}

NodePiece piece_of(sdk::Graph g, sdk::Node n) {
  NodePiece p{{g, {}, {}, {}}, {}};
  if (!n.is("fused") && !n.regions().empty()) unfit("op '" + std::string(n.op()) + "' has regions");
  if (n.is("fused")) {
    const tsr_id r = n.regions()[0];
    for (const sdk::Node& x : g.nodes(r)) p.piece.nodes.push_back(x);
    for (const tsr_id v : g.inputs(r)) p.piece.inputs.push_back(g.value(v));
    for (const tsr_id v : g.outputs(r)) p.piece.outputs.push_back(g.value(v));
    for (uint32_t i = 0; i < p.piece.inputs.size(); ++i) p.operand_of.push_back(i);
    return p;
  }
  p.piece.nodes.push_back(n);
  for (uint32_t i = 0; i < n.num_operands(); ++i) {
    if (!n.has_operand(i)) continue;
    const sdk::Value v = n.operand(i);
    // A literal, here as in a fused group.
    if (v.def() && v.def().is("constant") && v.type().elements() == 1 && type_of(v.type().dtype()) != Type::None) continue;
    if (std::find(p.piece.inputs.begin(), p.piece.inputs.end(), v) != p.piece.inputs.end()) continue;
    p.piece.inputs.push_back(v);
    p.operand_of.push_back(i);
  }
  for (uint32_t i = 0; i < n.num_results(); ++i) p.piece.outputs.push_back(n.result(i));
  return p;
}

}  // namespace tessera::kit
