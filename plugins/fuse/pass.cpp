// SPDX-License-Identifier: Apache-2.0
#include "pass.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>

#include "groups.hpp"
#include "repeat.hpp"

namespace tessera::passes {
namespace {

std::string bytes_text(double n) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer,
                n >= 1e6   ? "%.1f MB"
                : n >= 1e3 ? "%.1f KB"
                           : "%.0f B",
                n >= 1e6   ? n / 1e6
                : n >= 1e3 ? n / 1e3
                           : n);
  return buffer;
}
std::string node_text(sdk::Node n) { return "%" + std::string(n.result().name()) + " = " + std::string(n.op()); }

class Fuse : public sdk::Pass {
 public:
  const char* summary() const override {
    return "Makes groups of nodes that one kernel can compute into fused nodes of their backend.";
  }
  const char* ensures() const override { return "Nothing new; the bits of every output are as before, but for attention."; }
  uint32_t stage() const override { return TSR_STAGE_ASSIGNED; }

  bool run(sdk::Graph g, const sdk::Options& given) override {
    FuseOptions options;
    options.max_size = static_cast<size_t>(given.get_int("max_fusion_size", 64));
    options.max_buffers = static_cast<size_t>(given.get_int("max_buffers", 48));
    options.horizontal = given.get_bool("horizontal", true);
    const bool repeat = given.get_bool("repeat_cheap", true);
    if (options.max_size < 2) return false;
    bool changed = false;
    for (const tsr_id r : regions(g)) {
      if (given.get_bool("attention", true)) changed |= fuse_attention(g, r, options);
      if (given.get_bool("channels_last", false)) changed |= channels_last(g, r);
      changed |= pad_columns(g, r, given.get_int("column_multiple", 1));
      if (given.get_bool("epilogue_fusion", true))
        changed |= fuse_epilogues(g, r, given.get_bool("through_views", false), given.get_bool("operand_views", false));
      changed |= region(g, r, options, repeat);
    }
    return changed;
  }

 private:
  // The body and the regions of control flow; a fused node's body stays as it is.
  static std::vector<tsr_id> regions(sdk::Graph g) {
    std::vector<tsr_id> all{0};
    for (size_t i = 0; i < all.size(); ++i)
      for (const sdk::Node& n : g.nodes(all[i]))
        if (!n.is("fused")) all.insert(all.end(), n.regions().begin(), n.regions().end());
    return all;
  }

  static bool region(sdk::Graph g, tsr_id r, const FuseOptions& options, bool repeat) {
    bool edited = false;
    auto grown = std::make_unique<Groups>(g, r, options);
    grown->grow();
    if (repeat)
      if (Copies copies = repeat_cheap(g, *grown); !copies.empty()) {  // with other nodes, the groups grow anew
        edited = true;
        grown = std::make_unique<Groups>(g, r, options, std::move(copies), grown.get());
        grown->grow();
      }
    Groups& groups = *grown;
    hints(g, groups);
    bool any = false;
    for (const Group& x : groups.groups()) any = any || groups.is_fused(x);
    if (!any) return edited || groups.asked();
    // Groups in a row first: then each can take the place of its last node.
    sdk::Node at{g.handle(), g.region_raw(r).first};
    for (const uint32_t i : groups.order()) {
      const sdk::Node n = groups.nodes()[i];
      if (n == at)
        at = at.next();
      else
        sdk::check(g.api().node_move(g.handle(), n.id, at.id));
    }
    for (const Group& x : groups.groups()) {
      if (!groups.is_fused(x)) continue;
      kit::Piece p = groups.piece(x.items);
      leave_views(g, p);
      if (sdk::log_enabled("fusion")) sdk::log("fusion", decision(g, p, x.backend));
      form(g, p, x.backend);
    }
    return true;
  }

  // A view of what a group reads, which others read as well, stays for them where it is: as a result of the group it would be
  // a copy. The group has its own. Of a strided value it would be a copy outside, too.
  static void leave_views(sdk::Graph g, kit::Piece& p) {
    std::set<tsr_id> views;
    for (const sdk::Value& v : p.inputs)
      if (!v.def() || !g.has_trait(v.def().raw().op, "view") || is_free_view(v.def())) views.insert(v.id);
    for (const sdk::Node& n : p.nodes)
      if (is_free_view(n) && views.contains(n.operand(0).id)) views.insert(n.result().id);
    const auto is_view = [&](const sdk::Value& v) { return views.contains(v.id); };
    // A group needs a result: without dce, what it computes besides may be read by nobody.
    if (!std::all_of(p.outputs.begin(), p.outputs.end(), is_view)) std::erase_if(p.outputs, is_view);
  }

  // What a group saves: each value inside it is neither written nor read, and an input that several nodes share is read once.
  static std::string decision(sdk::Graph g, const kit::Piece& p, const std::string& backend) {
    double saved = 0;
    std::string names;
    for (const sdk::Node& n : p.nodes) {
      names += (names.empty() ? "" : ", ") + std::string(n.op());
      for (uint32_t i = 0; i < n.num_operands(); ++i) {
        if (!n.has_operand(i)) continue;
        const sdk::Value v = n.operand(i);
        bool inside = false;
        for (const sdk::Node& d : p.nodes) inside = inside || (v.def() && v.def() == d);
        if (inside) saved += kit::bytes_at_hints(g, v.type());
      }
      for (uint32_t i = 0; i < n.num_results(); ++i) {
        bool out = false;
        for (const sdk::Value& v : p.outputs) out = out || v == n.result(i);
        if (!out) saved += kit::bytes_at_hints(g, n.result(i).type());
      }
    }
    for (const sdk::Value& v : p.inputs) {
      int readers = 0;
      for (const sdk::Node& n : p.nodes)
        for (uint32_t i = 0; i < n.num_operands(); ++i) readers += n.has_operand(i) && n.operand(i) == v;
      if (readers > 1) saved += (readers - 1) * kit::bytes_at_hints(g, v.type());
    }
    return backend + ": " + std::to_string(p.nodes.size()) + " nodes become one, ending in " + node_text(p.nodes.back()) +
           "; saves " + bytes_text(saved) + " of memory traffic (" + names + ")";
  }

  static void hints(sdk::Graph g, const Groups& groups) {
    if (!sdk::log_enabled("perf_hints") && !sdk::log_enabled("fusion", 1)) return;
    for (const Groups::Refusal& r : groups.refusals()) {
      const sdk::Node a = groups.nodes()[r.producer], b = groups.nodes()[r.consumer];
      const double bytes = 2 * kit::bytes_at_hints(g, a.result().type());
      const std::string text = "fuse: " + node_text(a) + " and " + node_text(b) + " stay apart (" + bytes_text(bytes) +
                               " are written and read again): " + r.why;
      if (bytes >= 65536) sdk::log("perf_hints", text);
      sdk::log("fusion", text, 1);
    }
  }
};

}  // namespace

std::unique_ptr<sdk::Pass> make_fuse() { return std::make_unique<Fuse>(); }

}  // namespace tessera::passes
