// SPDX-License-Identifier: Apache-2.0
// Attention and losses.
#include <algorithm>
#include <cmath>
#include <limits>

#include "accumulate.hpp"
#include "op.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

// Workspace: the scores of one query.
void attention(const Op& op) {
  const Tensor q = op.in(0), k = op.in(1), v = op.in(2), y = op.out();
  const uint32_t nb = q.rank() - 2;
  const Index batch = q.sizes().part(0, nb);
  const int64_t queries = q.size(nb), width = q.size(nb + 1), keys = k.size(nb), values = v.size(nb + 1);
  const double scale = op.real("scale") != 0 ? op.real("scale") : 1 / std::sqrt(static_cast<double>(width));
  const bool causal = op.flag("causal");
  Index score_shape = batch;
  score_shape.push(queries);
  score_shape.push(keys);
  const Tensor mask = op.has(3) ? op.in(3).broadcast(score_shape) : Tensor();
  // Grouped queries: that many consecutive heads of q share one of k and v.
  const int64_t sharing = nb > 0 && k.size(nb - 1) > 0 ? q.size(nb - 1) / k.size(nb - 1) : 1;
  auto* scores = op.workspace<double>();

  for (Walk b(batch); b; b.next()) {
    Index kv = b.index();
    if (nb > 0) kv[nb - 1] /= sharing;
    const auto at = [&](const Tensor& t, Index i, int64_t row, int64_t column) {
      i.push(row);
      i.push(column);
      return t.offset(i);
    };
    for (int64_t i = 0; i < queries; ++i) {
      double top = -inf;
      for (int64_t j = 0; j < keys; ++j) {
        Sum<double> dot;
        for (int64_t e = 0; e < width; ++e) dot.add(q.get<double>(at(q, b.index(), i, e)) * k.get<double>(at(k, kv, j, e)));
        double s = dot.value() * scale;
        if (mask && is_bool(mask.dtype())) {
          if (mask.get<Int>(at(mask, b.index(), i, j)) == 0) s = -inf;
        } else if (mask) {
          s += mask.get<double>(at(mask, b.index(), i, j));
        }
        if (causal && j > i) s = -inf;
        scores[j] = s;
        if (std::isnan(s) || s > top) top = s;
      }
      Sum<double> sum;
      for (int64_t j = 0; j < keys; ++j) {
        scores[j] = top == -inf ? 0 : std::exp(scores[j] - top);
        sum.add(scores[j]);
      }
      for (int64_t u = 0; u < values; ++u) {
        Sum<double> r;
        for (int64_t j = 0; j < keys; ++j)
          if (scores[j] != 0) r.add(scores[j] * v.get<double>(at(v, kv, j, u)));
        y.put<double>(at(y, b.index(), i, u), sum.value() == 0 ? 0 : r.value() / sum.value());  // without keys: 0
      }
    }
  }
}
int64_t attention_workspace(const Op& op) {
  const Tensor k = op.in(1);
  return k.size(int64_t{k.rank()} - 2) * 8;
}

// logits [N, C, *S], target [N, *S].
void cross_entropy(const Op& op) {
  const Tensor logits = op.in(0), target = op.in(1), weight = op.in(2), y = op.out();
  const std::string_view reduction = op.text("reduction");
  const double smoothing = op.real("label_smoothing");
  const int64_t ignored = op.integer("ignore_index"), classes = logits.size(1);
  double total = 0, total_weight = 0;
  for (Walk w(target.sizes()); w; w.next()) {
    const Int t = target.integer(w.index());
    double loss = 0;
    if (t != ignored) {
      if (t < 0 || t >= classes)
        op.fail("TSR-R011",
                "target " + std::to_string(static_cast<int64_t>(t)) + " is not one of " + std::to_string(classes) + " classes",
                "targets must be in [0, classes), or ignore_index");
      const auto logit = [&](int64_t c) {
        Index i = w.index();
        i.insert(1, c);
        return logits.real(i);
      };
      const auto weight_of = [&](int64_t c) { return weight ? weight.real({c}) : 1.0; };
      double top = -inf, sum = 0, smooth = 0;
      for (int64_t c = 0; c < classes; ++c) top = std::isnan(top) || top > logit(c) ? top : logit(c);
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(logit(c) - top);
      const auto log_p = [&](int64_t c) { return logit(c) - top - std::log(sum); };
      const auto picked = static_cast<int64_t>(t);
      loss = -log_p(picked) * weight_of(picked);
      if (smoothing != 0) {
        for (int64_t c = 0; c < classes; ++c) smooth -= log_p(c) * weight_of(c);
        loss = (1 - smoothing) * loss + smoothing / static_cast<double>(classes) * smooth;
      }
      total_weight += weight_of(picked);
    }
    total += loss;
    if (reduction == "none") y.put<double>(y.offset(w.index()), loss);
  }
  if (reduction != "none") y.put<double>(0, reduction == "mean" ? total / total_weight : total);
}

void mse_loss(const Op& op) {
  const Tensor x = op.in(0), target = op.in(1), y = op.out();
  const std::string_view reduction = op.text("reduction");
  double total = 0;
  for (Walk w(x.sizes()); w; w.next()) {
    const double d = x.real(w.index()) - target.real(w.index());
    total += d * d;
    if (reduction == "none") y.put<double>(y.offset(w.index()), d * d);
  }
  if (reduction != "none") y.put<double>(0, reduction == "mean" ? total / static_cast<double>(x.elements()) : total);
}

}  // namespace

std::span<const Entry> network_ops() {
  static constexpr Entry entries[] = {
      {"attention", attention, attention_workspace},
      {"cross_entropy", cross_entropy},
      {"mse_loss", mse_loss},
  };
  return entries;
}

}  // namespace tessera::reference
