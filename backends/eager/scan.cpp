// SPDX-License-Identifier: Apache-2.0
// Ops that walk along one axis in order: argmax and argmin, running sums, products and extremes.
#include <algorithm>

#include "reduce_ops.hpp"

namespace eager {
namespace {

constexpr int64_t kLanes = 64;  // walks side by side

// The walks along `axis` of x, in groups: neighbours along the last dim (when it is not the axis), else one. Offsets of x and
// of two dense tensors: one with x's sizes, one without the axis.
struct Walks {
  View x;
  int axis;
  int64_t n, step, out_step;  // along the axis, in x and in a dense tensor of x's sizes
  int64_t width = 1, lane_step = 0;
  Nest<3> outer;
  int64_t groups_per_row = 1, groups = 0;
  int64_t reduced_inner;  // step of the axis-less tensor's last dim: 1

  Walks(const View& v, int axis) : x(v), axis(axis), n(v.sizes[axis]), step(v.strides[axis]) {
    const int last = v.rank() - 1;
    const View dense = dense_view(nullptr, v.dtype, v.sizes);
    Dims reduced = v.sizes;
    reduced[axis] = 1;
    const View small = dense_view(nullptr, v.dtype, reduced);
    out_step = dense.strides[axis];
    for (int d = 0; d < v.rank(); ++d) {
      if (d == axis || (d == last && axis != last)) continue;
      const int64_t s[3] = {v.strides[d], dense.strides[d], small.strides[d]};
      outer.push(v.sizes[d], s);
    }
    if (axis != last) width = v.sizes[last], lane_step = v.strides[last];
    groups_per_row = (width + kLanes - 1) / kLanes;
    groups = outer.total() * groups_per_row;
  }
  // f(x offset, dense offset, axis-less offset, lanes) for every group.
  template <class F>
  void run(bool serial, F f) const {
    if (groups == 0) return;
    const int64_t work = std::max<int64_t>(1, n * std::min(width, kLanes));
    sdk::parallel(groups, serial ? groups : std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        int64_t at[3];
        outer.offsets(g / groups_per_row, at);
        const int64_t first = g % groups_per_row * kLanes, lanes = std::min(kLanes, width - first);
        f(x.offset + at[0] + first * lane_step, at[1] + first, at[2] + first, lanes);
      }
    });
  }
};

template <class T>
bool is_nan(T v) {
  return v != v;
}

template <class T, bool Least>
void arg_walk(const Isa& isa, const Walks& w, int64_t from, int64_t lanes, int64_t* out) {
  const auto better = [](T v, T best) { return (Least ? v < best : v > best) || (is_nan(v) && !is_nan(best)); };
  alignas(64) T values[kTile];
  if (w.width == 1) {
    T best{};
    int64_t at = 0;
    for (int64_t i = 0; i < w.n; i += kTile) {
      const int64_t m = std::min(kTile, w.n - i);
      const T* v = static_cast<const T*>(run_pointer(isa, w.x.dtype, w.x.data, from + i * w.step, w.step, m, values));
      for (int64_t j = 0; j < m; ++j)
        if (i + j == 0 || better(v[j], best)) best = v[j], at = i + j;
    }
    *out = at;
    return;
  }
  T best[kLanes];
  for (int64_t i = 0; i < w.n; ++i) {
    const T* v = static_cast<const T*>(run_pointer(isa, w.x.dtype, w.x.data, from + i * w.step, w.lane_step, lanes, values));
    for (int64_t j = 0; j < lanes; ++j) {
      const bool take = i == 0 || better(v[j], best[j]);
      best[j] = take ? v[j] : best[j];
      out[j] = take ? i : out[j];
    }
  }
}

// acc = acc * v or acc + v, where integers wrap.
template <bool Product, class T>
T accumulate(T acc, T v) {
  if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>) {
    if constexpr (Product)
      return {acc.re * v.re - acc.im * v.im, acc.re * v.im + acc.im * v.re};
    else
      return {acc.re + v.re, acc.im + v.im};
  } else if constexpr (std::is_integral_v<T> && sizeof(T) >= 4) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(Product ? static_cast<U>(acc) * static_cast<U>(v) : static_cast<U>(acc) + static_cast<U>(v));
  } else {
    return static_cast<T>(Product ? acc * v : acc + v);
  }
}
template <bool Product, class T>
T identity() {
  if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>)
    return {Product ? 1 : 0, 0};
  else
    return static_cast<T>(Product ? 1 : 0);
}

template <class T, bool Product>
void cumulative(const Isa& isa, const Walks& w, bool exclusive, bool reverse, int64_t from, int64_t to, int64_t lanes,
                const tsr_tensor& out) {
  alignas(64) T values[kTile];
  if (w.width == 1) {  // along the contiguous dim of the output, or a lone lane
    T acc = identity<Product, T>();
    for (int64_t done = 0; done < w.n; done += kTile) {
      const int64_t m = std::min(kTile, w.n - done), first = reverse ? w.n - done - m : done;
      load_run(isa, w.x.dtype, w.x.data, from + first * w.step, w.step, m, values);
      for (int64_t k = 0; k < m; ++k) {
        const int64_t j = reverse ? m - 1 - k : k;
        const T next = accumulate<Product>(acc, values[j]);
        values[j] = exclusive ? acc : next;
        acc = next;
      }
      if (w.out_step == 1)
        store_run(isa, out.dtype, out.data, to + first, m, values);
      else
        for (int64_t j = 0; j < m; ++j) store_run(isa, out.dtype, out.data, to + (first + j) * w.out_step, 1, values + j);
    }
    return;
  }
  T acc[kLanes], result[kLanes];
  for (T& a : acc) a = identity<Product, T>();
  for (int64_t k = 0; k < w.n; ++k) {
    const int64_t i = reverse ? w.n - 1 - k : k;
    const T* v = static_cast<const T*>(run_pointer(isa, w.x.dtype, w.x.data, from + i * w.step, w.lane_step, lanes, values));
    for (int64_t j = 0; j < lanes; ++j) {
      const T next = accumulate<Product>(acc[j], v[j]);
      result[j] = exclusive ? acc[j] : next;
      acc[j] = next;
    }
    store_run(isa, out.dtype, out.data, to + i * w.out_step, lanes, result);
  }
}

template <class T, bool Least>
void extreme(const Isa& isa, const Walks& w, int64_t from, int64_t to, int64_t lanes, const tsr_tensor& out, int64_t* indices) {
  alignas(64) T values[kLanes];
  T best[kLanes];
  int64_t where[kLanes];
  for (int64_t i = 0; i < w.n; ++i) {
    const T* v = static_cast<const T*>(
        run_pointer(isa, w.x.dtype, w.x.data, from + i * w.step, w.width == 1 ? 1 : w.lane_step, lanes, values));
    for (int64_t j = 0; j < lanes; ++j) {
      const bool take = i == 0 || is_nan(v[j]) || (Least ? v[j] <= best[j] : v[j] >= best[j]);
      best[j] = take ? v[j] : best[j];
      where[j] = take ? i : where[j];
    }
    store_run(isa, out.dtype, out.data, to + i * w.out_step, lanes, best);
    std::copy_n(where, lanes, indices + to + i * w.out_step);
  }
}

template <class F>
void with_ordered(Comp c, F f) {
  with_comp(c, [&](auto zero) {
    if constexpr (std::is_arithmetic_v<decltype(zero)>) f(zero);
  });
}

}  // namespace

KernelPtr make_arg_reduce(const Build& b, int least) {
  const int axis = b.axis("axis", b.rank());
  return make_kernel(b, [axis, least, isa = b.isa, op = b.op()](const tsr_launch& l) {
    const View x(l.inputs[0]);
    auto* out = static_cast<int64_t*>(l.outputs[0].data);
    if (elements(l.outputs[0]) == 0) return;
    if (x.rank() == 0) {
      *out = 0;
      return;
    }
    if (x.sizes[axis] == 0)
      fail("TSR-R013", "op '" + op + "': dimension " + std::to_string(axis) + " has size 0: there is no extreme",
           "reduce over a dimension that is not empty");
    const Walks w(x, axis);
    with_ordered(comp_of(x.dtype), [&](auto zero) {
      using T = decltype(zero);
      w.run(false, [&](int64_t from, int64_t, int64_t to, int64_t lanes) {
        if (least)
          arg_walk<T, true>(*isa, w, from, lanes, out + to);
        else
          arg_walk<T, false>(*isa, w, from, lanes, out + to);
      });
    });
  });
}

KernelPtr make_cumulative(const Build& b, int product) {
  const int axis = b.axis("axis", b.rank());
  return make_kernel(
      b, [axis, product, exclusive = b.flag("exclusive"), reverse = b.flag("reverse"), isa = b.isa](const tsr_launch& l) {
        View x(l.inputs[0]);
        if (x.rank() == 0) x.sizes.push(1), x.strides.push(1);
        const Walks w(x, axis < 0 ? 0 : axis);
        const tsr_tensor& out = l.outputs[0];
        with_comp(comp_of(x.dtype), [&](auto zero) {
          using T = decltype(zero);
          w.run(tessera::is_packed(out.dtype), [&](int64_t from, int64_t to, int64_t, int64_t lanes) {
            if (product)
              cumulative<T, true>(*isa, w, exclusive, reverse, from, to, lanes, out);
            else
              cumulative<T, false>(*isa, w, exclusive, reverse, from, to, lanes, out);
          });
        });
      });
}

KernelPtr make_cumulative_extreme(const Build& b, int least) {
  const int axis = b.axis("axis", b.rank());
  return make_kernel(b, [axis, least, isa = b.isa](const tsr_launch& l) {
    View x(l.inputs[0]);
    if (x.rank() == 0) x.sizes.push(1), x.strides.push(1);
    const Walks w(x, axis < 0 ? 0 : axis);
    const tsr_tensor& out = l.outputs[0];
    auto* indices = static_cast<int64_t*>(l.outputs[1].data);
    with_ordered(comp_of(x.dtype), [&](auto zero) {
      using T = decltype(zero);
      w.run(tessera::is_packed(out.dtype), [&](int64_t from, int64_t to, int64_t, int64_t lanes) {
        if (least)
          extreme<T, true>(*isa, w, from, to, lanes, out, indices);
        else
          extreme<T, false>(*isa, w, from, to, lanes, out, indices);
      });
    });
  });
}

}  // namespace eager
