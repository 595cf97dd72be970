// SPDX-License-Identifier: Apache-2.0
// Normalisation and dropout. The op set's composites stay whole.
#include <algorithm>

#include "../op.hpp"
#include "random.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_float;
using sdk::attr_int;
using sdk::attr_ints;

void batch_normalization(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const double eps = op.f("epsilon", 1e-5f);
  const bool training = op.version >= 14 ? op.flag("training_mode") : op.version < 7 && !op.flag("is_test") && op.wants(1);
  if (op.version < 9 && !op.flag("spatial", true)) op.unsupported("statistics per element (spatial = 0)");
  const tsr_dtype t = Build::wide(x.dtype());
  const auto same = [&](const V& v) { return v.dtype() == x.dtype(); };
  if (!training) {
    if (same(op.in(1)) && same(op.in(2)) && same(op.in(3)) && same(op.in(4)) && x.rank() >= 2)
      return op.out(b.op("batch_norm", {x, op.in(1), op.in(2), op.in(3), op.in(4)}, {attr_float("eps", eps)}));
  }
  Ints axes = {0}, channel = axes_from(1, std::max<int64_t>(x.rank() - 1, 1));
  for (int64_t d = 2; d < x.rank(); ++d) axes.push_back(d);
  const auto wide = [&](size_t i) { return b.cast(op.in(i), t); };
  const auto spread = [&](const V& v) { return x.rank() < 2 ? v : b.expand(v, channel); };
  const V f = b.cast(x, t);
  V mean = wide(3), variance = wide(4);
  if (training) {
    mean = b.reduce("mean", f, axes, false);
    variance = f.call("variance", {attr_ints("axes", axes), attr_float("correction", 0)});
    const double keep = op.f("momentum", 0.9f);
    op.out(b.cast(wide(3) * keep + mean * (1 - keep), op.in(3).dtype()), 1);
    op.out(b.cast(wide(4) * keep + variance * (1 - keep), op.in(4).dtype()), 2);
  }
  const V y = (f - spread(mean)) * spread((variance + eps).call("rsqrt") * wide(1)) + spread(wide(2));
  op.out(b.cast(y, x.dtype()));
}

void instance_normalization(Op& op) {
  const V x = op.in(0);
  op.expect(x.rank() >= 3, "an input of rank " + std::to_string(x.rank()));
  Build& b = op.b;
  const double eps = op.f("epsilon", 1e-5f);
  if (Build::is_number(x.size(1)))
    return op.out(b.op("group_norm", {x, op.in(1), op.in(2)}, {attr_int("groups", x.size(1)), attr_float("eps", eps)}));
  const Ints spatial = axes_from(2, x.rank()), behind = axes_from(1, x.rank() - 1);
  const V f = b.cast(x, Build::wide(x.dtype())), mean = b.reduce("mean", f, spatial, true);
  const V variance =
      f.call("variance", {attr_ints("axes", spatial), attr_float("correction", 0), sdk::attr_bool("keepdims", true)});
  const auto spread = [&](size_t i) { return b.expand(b.cast(op.in(i), f.dtype()), behind); };
  op.out(b.cast((f - mean) * (variance + eps).call("rsqrt") * spread(1) + spread(2), x.dtype()));
}

void group_normalization(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const int64_t groups = op.i("num_groups");
  op.expect(x.rank() >= 2 && groups > 0,
            "an input of rank " + std::to_string(x.rank()) + " in " + std::to_string(groups) + " groups");
  V scale = op.in(1), bias = op.in(2);
  if (op.version < 21) {  // one per group
    const tsr_dim each = b.floordiv(x.size(1), groups);
    const auto repeat = [&](const V& v) { return b.reshape(b.broadcast(b.expand(v, {1}), {groups, each}), {x.size(1)}); };
    scale = repeat(scale);
    bias = repeat(bias);
  }
  op.out(b.op("group_norm", {x, scale, bias}, {attr_int("groups", groups), attr_float("eps", op.f("epsilon", 1e-5f))}));
}

// Weights of the normalised shape go into the op; others, which broadcast, come after it.
V normalised(Op& op, const char* name, const V& x, const V& scale, const V& bias, int64_t axis, double eps) {
  Build& b = op.b;
  const Dims inner(x.sizes().begin() + axis, x.sizes().end());
  // A symbolic size that a weight's number stands for can be no other.
  const auto fits = [&](const V& v) {
    if (!v) return true;
    if (v.dtype() != x.dtype() || v.sizes().size() != inner.size()) return false;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (v.sizes()[i] == inner[i]) continue;
      if (Build::is_number(inner[i]) || !Build::is_number(v.sizes()[i]) || v.sizes()[i] == 1) return false;
      b.graph().require(TSR_EQ, inner[i], v.sizes()[i], "a weight has the size of what it normalises");
    }
    return true;
  };
  const tsr_attr attrs[] = {attr_int("axis", axis), attr_float("eps", eps)};
  const bool layer = std::string_view(name) == "layer_norm";
  if (fits(scale) && fits(bias)) {
    const V all[] = {x, scale, bias};
    return b.op(name, std::span(all, layer ? 3 : 2), attrs);
  }
  const V wide = b.cast(x, Build::wide(x.dtype()));
  const V only[] = {wide, {}, {}};
  V y = b.op(name, std::span(only, layer ? 3 : 2), attrs);
  const tsr_dtype out = scale ? scale.dtype() : x.dtype();
  if (scale) y = y * b.cast(scale, y.dtype());
  if (bias) y = y + b.cast(bias, y.dtype());
  return b.cast(y, out);
}

void layer_normalization(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const int64_t axis = op.axis_attr("axis", -1, x.rank());
  const double eps = op.f("epsilon", 1e-5f);
  op.out(normalised(op, "layer_norm", x, op.in(1), op.opt(2), axis, eps));
  if (!op.wants(1) && !op.wants(2)) return;
  const Ints axes = axes_from(axis, x.rank());
  const V f = b.cast(x, TSR_F32);
  op.out(b.reduce("mean", f, axes, true), 1);
  op.out((f.call("variance", {attr_ints("axes", axes), attr_float("correction", 0), sdk::attr_bool("keepdims", true)}) + eps)
             .call("rsqrt"),
         2);
}

void rms_normalization(Op& op) {
  const V x = op.in(0);
  op.out(normalised(op, "rms_norm", x, op.in(1), {}, op.axis_attr("axis", -1, x.rank()), op.f("epsilon", 1e-5f)));
}

void mean_variance_normalization(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const Ints axes = op.axes(op.ints("axes", Ints{0, 2, 3}), x.rank());
  const V centred = x - b.reduce("mean", x, axes, true);
  const V deviation = b.reduce("mean", centred * centred, axes, true).call("sqrt");
  op.out(centred / (deviation + 1e-9));
}

void lp_normalization(Op& op) {
  const V x = op.in();
  const Ints axis = {op.axis_attr("axis", -1, x.rank())};
  const V n = x.call(
      "norm", {attr_float("p", static_cast<double>(op.i("p", 2))), attr_ints("axes", axis), sdk::attr_bool("keepdims", true)});
  op.out(select(n == 0.0, 0.0, x / n));
}

// Krizhevsky et al. 2012: the channels are a spatial dimension of a sum of squares.
void lrn(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const int64_t size = op.i("size");
  op.expect(x.rank() >= 2 && size > 0, "an input of rank " + std::to_string(x.rank()) + " and size " + std::to_string(size));
  const double alpha = op.f("alpha", 1e-4f), beta = op.f("beta", 0.75), bias = op.f("bias", 1.0);
  tsr_dim rest = 1;
  for (int64_t d = 2; d < x.rank(); ++d) rest = b.mul(rest, x.size(d));
  const V flat = b.reshape(x, {x.size(0), 1, x.size(1), rest});
  const Ints kernel = {size, 1}, ones = {1, 1}, low = {(size - 1) / 2, 0}, high = {size / 2, 0};
  const V sums = (flat * flat)
                     .call("avg_pool", {attr_ints("kernel", kernel), attr_ints("strides", ones), attr_ints("pad_low", low),
                                        attr_ints("pad_high", high), attr_ints("dilations", ones), attr_int("divisor", 1)});
  const V scale = (sums * (alpha / static_cast<double>(size)) + bias).call("pow", b.scalar(beta, x.dtype()));
  op.out(b.reshape(flat / scale, x.sizes()));
}

// Before opset 12 a model file says what inference does: nothing.
void dropout(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const double ratio = op.version >= 12 && op.has(1) ? op.reals(1).at(0) : 0.5;
  const bool training = op.version >= 12 && op.has(2) && op.number(2) != 0;
  if (!training || ratio == 0) {
    op.out(x, 0);
    return op.out(b.full(1, op.version < 10 ? x.dtype() : TSR_BOOL, x.sizes()), 1);
  }
  op.expect(ratio > 0 && ratio < 1, "the ratio is " + std::to_string(ratio));
  const V kept = random_uniform(op, x.sizes(), TSR_F32) >= ratio;
  op.out(select(kept, x * (1 / (1 - ratio)), 0.0), 0);
  op.out(kept, 1);
}

}  // namespace

std::span<const Record> norm_records() {
  static constexpr Record records[] = {
      {"", "BatchNormalization", batch_normalization},
      {"", "InstanceNormalization", instance_normalization},
      {"", "GroupNormalization", group_normalization},
      {"", "LayerNormalization", layer_normalization},
      {"", "RMSNormalization", rms_normalization},
      {"", "SimplifiedLayerNormalization", rms_normalization},
      {"", "MeanVarianceNormalization", mean_variance_normalization},
      {"", "LpNormalization", lp_normalization},
      {"", "LRN", lrn},
      {"", "Dropout", dropout},
  };
  return records;
}

}  // namespace tessera::onnx
