// SPDX-License-Identifier: Apache-2.0
// Pooling over windows of fixed and of adaptive size.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/dtypes.hpp"
#include "window.hpp"

namespace tessera::reference {

namespace {

// Visits each window: f(plane, flat output position, begin[3], end[3]) with the taps begin, begin + dilation, ... below end,
// not yet limited to the input.
template <class F>
void each_window(const Tensor& x, const Window& g, bool adaptive, F f) {
  const int64_t planes = x.size(0) * x.size(1);
  for (int64_t plane = 0; plane < planes; ++plane)
    for (int64_t o = 0; o < g.out_elements(); ++o) {
      const int64_t at[3] = {o / (g.out[1] * g.out[2]), o / g.out[2] % g.out[1], o % g.out[2]};
      int64_t begin[3], end[3];
      for (int d = 0; d < 3; ++d) {
        if (adaptive) {  // floor(i * in / out) .. ceil((i + 1) * in / out)
          begin[d] = at[d] * g.in[d] / g.out[d];
          end[d] = ((at[d] + 1) * g.in[d] + g.out[d] - 1) / g.out[d];
        } else {
          begin[d] = at[d] * g.stride[d] - g.low[d];
          end[d] = begin[d] + (g.kernel[d] - 1) * g.dilation[d] + 1;
        }
      }
      f(plane, o, begin, end);
    }
}

// Each tap of a window that lies inside the input: f(flat position in the plane).
template <class F>
void each_tap(const Window& g, const int64_t* begin, const int64_t* end, F f) {
  for (int64_t z = begin[0]; z < end[0]; z += g.dilation[0])
    for (int64_t y = begin[1]; y < end[1]; y += g.dilation[1])
      for (int64_t x = begin[2]; x < end[2]; x += g.dilation[2])
        if (z >= 0 && z < g.in[0] && y >= 0 && y < g.in[1] && x >= 0 && x < g.in[2]) f((z * g.in[1] + y) * g.in[2] + x);
}

bool greater(double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); }
bool greater(Int a, Int b) { return a > b; }

template <class T>
void max_over_windows(const Op& op, const Window& g, bool adaptive) {
  const Tensor x = op.in(0), values = op.out(0), indices = op.out(1);
  each_window(x, g, adaptive, [&](int64_t plane, int64_t o, const int64_t* begin, const int64_t* end) {
    const int64_t base = plane * g.in_elements(), to = plane * g.out_elements() + o;
    int64_t best = -1;
    each_tap(g, begin, end, [&](int64_t tap) {
      const auto value = [&](int64_t p) { return x.get<T>(x.offset_of(base + p)); };
      if (best < 0 || greater(value(tap), value(best))) best = tap;
    });
    if (best < 0)
      op.fail("TSR-R012", "a window lies in the padding alone", "use padding below the size of the (dilated) window");
    values.copy_element(to, x, x.offset_of(base + best));
    indices.put<Int>(to, best);
  });
}
void max_any(const Op& op, const Window& g, bool adaptive) {
  if (domain(op.in(0).dtype()) == Domain::Real)
    max_over_windows<double>(op, g, adaptive);
  else
    max_over_windows<Int>(op, g, adaptive);
}
void max_pool(const Op& op) { max_any(op, Window(op, op.in(0), op.out(), op.ints("kernel")), false); }
void adaptive_max_pool(const Op& op) { max_any(op, Window(op, op.in(0), op.out(), {}, true), true); }

void avg_pool(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const Window g(op, x, y, op.ints("kernel"));
  const bool include_pad = op.flag("count_include_pad");
  const int64_t fixed = op.integer("divisor");
  each_window(x, g, false, [&](int64_t plane, int64_t o, const int64_t* begin, const int64_t* end) {
    double sum = 0;
    int64_t inside = 0;
    each_tap(g, begin, end, [&](int64_t tap) {
      sum += x.get<double>(x.offset_of(plane * g.in_elements() + tap));
      ++inside;
    });
    int64_t padded = 1;  // taps in the input or its padding; what ceil_mode adds beyond is neither
    for (int d = 0; d < 3; ++d) {
      int64_t taps = 0;
      for (int64_t p = begin[d]; p < end[d] && p < g.in[d] + g.high[d]; p += g.dilation[d]) ++taps;
      padded *= taps;
    }
    const int64_t divisor = fixed != 0 ? fixed : include_pad ? padded : inside;
    y.put<double>(plane * g.out_elements() + o, inside == 0 ? 0 : sum / static_cast<double>(divisor));
  });
}

void adaptive_avg_pool(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const Window g(op, x, y, {}, true);
  each_window(x, g, true, [&](int64_t plane, int64_t o, const int64_t* begin, const int64_t* end) {
    double sum = 0;
    each_tap(g, begin, end, [&](int64_t tap) { sum += x.get<double>(x.offset_of(plane * g.in_elements() + tap)); });
    const auto count = static_cast<double>((end[0] - begin[0]) * (end[1] - begin[1]) * (end[2] - begin[2]));
    y.put<double>(plane * g.out_elements() + o, sum / count);
  });
}

}  // namespace

std::span<const Entry> pool_ops() {
  static constexpr Entry entries[] = {
      {"max_pool", max_pool},
      {"avg_pool", avg_pool},
      {"adaptive_max_pool", adaptive_max_pool},
      {"adaptive_avg_pool", adaptive_avg_pool},
  };
  return entries;
}

}  // namespace tessera::reference
