// SPDX-License-Identifier: Apache-2.0
#include "conv_positions.hpp"

#include <algorithm>

namespace cpu {

// Which way round a convolution is a product. Positions as columns, in panels of nr, leave the result as it lies in memory, and every panel of input
// values is made once for all output channels; images do not share a panel. Positions as rows waste nothing where few of them are left for a last
// panel, and weights are read once for all images; the input values are packed beforehand, and each tile is transposed when it is stored.
// Cycles for each k, one per row of a tile; what gathering nr or mr values costs, and what a transposed tile costs, was measured on AVX-512.
ConvCycles conv_cycles(const GemmIsa& isa, int64_t images, int64_t outputs, int64_t positions, int64_t depth) {
  constexpr int64_t kMostPacked = 8 << 20;  // values: what is packed beforehand is workspace
  const auto up = [](int64_t n, int64_t unit) { return static_cast<double>((n + unit - 1) / unit); };
  const auto panels_of = [&](int64_t n) { return up(n, isa.nr / 2) / 2; };  // half a panel takes half its cycles
  const auto channels = static_cast<double>(outputs), all = static_cast<double>(images * positions),
             k = static_cast<double>(depth);
  constexpr double kGather = 5, kTurn = 180;
  const double columns = static_cast<double>(images) * panels_of(positions) * (channels + kGather) * k;
  if (!isa.turn || images * positions > kMostPacked / depth) return {columns, false};
  const double tiles = up(images * positions, isa.mr), panels = panels_of(outputs);
  const double rows = panels * all * k + tiles * kGather * k + tiles * panels * kTurn;
  return {std::min(rows, columns), rows < columns};
}

}  // namespace cpu
