// SPDX-License-Identifier: Apache-2.0
// f32 products, compiled once per instruction set (contraction allowed: products are exempt from the bit-for-bit rules). Every
// sum adds its products in the order of k, so it does not depend on the tile's height or on how the result is split among
// threads.
#include "fetch.hpp"
#include "finish.hpp"
#include "pack.hpp"
#include "store.hpp"
#include "store_transposed.hpp"

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
constexpr int64_t kKC = 384;
static_assert(kKC + kKC / 4 + kLanes <= kRowPitch);  // pieces of K are at most so much longer

// Adds the products of row k of both sides. W: vectors of a row. Pitch: floats between rows of the left side.
template <int H, int W, int64_t Pitch = 1>
[[gnu::always_inline]] inline void add_products(const float* a, const float* b, Vec (&acc)[H][W]) {
  Vec y[W];
  for (int j = 0; j < W; ++j) y[j] = load(b + j * kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    const Vec x = splat(a[i * Pitch]);
    for (int j = 0; j < W; ++j) acc[i][j] += x * y[j];
  }
}

template <int H, int W>
[[gnu::always_inline]] inline void clear(Vec (&acc)[H][W]) {
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i)
    for (int j = 0; j < W; ++j) acc[i][j] = Vec{};
}

// Pitch: as above, or 1 for [k][H].
template <int H, int W, int64_t Pitch = 1>
[[gnu::always_inline]] inline void products(int64_t k, const float* a, const float* b, Vec (&acc)[H][W],
                                            const Prefetch& prefetch) {
  constexpr int64_t kStep = Pitch == 1 ? H : 1;  // floats of the left side from k to k
  const char* next = prefetch.next;
  const int64_t step = prefetch.step, stretch = stretch_of(prefetch, k, H);
  Prefetch::Lines results = prefetch.lines[0], others = prefetch.lines[1];
  clear(acc);
  for (int64_t p = 0; p < k;) {
    fetch<true>(results);
    fetch<false>(others);
    const int64_t end = p + stretch < k ? p + stretch : k;
    // Half of the instructions are products where registers are few, and a core that runs another thread beside this one takes
    // no more of them than it must: two steps share a loop's. More than two measure worse.
    if constexpr (kNR <= 16)
      for (; p + 2 <= end; p += 2, a += 2 * kStep, b += 2 * kNR) {
        const char* const behind = next + 2 * step;
        do {  // mostly once
          __builtin_prefetch(next, 0, 2);
          next += 64;
        } while (next < behind);
        next = behind;
        __builtin_prefetch(b + 16 * kNR);
        add_products<H, W, Pitch>(a, b, acc);
        __builtin_prefetch(b + 17 * kNR);
        add_products<H, W, Pitch>(a + kStep, b + kNR, acc);
      }
    for (; p < end; ++p, a += kStep, b += kNR) {
      __builtin_prefetch(next, 0, 2);
      if (H <= 8 && kNR > 16) __builtin_prefetch(next + 64, 0, 2);  // few tiles: more than a line for each k
      next += step;
      __builtin_prefetch(b + 16 * kNR);
      if (kNR > 16 && W > 1) __builtin_prefetch(b + 16 * kNR + 16);
      add_products<H, W, Pitch>(a, b, acc);
    }
  }
}

// Of columns as they lie in memory: each row of B is another stream, so rows are fetched some rows early.
template <int H>
[[gnu::always_inline]] inline void products_at(int64_t k, const float* a, const float* b, int64_t b_ld, Vec (&acc)[H][2]) {
  clear(acc);
  for (int64_t p = 0; p < k; ++p, a += H, b += b_ld) {
    __builtin_prefetch(b + 8 * b_ld);
    __builtin_prefetch(b + 8 * b_ld + kNR - 1);
    add_products(a, b, acc);
  }
}

template <int H, int W>
[[gnu::always_inline]] inline void keep(Vec (&acc)[H][W], float* sums, int64_t ld, bool add) {
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    float* row = sums + i * ld;
    for (int j = 0; j < W; ++j) {
      if (add) acc[i][j] += load(row + j * kLanes);
      store(row + j * kLanes, acc[i][j]);
    }
  }
}

template <int H>
[[gnu::always_inline]] inline void finish(Vec (&acc)[H][2], const DoneArgs& d) {
  if (d.sums) {
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < 2; ++j) acc[i][j] += load(d.sums + i * kNR + j * kLanes);
  }
  if (d.bias) {
    const Vec left = load(d.bias), right = load(d.bias + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) {
      acc[i][0] = kept(acc[i][0]) + left;
      acc[i][1] = kept(acc[i][1]) + right;
    }
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < 2; ++j) acc[i][j] = kept(acc[i][j]) + splat(d.row_bias[i]);
  }
  if (d.other) {
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < 2; ++j) acc[i][j] += load(d.other + i * d.other_ld + j * kLanes);
  }
  if (d.hardswish) {
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < 2; ++j) store(d.out + i * d.out_ld + j * kLanes, hardswish(acc[i][j]));
    return;
  }
  const Vec least = splat(d.least);
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i)
    for (int j = 0; j < 2; ++j) store(d.out + i * d.out_ld + j * kLanes, acc[i][j] <= least ? least : acc[i][j]);  // NaN stays
}

// With W 1 only the left half of the panel's columns is computed, for a last panel that has no more.
template <int H, int W>
void micro(int64_t k, const void* a, const void* b, float* sums, int64_t ld, bool add, const Prefetch& prefetch) {
  Vec acc[H][W];
  products<H, W>(k, static_cast<const float*>(a), static_cast<const float*>(b), acc, prefetch);
  keep(acc, sums, ld, add);
}

#if defined(__AVX2__)
// The left quarter, in vectors of half the lanes.
template <int H>
void micro_quarter(int64_t k, const void* left, const void* right, float* sums, int64_t ld, bool add,
                   const Prefetch& prefetch) {
  typedef float Half __attribute__((vector_size(2 * kLanes)));
  const float *a = static_cast<const float*>(left), *b = static_cast<const float*>(right);
  const char* next = prefetch.next;
  Half acc[H] = {};
  for (int64_t p = 0; p < k; ++p, a += H, b += kNR, next += prefetch.step) {
    __builtin_prefetch(next, 0, 2);
    __builtin_prefetch(b + 16 * kNR);
    Half y;
    std::memcpy(&y, b, sizeof y);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) acc[i] += a[i] * y;
  }
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    float* row = sums + i * ld;
    if (add) {
      Half before;
      std::memcpy(&before, row, sizeof before);
      acc[i] += before;
    }
    std::memcpy(row, &acc[i], sizeof(Half));
  }
}
#else
template <int H>
constexpr GemmIsa::Kernels::Micro micro_quarter = nullptr;
#endif

// Where B is read by few tiles, a panel of it is not worth its copying.
template <int H>
void micro_at(int64_t k, const void* a, const float* b, int64_t b_ld, float* sums, int64_t ld, bool add) {
  Vec acc[H][2];
  products_at<H>(k, static_cast<const float*>(a), b, b_ld, acc);
  keep(acc, sums, ld, add);
}

// A tile that waits in memory to be finished costs its way there and back.
template <int H>
void micro_done(int64_t k, const void* a, const float* b, const DoneArgs& d, const Prefetch& prefetch) {
  Vec acc[H][2];
  products<H, 2>(k, static_cast<const float*>(a), b, acc, prefetch);
  finish<H>(acc, d);
}

template <int H>
void micro_done_at(int64_t k, const void* a, const float* b, int64_t b_ld, const DoneArgs& d) {
  Vec acc[H][2];
  products_at<H>(k, static_cast<const float*>(a), b, b_ld, acc);
  finish<H>(acc, d);
}

// Half of a long K at a time: products of sums have larger terms than those of plain operands, and rounding errors grow with
// the length of a sum.
constexpr int64_t kSpreadLength = 256;
template <int H>
void micro_sums(int64_t k, const void* left, const float* b, const Sums& to, const Prefetch& prefetch) {
  const float* a = static_cast<const float*>(left);
  Vec acc[H][2];
  if (k <= kSpreadLength) {
    products<H, 2, kRowPitch>(k, a, b, acc, prefetch);
  } else {
    const int64_t half = k / 2;
    Vec first[H][2];
    products<H, 2, kRowPitch>(half, a, b, acc, prefetch);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < 2; ++j) first[i][j] = acc[i][j];
    Prefetch rest = Prefetch::only(prefetch.next + half * prefetch.step, prefetch.step, to.to[0]);
    products<H, 2, kRowPitch>(k - half, a + half, b + half * kNR, acc, rest);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i)
      for (int j = 0; j < 2; ++j) acc[i][j] += first[i][j];
  }
  for (int d = 0; d < 2; ++d) {
    float* out = to.to[d];
    switch (to.mode[d]) {
      case Sums::kNone: break;
      case Sums::kBegin:
#pragma GCC unroll 16
        for (int i = 0; i < H; ++i)
          for (int j = 0; j < 2; ++j) store(out + i * kNR + j * kLanes, acc[i][j]);
        break;
      case Sums::kAdd:
#pragma GCC unroll 16
        for (int i = 0; i < H; ++i)
          for (int j = 0; j < 2; ++j) store(out + i * kNR + j * kLanes, load(out + i * kNR + j * kLanes) + acc[i][j]);
        break;
      case Sums::kSubtract:
#pragma GCC unroll 16
        for (int i = 0; i < H; ++i)
          for (int j = 0; j < 2; ++j) store(out + i * kNR + j * kLanes, load(out + i * kNR + j * kLanes) - acc[i][j]);
        break;
    }
  }
}

template <int... H>
constexpr GemmIsa table(const char* name) {
  GemmIsa t{.name = name,
            .bf16 = false,
            .mr = kMR,
            .nr = kNR,
            .row_unit = 1,
            .k_unit = 1,
            .kc = kKC,
            .packed_bytes = 4,
            .micro = {},
            .pack_a = pack_f32,
            .pack_b = pack_f32,
            .store = store_tile,
            .transpose = transpose_tile,
            .begin = nullptr,
            .end = nullptr};
  ((t.micro[H] = {micro<H, 2>, micro<H, 1>, micro_quarter<H>, micro_at<H>, micro_done<H>, micro_done_at<H>, micro_sums<H>}),
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
