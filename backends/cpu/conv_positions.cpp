// SPDX-License-Identifier: Apache-2.0
#include "conv_positions.hpp"

#include <algorithm>
#include <string>

namespace cpu {

// Which way round a convolution is a product. Positions as columns, in panels of nr, leave the result as it lies in memory, and
// every panel of input values is made once for all output channels; images do not share a panel. Positions as rows waste
// nothing where few of them are left for a last panel, and weights are read once for all images; the input values are packed
// beforehand, and each tile is transposed when it is stored. In products of a row of a tile and a panel; what gathering nr or
// mr values costs, and what storing a transposed tile costs more, was measured on AVX-512. Half a panel takes half the time of
// a whole one; a quarter, beside whole ones of the same weights, hardly less than that.
ConvCycles conv_cycles(const GemmIsa& isa, int64_t images, int64_t outputs, int64_t positions, int64_t depth) {
  constexpr int64_t kMostPacked = 8 << 20;  // values: what is packed beforehand is workspace
  const auto up = [](int64_t n, int64_t unit) { return static_cast<double>((n + unit - 1) / unit); };
  const auto panels_of = [&](int64_t n) { return up(n, isa.nr / 2) / 2; };
  const auto channels = static_cast<double>(outputs), all = static_cast<double>(images * positions),
             k = static_cast<double>(depth);
  constexpr double kPanel = 10, kTile = 5, kTurn = 180;
  const double columns = static_cast<double>(images) * panels_of(positions) * (channels + kPanel) * k;
  if (!isa.transpose || images * positions > kMostPacked / depth) return {columns, false};
  const double tiles = up(images * positions, isa.mr), panels = panels_of(outputs);
  const double rows = panels * all * k + tiles * kTile * k + tiles * panels * kTurn;
  return {std::min(rows, columns), rows < columns};
}

void pack_left_groups(const tessera::sdk::Compile& c, const tessera::sdk::Value& weights, const GemmIsa& isa, int64_t groups,
                      int64_t outputs, int64_t depth, PackedConstant& packed) {
  const float* const from = static_cast<const float*>(weights.def().attr("value").as_tensor().data);
  const int64_t step = packed_left_bytes(isa, outputs, depth);
  Nest<1> m;
  Nest<2> k;
  m.push(outputs, {depth});
  k.push(depth, {1, 1});
  const std::string form =
      std::string("left ") + isa.name + " groups " + std::to_string(groups) + " m " + text_of(m) + " k " + text_of(k);
  packed.make(c, weights, form, step * groups, [&](char* to) {
    for (int64_t g = 0; g < groups; ++g) clear_slack(to + g * step, step);
    for (int64_t g = 0; g < groups; ++g) pack_left(isa, from + g * outputs * depth, TSR_F32, m, k, to + g * step);
  });
}

void Panels::copy(float* to, int64_t slots) {
  const Phases phases(s);
  const int64_t planes = s.images * s.a.groups * s.channels;
  copies = to, copy_floats = phases.bytes() / static_cast<int64_t>(sizeof(float)), copy_row = phases.row;
  for (int t = 0; t < taps; ++t) tap_at[t] = phases.offset(s, t / s.kernel[1], t % s.kernel[1]);
  if (planes == 0) return;
  const int64_t units = slots * planes;
  tessera::sdk::parallel(units, planes, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t plane = u % planes, first = phases.rows * (u / planes) / slots,
                    last = phases.rows * (u / planes + 1) / slots;
      float* at = to + plane * copy_floats;
      for (int64_t f = 0; f < phases.stride; ++f)
        std::fill(at + (f * phases.rows + first) * phases.row, at + (f * phases.rows + last) * phases.row, 0.0f);
      const int64_t top = std::max(first, s.a.low[0]), bottom = std::min(last, s.a.low[0] + s.in[0]);
      if (top >= bottom) continue;
      PlaneCopy p = phases.copy(s, 0, s.out[0], at);
      p.plane = s.x + plane * s.in[0] * s.in[1];
      p.skip = (top - s.a.low[0]) * s.in[1], p.first = top, p.rows = bottom - top;
      copy_plane(p);
    }
  });
}

}  // namespace cpu
