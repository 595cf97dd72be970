// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tessera/dtypes.hpp"
#include "tessera/grad.hpp"
#include "trace.hpp"

namespace tessera::F {

namespace {

using Options = LinearCrossEntropyOptions;

// The length of a chunk of `count` rows; all of them where their number is a symbol.
int64_t chunk_length(const Options& o, const SymInt& count, int64_t classes) {
  if (count.is_symbolic()) return 0;
  const int64_t rows = o.rows > 0 ? o.rows : std::max<int64_t>(1, (int64_t{1} << 20) / std::max<int64_t>(1, classes));
  constexpr int64_t kMaxChunks = 64;  // each one is a part of the program
  return std::max(rows, (count.raw() + kMaxChunks - 1) / kMaxChunks);
}

struct Chunk {
  Tensor x, target;  // [r, D], [r]
};

std::vector<Chunk> chunks(const Options& o, const Tensor& x, const Tensor& target, int64_t classes) {
  const SymInt count = x.size(0);
  const int64_t length = chunk_length(o, count, classes);
  if (length == 0 || count.raw() <= length) return {{x, target}};
  std::vector<Chunk> out;
  for (int64_t at = 0; at < count.raw(); at += length) {
    const int64_t n = std::min(length, count.raw() - at);
    out.push_back({x.narrow(0, at, n), target.narrow(0, at, n)});
  }
  return out;
}

// Loss and gradients of all rows, or the loss alone.
std::vector<Tensor> compute(const Options& o, const Tensor& x, const Tensor& w, const Tensor& target, bool gradients) {
  const int64_t classes = w.size(0);
  const DType wide = x.dtype() == f64 ? f64 : f32;
  // What a row counts: nothing where its target is to be ignored. The mean of no rows at all is NaN, as in PyTorch.
  const Tensor counted = target != o.ignore_index;
  const Tensor rows = counted.to(wide).sum();
  // The gradient of a mean is multiplied by one quotient: to divide each element would take as long as its exponential.
  const Tensor share_of_row = rows.reciprocal();
  const double share = o.label_smoothing / static_cast<double>(classes);
  Tensor loss, dw;
  std::vector<Tensor> dx;
  for (const Chunk& c : chunks(o, x, target, classes)) {
    const Tensor used = c.target != o.ignore_index;
    const Tensor index = where(used, c.target, zeros_like(c.target)).unsqueeze(1);
    // log p is a logit less the logarithm of the sum of the row's exponentials. So what is as large as the logits is read
    // twice, and written once, as their gradient.
    const Tensor logits = F::linear(c.x, w), wide_logits = logits.to(wide), lse = wide_logits.logsumexp({1}, true);
    Tensor of_rows = (logits.gather(1, index).to(wide) - lse).squeeze(1) * (o.label_smoothing - 1);
    if (o.label_smoothing > 0) of_rows = of_rows - (wide_logits - lse).sum(Axes{1}) * share;
    const Tensor sum = where(used, of_rows, zeros_like(of_rows)).sum();
    loss = loss.defined() ? loss + sum : sum;
    if (!gradients) continue;
    // The loss of a row is -sum q log p with q of sum 1, and so its gradient p - q.
    const Tensor hit = index == arange(classes, c.target.dtype()).unsqueeze(0);
    Tensor d = (wide_logits - lse).exp() - where(hit, full({}, 1 - o.label_smoothing + share, wide), full({}, share, wide));
    if (o.reduction == "mean") d = d * share_of_row;
    d = where(used.unsqueeze(1), d, zeros_like(d)).to(x.dtype());
    dx.push_back(d.matmul(w));
    const Tensor part = einsum_dot(d, c.x, {}, {}, {0}, {0}).to(wide);  // without a transposed copy
    dw = dw.defined() ? dw + part : part;
  }
  if (o.reduction == "mean") loss = loss / rows;
  if (!gradients) return {loss.to(x.dtype())};
  return {loss.to(x.dtype()), dx.size() == 1 ? dx[0] : cat(dx, 0), dw.to(w.dtype())};
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& target, const Options& o) {
  const auto wrong = [](const std::string& what) { detail::fail("TSR-F066", "linear_cross_entropy: " + what); };
  if (o.reduction != "mean" && o.reduction != "sum") wrong("reduction '" + o.reduction + "', expected 'mean' or 'sum'");
  if (!(o.label_smoothing >= 0 && o.label_smoothing <= 1))
    wrong("label_smoothing " + std::to_string(o.label_smoothing) + ", expected a number in [0, 1]");
  if (o.rows < 0) wrong(std::to_string(o.rows) + " rows at a time, expected 1 or more, or 0");
  if (w.dim() != 2 || x.dim() < 1 || !(x.size(-1) == w.size(1)) || target.dim() != x.dim() - 1 || x.dtype() != w.dtype() ||
      !is_float(static_cast<uint32_t>(x.dtype())) || !is_int(static_cast<uint32_t>(target.dtype())))
    wrong("found x " + x.str() + ", weight " + w.str() + " and target " + target.str() +
          ", expected floats [.., D] and [C, D] of one dtype, and integers [..]");
  const Tensor rows = x.reshape({-1, w.size(1)}), targets = target.reshape({-1});
  if (!is_compiling()) return compute(o, rows, w, targets, false)[0];
  const auto f = custom_gradient(
      [&o](const std::vector<Tensor>& in) {
        std::vector<Tensor> made = compute(o, in[0], in[1], in[2], true);
        return WithSaved{{made[0]}, {made[1], made[2]}};
      },
      [](const std::vector<Tensor>& saved, const std::vector<Tensor>& dy) {
        return std::vector<Tensor>{saved[0] * dy[0], saved[1] * dy[0]};
      });
  return f({rows, w, targets})[0];
}

}  // namespace tessera::F
