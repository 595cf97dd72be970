// SPDX-License-Identifier: Apache-2.0
// A finished tile of sums to a result that lies the other way round: columns of the tile are stretches of memory. Included by the files that are compiled
// per instruction set.
#pragma once

#include <utility>

#include "../tables.hpp"
#include "finish.hpp"
#include "lanes.hpp"

namespace cpu {
namespace {

// Rows of a and b, lane by lane in turn: of their lower and of their upper halves.
template <int... I>
[[gnu::always_inline]] inline void riffle(Vec a, Vec b, Vec& low, Vec& high, std::integer_sequence<int, I...>) {
  low = __builtin_shufflevector(a, b, (I / 2 + I % 2 * kLanes)...);
  high = __builtin_shufflevector(a, b, (kLanes / 2 + I / 2 + I % 2 * kLanes)...);
}

// Element i of v[j] and element j of v[i] change places: log2(kLanes) perfect shuffles of all rows (Stone 1971).
[[gnu::always_inline]] inline void transpose(Vec (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    Vec w[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i)
      riffle(v[i], v[i + kLanes / 2], w[2 * i], w[2 * i + 1], std::make_integer_sequence<int, kLanes>());
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = w[i];
  }
}

template <Chain C>
void turn_f32(const StoreArgs& s, const FinishArgs& f) {
  for (int i0 = 0; i0 < s.rows; i0 += kLanes)
    for (int j0 = 0; j0 < s.cols; j0 += kLanes) {
      const int rows = s.rows - i0 < kLanes ? s.rows - i0 : kLanes, cols = s.cols - j0 < kLanes ? s.cols - j0 : kLanes;
      Vec v[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) v[i] = i < rows ? load(s.sums + (i0 + i) * s.ld + j0) : Vec{};
      transpose(v);
      float* out = static_cast<float*>(s.out) + j0 * s.out_ld + i0;
      for (int j = 0; j < cols; ++j, out += s.out_ld) {
        const Vec z = s.row_bias ? v[j] + splat(s.row_bias[j0 + j]) : v[j];
        store_some(out, finished<C>(z, f, j0 + j, i0, rows), rows);
      }
    }
}

[[maybe_unused]] void turn_tile(const StoreArgs& s, const FinishArgs& f) {
  with_chain(f, [&](auto c) { turn_f32<c()>(s, f); });
}

}  // namespace
}  // namespace cpu
