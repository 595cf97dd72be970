// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"
#include "loss.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

Var reduce_all_axes(const Var& v) { return v.sum(iota_ints(0, v.rank()), false); }

void cross_entropy(Build& b) {
  const Targets t(b);
  const Var lp = t.logits.call("log_softmax", {sdk::attr_int("axis", 1)});
  const Var picked = lp.call("take_along_axis", t.index.expand({1}), {sdk::attr_int("axis", 1)}).reshape(t.index.sizes());
  Var loss = -picked * t.weight_of_target;
  const double smoothing = b.number("label_smoothing");
  if (smoothing > 0) {
    const Var all = -(t.class_weight ? lp * t.weight_along_classes() : lp).sum({1}, false);
    loss = loss * (1 - smoothing) + all * smoothing / b.count(t.logits.size(1), lp.dtype());
  }
  // Also removes NaN and infinities of ignored places.
  loss = select(t.ignored, 0, loss);
  const std::string_view reduction = b.text("reduction");
  if (reduction != "none") loss = reduce_all_axes(loss);
  if (reduction == "mean") loss = loss / reduce_all_axes(t.weight_of_target);
  b.replace(0, loss.to(b.operand(0).dtype()));
}

void mse_loss(Build& b) {
  const Var d = b.wide(b.operand(0)) - b.wide(b.operand(1));
  Var loss = d * d;
  const std::string_view reduction = b.text("reduction");
  if (reduction != "none") loss = reduce_all_axes(loss);
  if (reduction == "mean") loss = loss / b.count(b.dims.product(d.sizes()), d.dtype());
  b.replace(0, loss.to(b.operand(0).dtype()));
}

}  // namespace

void add_decompose_loss(Table& t) {
  t.decompose("cross_entropy", cross_entropy);
  t.decompose("mse_loss", mse_loss);
}

}  // namespace tessera::opset
