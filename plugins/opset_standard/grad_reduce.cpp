// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "build.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

struct ReductionGrad {
  explicit ReductionGrad(GradBuild& build) : b(build), x(b.operand(0)), axes(b.axes("axes", x.rank())) {
    kept = x.sizes();
    for (int64_t a : axes) kept[static_cast<size_t>(a)] = 1;
  }
  // A value of the result's shape, with the reduced dimensions back as 1.
  Var keep(const Var& v) const { return v.reshape(kept); }
  Var grad() const { return keep(b.grad()); }
  Var result() const { return keep(b.result()); }
  Var count(tsr_dtype dtype) const { return b.count(b.elements(x, axes), dtype); }
  GradBuild& b;
  const Var x;
  const Ints axes;
  DimVector kept;
};

void reduce_sum(GradBuild& b) {
  const ReductionGrad r(b);
  b.set(0, r.grad().broadcast(r.x.sizes()));
}

// The product of the others: result / x where no element is 0, at the only 0 the product of the rest, else 0.
void reduce_prod(GradBuild& b) {
  const ReductionGrad r(b);
  const Var zero = r.x == 0, filled = select(zero, 1, r.x);
  const Var zeros = zero.to(TSR_I64).sum(r.axes, true);
  const Var rest = filled.call("reduce_prod", {sdk::attr_ints("axes", r.axes), sdk::attr_bool("keepdims", true)});
  const Var others = select(zero, select(zeros == 1, rest, 0), select(zeros == 0, rest / filled, 0));
  b.set(0, r.grad() * others.conj());
}

// Equal extremes share the gradient evenly.
void extreme(GradBuild& b) {
  const ReductionGrad r(b);
  const Var hit = (r.x == r.result()).to(r.x.dtype());
  const Var n = b.wide(hit).sum(r.axes, true).to(r.x.dtype());
  b.set(0, select(r.x == r.result(), r.grad() / n, 0));
}

void mean(GradBuild& b) {
  const ReductionGrad r(b);
  b.set(0, (r.grad() / r.count(r.x.dtype())).broadcast(r.x.sizes()));
}

void variance(GradBuild& b) {
  const ReductionGrad r(b);
  const Var x = b.wide(r.x), d = x - x.sum(r.axes, true) / r.count(x.dtype());
  const Var n = maximum(r.count(x.dtype()) - b.number("correction"), b.scalar(0, x.dtype()));
  b.set(0, (b.wide(r.grad()) * 2 / n * d).to(r.x.dtype()));
}

void logsumexp(GradBuild& b) {
  const ReductionGrad r(b);
  const Var x = b.wide(r.x), y = b.wide(r.result());
  // Where the result is infinite, x - y would be inf - inf; its limit gives every finite element no part.
  const Var d = select(x == y, 0, x - y);
  b.set(0, (b.wide(r.grad()) * d.exp()).to(r.x.dtype()));
}

void norm(GradBuild& b) {
  const ReductionGrad r(b);
  const double p = b.number("p");
  const Var x = b.wide(r.x), g = b.wide(r.grad()), y = b.wide(r.result());
  const auto set = [&](const Var& v) { b.set(0, v.to(r.x.dtype())); };
  if (p == 0) return;  // a count: flat wherever it has a derivative
  if (p == 1) return set(g * x.call("sign"));
  if (p == 2) return set(select(y == 0, 0, g * (x / y)));
  const Var a = x.call("abs");
  if (std::isinf(p)) {
    const Var hit = a == y;
    const Var n = hit.to(x.dtype()).sum(r.axes, true);
    return set(select(hit, g / n * x.call("sign"), 0));
  }
  // d|x|_p = sign(x) (|x| / |x|_p)^(p - 1)
  set(select(either(y == 0, a == 0), 0, g * x.call("sign") * (a / y).call("pow", b.scalar(p - 1, x.dtype()))));
}

}  // namespace

void add_grad_reduce(Table& t) {
  t.grad("reduce_sum", reduce_sum);
  t.grad("reduce_prod", reduce_prod);
  t.grad("reduce_max", extreme);
  t.grad("reduce_min", extreme);
  t.grad("mean", mean);
  t.grad("variance", variance);
  t.grad("logsumexp", logsumexp);
  t.grad("norm", norm);
}

}  // namespace tessera::opset
