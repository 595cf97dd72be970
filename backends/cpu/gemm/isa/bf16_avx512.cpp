// SPDX-License-Identifier: Apache-2.0
// bf16 products by VDPBF16PS: each lane adds two products of bf16 in f32. The instruction takes subnormals for zeros and rounds
// to nearest.
#include <immintrin.h>

#include "fetch.hpp"
#include "finish.hpp"
#include "pack.hpp"
#include "store.hpp"

namespace cpu {
namespace {

constexpr int kMR = 14, kNR = 32;

template <int H>
void micro(int64_t k, const void* pa, const void* pb, float* sums, int64_t ld, bool add, const Prefetch& prefetch) {
  const uint32_t* a = static_cast<const uint32_t*>(pa);
  const char* b = static_cast<const char*>(pb);
  __m512 acc[H][2];
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
  const char* next = prefetch.next;
  const int64_t pairs = k / 2, stretch = stretch_of(prefetch, pairs, H);
  Prefetch::Lines results = prefetch.lines[0], others = prefetch.lines[1];
  for (int64_t p = 0; p < pairs;) {
    fetch<true>(results);
    fetch<false>(others);
    for (const int64_t end = p + stretch < pairs ? p + stretch : pairs; p < end; ++p, a += H, b += 128) {
      const __m512bh b0 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b));
      const __m512bh b1 = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b + 64));
      _mm_prefetch(next, _MM_HINT_T1);
      next += 2 * prefetch.step;
      _mm_prefetch(b + 16 * 128, _MM_HINT_T0);
      _mm_prefetch(b + 16 * 128 + 64, _MM_HINT_T0);
#pragma GCC unroll 16
      for (int i = 0; i < H; ++i) {
        const __m512bh x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[i])));
        acc[i][0] = _mm512_dpbf16_ps(acc[i][0], x, b0);
        acc[i][1] = _mm512_dpbf16_ps(acc[i][1], x, b1);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    float* row = sums + i * ld;
    if (add) {
      acc[i][0] = _mm512_add_ps(acc[i][0], _mm512_loadu_ps(row));
      acc[i][1] = _mm512_add_ps(acc[i][1], _mm512_loadu_ps(row + 16));
    }
    _mm512_storeu_ps(row, acc[i][0]);
    _mm512_storeu_ps(row + 16, acc[i][1]);
  }
}

template <int... H>
constexpr GemmIsa table() {
  GemmIsa t{.name = "avx512_bf16",
            .bf16 = true,
            .mr = kMR,
            .nr = kNR,
            .row_unit = 1,
            .k_unit = 32,
            .kc = 768,
            .packed_bytes = 2,
            .micro = {},
            .pack_a = pack_pairs,
            .pack_b = pack_pairs,
            .store = store_tile,
            .transpose = nullptr,
            .begin = nullptr,
            .end = nullptr};
  ((t.micro[H].whole = micro<H>), ...);
  return t;
}

}  // namespace

const GemmIsa* gemm_bf16_avx512() {
  static constexpr GemmIsa t = table<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14>();
  return &t;
}

}  // namespace cpu
