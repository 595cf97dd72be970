// SPDX-License-Identifier: Apache-2.0
// Walking size expressions of a graph's tables.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/abi.h"

namespace tessera::sdk {

// The value of size `d` from the values of its parts: leaf(x) is asked for numbers and for expressions that are symbols, combine(op, a, b)
// for the others. Expressions share their parts, so the tree that one stands for can be exponentially larger: each part is visited
// once, without recursion. `expr(id)` gives an expression of the table.
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

}  // namespace tessera::sdk
