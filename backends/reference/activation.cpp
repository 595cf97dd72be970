// SPDX-License-Identifier: Apache-2.0
// Activation functions, softmax and log_softmax.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "accumulate.hpp"
#include "op.hpp"

namespace tessera::reference {

namespace {

template <class F>
void map(const Op& op, F f) {
  const Tensor x = op.in(0), y = op.out();
  for (Walk w(y.sizes()); w; w.next()) y.put<double>(y.offset(w.index()), f(x.real(w.index())));
}

void relu(const Op& op) {
  if (domain(op.in(0).dtype()) == Domain::Real) return map(op, [](double x) { return std::isnan(x) || x > 0 ? x : 0; });
  const Tensor x = op.in(0), y = op.out();
  for (Walk w(y.sizes()); w; w.next()) y.put<Int>(y.offset(w.index()), std::max<Int>(x.integer(w.index()), 0));
}
void leaky_relu(const Op& op) {
  const double slope = op.real("slope");
  map(op, [=](double x) { return x > 0 ? x : slope * x; });
}
void elu(const Op& op) {
  const double alpha = op.real("alpha");
  map(op, [=](double x) { return x > 0 ? x : alpha * std::expm1(x); });
}
void selu(const Op& op) {
  constexpr double alpha = 1.6732632423543772, scale = 1.0507009873554805;  // Klambauer et al. 2017, arXiv:1706.02515
  map(op, [=](double x) { return scale * (x > 0 ? x : alpha * std::expm1(x)); });
}
void celu(const Op& op) {
  const double alpha = op.real("alpha");
  map(op, [=](double x) { return x > 0 ? x : alpha * std::expm1(x / alpha); });
}
void gelu(const Op& op) {
  if (op.text("approximate") == "tanh")
    return map(op, [](double x) {
      // 1 + tanh(u) as 2 / (1 + exp(-2u)), which keeps its digits for large negative u.
      const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    });
  map(op, [](double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); });
}
void silu(const Op& op) {
  map(op, [](double x) { return x / (1 + std::exp(-x)); });
}
double softplus_of(double x, double beta, double threshold) {
  return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
}
void softplus(const Op& op) {
  const double beta = op.real("beta"), threshold = op.real("threshold");
  map(op, [=](double x) { return softplus_of(x, beta, threshold); });
}
void mish(const Op& op) {
  map(op, [](double x) { return x * std::tanh(softplus_of(x, 1, 20)); });
}
double limited(double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; }  // NaN stays
void hardsigmoid(const Op& op) {
  const double alpha = op.real("alpha"), beta = op.real("beta");
  map(op, [=](double x) { return limited(alpha * x + beta, 0, 1); });
}
void hardswish(const Op& op) {
  map(op, [](double x) { return x * limited(x + 3, 0, 6) / 6; });
}

void softmax_lines(const Op& op, bool logarithm) {
  const Tensor x = op.in(0), y = op.out();
  const int64_t axis = x.rank() ? op.axis("axis", x.rank()) : 0, n = x.rank() ? x.size(axis) : 1;
  if (x.elements() == 0) return;
  Index lines = x.sizes();
  if (x.rank()) lines[axis] = 1;
  for (Walk w(lines); w; w.next()) {
    Index i = w.index();
    const auto at = [&](int64_t k) -> const Index& {
      if (x.rank()) i[axis] = k;
      return i;
    };
    double top = -std::numeric_limits<double>::infinity();
    Sum<double> sum;
    for (int64_t k = 0; k < n; ++k) {
      const double v = x.real(at(k));
      if (std::isnan(v) || v > top) top = v;
      if (std::isnan(v)) break;
    }
    for (int64_t k = 0; k < n; ++k) sum.add(std::exp(x.real(at(k)) - top));
    for (int64_t k = 0; k < n; ++k) {
      const double d = x.real(at(k)) - top;
      y.put<double>(y.offset(at(k)), logarithm ? d - std::log(sum.value()) : std::exp(d) / sum.value());
    }
  }
}
void softmax(const Op& op) { softmax_lines(op, false); }
void log_softmax(const Op& op) { softmax_lines(op, true); }

}  // namespace

std::span<const Entry> activation_ops() {
  static constexpr Entry entries[] = {
      {"relu", relu},
      {"leaky_relu", leaky_relu},
      {"elu", elu},
      {"selu", selu},
      {"celu", celu},
      {"gelu", gelu},
      {"silu", silu},
      {"softplus", softplus},
      {"mish", mish},
      {"hardsigmoid", hardsigmoid},
      {"hardswish", hardswish},
      {"softmax", softmax},
      {"log_softmax", log_softmax},
  };
  return entries;
}

}  // namespace tessera::reference
