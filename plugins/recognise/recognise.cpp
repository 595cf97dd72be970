// SPDX-License-Identifier: Apache-2.0
#include "recognise.hpp"

#include "rules.hpp"

namespace tessera::passes {
namespace {

struct Ready {
  const Rule* rule;
  Pattern pattern;
};

std::vector<Ready> ready(std::span<const Rule> rules) {
  std::vector<Ready> out;
  for (const Rule& r : rules) out.push_back({&r, Pattern(r.pattern)});
  return out;
}

tsr_error* apply(void* self, tsr_graph* graph, tsr_id id, int* changed) noexcept {
  return sdk::guarded([&] {
    const Ready& r = *static_cast<const Ready*>(self);
    Candidate c{sdk::Graph(graph), {graph, id}, {}};
    if (c.n.num_results() != 1 || !r.pattern.match(c.g, c.out(), &c.found) || !r.rule->when(c)) return;
    const sdk::Value v = r.rule->becomes(c);
    *changed = 1;
    if (v.raw().type != c.out().raw().type)
      throw sdk::Error(TSR_BUG, "TSR-B000",
                       std::string("rule '") + r.rule->name + "' gives another type than " + c.g.print(c.n));
    if (sdk::log_enabled("passes")) sdk::log("passes", std::string("recognise: ") + r.rule->name + " at " + c.g.print(c.n));
    const std::string name(c.out().name());
    c.g.replace_uses(c.out(), v);
    c.g.erase(c.n);
    c.g.set_name(v, name.c_str());
  });
}

bool rewrite(sdk::Graph g, const std::vector<Ready>& rules) {
  std::vector<tsr_pattern> patterns;
  for (const Ready& r : rules) {
    tsr_pattern p{};
    p.name = r.rule->name;
    p.op = r.pattern.root().c_str();
    p.self = const_cast<Ready*>(&r);
    p.apply = apply;
    patterns.push_back(p);
  }
  return g.rewrite(patterns);
}

class Pass final : public sdk::Pass {
  const char* summary() const override { return "puts composites together that exporters took apart"; }
  const char* ensures() const override {
    return "gelu, silu, norms and attention are one op where a rule knows how they were taken apart";
  }
  bool run(sdk::Graph g, const sdk::Options& options) override {
    if (!options.get_bool("enabled", true)) return false;
    const bool found = recognise(g);
    return group_heads(g) || found;
  }
};

class QuantisedPass final : public sdk::Pass {
  const char* summary() const override {
    return "computes products of dequantised tensors on their integers, and long functions of a byte as tables";
  }
  const char* ensures() const override {
    return "a product of dequantised tensors with one factor for each result is one of integers; no elementwise work from "
           "bytes to bytes "
           "takes more than one division or function";
  }
  bool run(sdk::Graph g, const sdk::Options& options) override {
    if (!options.get_bool("enabled", true)) return false;
    const bool found = recognise_quantised(g);
    return tabulate_bytes(g) || found;
  }
};

}  // namespace

bool recognise(sdk::Graph g) {
  static const std::vector<Ready> list = ready(rules());
  return rewrite(g, list);
}
bool recognise_quantised(sdk::Graph g) {
  static const std::vector<Ready> list = ready(quantised_rules());
  return rewrite(g, list);
}

}  // namespace tessera::passes

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("recognise", std::make_unique<tessera::passes::Pass>());
  plugin.add_pass("recognise_quantised", std::make_unique<tessera::passes::QuantisedPass>());
}
