// SPDX-License-Identifier: Apache-2.0
#include "tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "tensors.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::conformance {

namespace {

// What one correctly rounded operation in the compute type costs is 0.5; a libm function costs up to 1 more. f64 columns also
// cover the reference's own error: it computes in f64, too.
// clang-format off
constexpr Tolerance table[] = {
    // op, f32, f64, scale, reason
    // -- one function; real arithmetic that the table does not name is exact
    {"exp", 1, 1.5, Scale::Component, "one libm-grade function"},
    {"exp2", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"expm1", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"log", 1, 1.5, Scale::Component, "one libm-grade function"},
    {"log2", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"log10", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"log1p", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"rsqrt", 1, 1, Scale::Value, "square root and division, each rounded"},
    {"cbrt", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"sin", 1, 1.5, Scale::Component, "one libm-grade function"},
    {"cos", 1, 1.5, Scale::Component, "one libm-grade function"},
    {"tan", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"asin", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"acos", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"atan", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"sinh", 1, 2, Scale::Value, "one libm-grade function"},
    {"cosh", 1, 2, Scale::Value, "one libm-grade function"},
    {"tanh", 1, 2, Scale::Component, "one libm-grade function"},
    {"asinh", 1, 2, Scale::Value, "one libm-grade function"},
    {"acosh", 1, 2, Scale::Value, "one libm-grade function"},
    {"atanh", 1, 2, Scale::Value, "one libm-grade function"},
    {"erf", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"erfc", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"erfinv", 1, 4, Scale::Value, "Newton steps on erf, whose rounding error is divided by its slope"},
    {"lgamma", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"digamma", 1, 8, Scale::Tensor, "recurrence and asymptotic series: up to 16 terms, which cancel near its zeros"},
    {"sigmoid", 1.5, 2, Scale::Value, "exponential, sum and division, each rounded"},
    {"pow", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"atan2", 1, 1.5, Scale::Value, "one libm-grade function"},
    {"hypot", 1, 1.5, Scale::Value, "one libm-grade function"},
    // -- complex arithmetic: real and imaginary part are sums of rounded products, relative to the modulus
    {"abs", 1, 1.5, Scale::Value, "hypot", 0, true},
    {"sqrt", 2, 2, Scale::Component, "hypot and a square root", 0, true},
    {"reciprocal", 2, 2, Scale::Component, "complex division", 0, true},
    {"mul", 1.5, 1.5, Scale::Component, "two rounded products and their rounded sum", 0, true},
    {"div", 2, 3, Scale::Component, "products, sums and divisions, each rounded", 0, true},
    // -- sums: errors are relative to the sum of magnitudes
    {"reduce_sum", 3, 3, Scale::Absolute, "8 or 32 running sums and a tree: half an ulp per addition to one of them", 0, false, 1.0 / 64},
    {"sum_to", 3, 3, Scale::Absolute, "as reduce_sum", 0, false, 1.0 / 64},
    {"mean", 4, 4, Scale::Absolute, "reduce_sum and a division", 0, false, 1.0 / 64},
    {"reduce_prod", 2, 2, Scale::Absolute, "every factor's rounding stays in the product: half an ulp each", 0, false, 0.5},
    {"cumsum", 1, 1, Scale::Absolute, "in sequence, in f32: half an ulp per addition", 0, false, 0.5},
    {"cumprod", 1, 1, Scale::Absolute, "in sequence, in f32: half an ulp per product", 0, false, 0.5},
    {"variance", 4, 4, Scale::Value, "sums of the elements and of squares, all of one sign", 0, false, 1.0 / 64},
    {"logsumexp", 2, 3, Scale::Absolute, "the maximum plus a logarithm, which may cancel", 0, false, 1.0 / 64},
    {"norm", 3, 4, Scale::Value, "a sum of powers, all of one sign, and a root", 0, false, 1.0 / 64},
    {"dot_general", 4, 4, Scale::Absolute, "one rounding per product and sum; errors of random sign"},
    {"matmul", 4, 4, Scale::Absolute, "as dot_general"},
    {"linear", 4, 4, Scale::Absolute, "as dot_general; the product is rounded to the dtype before the bias is added", 1},
    {"conv", 4, 4, Scale::Absolute, "as dot_general"},
    {"conv_transpose", 4, 4, Scale::Absolute, "as dot_general"},
    {"avg_pool", 2, 3, Scale::Absolute, "a short sum and a division"},
    {"adaptive_avg_pool", 2, 3, Scale::Absolute, "a short sum and a division"},
    {"scatter", 8, 8, Scale::Absolute, "a chain of complex products, each rounded", 0, true},
    {"scatter_nd", 8, 8, Scale::Absolute, "a chain of complex products, each rounded", 0, true},
    // -- composites
    {"leaky_relu", 1.5, 0.5, Scale::Value, "the slope is rounded to f32"},
    {"elu", 2, 2, Scale::Value, "expm1 and a product with a rounded constant"},
    {"selu", 3, 3, Scale::Value, "expm1 and products with two rounded constants"},
    {"celu", 3, 3, Scale::Value, "a quotient, expm1 and a product"},
    {"gelu", 2, 3, Scale::Absolute, "1 + erf(x), or 1 + tanh(u), cancels for negative x"},
    {"silu", 2, 3, Scale::Value, "sigmoid and a product"},
    {"mish", 3, 4, Scale::Value, "exp, log1p, tanh and a product"},
    {"softplus", 2, 2, Scale::Value, "exp, log1p and a quotient"},
    {"hardsigmoid", 1, 1, Scale::Tensor, "alpha*x + beta cancels"},
    {"hardswish", 2, 2, Scale::Value, "a sum, a product and a quotient"},
    {"softmax", 18, 18, Scale::Value, "x - max (16..32 in these cases) is rounded before exp: its half ulp is 16 of the result's"},
    {"log_softmax", 2, 2, Scale::Tensor, "the rounded sum has an absolute error that its logarithm keeps"},
    {"layer_norm", 4, 4, Scale::Tensor, "x - mean cancels"},
    {"rms_norm", 5, 5, Scale::Value, "a sum of up to 300 squares, a root and products"},
    {"group_norm", 4, 4, Scale::Tensor, "x - mean cancels"},
    {"batch_norm", 4, 4, Scale::Tensor, "x - mean cancels"},
    {"batch_norm_training", 4, 4, Scale::Tensor, "x - mean cancels"},
    {"attention", 8, 8, Scale::Tensor, "scores (4..8) are rounded: 2 ulps of each probability; probabilities are rounded to the dtype", 1},
    {"attention_lse", 8, 8, Scale::Tensor, "as attention", 1},
    {"attention_backward", 8, 8, Scale::Tensor, "as attention, and differences of products that cancel; weights and gradients of scores are rounded to the dtype", 1},
    {"attention_y_backward", 8, 8, Scale::Tensor, "as attention_backward; the result that is read is rounded to the dtype", 1},
    {"cross_entropy", 3, 3, Scale::Tensor, "log_softmax and weighted sums"},
    {"mse_loss", 3, 3, Scale::Value, "squares of rounded differences, all of one sign"},
    {"interpolate", 16, 8, Scale::Tensor, "coordinates (below 8) are rounded, 2 ulps of 1, times the slope between neighbours, per dimension"},
    {"random_normal", 1, 4, Scale::Tensor, "logarithm, root and cosine of given bits"},
};
// clang-format on

// The distance of neighbours at magnitude x.
double ulp(uint32_t dtype, double x) {
  struct Format {
    int mantissa, lowest;  // explicit bits; exponent of the smallest normal number
  };
  Format f{52, -1022};
  switch (dtype) {
    case TSR_F32:
    case TSR_C64: f = {23, -126}; break;
    case TSR_F16: f = {10, -14}; break;
    case TSR_BF16: f = {7, -126}; break;
    case TSR_F8E4M3FN: f = {3, -6}; break;
    case TSR_F8E4M3FNUZ: f = {3, -7}; break;
    case TSR_F8E5M2: f = {2, -14}; break;
    case TSR_F8E5M2FNUZ: f = {2, -15}; break;
    case TSR_F8E8M0: f = {0, -127}; break;
    case TSR_F4E2M1: f = {1, 0}; break;
    default: break;
  }
  const int e = x == 0 ? f.lowest : std::max(std::ilogb(x), f.lowest);
  return std::ldexp(1.0, e - f.mantissa);
}

struct Number {  // any element as a complex number, and integers beyond 2^53 by their bits
  double re = 0, im = 0;
  uint64_t bits = 0;
  bool nan() const { return std::isnan(re) || std::isnan(im); }
  double modulus() const { return std::hypot(re, im); }
};
Number at(const tsr_tensor& t, int64_t i) {
  if (is_complex(t.dtype)) {
    const auto z = load_as<ComplexValue<double>>(t.dtype, t.data, i);
    return {z.re, z.im, 0};
  }
  if (is_float(t.dtype)) return {load_as<double>(t.dtype, t.data, i), 0, 0};
  return {0, 0, load_as<uint64_t>(t.dtype, t.data, i)};
}

bool same(const Number& a, const Number& b) {
  if (a.nan() || b.nan()) return a.nan() && b.nan();
  return a.re == b.re && a.im == b.im && a.bits == b.bits;
}

double allowed(const Tolerance& row, double items, uint32_t dtype, double scale, double value) {
  const double more = row.growth * items;
  if (dtype == TSR_F64 || dtype == TSR_C128) return (row.f64 + more) * ulp(dtype, scale);
  if (dtype == TSR_F32 || dtype == TSR_C64) return (row.f32 + more) * ulp(dtype, scale);
  return ulp(dtype, value) + row.steps * ulp(dtype, scale) + (row.f32 + more) * ulp(TSR_F32, scale);
}

// PyTorch's expectation is computed in f64 and rounded once; both backends round after every update, as the record says.
constexpr Tolerance golden_table[] = {
    {"scatter", 2, 1, Scale::Absolute, "up to four updates of one element, each rounded"},
    {"scatter_nd", 2, 1, Scale::Absolute, "up to four updates of one element, each rounded"},
};

}  // namespace

const Tolerance* golden_tolerance_of(std::string_view op, uint32_t dtype) {
  if (is_float(dtype))
    for (const Tolerance& row : golden_table)
      if (op == row.op) return &row;
  return tolerance_of(op, dtype);
}

const Tolerance* tolerance_of(std::string_view op, uint32_t dtype) {
  if (!is_float(dtype) && !is_complex(dtype)) return nullptr;
  for (const Tolerance& row : table)
    if (op == row.op && (!row.only_complex || is_complex(dtype))) return &row;
  return nullptr;
}

double items_of(std::string_view op, int64_t operand_elements, int64_t result_elements) {
  if (op.starts_with("cum")) return static_cast<double>(operand_elements);
  return static_cast<double>(std::max<int64_t>(operand_elements / std::max<int64_t>(result_elements, 1), 1));
}

std::string compare(const tsr_tensor& got, const tsr_tensor& want, const tsr_tensor* magnitude, const Tolerance* row,
                    double items, double factor, double* worst) {
  int64_t n = 1;
  bool shape = got.dtype == want.dtype && got.rank == want.rank;
  for (uint32_t d = 0; shape && d < want.rank; ++d) {
    shape = got.sizes[d] == want.sizes[d];
    n *= want.sizes[d];
  }
  if (!shape) return "got " + print(got) + ", expected " + print(want);

  double largest = 0;
  if (row && row->scale == Scale::Tensor)
    for (int64_t i = 0; i < n; ++i)
      if (const double m = at(want, i).modulus(); std::isfinite(m)) largest = std::max(largest, m);

  int64_t failures = 0, first = -1;
  double error_of_first = 0, allowed_of_first = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Number a = at(got, i), b = at(want, i);
    if (same(a, b)) continue;
    double error = 1, limit = 0;
    if (row && std::isfinite(a.modulus()) && std::isfinite(b.modulus())) {
      const auto part = [&](double x, double y) {
        double scale = std::fabs(y);
        if (row->scale == Scale::Component) scale = b.modulus();
        if (row->scale == Scale::Tensor) scale = largest;
        if (row->scale == Scale::Absolute && magnitude) scale = std::max(scale, at(*magnitude, i).modulus());
        if (!std::isfinite(scale)) scale = std::fabs(y);
        const double e = std::fabs(x - y),
                     l = factor * allowed(*row, items, want.dtype, scale, std::max(std::fabs(x), std::fabs(y)));
        if (limit == 0 || e / l > error / limit) {
          error = e;
          limit = l;
        }
      };
      part(a.re, b.re);
      if (is_complex(want.dtype)) part(a.im, b.im);
    }
    if (worst && limit > 0) *worst = std::max(*worst, error / limit);
    if (limit > 0 && error <= limit) continue;
    ++failures;
    if (first < 0 || (limit > 0 && allowed_of_first > 0 && error / limit > error_of_first / allowed_of_first)) {
      first = i;
      error_of_first = error;
      allowed_of_first = limit;
    }
  }
  if (failures == 0) return "";
  char text[160];
  std::snprintf(text, sizeof text, "; error %.3g, allowed %.3g", error_of_first, allowed_of_first);
  return std::to_string(failures) + " of " + std::to_string(n) + " elements differ; element " + std::to_string(first) +
         ": got " + print_element(got, first) + ", expected " + print_element(want, first) +
         (allowed_of_first > 0 ? text : "; must be equal") + "\n  got      " + print(got) + "\n  expected " + print(want);
}

}  // namespace tessera::conformance
