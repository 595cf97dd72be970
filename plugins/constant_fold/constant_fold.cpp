// SPDX-License-Identifier: Apache-2.0
#include "constant_fold.hpp"

#include <algorithm>

#include <tessera/dtypes.hpp>

namespace tessera::passes {
namespace {

class Folder {
 public:
  Folder(sdk::Graph g, FoldLimits limits) : g_(g), limits_(limits) {}

  // In program order one sweep is enough: what folds becomes an operand of what follows.
  bool sweep(tsr_id region) {
    bool changed = false;
    for (sdk::Node n : g_.nodes(region)) {
      for (tsr_id r : n.regions()) changed |= sweep(r);
      if (foldable(n)) changed |= fold(n);
    }
    return changed;
  }

 private:
  bool foldable(sdk::Node n) const {
    if (n.is("constant") || !n.regions().empty() || n.num_results() == 0) return false;
    for (const tsr_attr& a : n.attrs()) {  // a size that is not known yet
      if (a.kind == TSR_ATTR_DIM && TSR_DIM_IS_EXPR(a.i)) return false;
      if (a.kind == TSR_ATTR_DIMS)
        for (uint32_t i = 0; i < a.count; ++i)
          if (TSR_DIM_IS_EXPR(a.ints[i])) return false;
    }
    bool used = false;
    int64_t largest = 0, made = 0, given = 0;  // bytes; elements
    for (uint32_t i = 0; i < n.num_results(); ++i) {
      const sdk::Type t = n.result(i).type();
      used |= n.result(i).num_uses() != 0;
      if (!t.is_static()) return false;
      const int64_t size = bytes(t);
      if (size > limits_.max_bytes) return false;
      largest = std::max(largest, size);
      made = std::max(made, t.elements());
    }
    if (!used || !g_.has_trait(n.raw().op, "pure")) return false;
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      if (!n.has_operand(i)) continue;
      if (!n.operand(i).def() || !n.operand(i).def().is("constant")) return false;
      given = std::max(given, n.operand(i).type().elements());
    }
    return made <= given || largest <= FoldLimits::kSmall;
  }

  // What overflows here was refused when the type was made.
  static int64_t bytes(sdk::Type t) { return (t.elements() * dtype_bits(t.dtype()) + 7) / 8; }

  bool fold(sdk::Node n) {
    std::vector<tsr_tensor> values;
    try {
      values = g_.evaluate(n);
    } catch (const sdk::Error& e) {
      if (sdk::log_enabled("passes", 1)) sdk::log("passes", "constant_fold: kept " + g_.print(n) + ": " + e.what(), 1);
      return false;
    }
    std::vector<std::pair<sdk::Value, const char*>> named;  // constants take over the names
    for (uint32_t i = 0; i < n.num_results(); ++i) {
      if (n.result(i).num_uses() == 0) continue;
      const sdk::Value c = g_.constant(sdk::Graph::before(n), values[i]);
      g_.set_type(c, *n.result(i).type().p);  // its device too
      named.emplace_back(c, n.result(i).raw().name);
      g_.replace_uses(n.result(i), c);
    }
    g_.erase(n);
    for (const auto& [c, name] : named) g_.set_name(c, name);
    return true;
  }

  sdk::Graph g_;
  FoldLimits limits_;
};

class Pass final : public sdk::Pass {
  const char* summary() const override { return "computes nodes whose operands are constants"; }
  const char* ensures() const override {
    return "a small pure static node has an operand that is not constant, or failed when it was computed";
  }
  bool run(sdk::Graph g, const sdk::Options& options) override {
    FoldLimits limits;
    limits.max_bytes = options.get_int("max_bytes", limits.max_bytes);
    if (!options.get_bool("freezing", true)) limits.max_bytes = std::min(limits.max_bytes, FoldLimits::kSmall);
    return fold_constants(g, limits);
  }
};

}  // namespace

bool fold_constants(sdk::Graph g, FoldLimits limits) { return Folder(g, limits).sweep(0); }

}  // namespace tessera::passes

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("constant_fold", std::make_unique<tessera::passes::Pass>());
}
