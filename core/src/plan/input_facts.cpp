// SPDX-License-Identifier: Apache-2.0
#include "plan/input_facts.hpp"

#include <algorithm>

#include "ir/graph.hpp"

namespace tessera::core {

namespace {

int64_t symbol_of(const Sizes& sizes, tsr_dim d) {
  if (!TSR_DIM_IS_EXPR(d)) return -1;
  const tsr_dim_expr& e = sizes.exprs()[TSR_DIM_EXPR_ID(d)];
  return e.op == TSR_DIM_SYMBOL ? static_cast<int64_t>(e.symbol) : -1;
}

std::vector<uint32_t> symbols_of(const Sizes& sizes, const Assumption& a) {
  std::vector<uint32_t> out;
  sizes.collect_symbols(a.a, out);
  sizes.collect_symbols(a.b, out);
  return out;
}

// Symbols that some node computes, and those of nested regions' inputs, are not the strides' to give.
std::vector<uint8_t> determined_elsewhere(const Graph& g) {
  std::vector<uint32_t> used;
  for (tsr_id v = 0; v < g.num_values(); ++v) {
    const tsr_value& value = g.value(v);
    if (!value.alive || (value.def_node == TSR_NONE && value.region == 0)) continue;
    for (uint32_t k = 0; k < value.type->rank; ++k) g.sizes().collect_symbols(value.type->sizes[k], used);
  }
  std::vector<uint8_t> flags(g.sizes().symbols().size(), 0);
  for (const uint32_t s : used) flags[s] = 1;
  return flags;
}

}  // namespace

InputFacts input_facts(const Graph& g, tsr_id region, const std::vector<uint8_t>& known) {
  using Dim = InputFacts::Dim;
  const Sizes& sizes = g.sizes();
  const tsr_region& r = g.region(region);
  InputFacts out;
  std::vector<uint8_t> bound = known;
  bound.resize(sizes.symbols().size(), 0);
  const auto bind = [&](uint32_t symbol) {
    bound[symbol] = 1;
    out.symbols.push_back(symbol);
  };
  // A dimension that is exactly a symbol binds it; a sum or product with one unknown symbol is solved for it; everything else
  // is checked once the symbols are known.
  std::vector<Dim> later;
  for (uint32_t i = 0; i < r.num_inputs; ++i) {
    const tsr_type& t = *g.value(r.inputs[i]).type;
    for (uint32_t k = 0; k < t.rank; ++k) {
      const tsr_dim d = t.sizes[k];
      const int64_t symbol = symbol_of(sizes, d);
      if (!TSR_DIM_IS_EXPR(d)) {
        out.dims.push_back({i, k, Dim::kNumber, 0, d});
      } else if (symbol >= 0 && !bound[static_cast<size_t>(symbol)]) {
        out.dims.push_back({i, k, Dim::kSymbol, static_cast<uint32_t>(symbol), d});
        bind(static_cast<uint32_t>(symbol));
      } else {
        later.push_back({i, k, Dim::kCheck, 0, d});
      }
    }
  }
  for (bool progress = true; progress;) {  // one symbol at a time: solving one may leave another with a single unknown
    progress = false;
    for (const Dim& d : later) {
      std::vector<uint32_t> symbols;
      sizes.collect_symbols(d.size, symbols);
      std::erase_if(symbols, [&](uint32_t s) { return bound[s] != 0; });
      if (symbols.size() != 1) continue;
      out.dims.push_back({d.input, d.dim, Dim::kSolve, symbols[0], d.size});
      bind(symbols[0]);
      progress = true;
    }
  }
  out.dims.insert(out.dims.end(), later.begin(), later.end());
  if (region != 0 || sizes.assumptions().empty()) return out;

  std::vector<uint8_t> elsewhere;
  for (uint32_t i = 0; i < r.num_inputs; ++i) {
    const tsr_type& t = *g.value(r.inputs[i]).type;
    for (uint32_t k = 0; t.strides && k < t.rank; ++k) {
      const int64_t symbol = symbol_of(sizes, t.strides[k]);
      if (symbol < 0 || bound[static_cast<size_t>(symbol)]) continue;
      const auto s = static_cast<uint32_t>(symbol);
      if (elsewhere.empty()) elsewhere = determined_elsewhere(g);
      const auto mentions = [&](const Assumption& a) {
        const std::vector<uint32_t> all = symbols_of(sizes, a);
        return std::find(all.begin(), all.end(), s) != all.end();
      };
      if (elsewhere[s] || std::none_of(sizes.assumptions().begin(), sizes.assumptions().end(), mentions)) continue;
      out.dims.push_back({i, k, Dim::kStride, s, t.strides[k]});
      bind(s);
    }
  }
  for (uint32_t a = 0; a < sizes.assumptions().size(); ++a) {
    const std::vector<uint32_t> all = symbols_of(sizes, sizes.assumptions()[a]);
    if (std::all_of(all.begin(), all.end(), [&](uint32_t s) { return bound[s] != 0; })) out.relations.push_back(a);
  }
  return out;
}

}  // namespace tessera::core
