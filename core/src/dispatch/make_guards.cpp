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

bool is_marked(const std::vector<ArgPolicy>& policies, uint32_t arg, uint32_t dim) {
  return arg < policies.size() && dim < policies[arg].dims.size() && policies[arg].dims[dim].marked;
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
    // About sizes that are marked unbacked nothing is decided before the run.
    bound[p.symbol] = !(sizes.symbols()[p.symbol].unbacked && is_marked(policies, p.arg, p.dim));
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
      if (is_marked(policies, p.arg, p.dim))
        refuse_specialised(paths[p.arg], p.dim, std::to_string(values[p.symbol]), reason(a));
      progress = specialised.dims.insert({p.arg, p.dim}).second || progress;
    }
    if (!progress) specialised.all = true;
    any = true;
  }
  return any;
}

namespace {

// Turns the facts that a plan relies on into guards, so that none of them can fail behind a hit.
class GuardMaker {
 public:
  GuardMaker(const Graph& g, const InputFacts& facts, const CapturedInputs& in, const tsr_arg* args, size_t count,
             const std::vector<std::string>& paths)
      : g_(g),
        sizes_(g.sizes()),
        facts_(facts),
        in_(in),
        args_(args),
        paths_(paths),
        pinned_(pinned_symbols(g.sizes())),
        bound_(g.sizes().symbols().size(), 0),
        keyed_(bound_) {
    out_.expected.resize(count);
    out_.mask.leaves.resize(count);
  }

  Guards make() {
    out_.global = global_state();
    out_.symbolic.sizes = &sizes_;
    for (size_t i = 0; i < out_.expected.size(); ++i) plain(static_cast<uint32_t>(i));
    for (uint32_t i = 0; i < in_.by_value.size(); ++i)
      if (in_.by_value[i]) elements(i);
    for (uint32_t k = 0; k < in_.leaves.size(); ++k)
      if (args_[in_.leaves[k]].kind == TSR_ARG_TENSOR) tensor(k);
    for (const InputFacts::Dim& f : facts_.dims) dim(f);
    for (const uint32_t r : facts_.relations) relation(sizes_.assumptions()[r]);
    out_.mask.finish();
    return std::move(out_);
  }

 private:
  void plain(uint32_t i) {
    const tsr_arg& a = args_[i];
    Expected& x = out_.expected[i];
    LeafGuard& l = out_.mask.leaves[i];
    x.path = paths_[i];
    x.kind = l.kind = a.kind;
    x.role = a.role;
    x.guarded = l.guarded = a.kind != TSR_ARG_TENSOR;
    if (a.kind == TSR_ARG_TENSOR) return;
    x.i = a.i;
    x.f = a.f;
    if (a.kind == TSR_ARG_STRING || a.kind == TSR_ARG_KEYS) x.s = arg_text(a);
    const auto scalar = in_.scalars.find(i);
    if (scalar == in_.scalars.end()) return;
    const Recorder::Scalar& s = scalar->second;
    x.guarded = l.guarded = !in_.observed || s.read || (s.kind == TSR_SCALAR_NUMBER && s.used);
    x.source = s.where;
  }

  // A tensor whose elements the graph has as a constant.
  void elements(uint32_t i) {
    const tsr_tensor& t = args_[i].tensor->desc;
    Expected& x = out_.expected[i];
    LeafGuard& l = out_.mask.leaves[i];
    describe(x, i);
    x.layout = LeafGuard::kDense;
    x.elements = elements_of(args_[i].tensor);
    x.guarded = l.guarded = l.by_value = true;
    l.rank = t.rank;
    l.role = args_[i].role;
  }

  void describe(Expected& x, uint32_t i) const {
    const tsr_tensor& t = args_[i].tensor->desc;
    x.dtype = t.dtype;
    x.device = t.device;
    x.requires_grad = args_[i].tensor->requires_grad != 0;
    x.sizes.assign(t.sizes, t.sizes + t.rank);
    x.strides.assign(t.strides, t.strides + t.rank);
    x.symbols.assign(t.rank, -1);
    x.dim_sources.assign(t.rank, {});
  }

  void tensor(uint32_t k) {
    const uint32_t i = in_.leaves[k];
    const tsr_tensor& t = args_[i].tensor->desc;
    Expected& x = out_.expected[i];
    LeafGuard& l = out_.mask.leaves[i];
    describe(x, i);
    x.guarded = l.guarded = in_.used[k] != 0;
    x.layout = t.flags & TSR_TENSOR_CONTIGUOUS ? LeafGuard::kDense
               : in_.policies[i].any_strides   ? LeafGuard::kNotDense
                                               : LeafGuard::kStrides;
    if (!l.guarded) return;
    l.rank = t.rank;
    l.role = args_[i].role;
    l.layout = x.layout;
  }

  void dim(const InputFacts::Dim& f) {
    using Dim = InputFacts::Dim;
    const uint32_t leaf = in_.leaves[f.input];
    const bool number = args_[leaf].kind != TSR_ARG_TENSOR;
    if (!in_.used[f.input]) unguarded("the type of '" + paths_[leaf] + "'");
    if (f.kind == Dim::kStride) return bind(leaf, SymbolicGuards::kStride | f.dim, f.symbol);
    if (f.kind == Dim::kNumber) {
      if (!number) out_.mask.leaves[leaf].fixed |= uint64_t{1} << f.dim;
      return;
    }
    const tsr_dim_expr& size = sizes_.exprs()[TSR_DIM_EXPR_ID(f.size)];
    if (size.op == TSR_DIM_SYMBOL) return number ? scalar(leaf, size.symbol) : symbol(leaf, f.dim, size.symbol);
    // Behind a graph break: the segment that made the tensor made it of that size.
    out_.expected[leaf].symbols[f.dim] = Expected::kDerived;
    const bool solves = f.kind == Dim::kSolve;
    out_.symbolic.derived.push_back({leaf, f.dim, f.size, solves ? static_cast<int64_t>(f.symbol) : -1});
    if (!solves) return;
    bound_[f.symbol] = 1;
    bounds(leaf, f.dim, f.symbol);
  }

  void scalar(uint32_t leaf, uint32_t symbol) {
    Expected& x = out_.expected[leaf];
    LeafGuard& l = out_.mask.leaves[leaf];
    if (pinned_[symbol] && !l.guarded) {
      x.guarded = l.guarded = true;
      x.source = reason(*pinned_[symbol]);
    }
    if (l.guarded)
      keyed_[symbol] = 1;
    else
      l.rank = 1;  // one symbol
    bind(leaf, SymbolicGuards::kNumber, symbol);
  }

  void symbol(uint32_t leaf, uint32_t d, uint32_t symbol) {
    Expected& x = out_.expected[leaf];
    const Assumption* pin = pinned_[symbol];
    if (pin && !sizes_.symbols()[symbol].unbacked) {
      if (is_marked(in_.policies, leaf, d)) refuse_specialised(paths_[leaf], d, std::to_string(x.sizes[d]), reason(*pin));
      out_.mask.leaves[leaf].fixed |= uint64_t{1} << d;
      x.dim_sources[d] = reason(*pin);
      keyed_[symbol] = 1;
    } else {
      x.symbols[d] = static_cast<int32_t>(symbol);
    }
    if (sizes_.symbols()[symbol].unbacked && is_marked(in_.policies, leaf, d)) marked_.push_back({leaf, d, symbol});
    bind(leaf, d, symbol);
  }

  void bind(uint32_t leaf, uint32_t d, uint32_t symbol) {
    if (bound_[symbol]) {
      out_.symbolic.equals.push_back({leaf, d, symbol});
      return;
    }
    bound_[symbol] = 1;
    out_.symbolic.binds.push_back({leaf, d, symbol});
    bounds(leaf, d, symbol);
  }

  void bounds(uint32_t leaf, uint32_t d, uint32_t symbol) {
    const tsr_symbol& s = sizes_.symbols()[symbol];
    const bool any_size = s.min <= 0 && s.max == INT64_MAX && SymbolicGuards::is_size(d);
    if (!keyed_[symbol] && !any_size && !(s.min == INT64_MIN && s.max == INT64_MAX))
      out_.symbolic.bounds.push_back({symbol, s.min, s.max, leaf, d});
  }

  void relation(const Assumption& a) {
    std::vector<uint32_t> symbols;
    sizes_.collect_symbols(a.a, symbols);
    sizes_.collect_symbols(a.b, symbols);
    for (const uint32_t s : symbols)
      if (!bound_[s]) unguarded("size " + std::string(sizes_.symbols()[s].name));
    // What the key fixes needs no second look, unless this very call violates it.
    if (std::all_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return keyed_[s] != 0; }) && holds_now(a)) return;
    std::vector<SymbolicGuards::Place> places;
    for (const SymbolicGuards::Place& p : marked_)
      if (std::find(symbols.begin(), symbols.end(), p.symbol) != symbols.end()) places.push_back(p);
    if (places.empty())
      out_.symbolic.relations.push_back(a);
    else
      out_.symbolic.asserted.push_back({a, std::move(places)});
  }

  bool holds_now(const Assumption& a) {
    std::vector<int64_t> values(sizes_.symbols().size(), 0);
    try {
      return out_.symbolic.values(args_, values) &&
             Sizes::holds(a.relation, sizes_.evaluate(a.a, values), sizes_.evaluate(a.b, values));
    } catch (const Error&) {
      return false;
    }
  }

  [[noreturn]] void unguarded(const std::string& what) const {
    throw bug("TSR-B042", "compiled code of '" + std::string(g_.tables().name) + "' relies on " + what +
                              ", which no guard of its entry covers");
  }

  const Graph& g_;
  const Sizes& sizes_;
  const InputFacts& facts_;
  const CapturedInputs& in_;
  const tsr_arg* args_;
  const std::vector<std::string>& paths_;
  const std::vector<const Assumption*> pinned_;
  std::vector<uint8_t> bound_;                 // symbols that have a value
  std::vector<uint8_t> keyed_;                 // those whose value is part of the key
  std::vector<SymbolicGuards::Place> marked_;  // sizes that are marked unbacked
  Guards out_;
};

}  // namespace

Guards make_guards(const Graph& g, const InputFacts& facts, const CapturedInputs& in, const tsr_arg* args, size_t count,
                   const std::vector<std::string>& paths) {
  return GuardMaker(g, facts, in, args, count, paths).make();
}

}  // namespace tessera::core
