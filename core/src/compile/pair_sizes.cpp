// SPDX-License-Identifier: Apache-2.0
#include "compile/pair_sizes.hpp"

#include <algorithm>
#include <optional>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "plan/input_facts.hpp"

namespace tessera::core {

namespace {

// Symbols in types and attributes of a region's nodes, and of those within them.
void collect_used(const Graph& g, tsr_id region, std::vector<uint32_t>& used) {
  const Sizes& sizes = g.sizes();
  for (const tsr_id n : nodes_of(g, region)) {
    const tsr_node& x = g.node(n);
    for (uint32_t i = 0; i < x.num_regions; ++i) collect_used(g, x.regions[i], used);
    for (uint32_t i = 0; i < x.num_results; ++i) {
      const tsr_type& t = *g.value(x.results[i]).type;
      for (uint32_t k = 0; k < t.rank; ++k) sizes.collect_symbols(t.sizes[k], used);
    }
    for (uint32_t i = 0; i < x.num_attrs; ++i) {
      const tsr_attr& a = x.attrs[i];
      if (a.kind == TSR_ATTR_DIM) sizes.collect_symbols(a.i, used);
      for (uint32_t k = 0; a.kind == TSR_ATTR_DIMS && k < a.count; ++k) sizes.collect_symbols(a.ints[k], used);
    }
  }
}

// Symbols that nodes of the body compute.
void collect_made(const Graph& g, std::vector<uint8_t>& made) {
  std::vector<uint32_t> symbols;
  for (const tsr_id n : nodes_of(g, 0)) {
    if (!g.record_of(n).has(kUnbacked) && !g.record_of(n).has(kControl)) continue;
    for (uint32_t i = 0; i < g.node(n).num_results; ++i) {
      const tsr_type& t = *g.value(g.node(n).results[i]).type;
      for (uint32_t k = 0; k < t.rank; ++k) g.sizes().collect_symbols(t.sizes[k], symbols);
    }
  }
  for (const uint32_t s : symbols)
    if (g.sizes().symbols()[s].unbacked) made[s] = 1;
}

bool has_dimension(const Graph& g, tsr_id v, uint32_t symbol) {
  const tsr_type& t = *g.value(v).type;
  return std::any_of(t.sizes, t.sizes + t.rank, [&](tsr_dim d) {
    if (!TSR_DIM_IS_EXPR(d)) return false;
    const tsr_dim_expr& e = g.sizes().exprs()[TSR_DIM_EXPR_ID(d)];
    return e.op == TSR_DIM_SYMBOL && e.symbol == symbol;
  });
}

// An input with a dimension that is the symbol and nothing else: of those the one of the lowest rank, since it is held until
// the half runs.
tsr_id input_with(const Graph& g, uint32_t symbol) {
  const tsr_region& body = g.region(0);
  tsr_id best = TSR_NONE;
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_id v = body.inputs[i];
    if (has_dimension(g, v, symbol) && (best == TSR_NONE || g.value(v).type->rank < g.value(best).type->rank)) best = v;
  }
  return best;
}

// An input with a dimension that can be solved for the symbol, whose other symbols are appended to `wanted`.
tsr_id solved_input(const Graph& g, const InputFacts& facts, uint32_t symbol, std::vector<uint32_t>& wanted) {
  for (const InputFacts::Dim& d : facts.dims)
    if (d.kind == InputFacts::Dim::kSolve && d.symbol == symbol) {
      g.sizes().collect_symbols(d.size, wanted);
      return g.region(0).inputs[d.input];
    }
  return TSR_NONE;
}

tsr_id result_with(const Graph& g, uint32_t symbol) {
  for (const tsr_id n : nodes_of(g, 0))
    for (uint32_t i = 0; i < g.node(n).num_results; ++i)
      if (has_dimension(g, g.node(n).results[i], symbol)) return g.node(n).results[i];
  return TSR_NONE;
}

}  // namespace

std::vector<tsr_id> values_for_sizes(const Graph& half, const Graph& whole) {
  std::vector<uint8_t> known(half.sizes().symbols().size(), 0);
  for (const uint32_t s : input_facts(half, 0, {}).symbols) known[s] = 1;
  collect_made(half, known);
  std::vector<uint32_t> wanted;
  collect_used(half, 0, wanted);
  std::vector<tsr_id> out;
  std::optional<InputFacts> facts;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const uint32_t symbol = wanted[i];
    if (known[symbol]) continue;
    known[symbol] = 1;
    tsr_id found = input_with(whole, symbol);
    if (found == TSR_NONE) {
      if (!facts) facts = input_facts(whole, 0, {});
      found = solved_input(whole, *facts, symbol, wanted);
    }
    if (found == TSR_NONE) found = result_with(whole, symbol);
    if (found != TSR_NONE) out.push_back(found);
  }
  return out;
}

}  // namespace tessera::core
