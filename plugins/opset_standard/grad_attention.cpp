// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

// An added mask that is differentiated is left out here: its gradient is as large as the scores, and comes from the parts.
void attention_lse(GradBuild& b) {
  const Var dy = b.grad_or_zeros(0);
  Var last = b.result(0);
  if (b.has_grad(1)) last = (b.wide(dy) * b.wide(last)).sum({dy.rank() - 1}, false) - b.grad(1);
  const Var operands[] = {dy, b.operand(0), b.operand(1), b.operand(2), b.has(3) ? b.operand(3) : Var(), b.result(1), last};
  const tsr_attr attrs[] = {sdk::attr_float("scale", b.number("scale")), sdk::attr_bool("causal", b.flag("causal"))};
  const std::vector<Var> d = b.ops(b.has_grad(1) ? "attention_backward" : "attention_y_backward", operands, attrs);
  for (uint32_t i = 0; i < 3; ++i) b.set(i, d[i]);
}

}  // namespace

void add_grad_attention(Table& t) { t.grad("attention_lse", attention_lse); }

}  // namespace tessera::opset
