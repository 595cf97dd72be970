// SPDX-License-Identifier: Apache-2.0
// Elementwise functions and operators, with PyTorch's type promotion.
#include "attrs.hpp"
#include "tessera/dtypes.hpp"
#include "trace.hpp"

namespace tessera {

using namespace detail;

namespace {

[[noreturn]] void no_promotion(const char* op, const Tensor& a, const Tensor& b) {
  fail("TSR-F010",
       std::string(op) + ": " + std::string(name(a.dtype())) + " and " + std::string(name(b.dtype())) + " have no common type",
       "convert one with .to(dtype)");
}

uint32_t raw(DType d) { return static_cast<uint32_t>(d); }

DType common(const char* op, const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return a.dtype();
  ResultType r;
  r.add_tensor(raw(a.dtype()), static_cast<uint32_t>(a.dim()));
  r.add_tensor(raw(b.dtype()), static_cast<uint32_t>(b.dim()));
  if (r.get() == TSR_DTYPE_INVALID) no_promotion(op, a, b);
  return static_cast<DType>(r.get());
}

ScalarKind kind_of(Scalar s) {
  switch (s.kind()) {
    case Scalar::kBool: return ScalarKind::Bool;
    case Scalar::kInt: return ScalarKind::Int;
    case Scalar::kFloat: return ScalarKind::Float;
    default: return ScalarKind::Complex;
  }
}

// The scalar as a 0-d tensor of the type that it and `t` promote to.
Tensor beside(const char* op, const Tensor& t, Scalar s) {
  ResultType r;
  r.add_tensor(raw(t.dtype()), static_cast<uint32_t>(t.dim()));
  r.add_scalar(kind_of(s));
  if (r.get() == TSR_DTYPE_INVALID)
    fail("TSR-F010", std::string(op) + ": a scalar of this kind does not combine with " + std::string(name(t.dtype())),
         "convert the tensor with .to(dtype)");
  return scalar(s, static_cast<DType>(r.get()));
}

Tensor binary(const char* op, const Tensor& a, const Tensor& b) {
  const DType d = common(op, a, b);
  return run_op1(op, {a.to(d), b.to(d)});
}
// The scalar's tensor already has the common type, so promotion must not look at it again.
Tensor binary_as(const char* op, const Tensor& a, const Tensor& b, DType d) { return run_op1(op, {a.to(d), b.to(d)}); }

DType float_of(DType d) { return static_cast<DType>(to_float_dtype(raw(d))); }

Tensor as_float(const Tensor& x) { return x.to(float_of(x.dtype())); }
Tensor unary(const char* op, const Tensor& x) { return run_op1(op, {x}); }
Tensor float_unary(const char* op, const Tensor& x) { return run_op1(op, {as_float(x)}); }
// Rounding leaves integers alone.
Tensor rounding(const char* op, const Tensor& x) { return is_float(raw(x.dtype())) ? run_op1(op, {x}) : x; }

Tensor divide(const Tensor& a, const Tensor& b, DType d) {
  const DType f = float_of(d);
  return binary_as("div", a, b, f);
}

}  // namespace

#define TESSERA_WITH_SCALAR(sym, op)               \
  Tensor operator sym(const Tensor& a, Scalar s) { \
    const AtPlace at(s.where());                   \
    const Tensor b = beside(op, a, s);             \
    return binary_as(op, a, b, b.dtype());         \
  }                                                \
  Tensor operator sym(Scalar s, const Tensor& b) { \
    const AtPlace at(s.where());                   \
    const Tensor a = beside(op, b, s);             \
    return binary_as(op, a, b, a.dtype());         \
  }
#define TESSERA_ARITHMETIC(sym, op)                              \
  Tensor operator sym(const Tensor& a, const TensorOperand& b) { \
    const AtPlace at(b.where);                                   \
    return binary(op, a, b.tensor);                              \
  }                                                              \
  TESSERA_WITH_SCALAR(sym, op)
#define TESSERA_EQUALITY(sym, op)                                       \
  Tensor operator sym(const TensorOperand& a, const TensorOperand& b) { \
    const AtPlace at(b.where);                                          \
    return binary(op, a.tensor, b.tensor);                              \
  }                                                                     \
  TESSERA_WITH_SCALAR(sym, op)
TESSERA_ARITHMETIC(+, "add")
TESSERA_ARITHMETIC(-, "sub")
TESSERA_ARITHMETIC(*, "mul")
TESSERA_ARITHMETIC(%, "remainder")
TESSERA_EQUALITY(==, "eq")
TESSERA_EQUALITY(!=, "ne")
TESSERA_ARITHMETIC(<, "lt")
TESSERA_ARITHMETIC(<=, "le")
TESSERA_ARITHMETIC(>, "gt")
TESSERA_ARITHMETIC(>=, "ge")
TESSERA_ARITHMETIC(&, "bitwise_and")
TESSERA_ARITHMETIC(|, "bitwise_or")
TESSERA_ARITHMETIC(^, "bitwise_xor")
#undef TESSERA_ARITHMETIC
#undef TESSERA_EQUALITY
#undef TESSERA_WITH_SCALAR

// True division, as Python's: integers become floats.
Tensor operator/(const Tensor& a, const TensorOperand& b) {
  const AtPlace at(b.where);
  return divide(a, b.tensor, common("div", a, b.tensor));
}
Tensor operator/(const Tensor& a, Scalar s) {
  const AtPlace at(s.where());
  const Tensor b = beside("div", a, s);
  return divide(a, b, b.dtype());
}
Tensor operator/(Scalar s, const Tensor& b) {
  const AtPlace at(s.where());
  const Tensor a = beside("div", b, s);
  return divide(a, b, a.dtype());
}
Tensor operator~(const Tensor& x) { return unary("bitwise_not", x); }
Tensor Tensor::operator-() const { return unary("neg", *this); }

#define TESSERA_METHOD(name, how, op) \
  Tensor Tensor::name() const { return how(op, *this); }
TESSERA_METHOD(abs, unary, "abs")
TESSERA_METHOD(neg, unary, "neg")
TESSERA_METHOD(sign, unary, "sign")
TESSERA_METHOD(exp, float_unary, "exp")
TESSERA_METHOD(exp2, float_unary, "exp2")
TESSERA_METHOD(expm1, float_unary, "expm1")
TESSERA_METHOD(log, float_unary, "log")
TESSERA_METHOD(log2, float_unary, "log2")
TESSERA_METHOD(log10, float_unary, "log10")
TESSERA_METHOD(log1p, float_unary, "log1p")
TESSERA_METHOD(sqrt, float_unary, "sqrt")
TESSERA_METHOD(rsqrt, float_unary, "rsqrt")
TESSERA_METHOD(reciprocal, float_unary, "reciprocal")
TESSERA_METHOD(sin, float_unary, "sin")
TESSERA_METHOD(cos, float_unary, "cos")
TESSERA_METHOD(tan, float_unary, "tan")
TESSERA_METHOD(tanh, float_unary, "tanh")
TESSERA_METHOD(sigmoid, float_unary, "sigmoid")
TESSERA_METHOD(erf, float_unary, "erf")
TESSERA_METHOD(erfc, float_unary, "erfc")
TESSERA_METHOD(floor, rounding, "floor")
TESSERA_METHOD(ceil, rounding, "ceil")
TESSERA_METHOD(round, rounding, "round")
TESSERA_METHOD(trunc, rounding, "trunc")
TESSERA_METHOD(relu, unary, "relu")
TESSERA_METHOD(isnan, float_unary, "is_nan")
TESSERA_METHOD(isinf, float_unary, "is_inf")
#undef TESSERA_METHOD

Tensor Tensor::square() const { return *this * *this; }
Tensor Tensor::logical_not() const { return unary("logical_not", to(boolean)); }
Tensor Tensor::pow(const Tensor& e) const { return binary("pow", *this, e); }
Tensor Tensor::pow(Scalar e) const {
  const Tensor b = beside("pow", *this, e);
  return binary_as("pow", *this, b, b.dtype());
}
Tensor Tensor::clamp(std::optional<Scalar> lo, std::optional<Scalar> hi) const {
  if (!lo && !hi) fail("TSR-F011", "clamp needs a lower or an upper bound");
  ResultType r;
  r.add_tensor(raw(dtype()), static_cast<uint32_t>(dim()));
  if (lo) r.add_scalar(kind_of(*lo));
  if (hi) r.add_scalar(kind_of(*hi));
  const DType d = static_cast<DType>(r.get());
  return run_op1("clamp", {to(d), lo ? scalar(*lo, d) : Tensor(), hi ? scalar(*hi, d) : Tensor()});
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
  return run_op1("select", {mask, scalar(value, dtype()), *this});
}

Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b) {
  const DType d = common("where", a, b);
  return run_op1("select", {cond, a.to(d), b.to(d)});
}
Tensor maximum(const Tensor& a, const Tensor& b) { return binary("maximum", a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return binary("minimum", a, b); }
Tensor fmod(const Tensor& a, const Tensor& b) { return binary("fmod", a, b); }
Tensor floor_divide(const Tensor& a, const Tensor& b) { return binary("floor_div", a, b); }
Tensor atan2(const Tensor& a, const Tensor& b) {
  const DType d = float_of(common("atan2", a, b));
  return binary_as("atan2", a, b, d);
}
Tensor logical_and(const Tensor& a, const Tensor& b) { return run_op1("logical_and", {a.to(boolean), b.to(boolean)}); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return run_op1("logical_or", {a.to(boolean), b.to(boolean)}); }

}  // namespace tessera
