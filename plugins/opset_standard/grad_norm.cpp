// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"
#include "normalize.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

void layer_norm(GradBuild& b) {
  const Var x = b.wide(b.operand(0)), g = b.wide(b.grad());
  const Ints axes = iota_ints(b.axis("axis", x.rank()), x.rank());
  const Normalized n = normalize(b, x, axes, b.number("eps"));
  const Var xhat = n.xhat(), gw = b.has(1) ? g * b.wide(b.operand(1)) : g;
  const Var dx = n.rstd * (gw - mean_over(b, gw, axes) - xhat * mean_over(b, gw * xhat, axes));
  b.set(0, dx.to(b.operand(0).dtype()));
  if (b.has(1)) b.set(1, (g * xhat).sum_to(b.operand(1).sizes()).to(b.operand(1).dtype()));
  if (b.has(2)) b.set(2, g.sum_to(b.operand(2).sizes()).to(b.operand(2).dtype()));
}

void rms_norm(GradBuild& b) {
  const Var x = b.wide(b.operand(0)), g = b.wide(b.grad());
  const Ints axes = iota_ints(b.axis("axis", x.rank()), x.rank());
  const Var r = rms_scale(b, x, axes, b.number("eps")), xhat = x * r;
  const Var gw = b.has(1) ? g * b.wide(b.operand(1)) : g;
  b.set(0, (r * (gw - xhat * mean_over(b, gw * xhat, axes))).to(b.operand(0).dtype()));
  if (b.has(1)) b.set(1, (g * xhat).sum_to(b.operand(1).sizes()).to(b.operand(1).dtype()));
}

}  // namespace

void add_grad_norm(Table& t) {
  t.grad("layer_norm", layer_norm);
  t.grad("rms_norm", rms_norm);
}

}  // namespace tessera::opset
