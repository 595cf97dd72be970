// SPDX-License-Identifier: Apache-2.0
// Gradients of elementwise ops that take complex operands, and of clamp. For a complex operand the gradient is that of PyTorch:
// the conjugate Wirtinger derivative, so that a step against it descends.
#include "build.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

void abs(GradBuild& b) {
  const Var x = b.operand(0), g = b.grad();
  if (!is_complex(x.dtype())) {
    b.set(0, g * x.call("sign"));
    return;
  }
  // g * x / |x|, 0 at 0.
  const Var r = b.result(), s = select(r == 0, 0, g / r);
  b.set(0, (x.call("real") * s).call("complex", x.call("imag") * s));
}

void exp(GradBuild& b) { b.set(0, b.grad() * b.result().conj()); }
void log(GradBuild& b) { b.set(0, b.grad() / b.operand(0).conj()); }
void sqrt(GradBuild& b) { b.set(0, b.grad() / (b.result() * 2).conj()); }
void reciprocal(GradBuild& b) {
  const Var y = b.result();
  b.set(0, -(b.grad() * (y * y).conj()));
}
void sin(GradBuild& b) { b.set(0, b.grad() * b.operand(0).call("cos").conj()); }
void cos(GradBuild& b) { b.set(0, -(b.grad() * b.operand(0).call("sin").conj())); }
void tanh(GradBuild& b) {
  const Var y = b.result();
  b.set(0, b.grad() * (1 - y * y).conj());
}

void mul(GradBuild& b) {
  b.set_summed(0, b.grad() * b.operand(1).conj());
  b.set_summed(1, b.grad() * b.operand(0).conj());
}

void div(GradBuild& b) {
  const Var d = b.operand(1).conj(), g = b.grad() / d;
  b.set_summed(0, g);
  b.set_summed(1, -(g * b.result().conj()));
}

// The element passes where it is not limited, bounds where they limit; ties belong to the element. A NaN passes, as in PyTorch.
void clamp(GradBuild& b) {
  const Var x = b.operand(0), g = b.grad();
  const bool has_lo = b.has(1), has_hi = b.has(2);
  Var outside;
  const auto mark = [&](const Var& limited) { outside = outside ? either(outside, limited) : limited; };
  if (has_lo) mark(x < b.operand(1));
  if (has_hi) mark(x > b.operand(2));
  b.set_summed(0, outside ? select(outside, 0, g) : g);
  if (has_lo) {
    // hi wins over lo.
    Var limits = x < b.operand(1);
    if (has_hi) limits = both(limits, b.operand(1) < b.operand(2));
    b.set_summed(1, select(limits, g, 0));
  }
  if (has_hi) {
    Var limits = x > b.operand(2);
    if (has_lo) limits = either(limits, b.operand(1) > b.operand(2));
    b.set_summed(2, select(limits, g, 0));
  }
}

}  // namespace

void add_grad_elementwise(Table& t) {
  t.grad("abs", abs);
  t.grad("exp", exp);
  t.grad("log", log);
  t.grad("sqrt", sqrt);
  t.grad("reciprocal", reciprocal);
  t.grad("sin", sin);
  t.grad("cos", cos);
  t.grad("tanh", tanh);
  t.grad("mul", mul);
  t.grad("div", div);
  t.grad("clamp", clamp);
}

}  // namespace tessera::opset
