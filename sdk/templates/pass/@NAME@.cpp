// The pass @NAME@. Replace the rule below by yours; <tessera/plugin.hpp> shows what a pass can read and edit.
#include <tessera/plugin.hpp>

namespace {

namespace t = tessera::sdk;

// x - (-y) is x + y, bit for bit.
bool subtracts_negation(t::Node n) { return n.is("sub") && n.operand(1).def() && n.operand(1).def().is("neg"); }

class @CLASS@ final : public t::Pass {
  const char* summary() const override { return "turns the subtraction of a negated value into an addition"; }
  const char* ensures() const override { return "no sub has a neg as its right operand"; }

  bool run(t::Graph g, const t::Options&) override { return visit(g, 0); }

  // Regions are nested graphs; the body of the graph is region 0. The current node may be erased while iterating.
  bool visit(t::Graph g, tsr_id region) {
    bool changed = false;
    for (t::Node n : g.nodes(region)) {
      for (tsr_id nested : n.regions()) changed |= visit(g, nested);
      if (!subtracts_negation(n)) continue;
      const t::Value sum = g.op(t::Graph::before(n), "add", {n.operand(0), n.operand(1).def().operand(0)});
      g.replace_uses(n.result(), sum);
      g.erase(n);  // the neg may have other uses: `dce` removes it if not
      changed = true;
    }
    return changed;
  }
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) { plugin.add_pass("@NAME@", std::make_unique<@CLASS@>()); }
