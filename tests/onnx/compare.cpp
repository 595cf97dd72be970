// SPDX-License-Identifier: Apache-2.0
#include "compare.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>

#include "tessera/dtypes.hpp"

namespace tessera::onnx_suite {
namespace {

std::string shape_text(const tsr_tensor& t) {
  std::string s = std::string(dtype_name(t.dtype)) + "[";
  for (uint32_t i = 0; i < t.rank; ++i) s += (i ? ", " : "") + std::to_string(t.sizes[i]);
  return s + "]";
}

bool close(double a, double b, double rtol, double atol) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= atol + rtol * std::abs(b);
}

template <class T>
std::complex<double> complex_at(const void* data, int64_t i) {
  T parts[2];
  std::memcpy(parts, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof parts), sizeof parts);
  return {parts[0], parts[1]};
}

}  // namespace

std::string difference(const tsr_tensor& got, const tsr_tensor& want, double rtol, double atol) {
  if (got.dtype != want.dtype || got.rank != want.rank || !std::equal(got.sizes, got.sizes + got.rank, want.sizes))
    return "gives " + shape_text(got) + ", expected " + shape_text(want);
  int64_t n = 1;
  for (uint32_t i = 0; i < got.rank; ++i) n *= got.sizes[i];
  if (got.dtype == TSR_BF16) rtol = std::max(rtol, 0x1p-6);
  int64_t wrong = 0, first = -1;
  double worst = 0;
  std::string example;
  for (int64_t i = 0; i < n; ++i) {
    bool same;
    double error = 0, a = 0, b = 0;
    if (is_complex(got.dtype)) {
      const auto x = got.dtype == TSR_C64 ? complex_at<float>(got.data, i) : complex_at<double>(got.data, i);
      const auto y = got.dtype == TSR_C64 ? complex_at<float>(want.data, i) : complex_at<double>(want.data, i);
      error = std::abs(x - y);
      same = error <= atol + rtol * std::abs(y) ||
             (close(x.real(), y.real(), rtol, atol) && close(x.imag(), y.imag(), rtol, atol));
      a = x.real(), b = y.real();
    } else {
      a = load_as<double>(got.dtype, got.data, i);
      b = load_as<double>(want.dtype, want.data, i);
      same = close(a, b, rtol, atol);
      error = std::abs(a - b);
    }
    if (same) continue;
    if (first < 0) first = i;
    ++wrong;
    worst = std::max(worst, error);
    if (example.empty()) example = std::to_string(a) + " for " + std::to_string(b);
  }
  if (wrong == 0) return {};
  return std::to_string(wrong) + " of " + std::to_string(n) + " elements differ, the first at " + std::to_string(first) + " (" +
         example + "), by at most " + std::to_string(worst);
}

}  // namespace tessera::onnx_suite
