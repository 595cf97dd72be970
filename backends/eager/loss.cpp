// SPDX-License-Identifier: Apache-2.0
// Losses. Per-element losses go to the workspace in the compute type; sums over them follow isa/reduce_order.hpp.
#include "loss.hpp"

#include <algorithm>

#include "reduction.hpp"
#include "rows.hpp"

namespace eager {
namespace {

enum class Reduction { None, Mean, Sum };
Reduction reduction_of(const Build& b) {
  const std::string s = b.text("reduction");
  return s == "none" ? Reduction::None : s == "mean" ? Reduction::Mean : Reduction::Sum;
}
int64_t padded(int64_t n) { return (n * 8 + 63) / 64 * 64; }

const RowFns<float>& row_fns(const Isa& isa, float) { return isa.row_f32; }
const RowFns<double>& row_fns(const Isa& isa, double) { return isa.row_f64; }

// The sum of n values of T; `space`: reduce_workspace for them.
template <class T>
T sum_of(const Isa& isa, T* values, int64_t n, void* space) {
  View v;
  v.data = values;
  v.dtype = std::is_same_v<T, double> ? TSR_F64 : TSR_F32;
  v.sizes.push(n), v.strides.push(1);
  const int axes[] = {0};
  T result = 0;
  reduce(isa, ReduceSpec{}, v, axes, space, [&](int64_t, int64_t, const void* x) { result = *static_cast<const T*>(x); });
  return result;
}
int64_t sum_workspace(int64_t n) {
  Dims d;
  d.push(n);
  const int axes[] = {0};
  return reduce_workspace(d, axes);
}

// Every element to `out`, or their sum divided by `count`.
template <class T>
void finish(const Isa& isa, Reduction reduction, T* losses, int64_t n, double count, const tsr_tensor& out, void* space) {
  if (reduction == Reduction::None) return store_run(isa, out.dtype, out.data, 0, n, losses);
  T total = sum_of(isa, losses, n, space);
  if (reduction == Reduction::Mean) total = total / static_cast<T>(count);
  store_run(isa, out.dtype, out.data, 0, 1, &total);
}

struct CrossEntropy {
  const Isa* isa;
  std::string op;
  Reduction reduction;
  int64_t ignore;
  double smoothing;

  template <class T>
  void run(const tsr_launch& l) const {
    const View logits(l.inputs[0]), target(l.inputs[1]);
    const int64_t classes = logits.sizes[1], n = target.elements();
    char* space = static_cast<char*>(l.workspace);
    const T* weight =
        l.num_inputs > 2 && !absent(l.inputs[2]) ? static_cast<const T*>(flat_values(*isa, l.inputs[2], space)) : nullptr;
    space += padded(classes);
    T* losses = reinterpret_cast<T*>(space);
    T* weights = reinterpret_cast<T*>(space + padded(n));
    char* rest = space + 2 * padded(n);
    Nest<1> nest;
    for (int d = 0; d < target.rank(); ++d) nest.push(target.sizes[d], &target.strides[d]);
    const auto class_of = [&](int64_t i) {
      int64_t at[1];
      nest.offsets(i, at);
      return tessera::load_as<int64_t>(target.dtype, target.data, at[0]);
    };
    for (int64_t i = 0; i < n; ++i)
      if (const int64_t c = class_of(i); c != ignore && (c < 0 || c >= classes)) fail_index(op, c, classes, 1);
    // The weighted sum over all classes, for label smoothing: the same for every row but for the row's own terms.
    const auto& fns = row_fns(*isa, T{});
    const int axes[] = {1};
    read_rows(*isa, logits, axes, rest, [&](int64_t i, const void* row, int64_t) {
      const T* x = static_cast<const T*>(row);
      const int64_t c = class_of(i);
      if (c == ignore) {
        losses[i] = weights[i] = 0;
        return;
      }
      const T log_sum = fns.logsumexp(x, classes), w = weight ? weight[c] : T(1);
      T loss = w * (log_sum - x[c]);
      if (smoothing != 0) {
        T all = 0;
        for (int64_t k = 0; k < classes; ++k) all += (weight ? weight[k] : T(1)) * (log_sum - x[k]);
        loss = static_cast<T>(1 - smoothing) * loss + static_cast<T>(smoothing / static_cast<double>(classes)) * all;
      }
      losses[i] = loss;
      weights[i] = w;
    });
    double count = 1;
    if (reduction == Reduction::Mean) count = static_cast<double>(sum_of(*isa, weights, n, rest));
    finish(*isa, reduction, losses, n, count, l.outputs[0], rest);
  }
};

}  // namespace

KernelPtr make_cross_entropy(const Build& b, int) {
  const CrossEntropy k{b.isa, b.op(), reduction_of(b), b.integer("ignore_index"), b.number("label_smoothing")};
  const uint32_t dtype = b.operand(0).dtype();
  return make_kernel(
      b,
      [k](const tsr_launch& l) {
        if (l.inputs[0].dtype == TSR_F64)
          k.run<double>(l);
        else
          k.run<float>(l);
      },
      [dtype, shape = b.shape(b.operand(0))](const int64_t* dims) {
        const Dims x = shape.get(dims);
        int64_t n = 1;
        for (int d = 0; d < x.rank; ++d) n *= d == 1 ? 1 : x[d];
        const int axes[] = {1};
        return padded(x[1]) + 2 * padded(n) + std::max(sum_workspace(n), read_rows_workspace(x, axes, dtype));
      });
}

KernelPtr make_mse_loss(const Build& b, int) {
  const Reduction reduction = reduction_of(b);
  return make_kernel(
      b,
      [reduction, isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]), target(l.inputs[1]);
        const int64_t n = x.elements();
        Nest<2> nest;
        for (int d = 0; d < x.rank(); ++d) {
          const int64_t s[2] = {x.strides[d], target.strides[d]};
          nest.push(x.sizes[d], s);
        }
        const int64_t inner = nest.rank > 0 ? nest.sizes[nest.rank - 1] : 1;
        const auto run = [&](auto zero) {
          using T = decltype(zero);
          T* losses = static_cast<T*>(l.workspace);
          if (n > 0)
            sdk::parallel(n / inner, std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
              alignas(64) T a[kTile], c[kTile];
              for (int64_t r = begin; r < end; ++r) {
                int64_t at[2];
                nest.offsets(r, at, nest.rank > 0 ? 1 : 0);
                const int64_t sa = nest.rank > 0 ? nest.strides[0][nest.rank - 1] : 1,
                              sb = nest.rank > 0 ? nest.strides[1][nest.rank - 1] : 1;
                for (int64_t i = 0; i < inner; i += kTile) {
                  const int64_t m = std::min(kTile, inner - i);
                  const T* p = static_cast<const T*>(run_pointer(*isa, x.dtype, x.data, at[0] + i * sa, sa, m, a));
                  const T* q = static_cast<const T*>(run_pointer(*isa, target.dtype, target.data, at[1] + i * sb, sb, m, c));
                  for (int64_t j = 0; j < m; ++j) losses[r * inner + i + j] = (p[j] - q[j]) * (p[j] - q[j]);
                }
              }
            });
          finish(*isa, reduction, losses, n, static_cast<double>(n), l.outputs[0], static_cast<char*>(l.workspace) + padded(n));
        };
        if (x.dtype == TSR_F64)
          run(double{});
        else
          run(float{});
      },
      [shape = b.shape(b.operand(0))](const int64_t* dims) {
        const int64_t n = shape.get(dims).product();
        return padded(n) + sum_workspace(n);
      });
}

}  // namespace eager
