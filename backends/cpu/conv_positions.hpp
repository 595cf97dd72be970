// SPDX-License-Identifier: Apache-2.0
// A convolution as a product of weights and input values, one column or one row of these for each position of the output.
#pragma once

#include <algorithm>
#include <cstdint>

#include "conv_shape.hpp"
#include "depthwise/phases.hpp"
#include "gather/tables.hpp"
#include "gemm/gemm.hpp"
#include "packed.hpp"

namespace cpu {

// A convolution in work: where positions lie in the input, and the matrix of input values, which exists nowhere, in the pieces
// that the product reads.
struct Panels {
  static constexpr int kMaxTaps = 1024;
  // Up to so many channels panels of a flat input are read where they lie, instead of copied.
  static constexpr int64_t kFewChannels = 48;
  const ConvShape& s;
  Gather* gather;
  Spread* spread;
  Pick* pick;
  CopyPlane* copy_plane;
  int nr, taps;
  int64_t tap_at[kMaxTaps];
  // Planes of the input as `copy` made them, or null; then tap_at counts in these.
  const float* copies = nullptr;
  int64_t copy_floats = 0, copy_row = 0;

  // That for panels of so many columns.
  template <class F>
  static F* form(const GemmIsa& isa, F* avx512, F* avx2, F* baseline) {
    return isa.nr == 32 ? avx512 : isa.nr == 16 ? avx2 : baseline;
  }

  Panels(const ConvShape& shape, const GemmIsa& isa)
      : s(shape),
        gather(form(isa, gather_avx512, gather_avx2, gather_baseline)),
        spread(form(isa, spread_avx512, spread_avx2, spread_baseline)),
        pick(form(isa, pick_avx512, pick_avx2, pick_baseline)),
        copy_plane(form(isa, copy_plane_avx512, copy_plane_avx2, copy_plane_baseline)),
        nr(isa.nr),
        taps(static_cast<int>(s.kernel[0] * s.kernel[1])) {
    for (int t = 0; t < taps; ++t) tap_at[t] = t / s.kernel[1] * s.a.dilation[0] * s.in[1] + t % s.kernel[1] * s.a.dilation[1];
  }

  static int64_t copies_bytes(const ConvShape& s) { return s.images * s.a.groups * s.channels * Phases(s).bytes(); }
  // Makes them in so many bytes, on `slots` threads: each a band of rows of all planes, which is what it then reads.
  void copy(float* to, int64_t slots);

  // Where positions [first, first + count) lie in the input, and which taps see them. They are counted through all images.
  void locate(int64_t first, int count, int64_t* at, uint32_t* seen) const {
    std::fill_n(seen, taps, 0u);
    // Positions that lie in one row of the output see a tap in one range of them.
    for (int j = 0; j < count;) {
      const int64_t position = first + j, image = position / s.positions(), o = position % s.positions(), oy = o / s.out[1],
                    ox = o % s.out[1];
      const int n = static_cast<int>(std::min<int64_t>(count - j, s.out[1] - ox));
      const int64_t y = oy * s.a.stride[0] - s.a.low[0], x = ox * s.a.stride[1] - s.a.low[1], step = s.a.stride[1];
      const int64_t corner = image * s.a.groups * s.channels * s.in[0] * s.in[1] + y * s.in[1] + x;
      for (int i = 0; i < n; ++i) at[j + i] = corner + i * step;
      for (int t = 0; t < taps; ++t) {
        const int64_t iy = y + t / s.kernel[1] * s.a.dilation[0], ix = x + t % s.kernel[1] * s.a.dilation[1];
        if (iy < 0 || iy >= s.in[0]) continue;
        const int64_t low = std::clamp<int64_t>(ix >= 0 ? 0 : (-ix + step - 1) / step, 0, n);
        const int64_t high = std::clamp<int64_t>(ix >= s.in[1] ? 0 : (s.in[1] - ix + step - 1) / step, low, n);
        seen[t] |= static_cast<uint32_t>(((uint64_t{1} << high) - (uint64_t{1} << low)) << j);
      }
      j += n;
    }
  }

  void take(const float* x, int width, const int64_t* at, const uint32_t* seen, int64_t k0, int64_t count, float* out) const {
    const auto [low, high] = std::minmax_element(at, at + width);
    const bool near = *high - *low < (int64_t{1} << 30);
    gather({x, s.in[0] * s.in[1], taps, tap_at, width, at, seen, s.a.stride[1], near, k0, count, out});
  }

  // Positions as columns of the product, in panels of nr.
  void columns(int64_t batch, int64_t column, int cols, int64_t k0, int64_t count, float* out, int64_t step) const {
    if (s.is_flat())
      return spread({s.x + (batch * s.channels + k0) * s.positions() + column, s.positions(), cols, count, out, step});
    for (int done = 0; done < cols; done += nr, out += step) {
      if (copies)
        copied_panel(batch, column + done, std::min(nr, cols - done), k0, count, out);
      else
        panel(batch, column + done, std::min(nr, cols - done), k0, count, out);
    }
  }

  void copied_panel(int64_t batch, int64_t column, int cols, int64_t k0, int64_t count, float* out) const {
    const int lanes = nr / 2;
    PickArgs p{copies + batch * s.channels * copy_floats, copy_floats, taps, tap_at, cols / lanes, {}, k0, count, out};
    for (int v = 0; v < p.vectors; ++v) {
      const int64_t at = column + v * lanes;
      p.vector_at[v] = at / s.out[1] * s.a.stride[0] * copy_row + at % s.out[1];
    }
    pick(p);
  }

  void panel(int64_t batch, int64_t column, int cols, int64_t k0, int64_t count, float* out) const {
    int64_t at[32];
    uint32_t seen[kMaxTaps];
    locate(column, cols, at, seen);
    for (int j = cols; j < nr; ++j) at[j] = at[cols - 1];  // seen by no tap
    // Batch entries are (image, group), and channels of groups follow each other.
    take(s.x + batch * s.channels * s.in[0] * s.in[1], nr, at, seen, k0, count, out);
  }

  // Positions as its rows.
  void rows(int64_t row, int count, float* out) const {
    int64_t at[32];
    uint32_t seen[kMaxTaps];
    locate(row, count, at, seen);
    take(s.x, count, at, seen, 0, s.depth(), out);
  }
};

// The weights of a convolution, a constant [groups * outputs, depth], as left sides of its products, packed_left_bytes(isa,
// outputs, depth) bytes each.
void pack_left_groups(const tessera::sdk::Compile& c, const tessera::sdk::Value& weights, const GemmIsa& isa, int64_t groups,
                      int64_t outputs, int64_t depth, PackedConstant& packed);

// What the product takes, and which way round it takes less; see the definition.
struct ConvCycles {
  double cycles;
  bool rows;  // positions as rows
};
ConvCycles conv_cycles(const GemmIsa& isa, int64_t images, int64_t outputs, int64_t positions, int64_t depth);

}  // namespace cpu
