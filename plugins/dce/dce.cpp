// SPDX-License-Identifier: Apache-2.0
#include "dce.hpp"

#include <unordered_map>
#include <vector>

namespace tessera::passes {
namespace {

struct OpTraits {
  bool pure, unbacked;
};

// The unbacked symbols that kept nodes name. Their definitions stay, even when nobody reads the data.
class NeededSymbols {
 public:
  explicit NeededSymbols(sdk::Graph g) : g_(g) {
    const tsr_tables& t = g.tables();
    for (size_t i = 0; i < t.num_symbols; ++i) any_ |= TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, i)->unbacked != 0;
    if (!any_) return;
    symbols_.resize(t.num_symbols);
    exprs_.resize(t.num_exprs);
  }

  void keep(sdk::Node n) {
    if (!any_) return;
    for (const tsr_attr& a : n.attrs()) {
      if (a.kind == TSR_ATTR_DIM) mention(a.i);
      if (a.kind == TSR_ATTR_DIMS)
        for (uint32_t i = 0; i < a.count; ++i) mention(a.ints[i]);
    }
    for (uint32_t i = 0; i < n.num_results(); ++i) {
      const tsr_type& t = *n.result(i).type().p;
      for (uint32_t k = 0; k < t.rank; ++k) {
        mention(t.sizes[k]);
        if (t.strides) mention(t.strides[k]);
      }
    }
  }

  // Does a kept node name a symbol of the types of `n`? Sizes of its operands are defined elsewhere, but keeping too much is
  // safe.
  bool defined_by(sdk::Node n) const {
    for (uint32_t i = 0; any_ && i < n.num_results(); ++i)
      for (const tsr_dim d : n.result(i).type().sizes())
        if (named(d)) return true;
    return false;
  }

 private:
  const tsr_dim_expr& expr(tsr_dim d) const {
    const tsr_tables& t = g_.tables();
    return *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d));
  }
  void mention(tsr_dim d) {
    if (!TSR_DIM_IS_EXPR(d) || exprs_[TSR_DIM_EXPR_ID(d)]) return;
    exprs_[TSR_DIM_EXPR_ID(d)] = true;
    const tsr_dim_expr& e = expr(d);
    if (e.op == TSR_DIM_SYMBOL) {
      symbols_[e.symbol] = true;
      return;
    }
    mention(e.lhs);
    mention(e.rhs);
  }
  bool named(tsr_dim d) const {
    if (!TSR_DIM_IS_EXPR(d)) return false;
    const tsr_dim_expr& e = expr(d);
    if (e.op != TSR_DIM_SYMBOL) return named(e.lhs) || named(e.rhs);
    return symbols_[e.symbol] && TSR_AT(tsr_symbol, g_.tables().symbols, g_.tables().symbol_stride, e.symbol)->unbacked;
  }

  sdk::Graph g_;
  bool any_ = false;
  std::vector<bool> symbols_, exprs_;  // named so far
};

class Dce {
 public:
  explicit Dce(sdk::Graph g) : g_(g), needed_(g) {}

  // Backward, so that erasing a user frees its producers before they are looked at.
  bool sweep(tsr_id region) {
    bool changed = false;
    sdk::Node n = g_.node(g_.region_raw(region).last);
    while (n) {
      const sdk::Node prev = n.prev();
      if (dead(n)) {
        g_.erase(n);
        changed = true;
      } else {
        needed_.keep(n);
        for (tsr_id r : n.regions()) changed |= sweep(r);
      }
      n = prev;
    }
    return changed;
  }

 private:
  bool dead(sdk::Node n) {
    if (n.num_results() == 0) return false;
    for (uint32_t i = 0; i < n.num_results(); ++i)
      if (n.result(i).num_uses() != 0) return false;
    const OpTraits t = traits(n.raw().op);
    return t.pure && !(t.unbacked && needed_.defined_by(n));
  }
  OpTraits traits(const char* op) {
    const auto [it, fresh] = traits_.try_emplace(op, OpTraits{});
    if (fresh) it->second = {g_.has_trait(op, "pure"), g_.has_trait(op, "unbacked")};
    return it->second;
  }

  sdk::Graph g_;
  NeededSymbols needed_;
  std::unordered_map<const char*, OpTraits> traits_;  // op names are interned
};

class Pass final : public sdk::Pass {
  const char* summary() const override { return "erases pure nodes whose results nobody reads"; }
  const char* ensures() const override { return "every pure node has a used result, or defines a size that is used"; }
  bool run(sdk::Graph g, const sdk::Options&) override { return eliminate_dead_code(g); }
};

}  // namespace

bool eliminate_dead_code(sdk::Graph g) { return Dce(g).sweep(0); }

}  // namespace tessera::passes

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("dce", std::make_unique<tessera::passes::Pass>());
}
