// SPDX-License-Identifier: Apache-2.0
// Square filters of 3 or 5 taps a side on a plane as it lies in memory, without a copy in its padding: masked loads give zeros
// for columns beside it, rows above and below are left out. What is loaded of a row meets all rows of the filter. Included by
// kernel.cpp from AVX2 on.
#pragma once

#include "depthwise/tables.hpp"
#include "gemm/isa/finish.hpp"
#include "gemm/isa/lanes.hpp"

#if defined(__AVX2__)

namespace cpu {
namespace {

// Results of a block: rows of one vector.
constexpr int kBlockRows = 7;

// Wide and narrow rows of results: V holds one, Mask says which lanes of it are loaded; kSkipsRows: all sums of a block fit in
// registers beside what they are made of, so rows of the plane that are not there can be left out; else sums come and go with
// the rows that they need, and zeros stand for those rows. even and odd pick every second of two vectors' lanes, maybe not in
// order; ordered brings their sums back into it. kShifts: in order, and shifted moves the lanes down by one, the last one from
// memory. `whole` is the sums as a vector that can be finished, where it holds a row of them.
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
  struct Order {
    __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i odds = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    Order() { __asm__("" : "+v"(evens), "+v"(odds)); }
    V even(V a, V b) const { return _mm512_permutex2var_ps(a, evens, b); }
    V odd(V a, V b) const { return _mm512_permutex2var_ps(a, odds, b); }
  };
  static V ordered(V v) { return v; }
  static constexpr bool kShifts = true;
  static V shifted(V v, bool there, const float* last) {
    const __m512 one = _mm512_castps128_ps512(_mm_maskz_load_ss(there, last));
    // All lanes: GCC 12 warns of what the form without a mask does with the lanes that it does not leave out.
    return _mm512_castsi512_ps(
        _mm512_maskz_alignr_epi32(static_cast<__mmask16>(0xffff), _mm512_castps_si512(one), _mm512_castps_si512(v), 1));
  }
  static Vec whole(V v) { return reinterpret_cast<Vec>(v); }
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
  struct Order {
    __m256i evens = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14), odds = _mm256_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15);
    Order() { __asm__("" : "+v"(evens), "+v"(odds)); }
    V even(V a, V b) const { return _mm256_permutex2var_ps(a, evens, b); }
    V odd(V a, V b) const { return _mm256_permutex2var_ps(a, odds, b); }
  };
  static V ordered(V v) { return v; }
  static constexpr bool kShifts = true;
  static V shifted(V v, bool there, const float* last) {
    const __m256 one = _mm256_castps128_ps256(_mm_maskz_load_ss(there, last));
    return _mm256_castsi256_ps(_mm256_alignr_epi32(_mm256_castps_si256(one), _mm256_castps_si256(v), 1));
  }
  // Zeros behind; the intrinsic for it makes GCC 12 warn of lanes that are not there.
  static Vec whole(V v) {
    Vec out;
    __asm__("vmovaps %1, %t0" : "=v"(out) : "v"(v));
    return out;
  }
};
#else
struct Lanes8 {
  static constexpr int kCount = 8;
  static constexpr bool kSkipsRows = true, kShifts = false;
  using V = __m256;
  using Mask = __m256i;
  static Mask mask(uint32_t lanes) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(lanes)), bits), bits);
  }
  static V splat(float x) { return _mm256_set1_ps(x); }
  static V load(Mask lanes, const float* p) { return _mm256_maskload_ps(p, lanes); }
  static V add_product(V sum, V w, V x) { return _mm256_fmadd_ps(w, x, sum); }
  struct Order {
    static V even(V a, V b) { return _mm256_shuffle_ps(a, b, 0x88); }
    static V odd(V a, V b) { return _mm256_shuffle_ps(a, b, 0xdd); }
  };
  static V ordered(V v) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)); }
  static void put(float* to, V v) { _mm256_store_ps(to, v); }
};
// Two vectors share each weight that is loaded.
struct Lanes16 {
  static constexpr int kCount = 16;
  static constexpr bool kSkipsRows = false, kShifts = false;
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
  struct Order {
    static V even(V a, V b) { return {Lanes8::Order::even(a.low, a.high), Lanes8::Order::even(b.low, b.high)}; }
    static V odd(V a, V b) { return {Lanes8::Order::odd(a.low, a.high), Lanes8::Order::odd(b.low, b.high)}; }
  };
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

// The results in rows [first, last) of rows [y, y + kBlockRows), all of which are computed, from column x on, as far as rows of
// the plane go.
template <class L, int K, int S, Chain C>
[[gnu::noinline]] void block(const DirectArgs& d, int64_t y, int64_t x, int64_t first, int64_t last) {
  using V = typename L::V;
  static constexpr float kNothing[K + 1 + 2 * L::kCount] = {};
  constexpr int kRows = (kBlockRows - 1) * S + K;
  V acc[kBlockRows];
#pragma GCC unroll 7
  for (int r = 0; r < kBlockRows; ++r) acc[r] = L::splat(d.bias);
  const int64_t top = y * S - d.low[0], left = x * S - d.low[1];
  constexpr int kLoads = S == 1 ? K : L::kShifts ? 2 : (K + 1) / 2 * 2;
  typename L::Mask lanes[kLoads];
#pragma GCC unroll 6
  for (int i = 0; i < kLoads; ++i)
    lanes[i] = L::mask(inside(left + (S == 1 ? i : i / 2 * 2 + i % 2 * L::kCount), d.cols, L::kCount));
  // Where there are registers for them the weights stay in some, and what picks lanes too: the compiler would load them for
  // every use.
  constexpr bool kKeepsWeights = L::kShifts && K == 3;
  V weights[K * K];
  if constexpr (kKeepsWeights) {
#pragma GCC unroll 9
    for (int t = 0; t < K * K; ++t) {
      weights[t] = L::splat(d.weights[t]);
      __asm__("" : "+v"(weights[t]));
    }
  }
  const typename L::Order order;
  const float* row = d.plane + top * d.cols + left;
  const int64_t step = d.cols, rows = d.rows, cols = d.cols;
#pragma GCC unroll 17
  for (int i = 0; i < kRows; ++i, row += step) {
    const bool there = top + i >= 0 && top + i < rows;
    if (L::kSkipsRows && __builtin_expect(!there, 0)) continue;
    const float* from = there ? row : kNothing;
    V v[K + 1];
    if constexpr (S == 1) {
#pragma GCC unroll 5
      for (int kx = 0; kx < K; ++kx) v[kx] = L::load(lanes[kx], from + kx);
    } else if constexpr (L::kShifts) {
      const V a = L::load(lanes[0], from), b = L::load(lanes[1], from + L::kCount);
      v[0] = order.even(a, b), v[1] = order.odd(a, b);
#pragma GCC unroll 3
      for (int kx = 2; kx < K; ++kx) {
        constexpr int kBehind = 2 * L::kCount - 2;
        const int64_t column = left + kBehind + kx;
        v[kx] = L::shifted(v[kx - 2], column >= 0 && column < cols, from + kBehind + kx);
      }
    } else {
#pragma GCC unroll 3
      for (int kx = 0; kx < K; kx += 2) {
        const V a = L::load(lanes[kx], from + kx), b = L::load(lanes[kx + 1], from + kx + L::kCount);
        v[kx] = order.even(a, b);
        if (kx + 1 < K) v[kx + 1] = order.odd(a, b);
      }
    }
#pragma GCC unroll 5
    for (int kx = 0; kx < K; ++kx)
#pragma GCC unroll 7
      for (int r = 0; r < kBlockRows; ++r) {
        const int ky = i - r * S;
        if (ky >= 0 && ky < K)
          acc[r] = L::add_product(acc[r], kKeepsWeights ? weights[ky * K + kx] : L::splat(d.weights[ky * K + kx]), v[kx]);
      }
  }
  const int n = static_cast<int>(d.out_cols - x < L::kCount ? d.out_cols - x : L::kCount);
#if defined(__AVX512F__)
  int64_t at = y * d.out_cols + x;
#pragma GCC unroll 7
  for (int r = 0; r < kBlockRows; ++r, at += d.out_cols)
    if (__builtin_expect(y + r >= first && y + r < last, 1))
      store_some(d.out + at, finished<C>(kept(L::whole(acc[r])), d.finish, 0, at, n), n);
#else
  alignas(64) float sums[kBlockRows][16];
#pragma GCC unroll 7
  for (int r = 0; r < kBlockRows; ++r) L::put(sums[r], S == 1 ? acc[r] : L::ordered(acc[r]));
  for (int64_t r = first - y; r < last - y; ++r)
    for (int j = 0; j < n; j += kLanes) {
      const int some = lanes_of(n - j);
      const int64_t at = (y + r) * d.out_cols + x + j;
      store_some(d.out + at, finished<C>(load(sums[r] + j), d.finish, 0, at, some), some);
    }
#endif
}

template <class L, int K, int S, Chain C>
void all_blocks(const DirectArgs& d) {
  for (int64_t y = d.first; y < d.end; y += kBlockRows) {
    // The last block ends with the last row; what it computes again is not stored again.
    const int64_t from = y + kBlockRows <= d.end || d.end - d.first < kBlockRows ? y : d.end - kBlockRows;
    const int64_t last = d.end < from + kBlockRows ? d.end : from + kBlockRows;
    for (int64_t x = 0; x < d.out_cols; x += L::kCount) block<L, K, S, C>(d, from, x, y, last);
  }
}

template <class L, int K, int S>
void all_chains(const DirectArgs& d) {
  switch (chain_of(d.finish)) {
    case Chain::kNone: return all_blocks<L, K, S, Chain::kNone>(d);
    case Chain::kRelu: return all_blocks<L, K, S, Chain::kRelu>(d);
    case Chain::kHardswish: return all_blocks<L, K, S, Chain::kHardswish>(d);
    default: return all_blocks<L, K, S, Chain::kAny>(d);
  }
}

template <int K>
void direct_of(const DirectArgs& d) {
  const bool narrow = d.out_cols <= 8;
  if (d.stride == 1)
    narrow ? all_chains<Lanes8, K, 1>(d) : all_chains<Lanes16, K, 1>(d);
  else
    narrow ? all_chains<Lanes8, K, 2>(d) : all_chains<Lanes16, K, 2>(d);
}

}  // namespace
}  // namespace cpu

#endif
