// SPDX-License-Identifier: Apache-2.0
// Losses over classes.
#include "../op.hpp"

namespace tessera::onnx {
namespace {

// -weight[target] * logp[target], 0 where the target is ignored; mean divides by the weights that count.
V negative_log_likelihood(Op& op, const V& logp, const V& target, const V& weight) {
  Build& b = op.b;
  const std::string reduction(op.s("reduction", "mean"));
  op.expect(reduction == "none" || reduction == "mean" || reduction == "sum", "attribute 'reduction' is '" + reduction + "'");
  V index = target, ignored;
  if (op.has_attr("ignore_index")) {
    ignored = target == static_cast<double>(op.i("ignore_index"));
    index = select(ignored, 0.0, target);
  }
  const V picked = b.squeeze(logp.call("take_along_axis", b.expand(index, {1}), {sdk::attr_int("axis", 1)}), {1});
  V counts;
  if (weight) counts = b.gather(weight, index, 0);
  if (ignored) counts = counts ? select(ignored, 0.0, counts) : b.cast(negated(ignored), logp.dtype());
  V loss = -picked;
  if (counts) loss = loss * counts;
  if (reduction == "none") return loss;
  const Ints all = axes_from(0, loss.rank());
  if (reduction == "sum") return b.sum(loss, all);
  return counts ? b.sum(loss, all) / b.sum(counts, all) : b.reduce("mean", loss, all, false);
}

void nll_loss(Op& op) { op.out(negative_log_likelihood(op, op.in(0), op.in(1), op.opt(2))); }

void softmax_cross_entropy_loss(Op& op) {
  const V x = op.in(0), target = op.in(1);
  if (!op.wants(1)) {
    const std::string reduction(op.s("reduction", "mean"));
    // The composite ignores -100 unless told otherwise; targets are never negative where nothing is ignored.
    const int64_t ignore = op.i("ignore_index", -100);
    if (Build::is_number(ignore))
      return op.out(op.b.op("cross_entropy", {x, target, op.opt(2)},
                            {sdk::attr_string("reduction", reduction.c_str()), sdk::attr_int("ignore_index", ignore)}));
  }
  const V logp = x.call("log_softmax", {sdk::attr_int("axis", 1)});
  op.out(negative_log_likelihood(op, logp, target, op.opt(2)), 0);
  op.out(logp, 1);
}

}  // namespace

std::span<const Record> loss_records() {
  static constexpr Record records[] = {
      {"", "NegativeLogLikelihoodLoss", nll_loss},
      {"", "SoftmaxCrossEntropyLoss", softmax_cross_entropy_loss},
  };
  return records;
}

}  // namespace tessera::onnx
