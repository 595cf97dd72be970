// SPDX-License-Identifier: Apache-2.0
#include "decompose.hpp"

#include <algorithm>
#include <unordered_map>

namespace tessera::passes {
namespace {

class Decomposer {
 public:
  Decomposer(sdk::Graph g, const std::vector<std::string>& ops) : g_(g), ops_(ops) {}

  bool sweep(tsr_id region) {
    bool changed = false;
    sdk::Node n = g_.node(g_.region_raw(region).first);
    while (n) {
      for (tsr_id r : n.regions()) changed |= sweep(r);
      if (!named(n)) {
        n = n.next();
        continue;
      }
      // What it expands to may contain composites again: go on with the first node of the expansion.
      const sdk::Node before = n.prev(), after = n.next();
      const int depth = depth_of(n) + 1;
      if (depth > kMaxDepth)
        throw sdk::Error(TSR_BUG, "TSR-B020", "decompose: the decomposition of " + std::string(n.op()) + " leads back to it",
                         "its record must end in primitives");
      g_.decompose(n);
      changed = true;
      n = before ? before.next() : g_.node(g_.region_raw(region).first);
      for (sdk::Node m = n; m && !(m == after); m = m.next())
        if (named(m)) depth_[m.id] = depth;
    }
    return changed;
  }

 private:
  static constexpr int kMaxDepth = 32;  // of composites within composites

  int depth_of(sdk::Node n) const {
    const auto it = depth_.find(n.id);
    return it == depth_.end() ? 0 : it->second;
  }
  bool named(sdk::Node n) {
    auto [it, fresh] = named_.try_emplace(n.raw().op, false);
    if (fresh) {
      const bool listed = ops_.empty() || std::find(ops_.begin(), ops_.end(), n.op()) != ops_.end();
      it->second = listed && g_.has_trait(n.raw().op, "composite");
    }
    return it->second;
  }

  sdk::Graph g_;
  const std::vector<std::string>& ops_;
  std::unordered_map<const char*, bool> named_;
  std::unordered_map<tsr_id, int> depth_;  // of named nodes that an expansion has made
};

class Pass final : public sdk::Pass {
  const char* summary() const override { return "replaces composites by their decomposition"; }
  const char* ensures() const override { return "none of the named ops (all composites by default) occurs"; }
  bool run(sdk::Graph g, const sdk::Options& options) override {
    std::vector<std::string> ops;
    if (const tsr_option* o = options.find("ops")) ops.assign(o->strings, o->strings + o->count);
    for (const std::string& op : ops)
      if (!g.has_trait(op.c_str(), "composite"))
        throw sdk::Error(TSR_USER, "TSR-C030", "decompose: option 'ops' names '" + op + "', which is not a composite op",
                         "list the composites with: tessera ops --composite");
    return decompose_composites(g, ops);
  }
};

}  // namespace

bool decompose_composites(sdk::Graph g, const std::vector<std::string>& ops) { return Decomposer(g, ops).sweep(0); }

}  // namespace tessera::passes

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("decompose", std::make_unique<tessera::passes::Pass>());
}
