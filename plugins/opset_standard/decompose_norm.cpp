// SPDX-License-Identifier: Apache-2.0
// Normalisations as reductions and elementwise ops, in the compute dtype.
#include "build.hpp"
#include "normalize.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

void layer_norm(Build& b) {
  const Var x = b.wide(b.operand(0));
  Var y = normalize(b, x, iota_ints(b.axis("axis", x.rank()), x.rank()), b.number("eps")).xhat();
  if (b.has(1)) y = y * b.wide(b.operand(1));
  if (b.has(2)) y = y + b.wide(b.operand(2));
  b.replace(0, y.to(b.operand(0).dtype()));
}

void rms_norm(Build& b) {
  const Var x = b.wide(b.operand(0));
  Var y = x * rms_scale(b, x, iota_ints(b.axis("axis", x.rank()), x.rank()), b.number("eps"));
  if (b.has(1)) y = y * b.wide(b.operand(1));
  b.replace(0, y.to(b.operand(0).dtype()));
}

void group_norm(Build& b) {
  const Var x = b.wide(b.operand(0));
  const int64_t groups = b.integer("groups");
  const DimVector shape = x.sizes();
  tsr_dim rest = b.dims.floordiv(shape[1], groups);
  for (size_t i = 2; i < shape.size(); ++i) rest = b.dims.mul(rest, shape[i]);
  Var y = normalize(b, x.reshape({shape[0], groups, rest}), {2}, b.number("eps")).xhat().reshape(shape);
  if (b.has(1)) y = y * per_channel(b, b.operand(1), x.rank());
  if (b.has(2)) y = y + per_channel(b, b.operand(2), x.rank());
  b.replace(0, y.to(b.operand(0).dtype()));
}

void batch_norm(Build& b) {
  const Var x = b.wide(b.operand(0));
  const auto channel = [&](const Var& v) { return per_channel(b, v, x.rank()); };
  Var scale = (channel(b.operand(4)) + b.number("eps")).call("rsqrt");
  if (b.has(1)) scale = scale * channel(b.operand(1));
  Var y = (x - channel(b.operand(3))) * scale;
  if (b.has(2)) y = y + channel(b.operand(2));
  b.replace(0, y.to(b.operand(0).dtype()));
}

void batch_norm_training(Build& b) {
  const Var x = b.wide(b.operand(0));
  Ints axes = iota_ints(0, x.rank());
  axes.erase(axes.begin() + 1);
  const Var mean = mean_over(b, x, axes), d = x - mean, squares = (d * d).sum(axes, true);
  const Var n = b.count(b.elements(x, axes), x.dtype());
  Var y = d * (squares / n + b.number("eps")).call("rsqrt");
  if (b.has(1)) y = y * per_channel(b, b.operand(1), x.rank());
  if (b.has(2)) y = y + per_channel(b, b.operand(2), x.rank());
  b.replace(0, y.to(b.operand(0).dtype()));
  const double m = b.number("momentum");
  const auto moved = [&](const Var& running, const Var& batch) {
    return (b.wide(running) * (1 - m) + batch.reshape({x.size(1)}) * m).to(running.dtype());
  };
  b.replace(1, moved(b.operand(3), mean));
  b.replace(2, moved(b.operand(4), squares / (n - 1)));
}

}  // namespace

void add_decompose_norm(Table& t) {
  t.decompose("layer_norm", layer_norm);
  t.decompose("rms_norm", rms_norm);
  t.decompose("group_norm", group_norm);
  t.decompose("batch_norm", batch_norm);
  t.decompose("batch_norm_training", batch_norm_training);
}

}  // namespace tessera::opset
