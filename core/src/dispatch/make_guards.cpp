// SPDX-License-Identifier: Apache-2.0
#include "dispatch/make_guards.hpp"

#include <algorithm>

#include "dispatch/global_state.hpp"
#include "ir/graph.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

int64_t value_at(const tsr_arg& arg, uint32_t dim) { return dim == kScalarDim ? arg.i : arg.tensor->desc.sizes[dim]; }

const std::string& reason(const Assumption& a) { return a.where.empty() ? a.why : a.where; }

// A place that gives a symbol its value: inputs have plain symbols or numbers for sizes.
struct SymbolPlace {
  uint32_t arg, dim, symbol;
};
std::vector<SymbolPlace> symbol_places(const Graph& g, const std::vector<uint32_t>& leaves, const tsr_arg* args) {
  std::vector<SymbolPlace> out;
  for (uint32_t k = 0; k < leaves.size(); ++k) {
    const tsr_type& type = *g.value(g.region(0).inputs[k]).type;
    const bool number = args[leaves[k]].kind != TSR_ARG_TENSOR;
    for (uint32_t d = 0; d < type.rank; ++d)
      if (TSR_DIM_IS_EXPR(type.sizes[d]) && g.sizes().exprs()[TSR_DIM_EXPR_ID(type.sizes[d])].op == TSR_DIM_SYMBOL)
        out.push_back({leaves[k], number ? kScalarDim : d, g.sizes().exprs()[TSR_DIM_EXPR_ID(type.sizes[d])].symbol});
  }
  return out;
}

// The assumption that leaves a symbol one value, by symbol; null: none does.
std::vector<const Assumption*> pinned_symbols(const Sizes& sizes) {
  std::vector<const Assumption*> out(sizes.symbols().size(), nullptr);
  const auto symbol_of = [&](tsr_dim d) -> int64_t {
    if (!TSR_DIM_IS_EXPR(d)) return -1;
    const tsr_dim_expr& e = sizes.exprs()[TSR_DIM_EXPR_ID(d)];
    return e.op == TSR_DIM_SYMBOL ? static_cast<int64_t>(e.symbol) : -1;
  };
  for (const Assumption& a : sizes.assumptions()) {
    if (a.relation != TSR_EQ) continue;
    const int64_t symbol = TSR_DIM_IS_EXPR(a.b) ? -1 : symbol_of(a.a);
    const int64_t other = TSR_DIM_IS_EXPR(a.a) ? -1 : symbol_of(a.b);
    for (const int64_t s : {symbol, other})
      if (s >= 0 && !out[static_cast<size_t>(s)]) out[static_cast<size_t>(s)] = &a;
  }
  return out;
}

}  // namespace

std::vector<uint8_t> used_symbols(const Graph& g) {
  const Sizes& sizes = g.sizes();
  std::vector<uint32_t> used;
  const auto dims = [&](const tsr_dim* d, size_t n) {
    for (size_t i = 0; i < n; ++i) sizes.collect_symbols(d[i], used);
  };
  for (tsr_id n = 0; n < g.num_nodes(); ++n) {
    const tsr_node& node = g.node(n);
    if (!node.alive) continue;
    for (uint32_t i = 0; i < node.num_attrs; ++i) {
      const tsr_attr& a = node.attrs[i];
      if (a.kind == TSR_ATTR_DIM) dims(&a.i, 1);
      if (a.kind == TSR_ATTR_DIMS) dims(a.ints, a.count);
    }
    for (uint32_t i = 0; i < node.num_results; ++i) {
      const tsr_type& t = *g.value(node.results[i]).type;
      dims(t.sizes, t.rank);
    }
  }
  for (const Assumption& a : sizes.assumptions()) {
    sizes.collect_symbols(a.a, used);
    sizes.collect_symbols(a.b, used);
  }
  std::vector<uint8_t> flags(sizes.symbols().size(), 0);
  for (const uint32_t s : used) flags[s] = 1;
  return flags;
}

bool specialise_what_does_not_hold(const Graph& g, const std::vector<uint32_t>& leaves, const std::vector<ArgPolicy>& policies,
                                   const tsr_arg* args, const std::vector<std::string>& paths, Specialised& specialised) {
  const Sizes& sizes = g.sizes();
  if (sizes.assumptions().empty()) return false;
  const std::vector<SymbolPlace> places = symbol_places(g, leaves, args);
  std::vector<int64_t> values(sizes.symbols().size(), 0);
  std::vector<uint8_t> bound(values.size(), 0);
  for (const SymbolPlace& p : places) {
    values[p.symbol] = value_at(args[p.arg], p.dim);
    bound[p.symbol] = sizes.symbols()[p.symbol].unbacked ? 0 : 1;  // about these nothing is decided before the run
  }
  bool any = false;
  for (const Assumption& a : sizes.assumptions()) {
    std::vector<uint32_t> symbols;
    sizes.collect_symbols(a.a, symbols);
    sizes.collect_symbols(a.b, symbols);
    if (!std::all_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return bound[s] != 0; })) continue;
    bool holds = false;
    try {
      holds = Sizes::holds(a.relation, sizes.evaluate(a.a, values), sizes.evaluate(a.b, values));
    } catch (const Error&) {}  // it overflows for these sizes
    if (holds) continue;
    bool progress = false;
    for (const SymbolPlace& p : places) {
      if (std::find(symbols.begin(), symbols.end(), p.symbol) == symbols.end()) continue;
      if (p.dim != kScalarDim && policies[p.arg].dims[p.dim].marked)
        refuse_specialised(paths[p.arg], p.dim, std::to_string(values[p.symbol]), reason(a));
      progress = specialised.dims.insert({p.arg, p.dim}).second || progress;
    }
    if (!progress) specialised.all = true;
    any = true;
  }
  return any;
}

Guards make_guards(const Graph& g, const CapturedInputs& in, const tsr_arg* args, size_t count,
                   const std::vector<std::string>& paths) {
  const Sizes& sizes = g.sizes();
  const std::vector<const Assumption*> pinned = pinned_symbols(sizes);
  Guards out;
  out.global = global_state();
  out.expected.resize(count);
  out.mask.leaves.resize(count);
  for (size_t i = 0; i < count; ++i) {
    Expected& x = out.expected[i];
    LeafGuard& l = out.mask.leaves[i];
    x.path = paths[i];
    x.kind = l.kind = args[i].kind;
    x.role = args[i].role;
    x.guarded = l.guarded = args[i].kind != TSR_ARG_TENSOR;
    if (args[i].kind == TSR_ARG_TENSOR) continue;
    x.i = args[i].i;
    x.f = args[i].f;
    if ((args[i].kind == TSR_ARG_STRING || args[i].kind == TSR_ARG_KEYS) && args[i].s) x.s = args[i].s;
    const auto scalar = in.scalars.find(static_cast<uint32_t>(i));
    if (scalar == in.scalars.end()) continue;
    const Recorder::Scalar& s = scalar->second;
    x.guarded = l.guarded = !in.observed || s.read || (s.kind == TSR_SCALAR_NUMBER && s.used);
    x.source = s.where;
  }

  std::vector<uint8_t> bound(sizes.symbols().size(), 0);
  const auto bind = [&](uint32_t leaf, uint32_t dim, uint32_t symbol) {
    if (bound[symbol]) {
      out.symbolic.equals.push_back({leaf, dim, symbol});
      return;
    }
    bound[symbol] = 1;
    out.symbolic.binds.push_back({leaf, dim, symbol});
    const tsr_symbol& s = sizes.symbols()[symbol];
    if (!pinned[symbol] && (s.min > 0 || s.max < INT64_MAX)) out.symbolic.bounds.push_back({symbol, s.min, s.max, leaf, dim});
  };
  for (uint32_t k = 0; k < in.leaves.size(); ++k) {
    const uint32_t i = in.leaves[k];
    const tsr_type& type = *g.value(g.region(0).inputs[k]).type;
    Expected& x = out.expected[i];
    LeafGuard& l = out.mask.leaves[i];
    if (args[i].kind != TSR_ARG_TENSOR) {
      if (args[i].kind == TSR_ARG_SYM_FLOAT || !in.used[k] || l.guarded) continue;
      const uint32_t symbol = sizes.exprs()[TSR_DIM_EXPR_ID(type.sizes[0])].symbol;
      if (pinned[symbol]) {
        x.guarded = l.guarded = true;
        x.source = reason(*pinned[symbol]);
      } else {
        x.guarded = false;
        l.rank = 1;  // one symbol
      }
      bind(i, SymbolicGuards::kNumber, symbol);
      continue;
    }
    const tsr_tensor& t = args[i].tensor->desc;
    x.guarded = l.guarded = in.used[k] != 0;
    x.dtype = t.dtype;
    x.device = t.device;
    x.requires_grad = args[i].tensor->requires_grad != 0;
    x.sizes.assign(t.sizes, t.sizes + t.rank);
    x.strides.assign(t.strides, t.strides + t.rank);
    x.symbols.assign(t.rank, -1);
    x.dim_sources.assign(t.rank, {});
    x.layout = t.flags & TSR_TENSOR_CONTIGUOUS ? LeafGuard::kDense
               : in.policies[i].any_strides    ? LeafGuard::kNotDense
                                               : LeafGuard::kStrides;
    if (!l.guarded) continue;
    l.rank = t.rank;
    l.layout = x.layout;
    for (uint32_t d = 0; d < t.rank; ++d) {
      if (!TSR_DIM_IS_EXPR(type.sizes[d])) {
        l.fixed |= uint64_t{1} << d;
        continue;
      }
      const tsr_dim_expr& size = sizes.exprs()[TSR_DIM_EXPR_ID(type.sizes[d])];
      if (size.op != TSR_DIM_SYMBOL) {  // behind a graph break: the segment that made the tensor made it of that size
        x.symbols[d] = Expected::kDerived;
        continue;
      }
      const uint32_t symbol = size.symbol;
      if (const Assumption* pin = pinned[symbol]; pin && !sizes.symbols()[symbol].unbacked) {
        if (in.policies[i].dims[d].marked) refuse_specialised(paths[i], d, std::to_string(t.sizes[d]), reason(*pin));
        l.fixed |= uint64_t{1} << d;
        x.dim_sources[d] = reason(*pin);
      } else {
        x.symbols[d] = static_cast<int32_t>(symbol);
      }
      bind(i, d, symbol);
    }
  }
  out.symbolic.sizes = &sizes;
  for (const Assumption& a : sizes.assumptions()) {
    std::vector<uint32_t> symbols;
    sizes.collect_symbols(a.a, symbols);
    sizes.collect_symbols(a.b, symbols);
    // About sizes that are computed later, and about unbacked ones: checked by the plan when they are known.
    if (!std::all_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return bound[s] && !sizes.symbols()[s].unbacked; }))
      continue;
    // What a pinned symbol is, is part of the key.
    if (symbols.size() == 1 && pinned[symbols[0]]) continue;
    out.symbolic.relations.push_back(a);
  }
  out.mask.finish();
  return out;
}

}  // namespace tessera::core
