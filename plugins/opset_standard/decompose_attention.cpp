// SPDX-License-Identifier: Apache-2.0
// Attention as two contractions around a softmax (Vaswani et al. 2017, with grouped queries as in Ainslie et al. 2023), and its
// gradient.
#include <cmath>
#include <limits>

#include "build.hpp"
#include "contract.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

constexpr double kMinusInf = -std::numeric_limits<double>::infinity();

// [.., H, L, X] -> [.., H2, H/H2 * L, X]: heads that share a key head become further rows of it.
Var rows_per_key_head(Build& b, const Var& v, tsr_dim key_heads) {
  DimVector shape = v.sizes();
  const size_t h = shape.size() - 3;
  if (shape[h] == key_heads) return v;
  shape[h + 1] = b.dims.mul(b.dims.floordiv(shape[h], key_heads), shape[h + 1]);
  shape[h] = key_heads;
  return v.reshape(shape);
}

struct Operands {
  Var q, k, v, mask;  // no mask: an empty Var
};

// The order of sums for grouped queries is that of the products: queries of all heads that share a key head are its rows.
class Scores {
 public:
  Scores(Build& b, const Operands& o)
      : dtype_(o.q.dtype()),
        compute_(Build::compute_dtype(dtype_)),
        axes_(iota_ints(0, o.q.rank() - 2)),
        key_heads_(axes_.empty() ? tsr_dim{1} : o.k.size(batch() - 1)),
        hides_(b.flag("causal") || o.mask) {
    DimVector shape = o.q.sizes();
    shape.back() = o.k.size(-2);
    Var s = contract(rows(b, o.q), o.k, {axes_, axes_, {batch() + 1}, {batch() + 1}, compute_}).reshape(shape);
    double scale = b.number("scale");
    if (scale == 0 && Dims::known(o.q.size(-1))) scale = 1 / std::sqrt(static_cast<double>(o.q.size(-1)));
    scale_ = scale != 0 ? b.scalar(scale, compute_) : b.count(o.q.size(-1), compute_).call("rsqrt");
    s = s * scale_;
    if (b.flag("causal")) {
      const Var query = b.iota({shape[shape.size() - 2], 1}, 0), key = b.iota({1, shape.back()}, 1);
      s = select(key <= query, s, kMinusInf);
    }
    if (o.mask) s = o.mask.dtype() == TSR_BOOL ? select(o.mask, s, kMinusInf) : s + o.mask.to(compute_);
    s_ = s;
  }

  const Var& all() const { return s_; }
  const Var& scale() const { return scale_; }
  bool hides() const { return hides_; }  // whether there may be queries that see no key
  tsr_dtype compute() const { return compute_; }

  // [.., H, L, X] -> [.., H2, H / H2 * L, X].
  Var rows(Build& b, const Var& v) const { return axes_.empty() ? v : rows_per_key_head(b, v, key_heads_); }
  // Products of what has queries and keys: weights (or their gradients) times values (or keys) ..
  Var over_keys(Build& b, const Var& weights, const Var& values) const {
    return contract(rows(b, weights.to(dtype_)), values, {axes_, axes_, {batch() + 1}, {batch()}});
  }
  // .. transposed weights times what belongs to queries ..
  Var over_queries(Build& b, const Var& weights, const Var& queries) const {
    return contract(rows(b, weights.to(dtype_)), rows(b, queries), {axes_, axes_, {batch()}, {batch()}});
  }
  // .. and what belongs to queries times what belongs to keys.
  Var between(Build& b, const Var& queries, const Var& keys) const {
    return contract(rows(b, queries), keys, {axes_, axes_, {batch() + 1}, {batch() + 1}, compute_}).reshape(s_.sizes());
  }

 private:
  int64_t batch() const { return static_cast<int64_t>(axes_.size()); }

  const tsr_dtype dtype_, compute_;
  const Ints axes_;
  const tsr_dim key_heads_;
  const bool hides_;
  Var s_, scale_;
};

void attention_lse(Build& b) {
  const Scores s(b, {b.operand(0), b.operand(1), b.operand(2), b.has(3) ? b.operand(3) : Var()});
  const Ints keys = {s.all().rank() - 1};
  Var p = s.all().call("softmax", {sdk::attr_int("axis", -1)});
  // softmax of a row without any key is NaN.
  if (s.hides()) p = select(s.all().max(keys, true) == kMinusInf, 0, p);
  b.replace(0, s.over_keys(b, p, b.operand(2)).reshape(b.result().sizes()));
  b.replace(1, s.all().call("logsumexp", {sdk::attr_ints("axes", keys)}));
}

void attention(Build& b) {
  const Var operands[] = {b.operand(0), b.operand(1), b.operand(2), b.has(3) ? b.operand(3) : Var()};
  const tsr_attr attrs[] = {sdk::attr_float("scale", b.number("scale")), sdk::attr_bool("causal", b.flag("causal"))};
  b.replace(0, b.ops("attention_lse", operands, attrs)[0]);
}

// Dao et al. 2022 (arXiv:2205.14135), algorithm 4, without its blocks.
void attention_backward(Build& b) {
  const Var dy = b.operand(0), q = b.operand(1), k = b.operand(2), v = b.operand(3), lse = b.operand(5), delta = b.operand(6);
  const Scores s(b, {q, k, v, b.has(4) ? b.operand(4) : Var()});
  // Scores less the lse of a query that sees no key would be NaN, and so would their gradient, whatever is picked later.
  const Var base = s.hides() ? select(lse == kMinusInf, 0, lse) : lse;
  const Var p = (s.all() - base.expand({-1})).exp();
  const Var ds = p * (s.between(b, dy, v) - delta.expand({-1})) * s.scale();
  b.replace(0, s.over_keys(b, ds, k).reshape(q.sizes()));
  b.replace(1, s.over_queries(b, ds, q).reshape(k.sizes()));
  b.replace(2, s.over_queries(b, p, dy).reshape(v.sizes()));
}

void attention_y_backward(Build& b) {
  const Var dy = b.operand(0);
  const Var delta = (b.wide(dy) * b.wide(b.operand(6))).sum({dy.rank() - 1}, false);
  const Var operands[] = {dy, b.operand(1), b.operand(2), b.operand(3), b.has(4) ? b.operand(4) : Var(), b.operand(5), delta};
  const tsr_attr attrs[] = {sdk::attr_float("scale", b.number("scale")), sdk::attr_bool("causal", b.flag("causal"))};
  const std::vector<Var> d = b.ops("attention_backward", operands, attrs);
  for (uint32_t i = 0; i < 3; ++i) b.replace(i, d[i]);
}

}  // namespace

void add_decompose_attention(Table& t) {
  t.decompose("attention", attention);
  t.decompose("attention_lse", attention_lse);
  t.decompose("attention_backward", attention_backward);
  t.decompose("attention_y_backward", attention_y_backward);
}

}  // namespace tessera::opset
