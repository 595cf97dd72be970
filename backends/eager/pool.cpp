// SPDX-License-Identifier: Apache-2.0
// Pooling over windows of 1 to 3 spatial dims. Sums and comparisons go through a window in row-major order.
#include <algorithm>

#include "planes.hpp"
#include "window_ops.hpp"

namespace eager {
namespace {

// The positions of one window along one dim: first, first + step, .. (count of them), all inside x; and the divisor's extent.
struct Taps {
  int64_t first, count, step, extent;
};

struct Windows {
  bool adaptive = false;
  Spatial kernel, strides, low, high, dilation;
  bool include_pad = true;

  Taps at(int dim, int64_t o, int64_t in, int64_t out) const {
    if (adaptive) {
      const int64_t first = o * in / out, last = ((o + 1) * in + out - 1) / out;
      return {first, last - first, 1, last - first};
    }
    const int64_t start = o * strides.v[dim] - low.v[dim], d = dilation.v[dim], k = kernel.v[dim];
    const int64_t skip = start < 0 ? (-start + d - 1) / d : 0;
    const int64_t first = start + skip * d;
    const int64_t count = first >= in ? 0 : std::clamp<int64_t>((in - first + d - 1) / d, 0, std::max<int64_t>(0, k - skip));
    int64_t extent = count;
    if (include_pad) {  // taps inside x and its declared padding
      const int64_t limit = in + high.v[dim];
      extent = start >= limit ? 0 : std::min(k, (limit - start + d - 1) / d);
    }
    return {first, count, d, extent};
  }
};

template <class T, class F>
void each_window(const Windows& w, const Spatial& in, const Spatial& out, F f) {
  int64_t o = 0;
  for (int64_t a = 0; a < out.v[0]; ++a) {
    const Taps ta = w.at(0, a, in.v[0], out.v[0]);
    for (int64_t b = 0; b < out.v[1]; ++b) {
      const Taps tb = w.at(1, b, in.v[1], out.v[1]);
      for (int64_t c = 0; c < out.v[2]; ++c, ++o) f(o, ta, tb, w.at(2, c, in.v[2], out.v[2]));
    }
  }
}

template <class T>
void max_plane(const Windows& w, const Spatial& in, const Spatial& out, const T* x, T* y, int64_t* indices) {
  each_window<T>(w, in, out, [&](int64_t o, const Taps& a, const Taps& b, const Taps& c) {
    T best{};
    int64_t where = -1;
    for (int64_t i = 0; i < a.count; ++i)
      for (int64_t j = 0; j < b.count; ++j) {
        const int64_t row = ((a.first + i * a.step) * in.v[1] + b.first + j * b.step) * in.v[2] + c.first;
        for (int64_t k = 0; k < c.count; ++k) {
          const T v = x[row + k * c.step];
          if (where < 0 || v > best || (v != v && best == best)) best = v, where = row + k * c.step;
        }
      }
    if (where < 0) {  // a window that lies in the padding alone
      best = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
      where = 0;
    }
    y[o] = best;
    indices[o] = where;
  });
}

template <class T>
void avg_plane(const Windows& w, const Spatial& in, const Spatial& out, int64_t divisor, const T* x, T* y) {
  each_window<T>(w, in, out, [&](int64_t o, const Taps& a, const Taps& b, const Taps& c) {
    T sum = 0;
    for (int64_t i = 0; i < a.count; ++i)
      for (int64_t j = 0; j < b.count; ++j) {
        const T* row = x + ((a.first + i * a.step) * in.v[1] + b.first + j * b.step) * in.v[2] + c.first;
        for (int64_t k = 0; k < c.count; ++k) sum += row[k * c.step];
      }
    const int64_t n = divisor != 0 ? divisor : a.extent * b.extent * c.extent;
    y[o] = sum / static_cast<T>(n);
  });
}

Windows windows_of(const Build& b) {
  Windows w;
  w.kernel = spatial(b.integers("kernel"), 1);
  w.strides = spatial(b.integers("strides"), 1);
  w.low = spatial(b.integers("pad_low"), 0);
  w.high = spatial(b.integers("pad_high"), 0);
  w.dilation = spatial(b.integers("dilations"), 1);
  return w;
}

KernelPtr max_kernel(const Build& b, Windows w) {
  const uint32_t dtype = b.operand(0).dtype();
  return make_kernel(
      b,
      [w, isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]), out(l.outputs[0]);
        const int64_t plane = out.sizes.product(2);
        auto* indices = static_cast<int64_t*>(l.outputs[1].data);
        for_planes(*isa, x, l.outputs[0], plane, l.workspace, [&](int64_t p, const void* in, void* y) {
          with_comp(comp_of(x.dtype), [&](auto zero) {
            using T = decltype(zero);
            if constexpr (std::is_arithmetic_v<T>)
              max_plane<T>(w, spatial(x.sizes), spatial(out.sizes), static_cast<const T*>(in), static_cast<T*>(y),
                           indices + p * plane);
          });
        });
      },
      [dtype, x = b.shape(b.operand(0)), out = b.shape(b.result())](const int64_t* dims) {
        return planes_workspace(x.get(dims), out.get(dims).product(2), dtype);
      });
}

KernelPtr avg_kernel(const Build& b, Windows w, int64_t divisor) {
  const uint32_t dtype = b.operand(0).dtype();
  return make_kernel(
      b,
      [w, divisor, isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]), out(l.outputs[0]);
        for_planes(*isa, x, l.outputs[0], out.sizes.product(2), l.workspace, [&](int64_t, const void* in, void* y) {
          if (x.dtype == TSR_F64)
            avg_plane(w, spatial(x.sizes), spatial(out.sizes), divisor, static_cast<const double*>(in),
                      static_cast<double*>(y));
          else
            avg_plane(w, spatial(x.sizes), spatial(out.sizes), divisor, static_cast<const float*>(in), static_cast<float*>(y));
        });
      },
      [dtype, x = b.shape(b.operand(0)), out = b.shape(b.result())](const int64_t* dims) {
        return planes_workspace(x.get(dims), out.get(dims).product(2), dtype);
      });
}

}  // namespace

KernelPtr make_max_pool(const Build& b, int) { return max_kernel(b, windows_of(b)); }

KernelPtr make_avg_pool(const Build& b, int) {
  Windows w = windows_of(b);
  w.include_pad = b.flag("count_include_pad");
  return avg_kernel(b, w, b.integer("divisor"));
}

KernelPtr make_adaptive_pool(const Build& b, int greatest) {
  Windows w{};
  w.adaptive = true;
  return greatest ? max_kernel(b, w) : avg_kernel(b, w, 0);
}

}  // namespace eager
