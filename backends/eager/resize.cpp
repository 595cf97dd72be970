// SPDX-License-Identifier: Apache-2.0
// interpolate: PyTorch's coordinate rules, separable weights (nearest: one tap, linear: two, cubic: four) per spatial dim.
#include <algorithm>
#include <cmath>

#include "planes.hpp"
#include "window_ops.hpp"

namespace eager {
namespace {

enum class Mode { Nearest, Linear, Cubic };

template <class T>
struct Axis {
  int64_t index[4];
  T weight[4];
  int taps;
};

// Keys 1981, a = -0.75: weights of the four neighbours at distance t, 0 <= t < 1, from the second.
template <class T>
void cubic_weights(T t, T (&w)[4]) {
  const T a = T(-0.75);
  const auto near = [a](T x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [a](T x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  w[0] = far(t + 1);
  w[1] = near(t);
  w[2] = near(1 - t);
  w[3] = far(2 - t);
}

template <class T>
Axis<T> axis_taps(Mode mode, bool align, int64_t o, int64_t in, int64_t out) {
  Axis<T> a{};
  if (mode == Mode::Nearest) {
    const float scale = static_cast<float>(in) / static_cast<float>(out);
    a.taps = 1;
    a.index[0] = std::min(static_cast<int64_t>(std::floor(static_cast<float>(o) * scale)), in - 1);
    a.weight[0] = 1;
    return a;
  }
  T x;
  if (align)
    x = out > 1 ? static_cast<T>(o) * (static_cast<T>(in - 1) / static_cast<T>(out - 1)) : T(0);
  else
    x = (static_cast<T>(o) + T(0.5)) * (static_cast<T>(in) / static_cast<T>(out)) - T(0.5);
  if (mode == Mode::Linear) {
    x = std::max(x, T(0));
    const int64_t i = std::min(static_cast<int64_t>(x), in - 1);
    a.taps = 2;
    a.index[0] = i;
    a.index[1] = std::min(i + 1, in - 1);
    const T t = std::clamp(x - static_cast<T>(i), T(0), T(1));
    a.weight[0] = 1 - t;
    a.weight[1] = t;
    return a;
  }
  const T low = std::floor(x);
  a.taps = 4;
  cubic_weights<T>(x - low, a.weight);
  for (int k = 0; k < 4; ++k) a.index[k] = std::clamp<int64_t>(static_cast<int64_t>(low) - 1 + k, 0, in - 1);
  return a;
}

template <class T>
void resample(const Spatial& in, const Spatial& out, const Axis<T>* table, const T* x, T* y) {
  const Axis<T>* rows[3] = {table, table + out.v[0], table + out.v[0] + out.v[1]};
  for (int64_t a = 0; a < out.v[0]; ++a)
    for (int64_t b = 0; b < out.v[1]; ++b)
      for (int64_t c = 0; c < out.v[2]; ++c) {
        const Axis<T>&ta = rows[0][a], &tb = rows[1][b], &tc = rows[2][c];
        T sum = 0;
        for (int i = 0; i < ta.taps; ++i) {
          T plane = 0;
          for (int j = 0; j < tb.taps; ++j) {
            const T* row = x + (ta.index[i] * in.v[1] + tb.index[j]) * in.v[2];
            T line = 0;
            if (tc.taps == 1)
              line = row[tc.index[0]];
            else
              for (int k = 0; k < tc.taps; ++k) line += row[tc.index[k]] * tc.weight[k];
            plane = tb.taps == 1 ? line : plane + line * tb.weight[j];
          }
          sum = ta.taps == 1 ? plane : sum + plane * ta.weight[i];
        }
        *y++ = sum;
      }
}

template <class T>
void run(const Isa& isa, Mode mode, bool align, const tsr_launch& l) {
  const View x(l.inputs[0]), out(l.outputs[0]);
  const Spatial in = spatial(x.sizes), to = spatial(out.sizes);
  if (out.elements() == 0) return;
  if (x.elements() == 0)
    fail("TSR-R013", "op 'interpolate': an empty tensor has no values to interpolate", "give it spatial sizes above 0");
  auto* table = static_cast<Axis<T>*>(l.workspace);
  Axis<T>* next = table;
  for (int d = 0; d < 3; ++d) {
    const bool given = d >= 3 - (x.rank() - 2);
    for (int64_t o = 0; o < to.v[d]; ++o)
      *next++ = given ? axis_taps<T>(mode, align, o, in.v[d], to.v[d]) : axis_taps<T>(Mode::Nearest, false, o, 1, 1);
  }
  char* rest = static_cast<char*>(l.workspace) + ((next - table) * static_cast<int64_t>(sizeof(Axis<T>)) + 63) / 64 * 64;
  for_planes(isa, x, l.outputs[0], out.sizes.product(2), rest, [&](int64_t, const void* from, void* y) {
    resample<T>(in, to, table, static_cast<const T*>(from), static_cast<T*>(y));
  });
}

}  // namespace

KernelPtr make_interpolate(const Build& b, int) {
  const std::string name = b.text("mode");
  const Mode mode = name == "nearest" ? Mode::Nearest : name == "linear" ? Mode::Linear : Mode::Cubic;
  const uint32_t dtype = b.operand(0).dtype();
  return make_kernel(
      b,
      [mode, align = b.flag("align_corners"), isa = b.isa](const tsr_launch& l) {
        if (l.inputs[0].dtype == TSR_F64)
          run<double>(*isa, mode, align, l);
        else
          run<float>(*isa, mode, align, l);
      },
      [dtype, x = b.shape(b.operand(0)), out = b.shape(b.result())](const int64_t* dims) {
        const Dims to = out.get(dims);
        const Spatial s = spatial(to);
        return (s.v[0] + s.v[1] + s.v[2]) * static_cast<int64_t>(sizeof(Axis<double>)) + 64 +
               planes_workspace(x.get(dims), to.product(2), dtype);
      });
}

}  // namespace eager
