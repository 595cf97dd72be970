// SPDX-License-Identifier: Apache-2.0
// What capturing clients ask of symbolic sizes: their values for the call at hand, and their text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/sizes.hpp"

namespace tessera::sdk {

inline const tsr_symbol& symbol_of(const tsr_tables& t, tsr_dim d) {  // `d` is a symbol
  const uint32_t symbol = TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d))->symbol;
  return *TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, symbol);
}

// What a size is for the arguments that the graph was captured for; nothing where the data decides, or nobody may know.
inline std::optional<int64_t> hint_of(const tsr_tables& t, tsr_dim d) {
  using Value = std::optional<int64_t>;
  const auto leaf = [&](tsr_dim x) -> Value {
    if (!TSR_DIM_IS_EXPR(x)) return x;
    const tsr_symbol& s = symbol_of(t, x);
    return s.unbacked || s.hint < 0 ? std::nullopt : Value(s.hint);
  };
  return fold_size<Value>(t, d, leaf, [](uint32_t op, Value a, Value b) -> Value {
    if (!a || !b) return std::nullopt;
    const auto floordiv = [](int64_t x, int64_t y) { return y == 0 ? 0 : x / y - (x % y != 0 && ((x < 0) != (y < 0))); };
    switch (op) {
      case TSR_DIM_ADD: return *a + *b;
      case TSR_DIM_SUB: return *a - *b;
      case TSR_DIM_MUL: return *a * *b;
      case TSR_DIM_FLOORDIV: return floordiv(*a, *b);
      case TSR_DIM_MOD: return *a - floordiv(*a, *b) * *b;
      case TSR_DIM_MIN: return std::min(*a, *b);
      default: return std::max(*a, *b);
    }
  });
}

// "(s0 * 4)": a size for people.
inline std::string size_text(const tsr_tables& t, tsr_dim d) {
  const auto leaf = [&](tsr_dim x) { return TSR_DIM_IS_EXPR(x) ? std::string(symbol_of(t, x).name) : std::to_string(x); };
  return fold_size<std::string>(t, d, leaf, [](uint32_t op, const std::string& a, const std::string& b) {
    constexpr size_t kReadable = 400;  // characters of an operand that are repeated
    static const char* const kOp[] = {"", " + ", " - ", " * ", " // ", " % ", " min ", " max "};
    const auto part = [&](const std::string& x) { return x.size() > kReadable ? "..." : x; };
    return "(" + part(a) + kOp[op] + part(b) + ")";
  });
}

}  // namespace tessera::sdk
