// SPDX-License-Identifier: Apache-2.0
// Attention as two contractions around a softmax (Vaswani et al. 2017, with grouped queries as in Ainslie et al. 2023).
#include <cmath>
#include <limits>

#include "build.hpp"
#include "contract.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

// [.., H, L, X] -> [.., H2, H/H2 * L, X]: heads that share a key head become further rows of it.
Var rows_per_key_head(Build& b, const Var& v, tsr_dim key_heads) {
  DimVector shape = v.sizes();
  const size_t h = shape.size() - 3;
  if (shape[h] == key_heads) return v;
  shape[h + 1] = b.dims.mul(b.dims.floordiv(shape[h], key_heads), shape[h + 1]);
  shape[h] = key_heads;
  return v.reshape(shape);
}

void attention(Build& b) {
  const Var q = b.operand(0), k = b.operand(1), v = b.operand(2);
  const tsr_dtype dtype = q.dtype(), compute = Build::compute_dtype(dtype);
  const int64_t batch = q.rank() - 2;
  const Ints axes = iota_ints(0, batch);
  const bool grouped = batch > 0;
  const auto rows = [&](const Var& x) { return grouped ? rows_per_key_head(b, x, k.size(batch - 1)) : x; };

  DimVector score_shape = q.sizes();
  score_shape.back() = k.size(-2);
  Var s = contract(rows(q), k, {axes, axes, {batch + 1}, {batch + 1}, compute}).reshape(score_shape);
  double scale = b.number("scale");
  if (scale == 0 && Dims::known(q.size(-1))) scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  s = scale != 0 ? s * scale : s * b.count(q.size(-1), compute).call("rsqrt");

  const double minus_inf = -std::numeric_limits<double>::infinity();
  const bool causal = b.flag("causal");
  if (causal) {
    const Var query = b.iota({score_shape[score_shape.size() - 2], 1}, 0), key = b.iota({1, score_shape.back()}, 1);
    s = select(key <= query, s, minus_inf);
  }
  if (b.has(3)) {
    const Var mask = b.operand(3);
    s = mask.dtype() == TSR_BOOL ? select(mask, s, minus_inf) : s + mask.to(compute);
  }
  Var p = s.call("softmax", {sdk::attr_int("axis", -1)});
  // softmax of a row without any key is NaN.
  if (causal || b.has(3)) p = select(s.max({s.rank() - 1}, true) == minus_inf, 0, p);
  const Var y = contract(rows(p.to(dtype)), v, {axes, axes, {batch + 1}, {batch}});
  b.replace(0, y.reshape(b.result().sizes()));
}

}  // namespace

void add_decompose_attention(Table& t) { t.decompose("attention", attention); }

}  // namespace tessera::opset
