// SPDX-License-Identifier: Apache-2.0
// Walking size expressions of a graph's tables.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/abi.h"

namespace tessera::sdk {

// The value of size `d` from the values of its parts: leaf(x) is asked for numbers and for expressions that are symbols,
// combine(op, a, b) for the others. Expressions share their parts, so the tree that one stands for can be exponentially larger:
// each part is visited once, without recursion. `expr(id)` gives an expression of the table.
template <class Value, class Expr, class Leaf, class Combine>
Value fold_size(tsr_dim d, const Expr& expr, const Leaf& leaf, const Combine& combine) {
  const auto is_leaf = [&](tsr_dim x) { return !TSR_DIM_IS_EXPR(x) || expr(TSR_DIM_EXPR_ID(x)).op == TSR_DIM_SYMBOL; };
  if (is_leaf(d)) return leaf(d);
  const tsr_dim_expr root = expr(TSR_DIM_EXPR_ID(d));
  if (is_leaf(root.lhs) && is_leaf(root.rhs)) return combine(root.op, leaf(root.lhs), leaf(root.rhs));
  std::unordered_map<uint32_t, Value> known;
  std::vector<uint32_t> pending{TSR_DIM_EXPR_ID(d)};
  while (!pending.empty()) {
    const uint32_t id = pending.back();
    const tsr_dim_expr e = expr(id);
    const auto missing = [&](tsr_dim x) { return !is_leaf(x) && known.find(TSR_DIM_EXPR_ID(x)) == known.end(); };
    const bool left = missing(e.lhs), right = missing(e.rhs);
    if (right) pending.push_back(TSR_DIM_EXPR_ID(e.rhs));
    if (left) pending.push_back(TSR_DIM_EXPR_ID(e.lhs));
    if (left || right) continue;
    const auto value = [&](tsr_dim x) -> Value { return is_leaf(x) ? leaf(x) : known.find(TSR_DIM_EXPR_ID(x))->second; };
    known.insert_or_assign(id, combine(e.op, value(e.lhs), value(e.rhs)));
    pending.pop_back();
  }
  return known.find(TSR_DIM_EXPR_ID(d))->second;
}

template <class Value, class Leaf, class Combine>
Value fold_size(const tsr_tables& t, tsr_dim d, const Leaf& leaf, const Combine& combine) {
  const auto expr = [&](uint32_t id) -> const tsr_dim_expr& { return *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, id); };
  return fold_size<Value>(d, expr, leaf, combine);
}

// The symbols that `d` mentions, ascending.
inline std::vector<uint32_t> symbols_in(const tsr_tables& t, tsr_dim d) {
  std::vector<uint32_t> out;
  const auto leaf = [&](tsr_dim x) {
    if (TSR_DIM_IS_EXPR(x)) out.push_back(TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(x))->symbol);
    return 0;
  };
  fold_size<int>(t, d, leaf, [](uint32_t, int, int) { return 0; });
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Whether two sizes that are broadcast against each other, and of which one may be 1, are to be equal all the same: where both
// are made of the same symbols, a model means them to be (h and floordiv(h + 7, 8) * 8), and kernels that know that they are
// serve it best.
inline bool broadcast_means_equal(const tsr_tables& t, tsr_dim a, tsr_dim b) {
  return TSR_DIM_IS_EXPR(a) && TSR_DIM_IS_EXPR(b) && symbols_in(t, a) == symbols_in(t, b);
}

// The size of two dimensions that are broadcast against each other when only the run tells which of them is 1: they are equal,
// or one is 1. make(op, a, b) and compare(relation, a, b) are those of the graph.
template <class Make, class Compare>
tsr_dim broadcast_size(tsr_dim a, tsr_dim b, const Make& make, const Compare& compare) {
  if (!TSR_DIM_IS_EXPR(a) && a != 1) return a;
  if (!TSR_DIM_IS_EXPR(b) && b != 1) return b;
  if (compare(TSR_EQ, a, b) == TSR_TRUE || compare(TSR_EQ, b, 1) == TSR_TRUE) return a;
  if (compare(TSR_EQ, a, 1) == TSR_TRUE) return b;
  if (compare(TSR_GE, a, 1) == TSR_TRUE && compare(TSR_GE, b, 1) == TSR_TRUE) return make(TSR_DIM_MAX, a, b);
  // A size of 0 stays 0.
  return make(TSR_DIM_MAX, make(TSR_DIM_MUL, a, make(TSR_DIM_MIN, b, 1)), make(TSR_DIM_MUL, b, make(TSR_DIM_MIN, a, 1)));
}

}  // namespace tessera::sdk
