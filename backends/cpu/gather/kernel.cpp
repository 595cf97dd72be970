// SPDX-License-Identifier: Apache-2.0
// Gathers panels of input values, compiled once per instruction set. Vectors whose columns are neighbours are loaded, others gathered; lanes that
// lie in the padding are masked, so nothing is read there.
#include "gather/tables.hpp"
#include "gemm/isa/lanes.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define CPU_CAT2(a, b) a##b
#define CPU_CAT(a, b)  CPU_CAT2(a, b)

namespace cpu {
namespace {

constexpr int kNR = 2 * kLanes;

#if defined(__AVX512F__)
using Index = __m512i;
Index index_of(const int32_t* at) { return _mm512_loadu_si512(at); }
[[gnu::always_inline]] inline void row(const float* from, uint32_t seen, bool together, Index index, float* out) {
  const auto mask = static_cast<__mmask16>(seen);
  _mm512_storeu_ps(
      out, together ? _mm512_maskz_loadu_ps(mask, from) : _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, index, from, 4));
}
#elif defined(__AVX2__)
using Index = __m256i;
Index index_of(const int32_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
[[gnu::always_inline]] inline void row(const float* from, uint32_t seen, bool together, Index index, float* out) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i mask = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(seen)), bits), bits);
  _mm256_storeu_ps(out, together ? _mm256_maskload_ps(from, mask)
                                 : _mm256_mask_i32gather_ps(_mm256_setzero_ps(), from, index, _mm256_castsi256_ps(mask), 4));
}
#endif

void one_by_one(const GatherArgs& g) {
  int64_t channel = g.k0 / g.taps;
  int tap = static_cast<int>(g.k0 % g.taps);
  float* out = g.out;
  for (int64_t k = 0; k < g.count; ++k, out += kNR) {
    const float* from = g.x + channel * g.plane + g.tap_at[tap];
    for (int j = 0; j < kNR; ++j) out[j] = g.seen[tap] >> j & 1 ? from[g.column_at[j]] : 0.0f;
    if (++tap == g.taps) tap = 0, ++channel;
  }
}

}  // namespace

void CPU_CAT(gather_, CPU_ISA_NAME)(const GatherArgs& g) {
#if defined(__AVX2__)
  if (!g.near) return one_by_one(g);
  Index index[2];
  bool together[2];
  for (int h = 0; h < 2; ++h) {
    int32_t at[kLanes];
    const int64_t* columns = g.column_at + h * kLanes;
    together[h] = true;
    for (int j = 0; j < kLanes; ++j) {
      at[j] = static_cast<int32_t>(columns[j] - columns[0]);
      together[h] = together[h] && at[j] == j;
    }
    index[h] = index_of(at);
  }
  const int64_t low = g.column_at[0], high = g.column_at[kLanes];
  // Channels are far apart: what is read some rows later is fetched now.
  const int64_t ahead = g.plane * (g.taps == 1 ? 12 : 2);
  int64_t channel = g.k0 / g.taps;
  int tap = static_cast<int>(g.k0 % g.taps);
  float* out = g.out;
  for (int64_t k = 0; k < g.count; ++k, out += kNR) {
    const float* from = g.x + channel * g.plane + g.tap_at[tap];
    __builtin_prefetch(from + low + ahead);
    __builtin_prefetch(from + high + ahead);
    row(from + low, g.seen[tap], together[0], index[0], out);
    row(from + high, g.seen[tap] >> kLanes, together[1], index[1], out + kLanes);
    if (++tap == g.taps) tap = 0, ++channel;
  }
#else
  one_by_one(g);
#endif
}

}  // namespace cpu
