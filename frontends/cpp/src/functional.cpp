// SPDX-License-Identifier: Apache-2.0
// namespace F and ops by name.
#include "attrs.hpp"
#include "trace.hpp"

namespace tessera {

using namespace detail;

namespace F {

namespace {
Axes spread(const char* what, Axes a, size_t spatial) {  // one number stands for all dimensions
  if (a.size() == 1) a.resize(spatial, a[0]);
  if (a.size() != spatial)
    fail("TSR-F026",
         std::string(what) + ": expected 1 or " + std::to_string(spatial) + " numbers, found " + std::to_string(a.size()));
  return a;
}
int64_t trailing(const char* op, const Tensor& x, const std::vector<int64_t>& shape) {
  const int64_t axis = x.dim() - static_cast<int64_t>(shape.size());
  bool fits = axis >= 0 && !shape.empty();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = x.size(axis + static_cast<int64_t>(i)) == shape[i];
  if (!fits)
    fail("TSR-F027", std::string(op) + ": normalized_shape must equal the last dimensions of the input, which is " + x.str());
  return axis - x.dim();
}
}  // namespace

Tensor relu(const Tensor& x) { return run_op1("relu", {x}); }
Tensor leaky_relu(const Tensor& x, double slope) { return run_op1("leaky_relu", {x}, {float_attr("slope", slope)}); }
Tensor elu(const Tensor& x, double alpha) { return run_op1("elu", {x}, {float_attr("alpha", alpha)}); }
Tensor gelu(const Tensor& x, const std::string& a) { return run_op1("gelu", {x}, {string_attr("approximate", a)}); }
Tensor silu(const Tensor& x) { return run_op1("silu", {x}); }
Tensor mish(const Tensor& x) { return run_op1("mish", {x}); }
Tensor softplus(const Tensor& x, double beta, double threshold) {
  return run_op1("softplus", {x}, {float_attr("beta", beta), float_attr("threshold", threshold)});
}
Tensor hardswish(const Tensor& x) { return run_op1("hardswish", {x}); }
Tensor hardsigmoid(const Tensor& x) { return run_op1("hardsigmoid", {x}); }
Tensor softmax(const Tensor& x, int64_t axis) { return run_op1("softmax", {x}, {int_attr("axis", axis)}); }
Tensor log_softmax(const Tensor& x, int64_t axis) { return run_op1("log_softmax", {x}, {int_attr("axis", axis)}); }
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b) { return run_op1("linear", {x, w, b}); }
Tensor layer_norm(const Tensor& x, const std::vector<int64_t>& shape, const Tensor& w, const Tensor& b, double eps) {
  return run_op1("layer_norm", {x, w, b}, {int_attr("axis", trailing("layer_norm", x, shape)), float_attr("eps", eps)});
}
Tensor rms_norm(const Tensor& x, const std::vector<int64_t>& shape, const Tensor& w, double eps) {
  return run_op1("rms_norm", {x, w}, {int_attr("axis", trailing("rms_norm", x, shape)), float_attr("eps", eps)});
}
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& w, const Tensor& b, double eps) {
  return run_op1("group_norm", {x, w, b}, {int_attr("groups", groups), float_attr("eps", eps)});
}
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& w, const Tensor& b, double eps) {
  return run_op1("batch_norm", {x, w, b, mean, var}, {float_attr("eps", eps)});
}
Tensor embedding(const Tensor& indices, const Tensor& weight) { return run_op1("embedding", {weight, indices}); }
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool causal,
                                    double scale) {
  return run_op1("attention", {q, k, v, mask}, {float_attr("scale", scale), bool_attr("causal", causal)});
}
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& b, Axes stride, Axes padding, Axes dilation, int64_t groups) {
  const size_t n = static_cast<size_t>(x.dim() < 2 ? 0 : x.dim() - 2);
  stride = spread("stride", std::move(stride), n);
  padding = spread("padding", std::move(padding), n);
  dilation = spread("dilation", std::move(dilation), n);
  return run_op1("conv", {x, w, b},
                 {ints_attr("strides", stride), ints_attr("pad_low", padding), ints_attr("pad_high", padding),
                  ints_attr("dilations", dilation), int_attr("groups", groups)});
}
Tensor max_pool2d(const Tensor& x, Axes kernel, Axes stride, Axes padding, Axes dilation, bool ceil_mode) {
  kernel = spread("kernel", std::move(kernel), 2);
  stride = stride.empty() ? kernel : spread("stride", std::move(stride), 2);
  padding = spread("padding", std::move(padding), 2);
  dilation = spread("dilation", std::move(dilation), 2);
  return run_op1("max_pool", {x},
                 {ints_attr("kernel", kernel), ints_attr("strides", stride), ints_attr("pad_low", padding),
                  ints_attr("pad_high", padding), ints_attr("dilations", dilation), bool_attr("ceil_mode", ceil_mode)});
}
Tensor avg_pool2d(const Tensor& x, Axes kernel, Axes stride, Axes padding, bool ceil_mode, bool count_include_pad) {
  kernel = spread("kernel", std::move(kernel), 2);
  stride = stride.empty() ? kernel : spread("stride", std::move(stride), 2);
  padding = spread("padding", std::move(padding), 2);
  const Axes dilation{1, 1};
  return run_op1(
      "avg_pool", {x},
      {ints_attr("kernel", kernel), ints_attr("strides", stride), ints_attr("pad_low", padding), ints_attr("pad_high", padding),
       ints_attr("dilations", dilation), bool_attr("ceil_mode", ceil_mode), bool_attr("count_include_pad", count_include_pad)});
}
Tensor adaptive_avg_pool2d(const Tensor& x, Axes output) {
  output = spread("output", std::move(output), 2);
  const Dims d(Shape(output.begin(), output.end()));
  return run_op1("adaptive_avg_pool", {x}, {d.attr("output")});
}
Tensor interpolate(const Tensor& x, Shape output, const std::string& mode, bool align_corners) {
  const Dims d(output);
  return run_op1("interpolate", {x}, {d.attr("output"), string_attr("mode", mode), bool_attr("align_corners", align_corners)});
}
Tensor pad(const Tensor& x, Axes pad, const std::string& mode, double value) {
  const size_t rank = static_cast<size_t>(x.dim());
  if (pad.size() % 2 || pad.size() / 2 > rank)
    fail("TSR-F028", "pad: expected an even count of at most " + std::to_string(2 * rank) + " numbers, found " +
                         std::to_string(pad.size()));
  Shape low(rank, 0), high(rank, 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    low[rank - 1 - i] = pad[2 * i];
    high[rank - 1 - i] = pad[2 * i + 1];
  }
  const Dims l(low), h(high);
  const Tensor fill = mode == "constant" ? scalar(value, x.dtype()) : Tensor();
  const std::string kind = mode == "replicate" ? "edge" : mode == "circular" ? "wrap" : mode;
  return run_op1("pad", {x, fill}, {l.attr("low"), h.attr("high"), string_attr("mode", kind)});
}
Tensor one_hot(const Tensor& indices, int64_t classes) {
  return run_op1("one_hot", {indices}, {dim_attr("depth", classes), dtype_attr("dtype", i64)});
}
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const std::string& reduction, int64_t ignore_index,
                     double label_smoothing) {
  return run_op1("cross_entropy", {logits, target, Tensor()},
                 {string_attr("reduction", reduction), int_attr("ignore_index", ignore_index),
                  float_attr("label_smoothing", label_smoothing)});
}
Tensor mse_loss(const Tensor& x, const Tensor& target, const std::string& reduction) {
  return run_op1("mse_loss", {x, target}, {string_attr("reduction", reduction)});
}

}  // namespace F

// ------------------------------------------------------------------------------------------------------------- by name

AttrValue::AttrValue(bool v) : kind(TSR_ATTR_BOOL), i(v) {}
AttrValue::AttrValue(int v) : kind(TSR_ATTR_INT), i(v) {}
AttrValue::AttrValue(int64_t v) : kind(TSR_ATTR_INT), i(v) {}
AttrValue::AttrValue(double v) : kind(TSR_ATTR_FLOAT), f(v) {}
AttrValue::AttrValue(const char* v) : kind(TSR_ATTR_STRING), s(v) {}
AttrValue::AttrValue(std::string v) : kind(TSR_ATTR_STRING), s(std::move(v)) {}
AttrValue::AttrValue(DType v) : kind(TSR_ATTR_DTYPE), i(static_cast<int64_t>(v)) {}
AttrValue::AttrValue(Axes v) : kind(TSR_ATTR_INTS), ints(std::move(v)) {}
AttrValue::AttrValue(std::vector<double> v) : kind(TSR_ATTR_FLOATS), floats(std::move(v)) {}
AttrValue::AttrValue(SymInt v) : kind(TSR_ATTR_DIM), i(v.dim()) {}
AttrValue::AttrValue(Shape v) : kind(TSR_ATTR_DIMS), ints(Dims(v).v) {}

std::vector<Tensor> op_multi(const char* name, const std::vector<Tensor>& operands, const Attrs& attrs) {
  std::vector<tsr_attr> list;
  for (const auto& [key, v] : attrs) {
    tsr_attr a = attr(key, v.kind);
    a.i = v.i;
    a.f = v.f;
    a.s = c_text(v.s, key);
    a.ints = v.ints.data();
    a.floats = v.floats.data();
    a.count = static_cast<uint32_t>(v.kind == TSR_ATTR_FLOATS ? v.floats.size() : v.ints.size());
    list.push_back(a);
  }
  std::vector<Tensor> out;
  run_op(name, operands, list, out);
  return out;
}
Tensor op(const char* name, const std::vector<Tensor>& operands, const Attrs& attrs) {
  return op_multi(name, operands, attrs).at(0);
}

}  // namespace tessera
