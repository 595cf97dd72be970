// SPDX-License-Identifier: Apache-2.0
// mean, variance, logsumexp, norm and sum_to as primitive reductions.
#include <cmath>
#include <limits>

#include "build.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Reduction {  // the operands and attributes that all of them share
  explicit Reduction(Build& b)
      : x(b.wide(b.operand(0))), axes(b.axes("axes", x.rank())), keepdims(b.flag("keepdims")), dtype(b.operand(0).dtype()) {}
  Var x;
  Ints axes;
  bool keepdims;
  tsr_dtype dtype;
};

Var mean_of(Build& b, const Var& x, const Ints& axes, bool keepdims) {
  return x.sum(axes, keepdims) / b.count(b.elements(x, axes), x.dtype());
}

void mean(Build& b) {
  const Reduction r(b);
  b.replace(0, mean_of(b, r.x, r.axes, r.keepdims).to(r.dtype));
}

void variance(Build& b) {
  const Reduction r(b);
  const Var d = r.x - mean_of(b, r.x, r.axes, true);
  const Var n = b.count(b.elements(r.x, r.axes), r.x.dtype()) - b.number("correction");
  b.replace(0, ((d * d).sum(r.axes, r.keepdims) / maximum(n, b.scalar(0, n.dtype()))).to(r.dtype));
}

void logsumexp(Build& b) {
  const Reduction r(b);
  const Var top = r.x.max(r.axes, true);
  // An infinite maximum would give inf - inf; relative to 0 the sum is right.
  const Var m = select(top.call("is_finite"), top, 0);
  const Var s = (r.x - m).exp().sum(r.axes, r.keepdims).log();
  b.replace(0, (s + m.reshape(s.sizes())).to(r.dtype));
}

void norm(Build& b) {
  const Reduction r(b);
  const double p = b.number("p");
  const Var a = r.x.call("abs");
  const auto sum = [&](const Var& v) { return v.sum(r.axes, r.keepdims); };
  Var out;
  if (p == kInf)
    out = a.max(r.axes, r.keepdims);
  else if (p == -kInf)
    out = a.call("reduce_min", {sdk::attr_ints("axes", r.axes), sdk::attr_bool("keepdims", r.keepdims)});
  else if (p == 0)
    out = sum(r.x.call("ne", b.scalar(0, r.x.dtype())).to(r.x.dtype()));
  else if (p == 1)
    out = sum(a);
  else if (p == 2)
    out = sum(r.x * r.x).call("sqrt");
  else
    out = sum(a.call("pow", b.scalar(p, a.dtype()))).call("pow", b.scalar(1 / p, a.dtype()));
  // Without numbers the maximum of absolute values is 0, as every other norm, not -inf.
  if (p == kInf) out = maximum(out, b.scalar(0, out.dtype()));
  b.replace(0, out.to(r.dtype));
}

void sum_to(Build& b) {
  const Var x = b.operand(0);
  const Ints shape = b.ints("shape");
  const int64_t lead = x.rank() - static_cast<int64_t>(shape.size());
  Ints axes = iota_ints(0, lead);
  DimVector
      apart;  // x, with a dimension of which only the run tells whether it is summed as two: how often it is repeated, and its size
  bool split = false;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const tsr_dim from = x.size(i), to = i < lead ? 1 : shape[static_cast<size_t>(i - lead)];
    const auto at = static_cast<int64_t>(apart.size());
    if (i >= lead && to == 1 && from != 1) axes.push_back(at);
    if (i >= lead && to != 1 && !b.dims.proven(TSR_EQ, from, to)) {
      apart.push_back(b.dims.floordiv(from, b.dims.max(to, 1)));
      axes.push_back(at);
      split = true;
      apart.push_back(to);
    } else {
      apart.push_back(from);
    }
  }
  const Var whole = split ? x.reshape(apart) : x;
  const Var s = axes.empty() ? x : b.wide(whole).sum(axes, false).to(x.dtype());
  b.replace(0, s.reshape(shape));
}

}  // namespace

void add_decompose_reduce(Table& t) {
  t.decompose("mean", mean);
  t.decompose("variance", variance);
  t.decompose("logsumexp", logsumexp);
  t.decompose("norm", norm);
  t.decompose("sum_to", sum_to);
}

}  // namespace tessera::opset
