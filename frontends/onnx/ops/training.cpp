// SPDX-License-Identifier: Apache-2.0
// ai.onnx.preview.training: one step of an optimiser over several tensors. Inputs: rate, step count, then groups of n tensors
// each.
#include <cmath>

#include "../op.hpp"

namespace tessera::onnx {
namespace {

struct Step {
  V rate, count;  // count in the dtype of the tensors
  size_t n;
};

Step step(Op& op, size_t groups) {
  op.expect(op.num_inputs() > 2 && (op.num_inputs() - 2) % groups == 0,
            "the tensors are no " + std::to_string(groups) + " groups");
  const V x = op.in(2);
  return {op.b.cast(op.b.reshape(op.in(0), {}), x.dtype()), op.b.cast(op.b.reshape(op.in(1), {}), x.dtype()),
          (op.num_inputs() - 2) / groups};
}

void adagrad(Op& op) {
  const Step s = step(op, 3);
  const double norm = op.f("norm_coefficient", 0.0);
  const V rate = s.rate / (s.count * op.f("decay_factor", 0.0) + 1.0);
  for (size_t i = 0; i < s.n; ++i) {
    const V x = op.in(2 + i), h = op.in(2 + 2 * s.n + i);
    const V g = x * norm + op.in(2 + s.n + i);
    const V h_new = h + g * g;
    op.out(x - rate * g / (h_new.call("sqrt") + op.f("epsilon", 1e-6f)), i);
    op.out(h_new, s.n + i);
  }
}

void adam(Op& op) {
  Build& b = op.b;
  const Step s = step(op, 4);
  const double alpha = op.f("alpha", 0.9f), beta = op.f("beta", 0.999f), norm = op.f("norm_coefficient", 0.0),
               post = op.f("norm_coefficient_post", 0.0);
  const auto power = [&](double base) { return b.scalar(base, s.count.dtype()).call("pow", s.count); };
  const V rate = select(s.count > 0.0, s.rate * (1.0 - power(beta)).call("sqrt") / (1.0 - power(alpha)), s.rate);
  for (size_t i = 0; i < s.n; ++i) {
    const V x = op.in(2 + i), v = op.in(2 + 2 * s.n + i), h = op.in(2 + 3 * s.n + i);
    const V g = x * norm + op.in(2 + s.n + i);
    const V v_new = v * alpha + g * (1 - alpha), h_new = h * beta + g * g * (1 - beta);
    op.out((x - rate * v_new / (h_new.call("sqrt") + op.f("epsilon", 1e-6f))) * (1 - post), i);
    op.out(v_new, s.n + i);
    op.out(h_new, 2 * s.n + i);
  }
}

void momentum(Op& op) {
  Build& b = op.b;
  const Step s = step(op, 3);
  const double alpha = op.f("alpha"), norm = op.f("norm_coefficient");
  const bool nesterov = op.s("mode") == "nesterov";
  const V beta = select(s.count > 0.0, b.scalar(op.f("beta"), s.count.dtype()), b.scalar(1, s.count.dtype()));
  for (size_t i = 0; i < s.n; ++i) {
    const V x = op.in(2 + i), v = op.in(2 + 2 * s.n + i);
    const V g = x * norm + op.in(2 + s.n + i);
    const V v_new = v * alpha + beta * g;
    op.out(x - s.rate * (nesterov ? g + v_new * alpha : v_new), i);
    op.out(v_new, s.n + i);
  }
}

}  // namespace

std::span<const Record> training_records() {
  static constexpr Record records[] = {
      {"ai.onnx.preview.training", "Adagrad", adagrad},
      {"ai.onnx.preview.training", "Adam", adam},
      {"ai.onnx.preview.training", "Momentum", momentum},
  };
  return records;
}

}  // namespace tessera::onnx
