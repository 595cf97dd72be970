// SPDX-License-Identifier: Apache-2.0
// matmul and linear as dot_general.
#include "build.hpp"
#include "contract.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

void matmul(Build& b) {
  const Var x = b.operand(0), y = b.operand(1);
  const int64_t k = y.rank() == 1 ? 0 : y.rank() - 2;
  // Without a batch on the right, or with a vector on the left, one contraction gives the dimensions in the right order.
  if (x.rank() == 1 || y.rank() <= 2) {
    b.replace(0, contract(x, y, {{}, {}, {x.rank() - 1}, {k}}));
    return;
  }
  const DimVector out = b.result().sizes();
  const auto batch = static_cast<int64_t>(out.size()) - 2;
  const auto with_batch = [&](const Var& v) {
    DimVector shape(out.begin(), out.begin() + batch);
    shape.insert(shape.end(), {v.size(-2), v.size(-1)});
    return v.broadcast(shape);
  };
  const Ints axes = iota_ints(0, batch);
  b.replace(0, contract(with_batch(x), with_batch(y), {axes, axes, {batch + 1}, {batch}}));
}

void linear(Build& b) {
  const Var x = b.operand(0);
  const Var y = contract(x, b.operand(1), {{}, {}, {x.rank() - 1}, {1}});
  b.replace(0, b.has(2) ? y + b.operand(2) : y);
}

}  // namespace

void add_decompose_linalg(Table& t) {
  t.decompose("matmul", matmul);
  t.decompose("linear", linear);
}

}  // namespace tessera::opset
