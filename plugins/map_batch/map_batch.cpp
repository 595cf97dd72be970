// SPDX-License-Identifier: Apache-2.0
// map_batch: a batch is computed item by item, each by one thread from beginning to end, where items do not depend on each
// other.
//
// An op that computes its whole batch before the next one begins sends every intermediate value through memory, and shares it
// between threads. What one item needs mostly fits into the caches of the core that works on it.
#include <cstdio>
#include <memory>

#include "body.hpp"

namespace tessera::map_batch {

namespace t = tessera::sdk;

namespace {

class MapBatch final : public t::Pass {
  const char* summary() const override {
    return "computes a batch item by item, one thread each, where items do not depend on each other";
  }
  const char* ensures() const override { return "nothing new; what backends choose by sizes, they choose for one item"; }

  bool run(t::Graph g, const t::Options& options) override {
    if (!options.get_bool("enabled", true)) return false;
    const int64_t items = batch(g);
    const int64_t least = options.get_int("min_items", 0);
    if (items < 2 || items < (least > 0 ? least : t::host().core->num_threads())) return false;
    const int64_t min_flops = options.get_int("min_flops", 50000000);
    const int64_t min_rows = options.get_int("min_rows", 48);
    bool changed = false;
    for (int parts = 0; parts < kParts; ++parts) {
      const Part part = choose(g, items, min_rows, min_flops == 0);
      if (part.members.empty() || part.flops < static_cast<double>(min_flops)) break;
      if (t::log_enabled("schedule")) t::log("schedule", "map_batch: " + text(part, items));
      map_part(g, part, items);
      changed = true;
    }
    return changed;
  }

  static constexpr int kParts = 16;  // each looks at all nodes

  // What the first input with dimensions begins with, when that is a number; else 0.
  static int64_t batch(t::Graph g) {
    for (const tsr_id v : g.inputs()) {
      const t::Type type = g.value(v).type();
      if (g.value(v).raw().input_kind != TSR_INPUT_ARG || type.rank() == 0) continue;
      return TSR_DIM_IS_EXPR(type.size(0)) ? 0 : type.size(0);
    }
    return 0;
  }
  static std::string text(const Part& part, int64_t items) {
    char operations[32];
    std::snprintf(operations, sizeof operations, "%.4g", part.flops * 1e-6);
    return std::to_string(part.members.size()) + " nodes, %" + std::string(part.members.front().node.result().name()) +
           " to %" + std::string(part.members.back().node.result().name()) + ", run once for each of " + std::to_string(items) +
           " items, " + operations + " million operations each";
  }
};

}  // namespace
}  // namespace tessera::map_batch

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("map_batch", std::make_unique<tessera::map_batch::MapBatch>());
}
