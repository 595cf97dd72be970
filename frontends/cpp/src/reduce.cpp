// SPDX-License-Identifier: Apache-2.0
// Reductions, scans and products.
#include <numeric>

#include "attrs.hpp"
#include "tessera/dtypes.hpp"
#include "trace.hpp"

namespace tessera {

using namespace detail;

namespace {

Axes all_axes(const Tensor& x) {
  Axes a(static_cast<size_t>(x.dim()));
  std::iota(a.begin(), a.end(), 0);
  return a;
}
uint32_t raw(const Tensor& x) { return static_cast<uint32_t>(x.dtype()); }

Tensor reduce(const char* op, const Tensor& x, const Axes& axes, bool keepdim) {
  return run_op1(op, {x}, {ints_attr("axes", axes), bool_attr("keepdims", keepdim)});
}
// As PyTorch: sums and products of integers and bools are i64.
Tensor widen(const Tensor& x) { return is_int(raw(x)) || is_bool(raw(x)) ? x.to(i64) : x; }

void need_float(const char* op, const Tensor& x) {
  if (!is_float(raw(x)) && !is_complex(raw(x)))
    fail("TSR-F021", std::string(op) + " of a " + std::string(name(x.dtype())) + " tensor: expected floating point or complex",
         "convert it with .to(f32)");
}

std::pair<Tensor, Tensor> extreme(const char* reduction, const char* arg, const Tensor& x, int64_t axis, bool keepdim) {
  if (axis < 0) axis += x.dim();
  return {reduce(reduction, x, {axis}, keepdim), run_op1(arg, {x}, {int_attr("axis", axis), bool_attr("keepdims", keepdim)})};
}
Tensor arg(const char* op, const Tensor& x, std::optional<int64_t> axis, bool keepdim) {
  const Tensor in = axis ? x : x.flatten();
  return run_op1(op, {in}, {int_attr("axis", axis.value_or(0)), bool_attr("keepdims", keepdim && axis)});
}

}  // namespace

Tensor Tensor::sum(std::source_location where) const {
  const AtPlace at(where);
  return sum(all_axes(*this));
}
Tensor Tensor::sum(Axes axes, bool keepdim) const { return reduce("reduce_sum", widen(*this), axes, keepdim); }
Tensor Tensor::prod() const { return prod(all_axes(*this)); }
Tensor Tensor::prod(Axes axes, bool keepdim) const { return reduce("reduce_prod", widen(*this), axes, keepdim); }
Tensor Tensor::mean(std::source_location where) const {
  const AtPlace at(where);
  return mean(all_axes(*this));
}
Tensor Tensor::mean(Axes axes, bool keepdim) const {
  need_float("mean", *this);
  return reduce("mean", *this, axes, keepdim);
}
Tensor Tensor::amax(Axes axes, bool keepdim) const {
  return reduce("reduce_max", *this, axes.empty() ? all_axes(*this) : axes, keepdim);
}
Tensor Tensor::amin(Axes axes, bool keepdim) const {
  return reduce("reduce_min", *this, axes.empty() ? all_axes(*this) : axes, keepdim);
}
std::pair<Tensor, Tensor> Tensor::max(int64_t axis, bool keepdim) const {
  return extreme("reduce_max", "argmax", *this, axis, keepdim);
}
std::pair<Tensor, Tensor> Tensor::min(int64_t axis, bool keepdim) const {
  return extreme("reduce_min", "argmin", *this, axis, keepdim);
}
Tensor Tensor::argmax(std::optional<int64_t> axis, bool keepdim) const { return arg("argmax", *this, axis, keepdim); }
Tensor Tensor::argmin(std::optional<int64_t> axis, bool keepdim) const { return arg("argmin", *this, axis, keepdim); }
Tensor Tensor::var(Axes axes, double correction, bool keepdim) const {
  need_float("var", *this);
  return run_op1("variance", {*this},
                 {ints_attr("axes", axes), float_attr("correction", correction), bool_attr("keepdims", keepdim)});
}
Tensor Tensor::std(Axes axes, double correction, bool keepdim) const {
  return var(std::move(axes), correction, keepdim).sqrt();
}
Tensor Tensor::norm(double p, Axes axes, bool keepdim) const {
  need_float("norm", *this);
  if (axes.empty()) axes = all_axes(*this);
  return run_op1("norm", {*this}, {float_attr("p", p), ints_attr("axes", axes), bool_attr("keepdims", keepdim)});
}
Tensor Tensor::logsumexp(Axes axes, bool keepdim) const {
  need_float("logsumexp", *this);
  return reduce("logsumexp", *this, axes, keepdim);
}
Tensor Tensor::any(std::source_location where) const {
  const AtPlace at(where);
  return reduce("reduce_any", to(boolean), all_axes(*this), false);
}
Tensor Tensor::all(std::source_location where) const {
  const AtPlace at(where);
  return reduce("reduce_all", to(boolean), all_axes(*this), false);
}
Tensor Tensor::cumsum(int64_t axis) const { return run_op1("cumsum", {widen(*this)}, {int_attr("axis", axis)}); }
Tensor Tensor::softmax(int64_t axis) const { return F::softmax(*this, axis); }
Tensor Tensor::log_softmax(int64_t axis) const { return F::log_softmax(*this, axis); }

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype())
    fail("TSR-F010", "matmul: " + std::string(name(a.dtype())) + " and " + std::string(name(b.dtype())) + " differ",
         "convert one with .to(dtype)");
  return run_op1("matmul", {a, b});
}
Tensor Tensor::matmul(const Tensor& b) const { return tessera::matmul(*this, b); }
Tensor einsum_dot(const Tensor& a, const Tensor& b, Axes lhs_batch, Axes rhs_batch, Axes lhs_contract, Axes rhs_contract) {
  return run_op1("dot_general", {a, b},
                 {ints_attr("lhs_batch", lhs_batch), ints_attr("rhs_batch", rhs_batch), ints_attr("lhs_contract", lhs_contract),
                  ints_attr("rhs_contract", rhs_contract)});
}

}  // namespace tessera
