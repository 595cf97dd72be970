// SPDX-License-Identifier: Apache-2.0
// Gradients of gelu and cross_entropy, whose formulas depend on attributes.
#include <cmath>
#include <numbers>

#include "build.hpp"
#include "loss.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

void gelu(GradBuild& b) {
  const Var x = b.wide(b.operand(0)), g = b.wide(b.grad());
  Var d;
  if (b.text("approximate") == "tanh") {
    const double beta = std::sqrt(2 / std::numbers::pi);
    const Var x2 = x * x, t = ((x + x2 * x * 0.044715) * beta).call("tanh");
    d = (t + 1) * 0.5 + x * 0.5 * (1 - t * t) * ((x2 * (3 * 0.044715) + 1) * beta);
  } else {
    // cdf(x) + x pdf(x)
    const Var cdf = ((x * std::numbers::sqrt2 * 0.5).call("erf") + 1) * 0.5;
    d = cdf + x * ((x * x * -0.5).exp() * (1 / std::sqrt(2 * std::numbers::pi)));
  }
  b.set(0, (g * d).to(b.operand(0).dtype()));
}

// The loss of one place is -sum_c q_c log_softmax(x)_c with weights q that do not depend on x, so dx = softmax(x) sum(q) - q.
void cross_entropy(GradBuild& b) {
  const Targets t(b);
  const Var x = t.logits;
  const double smoothing = b.number("label_smoothing");
  const auto at_places = [](const Var& v) { return v.expand({1}); };  // [N, *S] -> [N, 1, *S]
  DimVector classes(static_cast<size_t>(x.rank() - 1), 1);
  classes[0] = x.size(1);
  const Var hit = at_places(t.index) == b.iota(classes, 0, t.index.dtype());
  Var q = select(hit, at_places(t.weight_of_target), 0);
  if (smoothing > 0) {
    const Var share =
        (t.class_weight ? t.weight_along_classes() : b.scalar(1, x.dtype())) * smoothing / b.count(x.size(1), x.dtype());
    q = q * (1 - smoothing) + select(at_places(t.ignored), 0, share);
  }
  Var g = b.wide(b.grad());
  const std::string_view reduction = b.text("reduction");
  if (reduction == "mean") g = g / t.weight_of_target.sum(iota_ints(0, t.weight_of_target.rank()), false);
  if (reduction == "none") g = at_places(g);
  const Var p = x.call("softmax", {sdk::attr_int("axis", 1)});
  const Var d = (p * q.sum({1}, true) - q) * g;
  b.set(0, select(at_places(t.ignored), 0, d).to(b.operand(0).dtype()));
}

}  // namespace

void add_grad_activation(Table& t) {
  t.grad("gelu", gelu);
  t.grad("cross_entropy", cross_entropy);
}

}  // namespace tessera::opset
