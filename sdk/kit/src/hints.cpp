// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/hints.hpp"

#include <algorithm>

#include "tessera/dtypes.hpp"

namespace tessera::kit {
namespace {

double size_of(const tsr_tables& t, tsr_dim d, int64_t unknown) {
  if (!TSR_DIM_IS_EXPR(d)) return static_cast<double>(d);
  const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d));
  if (e.op == TSR_DIM_SYMBOL) {
    const tsr_symbol& s = *TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, e.symbol);
    return static_cast<double>(s.hint >= 0 ? s.hint : std::clamp<int64_t>(unknown, s.min, s.max));
  }
  const double a = size_of(t, e.lhs, unknown), b = size_of(t, e.rhs, unknown);
  switch (e.op) {
    case TSR_DIM_ADD: return a + b;
    case TSR_DIM_SUB: return a - b;
    case TSR_DIM_MUL: return a * b;
    case TSR_DIM_FLOORDIV: return b == 0 ? 0 : static_cast<double>(static_cast<int64_t>(a / b));
    case TSR_DIM_MOD: return b == 0 ? 0 : a - b * static_cast<double>(static_cast<int64_t>(a / b));
    case TSR_DIM_MIN: return std::min(a, b);
    default: return std::max(a, b);
  }
}

}  // namespace

double elements_at_hints(const sdk::Graph& g, sdk::Type t, int64_t unknown) {
  double n = 1;
  for (const tsr_dim d : t.sizes()) n *= std::max(0.0, size_of(g.tables(), d, unknown));
  return n;
}

double bytes_at_hints(const sdk::Graph& g, sdk::Type t, int64_t unknown) {
  return elements_at_hints(g, t, unknown) * dtype_bits(t.dtype()) / 8;
}

}  // namespace tessera::kit
