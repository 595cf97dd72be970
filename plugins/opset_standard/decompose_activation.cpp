// SPDX-License-Identifier: Apache-2.0
// gelu, whose attribute chooses the formula, and dropout, which takes a scale from its attribute.
#include <cmath>
#include <numbers>

#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

void gelu(Build& b) {
  const Var x = b.wide(b.operand(0));
  Var y;
  if (b.text("approximate") == "tanh") {
    const Var inner = (x + x * x * x * 0.044715) * std::sqrt(2 / std::numbers::pi);
    y = x * 0.5 * (inner.call("tanh") + 1);
  } else {
    y = x * 0.5 * ((x * std::numbers::sqrt2 * 0.5).call("erf") + 1);
  }
  b.replace(0, y.to(b.operand(0).dtype()));
}

void dropout(Build& b) {
  const Var x = b.operand(0), state = b.operand(1);
  const double p = b.number("p");
  const DimVector shape = x.sizes();
  const tsr_attr attrs[] = {sdk::attr_dims("shape", shape), sdk::attr_dtype("dtype", TSR_F32)};
  const std::vector<Var> random = b.ops("random_uniform", {&state, 1}, attrs);
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  b.replace(0, select(random[0] >= p, b.wide(x) * scale, 0).to(x.dtype()));
  b.replace(1, random[1]);
}

}  // namespace

void add_decompose_activation(Table& t) {
  t.decompose("gelu", gelu);
  t.decompose("dropout", dropout);
}

}  // namespace tessera::opset
