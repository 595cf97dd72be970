// SPDX-License-Identifier: Apache-2.0
// Reductions and the composites that are one or two of them.
#include "reduce_ops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reduction.hpp"

namespace eager {
namespace {

// Bytes at the end of the workspace for one value of the compute type per result.
int64_t per_result(const Dims& sizes, std::span<const int> axes) {
  int64_t n = 1;
  for (int d = 0; d < sizes.rank; ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) n *= sizes[d];
  return (n * 8 + 63) / 64 * 64;
}

struct ReduceKernel {
  const Isa* isa;
  std::vector<int> axes;

  int64_t extent(const View& x) const {
    int64_t n = 1;
    for (int a : axes) n *= x.sizes[a];
    return n;
  }
  // Each result goes through f (a function of one compute-type value) on its way to `out`.
  template <class F>
  void run(const tsr_launch& l, ReduceSpec spec, const tsr_tensor& out, void* workspace, F f) const {
    const View x(l.inputs[0]);
    spec.serial = tessera::is_packed(out.dtype);
    const Comp comp = comp_of(out.dtype);
    reduce(*isa, spec, x, axes, workspace, [&](int64_t first, int64_t count, const void* values) {
      alignas(16) char piece[64 * 16];
      with_comp(comp, [&](auto zero) {
        using T = decltype(zero);
        for (int64_t i = 0; i < count; ++i) reinterpret_cast<T*>(piece)[i] = f(static_cast<const T*>(values)[i]);
      });
      store_run(*isa, out.dtype, out.data, first, count, piece);
    });
  }
};

template <class T>
T divided(T x, double n) {
  if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>) {
    using R = decltype(T::re);
    return {x.re / static_cast<R>(n), x.im / static_cast<R>(n)};
  } else {
    return static_cast<T>(x / static_cast<T>(n));
  }
}

template <class T>
inline constexpr bool is_float = std::is_floating_point_v<T>;

// Every element = the lowest (or highest) value of the dtype, infinite if it can be: the maximum (minimum) of nothing. The
// compute type's own identity may be beyond the dtype.
void fill_extreme(const tsr_tensor& out, bool lowest) {
  const uint32_t dtype = out.dtype;
  const int64_t n = elements(out);
  if (tessera::is_int(dtype)) {
    const bool is_signed = tessera::is_signed_int(dtype);
    const uint64_t ones = ~uint64_t{0} >> (64 - tessera::dtype_bits(dtype));
    const uint64_t value = is_signed ? (lowest ? ~(ones >> 1) : ones >> 1) : lowest ? 0 : ones;
    for (int64_t i = 0; i < n; ++i) tessera::store_from(dtype, out.data, i, value);
    return;
  }
  constexpr double inf = std::numeric_limits<double>::infinity();
  double value = lowest ? -inf : inf;
  tessera::Overflow mode = tessera::Overflow::PyTorch;
  if (dtype == TSR_F8E4M3FNUZ || dtype == TSR_F8E5M2FNUZ) mode = tessera::Overflow::Saturate;
  if (dtype == TSR_F8E8M0) value = lowest ? 0x1p-127 : 0x1p127;
  for (int64_t i = 0; i < n; ++i) tessera::store_from(dtype, out.data, i, value, mode);
}

}  // namespace

KernelPtr make_reduce(const Build& b, int kind) {
  const ReduceKernel k{b.isa, b.axes("axes", b.rank())};
  ReduceSpec spec;
  spec.kind = static_cast<Reduce>(kind);
  const bool extreme = kind == static_cast<int>(Reduce::Max) || kind == static_cast<int>(Reduce::Min);
  return make_kernel(
      b,
      [k, spec, extreme](const tsr_launch& l) {
        const bool boolean = l.outputs[0].dtype == TSR_BOOL;
        const uint32_t dtype = l.outputs[0].dtype;
        if (extreme && dtype != TSR_BOOL && k.extent(View(l.inputs[0])) == 0)
          return fill_extreme(l.outputs[0], spec.kind == Reduce::Max);
        k.run(l, spec, l.outputs[0], l.workspace, [boolean](auto x) {
          if constexpr (std::is_same_v<decltype(x), uint8_t>)
            return static_cast<uint8_t>(boolean ? x != 0 : x);
          else
            return x;
        });
      },
      [k, shape = b.shape(b.operand(0))](const int64_t* dims) { return reduce_workspace(shape.get(dims), k.axes); });
}

namespace {

// The axes that summing x to the shape `out` reduces.
std::span<const int> summed_axes(const Dims& x, const Dims& out, int (&axes)[kMaxRank]) {
  size_t n = 0;
  const int extra = x.rank - out.rank;
  for (int d = 0; d < x.rank; ++d)
    if (d < extra || (out[d - extra] == 1 && x[d] != 1)) axes[n++] = d;
  return {axes, n};
}

}  // namespace

KernelPtr make_sum_to(const Build& b, int) {
  return make_kernel(
      b,
      [isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]), out(l.outputs[0]);
        int axes[kMaxRank];
        ReduceSpec spec;
        spec.serial = tessera::is_packed(out.dtype);
        reduce(*isa, spec, x, summed_axes(x.sizes, out.sizes, axes), l.workspace,
               [&](int64_t first, int64_t count, const void* values) {
                 store_run(*isa, out.dtype, out.data, first, count, values);
               });
      },
      [from = b.shape(b.operand(0)), to = b.shape(b.result())](const int64_t* dims) {
        int axes[kMaxRank];
        const Dims x = from.get(dims);
        return reduce_workspace(x, summed_axes(x, to.get(dims), axes));
      });
}

KernelPtr make_mean(const Build& b, int) {
  const ReduceKernel k{b.isa, b.axes("axes", b.rank())};
  return make_kernel(
      b,
      [k](const tsr_launch& l) {
        const double n = static_cast<double>(k.extent(View(l.inputs[0])));
        k.run(l, ReduceSpec{}, l.outputs[0], l.workspace, [n](auto x) { return divided(x, n); });
      },
      [k, shape = b.shape(b.operand(0))](const int64_t* dims) { return reduce_workspace(shape.get(dims), k.axes); });
}

namespace {

// Two passes: a first reduction into one value per result (kept at the start of the workspace), then the real one around it.
template <class Mid, class Final>
KernelPtr two_pass(const Build& b, ReduceKernel k, ReduceSpec first, ReduceSpec second, Mid mid, Final final) {
  return make_kernel(
      b,
      [k, first, second, mid, final](const tsr_launch& l) {
        const View x(l.inputs[0]);
        const double n = static_cast<double>(k.extent(x));
        char* center = static_cast<char*>(l.workspace);
        char* rest = center + per_result(x.sizes, k.axes);
        const Comp comp = comp_of(x.dtype);
        const int64_t size = comp_size(comp);
        reduce(*k.isa, first, x, k.axes, rest, [&](int64_t at, int64_t count, const void* values) {
          with_comp(comp, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (is_float<T>)
              for (int64_t i = 0; i < count; ++i)
                reinterpret_cast<T*>(center + at * size)[i] = mid(static_cast<const T*>(values)[i], static_cast<T>(n));
          });
        });
        ReduceSpec s = second;
        s.center = center;
        s.serial = tessera::is_packed(l.outputs[0].dtype);
        const tsr_tensor& out = l.outputs[0];
        reduce(*k.isa, s, x, k.axes, rest, [&](int64_t at, int64_t count, const void* values) {
          alignas(16) char piece[64 * 16];
          with_comp(comp, [&](auto zero) {
            using T = decltype(zero);
            if constexpr (is_float<T>)
              for (int64_t i = 0; i < count; ++i)
                reinterpret_cast<T*>(piece)[i] = final(static_cast<const T*>(values)[i],
                                                       reinterpret_cast<const T*>(center + at * size)[i], static_cast<T>(n));
          });
          store_run(*k.isa, out.dtype, out.data, at, count, piece);
        });
      },
      [k, shape = b.shape(b.operand(0))](const int64_t* dims) {
        const Dims sizes = shape.get(dims);
        return per_result(sizes, k.axes) + reduce_workspace(sizes, k.axes);
      });
}

}  // namespace

KernelPtr make_variance(const Build& b, int) {
  ReduceSpec first, second;
  second.kind = Reduce::SumSq;
  second.map = ReduceMap::Center;
  return two_pass(
      b, {b.isa, b.axes("axes", b.rank())}, first, second, [](auto sum, auto n) { return sum / n; },
      [correction = b.number("correction")](auto squares, auto, auto n) {
        using T = decltype(n);
        const double divisor = static_cast<double>(n) - correction;
        return static_cast<T>(squares / static_cast<T>(divisor > 0 ? divisor : 0.0));
      });
}

KernelPtr make_logsumexp(const Build& b, int) {
  ReduceSpec first, second;
  first.kind = Reduce::Max;
  second.map = ReduceMap::CenterExp;
  return two_pass(
      b, {b.isa, b.axes("axes", b.rank())}, first, second,
      [](auto top, auto) { return std::isinf(top) ? decltype(top){0} : top; },
      [](auto sum, auto top, auto) {
        return static_cast<decltype(top)>(static_cast<double>(top) + std::log(static_cast<double>(sum)));
      });
}

KernelPtr make_norm(const Build& b, int) {
  const ReduceKernel k{b.isa, b.axes("axes", b.rank())};
  const double p = b.number("p");
  constexpr double inf = std::numeric_limits<double>::infinity();
  ReduceSpec spec;
  if (p == 2)
    spec.kind = Reduce::SumSq;
  else if (p == 1)
    spec.kind = Reduce::SumAbs;
  else if (p == inf || p == -inf)
    spec.kind = p > 0 ? Reduce::Max : Reduce::Min, spec.map = ReduceMap::Abs;
  else if (p == 0)
    spec.map = ReduceMap::NonZero;
  else
    spec.map = ReduceMap::PowAbs, spec.power = p;
  return make_kernel(
      b,
      [k, spec, p](const tsr_launch& l) {
        const bool empty = k.extent(View(l.inputs[0])) == 0;
        k.run(l, spec, l.outputs[0], l.workspace, [p, spec, empty](auto x) {
          using T = decltype(x);
          if constexpr (is_float<T>) {
            if (spec.kind == Reduce::SumSq) return static_cast<T>(std::sqrt(x));
            if (spec.kind == Reduce::Max && empty) return T(0);  // magnitudes are not negative
            if (spec.map == ReduceMap::PowAbs) return static_cast<T>(std::pow(static_cast<double>(x), 1 / p));
          }
          return x;
        });
      },
      [k, shape = b.shape(b.operand(0))](const int64_t* dims) { return reduce_workspace(shape.get(dims), k.axes); });
}

}  // namespace eager
