// SPDX-License-Identifier: Apache-2.0
#include "compile/limit_sizes.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "compile/estimate.hpp"
#include "ir/graph.hpp"
#include "plan/assignment.hpp"
#include "plan/plan.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

constexpr int64_t kParts = 64;           // a factor is a number of these parts
constexpr int64_t kMost = kParts << 20;  // beyond it, nothing is too large

int64_t scaled(int64_t hint, int64_t factor) { return hint / kParts * factor + hint % kParts * factor / kParts; }

}  // namespace

void limit_sizes(Graph& g, Plan& plan, int64_t budget) {
  const std::vector<tsr_symbol>& symbols = g.sizes().symbols();
  const std::vector<int64_t> hints = hint_values(g);
  std::vector<uint8_t> free(symbols.size(), 0);
  const tsr_region& body = g.region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_type& t = *g.value(body.inputs[i]).type;
    for (uint32_t d = 0; d < t.rank; ++d) {
      if (!TSR_DIM_IS_EXPR(t.sizes[d])) continue;
      const tsr_dim_expr& e = g.sizes().exprs()[TSR_DIM_EXPR_ID(t.sizes[d])];
      if (e.op == TSR_DIM_SYMBOL && !symbols[e.symbol].unbacked && symbols[e.symbol].hint > 0) free[e.symbol] = 1;
    }
  }
  if (std::none_of(free.begin(), free.end(), [](uint8_t x) { return x != 0; })) return;
  const auto fits = [&](int64_t factor) {
    std::vector<int64_t> values = hints;
    for (size_t s = 0; s < values.size(); ++s)
      if (free[s]) values[s] = std::min(scaled(hints[s], factor), symbols[s].max);
    try {
      return peak_bytes_at(g, plan, values) <= budget;
    } catch (const Error&) {  // sizes that overflow
      return false;
    }
  };
  int64_t low = kParts, high = 2 * kParts;
  while (high <= kMost && fits(high)) {
    low = high;
    high *= 2;
  }
  if (high > kMost) return;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  const std::string why = "partitioner: larger sizes exceed the budget of " + std::to_string(budget) + " bytes";
  for (uint32_t s = 0; s < free.size(); ++s) {
    if (!free[s]) continue;
    const auto first = static_cast<uint32_t>(g.sizes().assumptions().size());
    g.sizes().require(TSR_LE, g.sizes().find(g.sizes().symbols()[s].name), scaled(hints[s], low), why);
    if (g.sizes().assumptions().size() > first) plan.facts.relations.push_back(first);
  }
}

}  // namespace tessera::core
