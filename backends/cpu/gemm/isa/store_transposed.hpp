// SPDX-License-Identifier: Apache-2.0
// A finished tile of sums to a result that lies the other way round: columns of the tile are stretches of memory. Included by
// the files that are compiled per instruction set.
#pragma once

#include "../tables.hpp"
#include "finish.hpp"
#include "lanes.hpp"
#include "load_transposed.hpp"

namespace cpu {
namespace {

template <Chain C>
void transpose_f32(const StoreArgs& given, const FinishArgs& finish) {
  const StoreArgs s = given;  // see store_f32
  const Here<C> f(finish);
  for (int i0 = 0; i0 < s.rows; i0 += kLanes)
    for (int j0 = 0; j0 < s.cols; j0 += kLanes) {
      const int rows = s.rows - i0 < kLanes ? s.rows - i0 : kLanes, cols = s.cols - j0 < kLanes ? s.cols - j0 : kLanes;
      const char* row[kLanes];
      for (int i = 0; i < kLanes; ++i) row[i] = reinterpret_cast<const char*>(s.sums + (i0 + (i < rows ? i : 0)) * s.ld);
      Vec v[kLanes];
      load_transposed(row, 4 * j0, v);
      float* out = static_cast<float*>(s.out) + j0 * s.out_ld + i0;
      for (int j = 0; j < cols; ++j, out += s.out_ld) {
        const Vec z = s.row_bias ? v[j] + splat(s.row_bias[j0 + j]) : v[j];
        store_some(out, finished<C>(z, f.args, j0 + j, i0, rows), rows);
      }
    }
}

[[maybe_unused]] void transpose_tile(const StoreArgs& s, const FinishArgs& f) {
  with_chain(f, [&](auto c) { transpose_f32<c()>(s, f); });
}

}  // namespace
}  // namespace cpu
