// SPDX-License-Identifier: Apache-2.0
#include "tessera/init.hpp"

#include <cmath>
#include <vector>

#include "runtime.hpp"

namespace tessera::nn::init {

namespace {

struct Fan {
  double in, out;
};
Fan fan(const Tensor& t, const char* what) {
  const std::vector<int64_t> sizes = t.sizes();
  if (sizes.size() < 2)
    detail::fail("TSR-F057",
                 std::string("init::") + what + ": found a tensor of " + std::to_string(sizes.size()) +
                     " dimensions, expected 2 or more: [out, in, kernel...]",
                 "use uniform_, normal_ or constant_ for vectors");
  double kernel = 1;
  for (size_t i = 2; i < sizes.size(); ++i) kernel *= static_cast<double>(sizes[i]);
  return {kernel * static_cast<double>(sizes[1]), kernel * static_cast<double>(sizes[0])};
}

// Values are drawn in f64 for f64, else in f32, and rounded.
DType drawn(const Tensor& t) { return t.dtype() == f64 ? f64 : f32; }

// The quantile of the standard normal distribution, by bisection on erf: exact to a rounding, and called once per element.
double quantile(double p) {
  double low = -9, high = 9;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace

void constant_(Tensor& t, double value) { t = full(t.shape(), value, t.dtype()).to(t.device()); }

void uniform_(Tensor& t, double low, double high, Generator* g) {
  t = (rand(t.shape(), drawn(t), g) * (high - low) + low).to(t.dtype()).to(t.device());
}

void normal_(Tensor& t, double mean, double deviation, Generator* g) {
  t = (randn(t.shape(), drawn(t), g) * deviation + mean).to(t.dtype()).to(t.device());
}

void trunc_normal_(Tensor& t, double mean, double deviation, double low, double high, Generator* g) {
  const auto below = [&](double x) { return 0.5 * std::erfc(-(x - mean) / deviation / std::sqrt(2.0)); };
  std::vector<double> values = rand(t.shape(), f64, g).to_vector<double>();
  for (double& v : values)
    v = std::min(high, std::max(low, mean + deviation * quantile(below(low) + v * (below(high) - below(low)))));
  t = tensor(values, t.sizes()).to(t.dtype()).to(t.device());
}

void xavier_uniform_(Tensor& t, double gain, Generator* g) {
  const Fan f = fan(t, "xavier_uniform_");
  const double bound = gain * std::sqrt(6 / (f.in + f.out));
  uniform_(t, -bound, bound, g);
}

void xavier_normal_(Tensor& t, double gain, Generator* g) {
  const Fan f = fan(t, "xavier_normal_");
  normal_(t, 0, gain * std::sqrt(2 / (f.in + f.out)), g);
}

void kaiming_uniform_(Tensor& t, double slope, Generator* g) {
  const double bound = std::sqrt(6 / (1 + slope * slope) / fan(t, "kaiming_uniform_").in);
  uniform_(t, -bound, bound, g);
}

void kaiming_normal_(Tensor& t, double slope, Generator* g) {
  normal_(t, 0, std::sqrt(2 / (1 + slope * slope) / fan(t, "kaiming_normal_").in), g);
}

void orthogonal_(Tensor& t, double gain, Generator* g) {
  fan(t, "orthogonal_");
  const std::vector<int64_t> sizes = t.sizes();
  const int64_t rows = sizes[0], columns = static_cast<int64_t>(t.numel()) / std::max<int64_t>(1, rows);
  const bool wide = columns > rows;
  const auto count = static_cast<size_t>(wide ? rows : columns), length = static_cast<size_t>(wide ? columns : rows);
  std::vector<double> q = randn({static_cast<int64_t>(count), static_cast<int64_t>(length)}, f64, g).to_vector<double>();
  // Gram-Schmidt, twice per vector, which is as good as a QR factorisation.
  for (size_t i = 0; i < count; ++i) {
    double* v = &q[i * length];
    for (int pass = 0; pass < 2; ++pass)
      for (size_t j = 0; j < i; ++j) {
        const double* u = &q[j * length];
        double dot = 0;
        for (size_t k = 0; k < length; ++k) dot += u[k] * v[k];
        for (size_t k = 0; k < length; ++k) v[k] -= dot * u[k];
      }
    double norm = 0;
    for (size_t k = 0; k < length; ++k) norm += v[k] * v[k];
    for (size_t k = 0; k < length; ++k) v[k] /= std::sqrt(norm);
  }
  const Tensor m = tensor(q, {static_cast<int64_t>(count), static_cast<int64_t>(length)}) * gain;
  t = (wide ? m : m.t()).reshape(Shape(sizes.begin(), sizes.end())).to(t.dtype()).contiguous().to(t.device());
}

}  // namespace tessera::nn::init
