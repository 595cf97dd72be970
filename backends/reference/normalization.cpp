// SPDX-License-Identifier: Apache-2.0
// Normalisation layers.
#include <cmath>

#include "accumulate.hpp"
#include "op.hpp"

namespace tessera::reference {

namespace {

struct Moments {
  double mean = 0, variance = 0;  // variance without correction
};

// Moments of the elements of `x` at [outer..., inner...] for one outer index.
template <class F>
Moments moments(const Index& inner, F value) {
  const auto n = static_cast<double>(product(inner));
  Sum<double> sum, squares;
  for (Walk w(inner); w; w.next()) sum.add(value(w.index()));
  const double mean = sum.value() / n;
  for (Walk w(inner); w; w.next()) {
    const double d = value(w.index()) - mean;
    squares.add(d * d);
  }
  return {mean, squares.value() / n};
}

// Over the dimensions from `axis` on; weight and bias have their shape.
void normalize_inner(const Op& op, bool root_mean_square) {
  const Tensor x = op.in(0), y = op.out(), weight = op.in(1), bias = root_mean_square ? Tensor() : op.in(2);
  const auto axis = static_cast<uint32_t>(x.rank() ? op.axis("axis", x.rank()) : 0);
  const double eps = op.real("eps");
  const Index outer = x.sizes().part(0, axis), inner = x.sizes().part(axis, x.rank());
  for (Walk o(outer); o; o.next()) {
    const auto offset = [&](const Tensor& t, const Index& i) {
      Index at = o.index();
      return t.offset(at.append(i));
    };
    const auto value = [&](const Index& i) { return x.get<double>(offset(x, i)); };
    double center = 0, scale = 0;
    if (root_mean_square) {
      Sum<double> squares;
      for (Walk i(inner); i; i.next()) squares.add(value(i.index()) * value(i.index()));
      scale = 1 / std::sqrt(squares.value() / static_cast<double>(product(inner)) + eps);
    } else {
      const Moments m = moments(inner, value);
      center = m.mean;
      scale = 1 / std::sqrt(m.variance + eps);
    }
    for (Walk i(inner); i; i.next()) {
      double v = (value(i.index()) - center) * scale;
      if (weight) v *= weight.real(i.index());
      if (bias) v += bias.real(i.index());
      y.put<double>(offset(y, i.index()), v);
    }
  }
}
void layer_norm(const Op& op) { normalize_inner(op, false); }
void rms_norm(const Op& op) { normalize_inner(op, true); }

double channel(const Tensor& t, int64_t c, double otherwise) { return t ? t.real({c}) : otherwise; }

void group_norm(const Op& op) {
  const Tensor x = op.in(0), weight = op.in(1), bias = op.in(2), y = op.out();
  const int64_t groups = op.integer("groups"), per_group = x.size(1) / groups;
  const double eps = op.real("eps");
  Index inner = {per_group};
  inner.append(x.sizes().part(2, x.rank()));
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t g = 0; g < groups; ++g) {
      const auto at = [&](Index i) {  // [channel in the group, spatial] -> [N, C, spatial]
        i[0] += g * per_group;
        i.insert(0, n);
        return i;
      };
      const Moments m = moments(inner, [&](const Index& i) { return x.real(at(i)); });
      const double scale = 1 / std::sqrt(m.variance + eps);
      for (Walk w(inner); w; w.next()) {
        const Index i = at(w.index());
        y.put<double>(y.offset(i), (x.real(i) - m.mean) * scale * channel(weight, i[1], 1) + channel(bias, i[1], 0));
      }
    }
}

void batch_norm(const Op& op) {
  const Tensor x = op.in(0), weight = op.in(1), bias = op.in(2), mean = op.in(3), variance = op.in(4), y = op.out();
  const double eps = op.real("eps");
  for (Walk w(x.sizes()); w; w.next()) {
    const int64_t c = w.index()[1];
    const double v = (x.real(w.index()) - mean.real({c})) / std::sqrt(variance.real({c}) + eps);
    y.put<double>(y.offset(w.index()), v * channel(weight, c, 1) + channel(bias, c, 0));
  }
}

void batch_norm_training(const Op& op) {
  const Tensor x = op.in(0), weight = op.in(1), bias = op.in(2), running_mean = op.in(3), running_variance = op.in(4);
  const Tensor y = op.out(0), new_mean = op.out(1), new_variance = op.out(2);
  const double eps = op.real("eps"), momentum = op.real("momentum");
  Index inner = {x.size(0)};
  inner.append(x.sizes().part(2, x.rank()));
  const auto count = static_cast<double>(product(inner));
  for (int64_t c = 0; c < x.size(1); ++c) {
    const auto at = [&](Index i) {  // [N, spatial] -> [N, C, spatial]
      i.insert(1, c);
      return i;
    };
    const Moments m = moments(inner, [&](const Index& i) { return x.real(at(i)); });
    const double scale = 1 / std::sqrt(m.variance + eps);
    for (Walk w(inner); w; w.next()) {
      const Index i = at(w.index());
      y.put<double>(y.offset(i), (x.real(i) - m.mean) * scale * channel(weight, c, 1) + channel(bias, c, 0));
    }
    const double corrected = m.variance * count / (count - 1);
    new_mean.put<double>(c, (1 - momentum) * running_mean.real({c}) + momentum * m.mean);
    new_variance.put<double>(c, (1 - momentum) * running_variance.real({c}) + momentum * corrected);
  }
}

}  // namespace

std::span<const Entry> normalization_ops() {
  static constexpr Entry entries[] = {
      {"layer_norm", layer_norm},
      {"rms_norm", rms_norm},
      {"group_norm", group_norm},
      {"batch_norm", batch_norm},
      {"batch_norm_training", batch_norm_training},
  };
  return entries;
}

}  // namespace tessera::reference
