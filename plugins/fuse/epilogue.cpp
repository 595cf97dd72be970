// SPDX-License-Identifier: Apache-2.0
// A product or convolution with what follows it element by element, and a convolution with the one that alone reads its
// result, where the backend takes such a group: the result is finished, or read, while it is near, instead of being written
// and read again.
#include <algorithm>

#include "epilogue.hpp"

namespace tessera::passes {
namespace {

constexpr size_t kMostSteps = 8;

bool is_product(const sdk::Node& n) { return n.is("linear") || n.is("matmul") || n.is("dot_general"); }
bool is_anchor(const sdk::Node& n) { return is_product(n) || n.is("conv"); }

}  // namespace

std::vector<sdk::Node> chain_of(sdk::Graph g, const sdk::Node& anchor, bool through_reshapes) {
  std::vector<sdk::Node> out;
  sdk::Value v = anchor.result();
  while (out.size() < kMostSteps) {
    const auto uses = v.uses();
    if (uses.size() != 1 || uses[0].node == TSR_NONE) break;
    const sdk::Node n = g.node(uses[0].node);
    if (n.raw().parent != anchor.raw().parent || n.num_results() != 1) break;
    if (through_reshapes && n.is("reshape") && same_half(n, anchor)) {
      out.push_back(n);
      v = n.result();
      continue;
    }
    if (n.result().type().p != v.type().p) break;
    if (!n.regions().empty() || !g.has_trait(n.raw().op, "elementwise") || !same_half(n, anchor)) break;
    out.push_back(n);
    v = n.result();
  }
  return out;
}

namespace {

// The convolution that alone reads v, as what it convolves.
sdk::Node reader_of(sdk::Graph g, sdk::Value v) {
  const auto uses = v.uses();
  if (uses.size() != 1 || uses[0].node == TSR_NONE) return {g.handle(), TSR_NONE};
  const sdk::Node n = g.node(uses[0].node);
  const bool reads = n.is("conv") && n.operand(0) == v && n.raw().parent == v.def().raw().parent && same_half(n, v.def());
  return reads ? n : sdk::Node{g.handle(), TSR_NONE};
}

bool is_attention(const sdk::Node& n) { return n.is("attention") || n.is("attention_lse"); }

// The transpose that alone reads a node's result.
sdk::Node transpose_behind(sdk::Graph g, const sdk::Node& n) {
  const auto uses = n.result().uses();
  if (uses.size() != 1 || uses[0].node == TSR_NONE) return {g.handle(), TSR_NONE};
  const sdk::Node t = g.node(uses[0].node);
  bool fits = t.is("transpose") && t.raw().parent == n.raw().parent && same_half(t, n);
  // A group stands where the transpose does: behind it, too, are those that read other results.
  for (tsr_id id = n.raw().next; fits && id != t.id && id != TSR_NONE; id = g.node(id).raw().next)
    for (uint32_t r = 1; r < n.num_results(); ++r)
      for (const tsr_use& u : n.result(r).uses()) fits = fits && u.node != id;
  return fits ? t : sdk::Node{g.handle(), TSR_NONE};
}

// The views that a product's operands are, each behind what it is a view of. A kernel that holds them reads what they are
// views of where it lies, by index; without them each transposed operand is copied first. What only has other sizes than the
// dense memory behind it stays outside, and so do views with sizes or positions among their operands.
std::vector<sdk::Node> views_in_front(sdk::Graph g, const sdk::Node& product) {
  std::vector<sdk::Node> out;
  for (uint32_t i = 0; i < product.num_operands(); ++i) {
    if (!product.has_operand(i)) continue;
    std::vector<sdk::Node> chain;  // from the operand to what it is a view of
    for (sdk::Node n = product.operand(i).def(); n && chain.size() < kMostSteps; n = n.operand(0).def()) {
      const bool view = g.has_trait(n.raw().op, "view") && n.num_operands() == 1 && n.num_results() == 1;
      if (!view || n.raw().parent != product.raw().parent || !same_half(n, product)) break;
      chain.push_back(n);
    }
    while (!chain.empty() && is_free_view(chain.back())) chain.pop_back();
    for (size_t k = chain.size(); k-- > 0;)
      if (std::find(out.begin(), out.end(), chain[k]) == out.end()) out.push_back(chain[k]);
  }
  return out;
}

kit::Piece piece_of(sdk::Graph g, const std::vector<sdk::Node>& nodes) {
  kit::Piece p{g, nodes, {}, {}};
  for (size_t i = 0; i < nodes.size(); ++i)
    for (uint32_t k = 0; k < nodes[i].num_operands(); ++k) {
      if (!nodes[i].has_operand(k)) continue;
      const sdk::Value v = nodes[i].operand(k);
      const auto makes = [&](const sdk::Node& n) { return v.def() && n == v.def(); };
      if (std::any_of(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(i), makes)) continue;
      const bool literal = !is_anchor(nodes[i]) && v.def() && v.def().is("constant") && v.type().elements() == 1;
      if (!literal && std::find(p.inputs.begin(), p.inputs.end(), v) == p.inputs.end()) p.inputs.push_back(v);
    }
  p.outputs.push_back(nodes.back().result());
  for (const sdk::Node& n : nodes)
    for (uint32_t r = 1; r < n.num_results(); ++r)
      if (n.result(r).num_uses() > 0) p.outputs.push_back(n.result(r));
  return p;
}

}  // namespace

bool fuse_longest(sdk::Graph g, const std::vector<sdk::Node>& head, const std::vector<sdk::Node>& chain, size_t least,
                  const std::string& backend) {
  for (size_t count = chain.size() + 1; count-- > least;) {
    if (count > 0 && chain[count - 1].is("reshape")) continue;  // costs nothing outside
    std::vector<sdk::Node> nodes = head;
    nodes.insert(nodes.end(), chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(count));
    const kit::Piece p = piece_of(g, nodes);
    const sdk::Node fused = make_group(g, p, backend);
    if (g.backend_of(fused) != backend) {
      g.erase(fused);
      continue;
    }
    if (sdk::log_enabled("fusion")) {
      std::string names;
      for (const sdk::Node& n : p.nodes) names += (names.empty() ? "" : ", ") + std::string(n.op());
      const char* const anchor = head.back().is("conv") ? "a convolution behind " : "a product behind ";
      const std::string before = head.size() > 1 ? anchor + std::to_string(head.size() - 1) + " nodes and " : "";
      sdk::log("fusion", backend + ": " + before + "an epilogue of " + std::to_string(count) + " nodes (" + names + ")");
    }
    replace_by_group(g, p, fused);
    return true;
  }
  return false;
}

bool fuse_epilogues(sdk::Graph g, tsr_id region, bool through_views, bool operand_views) {
  bool changed = false;
  std::vector<sdk::Node> anchors;
  for (const sdk::Node& n : g.nodes(region))
    if (is_anchor(n) || (through_views && is_attention(n))) anchors.push_back(n);
  for (const sdk::Node& anchor : anchors) {
    if (!anchor.alive()) continue;  // behind another one in its group
    uint64_t capabilities = 0;
    const std::string backend(g.backend_of(anchor, &capabilities));
    if (backend.empty() || !(capabilities & TSR_CAP_FUSION)) continue;
    if (is_attention(anchor)) {  // which may write its heads where the next product reads them
      const sdk::Node transpose = transpose_behind(g, anchor);
      changed = changed || transpose;
      if (transpose) fuse_longest(g, {anchor}, {transpose}, 1, backend);
      continue;
    }
    const std::vector<sdk::Node> chain = chain_of(g, anchor, through_views && !anchor.is("conv"));
    const sdk::Node next =
        anchor.is("conv") ? reader_of(g, chain.empty() ? anchor.result() : chain.back().result()) : sdk::Node{};
    changed = changed || next || !chain.empty();  // an attempt is an edit, taken back or not
    if (next && g.backend_of(next) == backend) {
      std::vector<sdk::Node> head{anchor};
      head.insert(head.end(), chain.begin(), chain.end());
      head.push_back(next);
      if (fuse_longest(g, head, chain_of(g, next, false), 0, backend)) continue;
    }
    if (operand_views && is_product(anchor)) {
      std::vector<sdk::Node> head = views_in_front(g, anchor);
      changed = changed || !head.empty();
      head.push_back(anchor);
      if (head.size() > 1 && fuse_longest(g, head, chain, 0, backend)) continue;
    }
    fuse_longest(g, {anchor}, chain, 1, backend);
  }
  return changed;
}

}  // namespace tessera::passes
