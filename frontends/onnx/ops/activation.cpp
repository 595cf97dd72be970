// SPDX-License-Identifier: Apache-2.0
// Activation functions. Those that the op set has stay whole.
#include "../op.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_float;

void relu(Op& op) { op.out(op.in().call("relu")); }
void sigmoid(Op& op) { op.out(op.in().call("sigmoid")); }
void leaky_relu(Op& op) { op.out(op.in().call("leaky_relu", {attr_float("slope", op.f("alpha", 0.01f))})); }
void elu(Op& op) { op.out(op.in().call("elu", {attr_float("alpha", op.f("alpha", 1.0))})); }
void celu(Op& op) { op.out(op.in().call("celu", {attr_float("alpha", op.f("alpha", 1.0))})); }
void mish(Op& op) { op.out(op.in().call("mish")); }
void hard_swish(Op& op) { op.out(op.in().call("hardswish")); }

void selu(Op& op) {
  constexpr double kAlpha = 1.67326319217681884765625, kGamma = 1.05070102214813232421875;
  const double alpha = op.f("alpha", op.version < 6 ? 1.6732f : kAlpha),
               gamma = op.f("gamma", op.version < 6 ? 1.0507f : kGamma);
  const V x = op.in();
  if (alpha == kAlpha && gamma == kGamma) return op.out(x.call("selu"));
  op.out(x.call("elu", {attr_float("alpha", alpha)}) * gamma);
}

void gelu(Op& op) {
  const std::string kind(op.s("approximate", "none"));
  op.expect(kind == "none" || kind == "tanh", "attribute 'approximate' is '" + kind + "'; expected none or tanh");
  op.out(op.in().call("gelu", {sdk::attr_string("approximate", kind.c_str())}));
}

// ONNX has no threshold: log(1 + exp(x)) without overflow is max(x, 0) + log1p(exp(-|x|)).
void softplus(Op& op) {
  const V x = op.in();
  op.out(x.call("relu") + (-x.call("abs")).call("exp").call("log1p"));
}

void softsign(Op& op) {
  const V x = op.in();
  op.out(x / (x.call("abs") + 1.0));
}

void hard_sigmoid(Op& op) {
  op.out(op.in().call("hardsigmoid", {attr_float("alpha", op.f("alpha", 0.2f)), attr_float("beta", op.f("beta", 0.5))}));
}

void thresholded_relu(Op& op) {
  const V x = op.in();
  op.out(select(x > op.f("alpha", 1.0), x, 0.0));
}

void prelu(Op& op) {
  const V x = op.in(0);
  V slope = op.in(1);
  if (op.version < 7 && slope.rank() == 1 && x.rank() > 2 && !(slope.size(0) == 1))
    slope = op.b.expand(slope, axes_from(1, x.rank() - 1));
  op.out(select(x < op.b.scalar(0, x.dtype()), x * slope, x));
}

// The thresholds and the bias are floats whatever the input is: integers are compared and moved as f64, then truncated.
void shrink(Op& op) {
  Build& b = op.b;
  const V x = op.in(), f = is_float(x.dtype()) ? x : b.cast(x, TSR_F64);
  const double lambd = op.f("lambd", 0.5), bias = op.f("bias", 0.0);
  const V y = select(f < -lambd, f + bias, select(f > lambd, f - bias, b.scalar(0, f.dtype())));
  op.out(b.cast(y, x.dtype()));
}

V swish_of(const V& x, double alpha) { return alpha == 1.0 ? x.call("silu") : x * (x * alpha).call("sigmoid"); }
void swish(Op& op) { op.out(swish_of(op.in(), op.f("alpha", 1.0))); }
void swiglu(Op& op) { op.out(swish_of(op.in(0), op.f("alpha", 1.0)) * op.in(1)); }

// Before opset 13 these worked on the input flattened to a matrix at `axis`.
template <bool Log>
void softmax(Op& op) {
  const char* name = Log ? "log_softmax" : "softmax";
  const V x = op.in();
  if (op.version >= 13) return op.out(x.call(name, {sdk::attr_int("axis", op.axis_attr("axis", -1, x.rank()))}));
  int64_t axis = op.i("axis", 1);
  if (axis < 0) axis += x.rank();
  op.expect(axis >= 0 && axis <= x.rank(),
            "axis " + std::to_string(op.i("axis", 1)) + " of a tensor of rank " + std::to_string(x.rank()));
  if (axis == x.rank() - 1) return op.out(x.call(name, {sdk::attr_int("axis", axis)}));
  const auto s = std::span(x.sizes());
  const V flat =
      op.b.reshape(x, {op.b.product(s.first(static_cast<size_t>(axis))), op.b.product(s.subspan(static_cast<size_t>(axis)))});
  op.out(op.b.reshape(flat.call(name, {sdk::attr_int("axis", 1)}), x.sizes()));
}

void hardmax(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  V flat = x;
  int64_t axis = op.axis_attr("axis", op.version >= 13 ? -1 : 1, x.rank());
  if (op.version < 13) {
    const auto s = std::span(x.sizes());
    flat = b.reshape(x, {b.product(s.first(static_cast<size_t>(axis))), b.product(s.subspan(static_cast<size_t>(axis)))});
    axis = 1;
  }
  const V index = flat.call("argmax", {sdk::attr_int("axis", axis), sdk::attr_bool("keepdims", true)});
  const V here = b.iota(flat.sizes(), axis) == index;
  op.out(b.reshape(b.cast(here, x.dtype()), x.sizes()));
}

}  // namespace

std::span<const Record> activation_records() {
  static constexpr Record records[] = {
      {"", "Relu", relu},
      {"", "Sigmoid", sigmoid},
      {"", "LeakyRelu", leaky_relu},
      {"", "Elu", elu},
      {"", "Celu", celu},
      {"", "Selu", selu},
      {"", "Mish", mish},
      {"", "Gelu", gelu},
      {"", "Softplus", softplus},
      {"", "Softsign", softsign},
      {"", "HardSigmoid", hard_sigmoid},
      {"", "HardSwish", hard_swish},
      {"", "ThresholdedRelu", thresholded_relu},
      {"", "PRelu", prelu},
      {"", "Shrink", shrink},
      {"", "Swish", swish},
      {"", "SwiGLU", swiglu},
      {"", "Softmax", softmax<false>},
      {"", "LogSoftmax", softmax<true>},
      {"", "Hardmax", hardmax},
  };
  return records;
}

}  // namespace tessera::onnx
