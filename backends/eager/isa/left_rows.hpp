// SPDX-License-Identifier: Apache-2.0
// Products whose left side lies in rows a constant apart, which need no packing: every row's element has a constant distance
// from one register. Included by files that are compiled per ISA, contraction allowed. Every sum adds its products in the order
// of k.
#pragma once

#include <algorithm>
#include <utility>

#include "lanes.hpp"

namespace eager {
namespace {

using V = Vec<float>;
constexpr int64_t kV = VecOf<float>::width;
constexpr int64_t kNR = 2 * kV;
#if defined(__AVX512F__)
constexpr int kTallest = 14;  // 28 of 32 registers hold sums
#elif defined(__AVX2__)
constexpr int kTallest = 6;  // 12 of 16
#else
constexpr int kTallest = 4;
#endif

// Floats between rows; no power of two, so that rows do not fall into the same sets of a cache.
constexpr int64_t kLeftStride = 128 + 16;

[[gnu::always_inline]] inline V splat(float x) {
  return x - V{};
}  // x - 0 is x, and the compiler knows; 0 + x would turn -0 into 0

// c[i][j] (+)= sum over p of a[i][p] b[p][j], for R rows and kNR columns.
template <int R>
void multiply_tile(int64_t k, const float* a, const float* b, int64_t b_step, float* c, int64_t c_m, bool add) {
  V acc[R][2];
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) acc[i][0] = acc[i][1] = V{};
  for (int64_t p = 0; p < k; ++p, b += b_step) {
    const V b0 = vload(b), b1 = vload(b + kV);
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
      const V x = splat(a[i * kLeftStride + p]);
      acc[i][0] += x * b0;
      acc[i][1] += x * b1;
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) {
    float* row = c + i * c_m;
    if (add) acc[i][0] += vload(row), acc[i][1] += vload(row + kV);
    vstore(row, acc[i][0]);
    vstore(row + kV, acc[i][1]);
  }
}

using MultiplyTile = void (*)(int64_t k, const float* a, const float* b, int64_t b_step, float* c, int64_t c_m, bool add);
template <int... R>
constexpr MultiplyTile tile_of_height(int height, std::integer_sequence<int, R...>) {
  constexpr MultiplyTile tiles[] = {multiply_tile<R + 1>...};
  return tiles[height - 1];
}

// The same for any number of rows, in tiles of nearly equal height.
[[maybe_unused]] void multiply_rows(int64_t rows, int64_t k, const float* a, const float* b, int64_t b_step, float* c,
                                    int64_t c_m, bool add) {
  const int64_t tiles = (rows + kTallest - 1) / kTallest;
  for (int64_t t = 0, row = 0; t < tiles; ++t) {
    const int64_t next = rows * (t + 1) / tiles;
    tile_of_height(static_cast<int>(next - row), std::make_integer_sequence<int, kTallest>())(k, a + row * kLeftStride, b,
                                                                                              b_step, c + row * c_m, c_m, add);
    row = next;
  }
}

// `count` elements of each row, col apart, to rows kLeftStride apart.
[[maybe_unused]] void copy_left(const float* from, int64_t row, int64_t col, int64_t rows, int64_t count, float* to) {
  for (int64_t i = 0; i < rows; ++i, from += row, to += kLeftStride) {
    if (col == 1)
      std::copy_n(from, count, to);
    else
      for (int64_t p = 0; p < count; ++p) to[p] = from[p * col];
  }
}

// Rows of a and b, lane by lane in turn: of their lower and of their upper halves.
template <int... I>
[[gnu::always_inline]] inline void riffle(V a, V b, V& low, V& high, std::integer_sequence<int, I...>) {
  low = __builtin_shufflevector(a, b, (I / 2 + I % 2 * static_cast<int>(kV))...);
  high = __builtin_shufflevector(a, b, (static_cast<int>(kV) / 2 + I / 2 + I % 2 * static_cast<int>(kV))...);
}

// Element i of v[j] and element j of v[i] change places: log2(kV) perfect shuffles of all rows (Stone 1971).
[[gnu::always_inline]] inline void transpose(V (&v)[kV]) {
#pragma GCC unroll 4
  for (int round = 1; round < kV; round *= 2) {
    V w[kV];
#pragma GCC unroll 8
    for (int i = 0; i < kV / 2; ++i)
      riffle(v[i], v[i + kV / 2], w[2 * i], w[2 * i + 1], std::make_integer_sequence<int, static_cast<int>(kV)>());
#pragma GCC unroll 16
    for (int i = 0; i < kV; ++i) v[i] = w[i];
  }
}

// to[p][j] = from[p * step + j * column] for p < k, j < columns; 0 for j from there to kNR.
[[maybe_unused]] void pack_columns(const float* from, int64_t step, int64_t column, int64_t k, int64_t columns, float* to) {
  if (step == 1 && column != 1) {
    // Blocks of kV x kV through registers: columns lie along memory.
    for (int64_t j = 0; j < kNR; j += kV)
      for (int64_t p = 0; p < k; p += kV) {
        const int64_t n = k - p < kV ? k - p : kV;
        V v[kV];
#pragma GCC unroll 16
        for (int64_t i = 0; i < kV; ++i) {
          const float* x = from + (j + i) * column + p;
          v[i] = V{};
          if (j + i >= columns) continue;
          if (n == kV) {
            v[i] = vload(x);
          } else {
            float some[kV] = {};
            std::copy_n(x, n, some);
            v[i] = vload(some);
          }
        }
        transpose(v);
        for (int64_t i = 0; i < n; ++i) vstore(to + (p + i) * kNR + j, v[i]);
      }
    return;
  }
  for (int64_t p = 0; p < k; ++p, from += step, to += kNR) {
    if (column == 1)
      std::copy_n(from, columns, to);
    else
      for (int64_t j = 0; j < columns; ++j) to[j] = from[j * column];
    std::fill(to + columns, to + kNR, 0.0f);
  }
}

}  // namespace
}  // namespace eager
