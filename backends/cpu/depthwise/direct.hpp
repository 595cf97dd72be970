// SPDX-License-Identifier: Apache-2.0
// Square filters of 3 or 5 taps a side on a plane as it lies in memory, without a copy in its padding: masked loads give zeros for columns beside it, rows
// above and below are left out. What is loaded of a row meets all rows of the filter. Included by kernel.cpp from AVX2 on.
#pragma once

#include <type_traits>

#include "depthwise/tables.hpp"
#include "gemm/isa/finish.hpp"
#include "gemm/isa/lanes.hpp"

#if defined(__AVX2__)

namespace cpu {
namespace {

// Results of a block: rows of one vector.
constexpr int kBlockRows = 7;

// Wide and narrow rows of results: V holds one, Mask says which lanes of it are loaded; kSkipsRows: all sums of a block fit in registers beside what they
// are made of, so rows of the plane that are not there can be left out; else sums come and go with the rows that they need, and zeros stand for those rows.
// even and odd pick every second of two vectors' lanes, maybe not in order; ordered brings their sums back into it.
#if defined(__AVX512F__)
struct Lanes16 {
  static constexpr int kCount = 16;
  static constexpr bool kSkipsRows = true;
  using V = __m512;
  using Mask = __mmask16;
  static Mask mask(uint32_t lanes) { return static_cast<Mask>(lanes); }
  static V splat(float x) { return _mm512_set1_ps(x); }
  static V load(Mask lanes, const float* p) { return _mm512_maskz_loadu_ps(lanes, p); }
  static V add_product(V sum, V w, V x) { return _mm512_fmadd_ps(w, x, sum); }
  static V even(V a, V b) {
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), b);
  }
  static V odd(V a, V b) {
    return _mm512_permutex2var_ps(a, _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31), b);
  }
  static V ordered(V v) { return v; }
  static void put(float* to, V v) { _mm512_store_ps(to, v); }
};
// Planes of 8 columns and fewer: half as wide, twice as many at a time.
struct Lanes8 {
  static constexpr int kCount = 8;
  static constexpr bool kSkipsRows = true;
  using V = __m256;
  using Mask = __mmask8;
  static Mask mask(uint32_t lanes) { return static_cast<Mask>(lanes); }
  static V splat(float x) { return _mm256_set1_ps(x); }
  static V load(Mask lanes, const float* p) { return _mm256_maskz_loadu_ps(lanes, p); }
  static V add_product(V sum, V w, V x) { return _mm256_fmadd_ps(w, x, sum); }
  static V even(V a, V b) { return _mm256_permutex2var_ps(a, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), b); }
  static V odd(V a, V b) { return _mm256_permutex2var_ps(a, _mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15), b); }
  static V ordered(V v) { return v; }
  static void put(float* to, V v) { _mm256_store_ps(to, v); }
};
#else
struct Lanes8 {
  static constexpr int kCount = 8;
  static constexpr bool kSkipsRows = true;
  using V = __m256;
  using Mask = __m256i;
  static Mask mask(uint32_t lanes) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(lanes)), bits), bits);
  }
  static V splat(float x) { return _mm256_set1_ps(x); }
  static V load(Mask lanes, const float* p) { return _mm256_maskload_ps(p, lanes); }
  static V add_product(V sum, V w, V x) { return _mm256_fmadd_ps(w, x, sum); }
  static V even(V a, V b) { return _mm256_shuffle_ps(a, b, 0x88); }
  static V odd(V a, V b) { return _mm256_shuffle_ps(a, b, 0xdd); }
  static V ordered(V v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)); }
  static void put(float* to, V v) { _mm256_store_ps(to, v); }
};
// Two vectors share each weight that is loaded.
struct Lanes16 {
  static constexpr int kCount = 16;
  static constexpr bool kSkipsRows = false;
  struct V {
    __m256 low, high;
  };
  struct Mask {
    __m256i low, high;
  };
  static Mask mask(uint32_t lanes) { return {Lanes8::mask(lanes), Lanes8::mask(lanes >> 8)}; }
  static V splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static V load(Mask lanes, const float* p) { return {Lanes8::load(lanes.low, p), Lanes8::load(lanes.high, p + 8)}; }
  static V add_product(V sum, V w, V x) {
    return {_mm256_fmadd_ps(w.low, x.low, sum.low), _mm256_fmadd_ps(w.high, x.high, sum.high)};
  }
  static V even(V a, V b) { return {Lanes8::even(a.low, a.high), Lanes8::even(b.low, b.high)}; }
  static V odd(V a, V b) { return {Lanes8::odd(a.low, a.high), Lanes8::odd(b.low, b.high)}; }
  static V ordered(V v) { return {Lanes8::ordered(v.low), Lanes8::ordered(v.high)}; }
  static void put(float* to, V v) { Lanes8::put(to, v.low), Lanes8::put(to + 8, v.high); }
};
#endif

// Lanes from column `at` on that lie in the plane.
[[gnu::always_inline]] inline uint32_t inside(int64_t at, int64_t cols, int lanes) {
  const int64_t low = at < 0 ? -at : 0, high = cols - at;
  if (low >= lanes || high <= low) return 0;
  const uint32_t all = (1u << (high < lanes ? high : lanes)) - 1;
  return all & ~((1u << low) - 1);
}

// Sums of the results in rows [y, y + kBlockRows) from column x on, as far as rows of the plane go.
template <class L, int K, int S>
[[gnu::noinline]] void block(const DirectArgs& d, int64_t y, int64_t x, float (*sums)[16]) {
  using V = typename L::V;
  static constexpr float kNothing[K + 1 + 2 * L::kCount] = {};
  constexpr int kRows = (kBlockRows - 1) * S + K;
  V acc[kBlockRows];
#pragma GCC unroll 7
  for (int r = 0; r < kBlockRows; ++r) acc[r] = L::splat(d.bias);
  const int64_t top = y * S - d.low[0], left = x * S - d.low[1];
  constexpr int kLoads = S == 1 ? K : (K + 1) / 2 * 2;
  typename L::Mask lanes[kLoads];
#pragma GCC unroll 6
  for (int i = 0; i < kLoads; ++i)
    lanes[i] = L::mask(inside(left + (S == 1 ? i : i / 2 * 2 + i % 2 * L::kCount), d.cols, L::kCount));
  const float* row = d.plane + top * d.cols + left;
#pragma GCC unroll 17
  for (int i = 0; i < kRows; ++i, row += d.cols) {
    const bool there = top + i >= 0 && top + i < d.rows;
    if (L::kSkipsRows && !there) continue;
    const float* from = there ? row : kNothing;
    V v[K + 1];
    if constexpr (S == 1) {
#pragma GCC unroll 5
      for (int kx = 0; kx < K; ++kx) v[kx] = L::load(lanes[kx], from + kx);
    } else {
#pragma GCC unroll 3
      for (int kx = 0; kx < K; kx += 2) {
        const V a = L::load(lanes[kx], from + kx), b = L::load(lanes[kx + 1], from + kx + L::kCount);
        v[kx] = L::even(a, b);
        if (kx + 1 < K) v[kx + 1] = L::odd(a, b);
      }
    }
#pragma GCC unroll 5
    for (int kx = 0; kx < K; ++kx)
#pragma GCC unroll 7
      for (int r = 0; r < kBlockRows; ++r) {
        const int ky = i - r * S;
        if (ky >= 0 && ky < K) acc[r] = L::add_product(acc[r], L::splat(d.weights[ky * K + kx]), v[kx]);
      }
  }
#pragma GCC unroll 7
  for (int r = 0; r < kBlockRows; ++r) L::put(sums[r], S == 1 ? acc[r] : L::ordered(acc[r]));
}

template <class L, int K, int S>
void all_blocks(const DirectArgs& d) {
  const auto run = [&](auto chain) __attribute__((always_inline)) {
    for (int64_t y = d.first; y < d.end; y += kBlockRows) {
      // The last block ends with the last row; what it computes again is not stored again.
      const int64_t from = y + kBlockRows <= d.end || d.end - d.first < kBlockRows ? y : d.end - kBlockRows;
      const int64_t last = d.end < from + kBlockRows ? d.end : from + kBlockRows;
      for (int64_t x = 0; x < d.out_cols; x += L::kCount) {
        alignas(64) float sums[kBlockRows][16];
        block<L, K, S>(d, from, x, sums);
        const int n = static_cast<int>(d.out_cols - x < L::kCount ? d.out_cols - x : L::kCount);
        for (int64_t r = y - from; r < last - from; ++r) {
          const int64_t at = (from + r) * d.out_cols + x;
          if (L::kCount <= kLanes) {
            store_some(d.out + at, finished<chain()>(load_some(sums[r], n), d.finish, 0, at, n), n);
          } else {
            for (int j = 0; j < n; j += kLanes) {
              const int some = lanes_of(n - j);
              store_some(d.out + at + j, finished<chain()>(load(sums[r] + j), d.finish, 0, at + j, some), some);
            }
          }
        }
      }
    }
  };
  switch (chain_of(d.finish)) {
    case Chain::kNone: return run(std::integral_constant<Chain, Chain::kNone>{});
    case Chain::kRelu: return run(std::integral_constant<Chain, Chain::kRelu>{});
    case Chain::kHardswish: return run(std::integral_constant<Chain, Chain::kHardswish>{});
    default: return run(std::integral_constant<Chain, Chain::kAny>{});
  }
}

template <int K>
void direct_of(const DirectArgs& d) {
  const bool narrow = d.out_cols <= 8;
  if (d.stride == 1)
    narrow ? all_blocks<Lanes8, K, 1>(d) : all_blocks<Lanes16, K, 1>(d);
  else
    narrow ? all_blocks<Lanes8, K, 2>(d) : all_blocks<Lanes16, K, 2>(d);
}

}  // namespace
}  // namespace cpu

#endif
