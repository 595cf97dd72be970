// SPDX-License-Identifier: Apache-2.0
// interpolate: PyTorch's coordinate rules (aten/src/ATen/native/UpSample.h), separable over the spatial dimensions.
#include <algorithm>
#include <cmath>

#include "op.hpp"

namespace tessera::reference {

namespace {

// The input positions that one output position reads along one dimension.
struct Taps {
  int count = 0;
  int64_t at[4];
  double weight[4];
  void add(int64_t position, double w) {
    at[count] = position;
    weight[count++] = w;
  }
};

// Cubic convolution (Keys 1981) with a = -0.75, at distance d.
double keys(double d) {
  constexpr double a = -0.75;
  d = std::fabs(d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2) return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

Taps taps_for(int64_t o, int64_t in, int64_t out, std::string_view mode, bool align_corners) {
  Taps t;
  if (mode == "nearest") {  // the scale and the product are f32 for every dtype
    const float scale = static_cast<float>(in) / static_cast<float>(out);
    t.add(std::min(static_cast<int64_t>(std::floor(static_cast<float>(o) * scale)), in - 1), 1);
    return t;
  }
  const auto size_in = static_cast<double>(in), size_out = static_cast<double>(out), i = static_cast<double>(o);
  double x = align_corners ? (out > 1 ? i * ((size_in - 1) / (size_out - 1)) : 0) : (i + 0.5) * (size_in / size_out) - 0.5;
  const auto inside = [&](int64_t p) { return std::clamp<int64_t>(p, 0, in - 1); };
  if (mode == "linear") {
    x = std::max(x, 0.0);
    const auto below = static_cast<int64_t>(x);
    const double part = x - static_cast<double>(below);
    t.add(inside(below), 1 - part);
    t.add(inside(below + 1), part);
    return t;
  }
  const double below = std::floor(x);
  for (int k = -1; k <= 2; ++k) t.add(inside(static_cast<int64_t>(below) + k), keys(x - below - k));
  return t;
}

void interpolate(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const std::string_view mode = op.text("mode");
  const bool align_corners = op.flag("align_corners");
  const uint32_t spatial = x.rank() - 2;
  if (x.elements() == 0 && y.elements() != 0)
    op.fail("TSR-R013", "an empty tensor has no values to interpolate", "give it spatial sizes of 1 or more");
  for (Walk w(y.sizes()); w; w.next()) {
    Taps taps[max_rank];
    Index counts;
    for (uint32_t d = 0; d < spatial; ++d) {
      taps[d] = taps_for(w.index()[2 + d], x.size(2 + d), y.size(2 + d), mode, align_corners);
      counts.push(taps[d].count);
    }
    double sum = 0;
    for (Walk k(counts); k; k.next()) {
      Index at = w.index();
      double weight = 1;
      for (uint32_t d = 0; d < spatial; ++d) {
        at[2 + d] = taps[d].at[k.index()[d]];
        weight *= taps[d].weight[k.index()[d]];
      }
      sum += weight * x.real(at);
    }
    y.put<double>(y.offset(w.index()), sum);
  }
}

}  // namespace

std::span<const Entry> resample_ops() {
  static constexpr Entry entries[] = {{"interpolate", interpolate}};
  return entries;
}

}  // namespace tessera::reference
