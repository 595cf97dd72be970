// SPDX-License-Identifier: Apache-2.0
#include "dce.hpp"

#include <unordered_map>

namespace tessera::passes {
namespace {

class Dce {
 public:
  explicit Dce(sdk::Graph g) : g_(g) {}

  // Backward, so that erasing a user frees its producers before they are looked at.
  bool sweep(tsr_id region) {
    bool changed = false;
    sdk::Node n = g_.node(g_.region_raw(region).last);
    while (n) {
      const sdk::Node prev = n.prev();
      if (unused(n) && pure(n)) {
        g_.erase(n);
        changed = true;
      } else {
        for (tsr_id r : n.regions()) changed |= sweep(r);
      }
      n = prev;
    }
    return changed;
  }

 private:
  static bool unused(sdk::Node n) {
    for (uint32_t i = 0; i < n.num_results(); ++i)
      if (n.result(i).num_uses() != 0) return false;
    return n.num_results() != 0;
  }
  bool pure(sdk::Node n) {
    auto [it, fresh] = pure_.try_emplace(n.raw().op, false);
    if (fresh) it->second = g_.has_trait(n.raw().op, "pure");
    return it->second;
  }

  sdk::Graph g_;
  std::unordered_map<const char*, bool> pure_;  // op names are interned
};

class Pass final : public sdk::Pass {
  const char* summary() const override { return "erases pure nodes whose results nobody reads"; }
  const char* ensures() const override { return "every pure node has at least one used result"; }
  bool run(sdk::Graph g, const sdk::Options&) override { return eliminate_dead_code(g); }
};

}  // namespace

bool eliminate_dead_code(sdk::Graph g) { return Dce(g).sweep(0); }

}  // namespace tessera::passes

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) { plugin.add_pass("dce", std::make_unique<tessera::passes::Pass>()); }
