// SPDX-License-Identifier: Apache-2.0
#include "canonicalize.hpp"

#include "rules.hpp"

namespace tessera::passes {
namespace {

tsr_error* apply(void* self, tsr_graph* graph, tsr_id id, int* changed) noexcept {
  return sdk::guarded([&] {
    const Rule& rule = *static_cast<const Rule*>(self);
    const Match m{sdk::Graph(graph), {graph, id}};
    if (!rule.when(m)) return;
    *changed = 1;
    const size_t values_before = m.g.num_value_slots();
    const sdk::Value v = rule.becomes(m);
    if (!v) return;
    const char* name = m.out().raw().name;
    m.g.replace_uses(m.out(), v);
    m.g.erase(m.n);
    if (v.id >= values_before) m.g.set_name(v, name);  // made by the rule
  });
}

class Pass final : public sdk::Pass {
  const char* summary() const override { return "brings the graph to a normal form with rules that keep every bit"; }
  const char* ensures() const override {
    return "constants stand right, view and cast chains are one op, no op merely returns an operand";
  }
  bool run(sdk::Graph g, const sdk::Options&) override { return canonicalize(g); }
};

}  // namespace

bool canonicalize(sdk::Graph g) {
  std::vector<tsr_pattern> patterns;
  for (const Rule& rule : rules()) {
    tsr_pattern p{};
    p.name = rule.name;
    p.op = rule.op;
    p.self = const_cast<Rule*>(&rule);
    p.apply = apply;
    patterns.push_back(p);
  }
  return g.rewrite(patterns);
}

}  // namespace tessera::passes

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("canonicalize", std::make_unique<tessera::passes::Pass>());
}
