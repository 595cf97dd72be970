// SPDX-License-Identifier: Apache-2.0
// f32 products, compiled once per instruction set (contraction allowed: products are exempt from the bit-for-bit rules). Every sum adds its
// products in the order of k, so it does not depend on the tile's height or on how the result is split among threads.
#include "finish.hpp"
#include "pack.hpp"
#include "store.hpp"
#include "turn.hpp"

#define CPU_CAT2(a, b) a##b
#define CPU_CAT(a, b)  CPU_CAT2(a, b)

namespace cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kMR = 14;  // 28 of 32 registers hold sums
#elif defined(__AVX2__)
constexpr int kMR = 6;  // 12 of 16
#else
constexpr int kMR = 4;
#endif
constexpr int kNR = 2 * kLanes;

// W: vectors of a row. With 1 only the left half of the panel's columns is computed, for a last panel that has no more.
template <int H, int W>
void micro(int64_t k, const void* pa, const void* pb, float* sums, int64_t ld, bool add, const char* next, int64_t step) {
  const float* a = static_cast<const float*>(pa);
  const float* b = static_cast<const float*>(pb);
  Vec acc[H][W];
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i)
    for (int j = 0; j < W; ++j) acc[i][j] = Vec{};
  for (int64_t p = 0; p < k; ++p, a += H, b += kNR) {
    Vec y[W];
    for (int j = 0; j < W; ++j) y[j] = load(b + j * kLanes);
    __builtin_prefetch(next, 0, 2);
    if (H <= 8 && kNR > 16) __builtin_prefetch(next + 64, 0, 2);  // few tiles: more than a line for each k
    next += step;
    __builtin_prefetch(b + 16 * kNR);
    if (kNR > 16 && W > 1) __builtin_prefetch(b + 16 * kNR + 16);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) {
      const Vec x = splat(a[i]);
      for (int j = 0; j < W; ++j) acc[i][j] += x * y[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    float* row = sums + i * ld;
    for (int j = 0; j < W; ++j) {
      if (add) acc[i][j] += load(row + j * kLanes);
      store(row + j * kLanes, acc[i][j]);
    }
  }
}

// Of columns as they lie in memory: each row of B is another stream, so rows are fetched some ahead.
template <int H>
[[gnu::always_inline]] inline void products(int64_t k, const void* pa, const float* b, int64_t b_ld, Vec (&acc)[H][2]) {
  const float* a = static_cast<const float*>(pa);
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) acc[i][0] = acc[i][1] = Vec{};
  for (int64_t p = 0; p < k; ++p, a += H, b += b_ld) {
    const Vec b0 = load(b), b1 = load(b + kLanes);
    __builtin_prefetch(b + 8 * b_ld);
    __builtin_prefetch(b + 8 * b_ld + kNR - 1);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) {
      const Vec x = splat(a[i]);
      acc[i][0] += x * b0;
      acc[i][1] += x * b1;
    }
  }
}

// Where B is read by few tiles, a panel of it is not worth its copying.
template <int H>
void micro_at(int64_t k, const void* pa, const float* b, int64_t b_ld, float* sums, int64_t ld, bool add) {
  Vec acc[H][2];
  products<H>(k, pa, b, b_ld, acc);
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    float* row = sums + i * ld;
    if (add) {
      acc[i][0] += load(row);
      acc[i][1] += load(row + kLanes);
    }
    store(row, acc[i][0]);
    store(row + kLanes, acc[i][1]);
  }
}

// Where K is short, a tile that waits in memory to be finished costs as much as its products.
template <int H>
void micro_done(int64_t k, const void* pa, const float* b, int64_t b_ld, const DoneArgs& d) {
  Vec acc[H][2];
  products<H>(k, pa, b, b_ld, acc);
  const Vec least = splat(d.least);
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    const Vec bias = splat(d.row_bias[i]);
    acc[i][0] = kept(acc[i][0]) + bias;
    acc[i][1] = kept(acc[i][1]) + bias;
  }
  if (d.other) {
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) {
      acc[i][0] += load(d.other + i * d.other_ld);
      acc[i][1] += load(d.other + i * d.other_ld + kLanes);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    float* row = d.out + i * d.out_ld;
    store(row, acc[i][0] <= least ? least : acc[i][0]);  // NaN stays
    store(row + kLanes, acc[i][1] <= least ? least : acc[i][1]);
  }
}

template <int... H>
constexpr GemmIsa table(const char* name) {
  GemmIsa t{name, false, kMR, kNR, 1, 1, 384, 4, {}, {}, {}, {}, pack_f32, pack_f32, store_tile, turn_tile, nullptr, nullptr};
  ((t.micro[H] = micro<H, 2>, t.micro_half[H] = micro<H, 1>, t.micro_at[H] = micro_at<H>, t.micro_done[H] = micro_done<H>),
   ...);
  return t;
}

}  // namespace

const GemmIsa* CPU_CAT(gemm_f32_, CPU_ISA_NAME)() {
#if defined(__AVX512F__)
  static constexpr GemmIsa t = table<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14>("avx512");
#elif defined(__AVX2__)
  static constexpr GemmIsa t = table<1, 2, 3, 4, 5, 6>("avx2");
#else
  static constexpr GemmIsa t = table<1, 2, 3, 4>("baseline");
#endif
  return &t;
}

}  // namespace cpu
