// SPDX-License-Identifier: Apache-2.0
#include "sizes.hpp"

#include <algorithm>

namespace tessera::bucket {

const tsr_dim_expr& Sizes::expr(tsr_dim d) const {
  const tsr_tables& t = g_.tables();
  return *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d));
}

bool Sizes::mentions(tsr_dim d) const {
  if (!TSR_DIM_IS_EXPR(d)) return false;
  if (const auto at = mentions_.find(d); at != mentions_.end()) return at->second;
  const tsr_dim_expr e = expr(d);
  const bool found = e.op == TSR_DIM_SYMBOL ? std::find(symbols_.begin(), symbols_.end(), e.symbol) != symbols_.end()
                                            : mentions(e.lhs) || mentions(e.rhs);
  return mentions_[d] = found;
}

bool Sizes::mentions(std::span<const tsr_dim> dims) const {
  return std::any_of(dims.begin(), dims.end(), [this](tsr_dim d) { return mentions(d); });
}

bool Sizes::grows(tsr_dim d) const {
  if (!mentions(d)) return true;
  if (const auto at = grows_.find(d); at != grows_.end()) return at->second;
  return grows_[d] = combines_growing(d);
}

bool Sizes::combines_growing(tsr_dim d) const {
  const tsr_dim_expr e = expr(d);
  const auto positive = [this](tsr_dim x) { return !mentions(x) && g_.compare(TSR_GE, x, 0) == TSR_TRUE; };
  switch (e.op) {
    case TSR_DIM_SYMBOL: return true;
    case TSR_DIM_ADD:
    case TSR_DIM_MIN:
    case TSR_DIM_MAX: return grows(e.lhs) && grows(e.rhs);
    case TSR_DIM_SUB: return grows(e.lhs) && !mentions(e.rhs);
    case TSR_DIM_MUL: return (grows(e.lhs) && positive(e.rhs)) || (positive(e.lhs) && grows(e.rhs));
    case TSR_DIM_FLOORDIV: return grows(e.lhs) && positive(e.rhs);
    default: return false;
  }
}

tsr_dim Sizes::padded(tsr_dim d) {
  if (!mentions(d)) return d;
  if (const auto at = padded_.find(d); at != padded_.end()) return at->second;
  const tsr_dim_expr e = expr(d);  // a copy: new expressions move the table
  tsr_dim out = bucket_;
  if (e.op != TSR_DIM_SYMBOL) {
    const tsr_dim lhs = padded(e.lhs), rhs = padded(e.rhs);
    out = g_.dim(static_cast<tsr_dim_op>(e.op), lhs, rhs);
  }
  return padded_[d] = out;
}

std::vector<tsr_dim> Sizes::padded(std::span<const tsr_dim> dims) {
  std::vector<tsr_dim> out;
  for (const tsr_dim d : dims) out.push_back(padded(d));
  return out;
}

}  // namespace tessera::bucket
