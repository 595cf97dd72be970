// SPDX-License-Identifier: Apache-2.0
// A product or convolution with what follows it element by element, where the backend takes such a group: the result is finished while it is
// near, instead of being written and read again.
#include <algorithm>

#include "groups.hpp"

namespace tessera::passes {
namespace {

constexpr size_t kMostSteps = 8;

bool is_anchor(const sdk::Node& n) { return n.is("linear") || n.is("matmul") || n.is("dot_general") || n.is("conv"); }

// The nodes behind `anchor`, each the only reader of the one before, that keep shape and dtype.
std::vector<sdk::Node> chain_of(sdk::Graph g, const sdk::Node& anchor) {
  std::vector<sdk::Node> out;
  sdk::Value v = anchor.result();
  while (out.size() < kMostSteps) {
    const auto uses = v.uses();
    if (uses.size() != 1 || uses[0].node == TSR_NONE) break;
    const sdk::Node n = g.node(uses[0].node);
    if (n.raw().parent != anchor.raw().parent || n.num_results() != 1 || n.result().type().p != v.type().p) break;
    if (!n.regions().empty() || !g.has_trait(n.raw().op, "elementwise")) break;
    out.push_back(n);
    v = n.result();
  }
  return out;
}

kit::Piece piece_of(sdk::Graph g, const sdk::Node& anchor, const std::vector<sdk::Node>& chain, size_t count) {
  kit::Piece p{g, {anchor}, {}, {}};
  p.nodes.insert(p.nodes.end(), chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(count));
  for (size_t i = 0; i < p.nodes.size(); ++i)
    for (uint32_t k = 0; k < p.nodes[i].num_operands(); ++k) {
      if (!p.nodes[i].has_operand(k)) continue;
      const sdk::Value v = p.nodes[i].operand(k);
      if (i > 0 && v == p.nodes[i - 1].result()) continue;
      const bool literal = i > 0 && v.def() && v.def().is("constant") && v.type().elements() == 1;
      if (!literal && std::find(p.inputs.begin(), p.inputs.end(), v) == p.inputs.end()) p.inputs.push_back(v);
    }
  p.outputs.push_back(p.nodes.back().result());
  return p;
}

}  // namespace

bool fuse_epilogues(sdk::Graph g, tsr_id region) {
  bool changed = false;
  std::vector<sdk::Node> anchors;
  for (const sdk::Node& n : g.nodes(region))
    if (is_anchor(n)) anchors.push_back(n);
  for (const sdk::Node& anchor : anchors) {
    uint64_t capabilities = 0;
    const std::string backend(g.backend_of(anchor, &capabilities));
    if (backend.empty() || !(capabilities & TSR_CAP_FUSION)) continue;
    const std::vector<sdk::Node> chain = chain_of(g, anchor);
    // The longest part that the backend takes.
    for (size_t count = chain.size(); count > 0; --count) {
      const kit::Piece p = piece_of(g, anchor, chain, count);
      const sdk::Node fused = make_group(g, p, backend);
      changed = true;  // an attempt is an edit, taken back or not
      if (g.backend_of(fused) != backend) {
        g.erase(fused);
        continue;
      }
      if (sdk::log_enabled("fusion")) {
        std::string names;
        for (const sdk::Node& n : p.nodes) names += (names.empty() ? "" : ", ") + std::string(n.op());
        sdk::log("fusion", backend + ": an epilogue of " + std::to_string(count) + " nodes (" + names + ")");
      }
      replace_by_group(g, p, fused);
      break;
    }
  }
  return changed;
}

}  // namespace tessera::passes
