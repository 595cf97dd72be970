// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/hints.hpp"

#include <algorithm>
#include <cmath>

#include "tessera/dtypes.hpp"
#include "tessera/sizes.hpp"

namespace tessera::kit {
namespace {

double size_of(const tsr_tables& t, tsr_dim d, int64_t unknown) {
  const auto leaf = [&](tsr_dim x) {
    if (!TSR_DIM_IS_EXPR(x)) return static_cast<double>(x);
    const uint32_t symbol = TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(x))->symbol;
    const tsr_symbol& s = *TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, symbol);
    return static_cast<double>(s.hint >= 0 ? s.hint : std::clamp<int64_t>(unknown, s.min, s.max));
  };
  return sdk::fold_size<double>(t, d, leaf, [](uint32_t op, double a, double b) {
    switch (op) {
      case TSR_DIM_ADD: return a + b;
      case TSR_DIM_SUB: return a - b;
      case TSR_DIM_MUL: return a * b;
      case TSR_DIM_FLOORDIV: return b == 0 ? 0 : std::floor(a / b);
      case TSR_DIM_MOD: return b == 0 ? 0 : a - b * std::floor(a / b);
      case TSR_DIM_MIN: return std::min(a, b);
      default: return std::max(a, b);
    }
  });
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
