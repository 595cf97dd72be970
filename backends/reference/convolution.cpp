// SPDX-License-Identifier: Apache-2.0
// conv and conv_transpose, from the definition: every output element sums over channels and taps.
#include "tessera/dtypes.hpp"
#include "window.hpp"

namespace tessera::reference {

namespace {

// All elements of x in row-major order.
template <class T>
void widen(const Tensor& x, T* to) {
  for (Walk w(x.sizes()); w; w.next()) to[w.position()] = x.get<T>(x.offset(w.index()));
}

template <class T>
struct Operands {
  const T *x, *weight;
  int64_t groups, channels, outputs;  // per group
  Window g;
};

// One output element of conv: weight is [groups * outputs, channels, kernel].
template <class T>
T conv_at(const Operands<T>& o, const T* x, int64_t group, int64_t output, int64_t z, int64_t y, int64_t u) {
  const Window& g = o.g;
  T sum{};
  for (int64_t c = 0; c < o.channels; ++c) {
    const T* plane = x + (group * o.channels + c) * g.in_elements();
    const T* taps = o.weight + ((group * o.outputs + output) * o.channels + c) * g.kernel_elements();
    for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
      const int64_t iz = z * g.stride[0] - g.low[0] + kz * g.dilation[0];
      if (iz < 0 || iz >= g.in[0]) continue;
      for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
        const int64_t iy = y * g.stride[1] - g.low[1] + ky * g.dilation[1];
        if (iy < 0 || iy >= g.in[1]) continue;
        for (int64_t kx = 0; kx < g.kernel[2]; ++kx) {
          const int64_t ix = u * g.stride[2] - g.low[2] + kx * g.dilation[2];
          if (ix < 0 || ix >= g.in[2]) continue;
          sum += times(plane[(iz * g.in[1] + iy) * g.in[2] + ix], taps[(kz * g.kernel[1] + ky) * g.kernel[2] + kx]);
        }
      }
    }
  }
  return sum;
}

// The input position that tap `k` of the transposed convolution carries to output `i`; -1: none.
int64_t source(int64_t i, int64_t k, const Window& g, int d) {
  const int64_t t = i + g.low[d] - k * g.dilation[d];
  return t >= 0 && t % g.stride[d] == 0 && t / g.stride[d] < g.in[d] ? t / g.stride[d] : -1;
}
// One output element of conv_transpose: weight is [groups * channels, outputs, kernel].
template <class T>
T conv_transpose_at(const Operands<T>& o, const T* x, int64_t group, int64_t output, int64_t z, int64_t y, int64_t u) {
  const Window& g = o.g;
  T sum{};
  for (int64_t c = 0; c < o.channels; ++c) {
    const T* plane = x + (group * o.channels + c) * g.in_elements();
    const T* taps = o.weight + ((group * o.channels + c) * o.outputs + output) * g.kernel_elements();
    for (int64_t kz = 0; kz < g.kernel[0]; ++kz) {
      const int64_t iz = source(z, kz, g, 0);
      if (iz < 0) continue;
      for (int64_t ky = 0; ky < g.kernel[1]; ++ky) {
        const int64_t iy = source(y, ky, g, 1);
        if (iy < 0) continue;
        for (int64_t kx = 0; kx < g.kernel[2]; ++kx) {
          const int64_t ix = source(u, kx, g, 2);
          if (ix < 0) continue;
          sum += times(plane[(iz * g.in[1] + iy) * g.in[2] + ix], taps[(kz * g.kernel[1] + ky) * g.kernel[2] + kx]);
        }
      }
    }
  }
  return sum;
}

template <class T>
void run(const Op& op, bool transposed) {
  const Tensor x = op.in(0), weight = op.in(1), bias = op.in(2), y = op.out();
  T *wide_x = op.workspace<T>(), *wide_weight = wide_x + x.elements();
  widen(x, wide_x);
  widen(weight, wide_weight);
  const int64_t groups = op.integer("groups"), features = y.size(1);
  const Window g(op, x, y, weight.sizes().part(2, weight.rank()));
  const Operands<T> o{wide_x, wide_weight, groups, x.size(1) / groups, features / groups, g};
  const int64_t per_plane = g.out_elements();
  const int64_t grain = is_packed(y.dtype()) ? y.elements() : 1 + 16384 / (o.channels * g.kernel_elements() + 1);
  sdk::parallel(y.elements(), grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t at = i % per_plane, feature = i / per_plane % features, sample = i / per_plane / features;
      const int64_t u = at % g.out[2], v = at / g.out[2] % g.out[1], z = at / g.out[2] / g.out[1];
      const T* from = o.x + sample * x.size(1) * g.in_elements();
      const int64_t group = feature / o.outputs, output = feature % o.outputs;
      T sum = transposed ? conv_transpose_at(o, from, group, output, z, v, u) : conv_at(o, from, group, output, z, v, u);
      if (bias) sum += bias.get<T>(bias.offset({feature}));
      y.put<T>(i, sum);
    }
  });
}

void conv(const Op& op) {
  with_domain(op.in(0).dtype(), [&]<class T>() { run<T>(op, false); });
}
void conv_transpose(const Op& op) {
  with_domain(op.in(0).dtype(), [&]<class T>() { run<T>(op, true); });
}
int64_t workspace(const Op& op) {
  int64_t bytes = 0;
  with_domain(op.in(0).dtype(),
              [&]<class T>() { bytes = (op.in(0).elements() + op.in(1).elements()) * static_cast<int64_t>(sizeof(T)); });
  return bytes;
}

}  // namespace

std::span<const Entry> convolution_ops() {
  static constexpr Entry entries[] = {
      {"conv", conv, workspace},
      {"conv_transpose", conv_transpose, workspace},
  };
  return entries;
}

}  // namespace tessera::reference
