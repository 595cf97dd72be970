// SPDX-License-Identifier: Apache-2.0
// Packing of both operands, included by the files that are compiled per instruction set.
#pragma once

#include <type_traits>

#include "../tables.hpp"
#include "lanes.hpp"
#include "load_transposed.hpp"
#include "tessera/abi.h"

namespace cpu {
namespace {

inline float widen(float x) { return x; }
inline float from_bf16(uint16_t x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16); }

// IEEE binary16, exactly; subnormals through a multiplication by a power of two.
inline float from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  const float magnitude = rest < 0x400    ? static_cast<float>(rest) * 0x1p-24f
                          : rest < 0x7c00 ? __builtin_bit_cast(float, (rest << 13) + 0x38000000u)
                                          : __builtin_bit_cast(float, (rest << 13) | 0x7f800000u);
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, magnitude) | sign);
}

struct FromBf16 {
  float operator()(uint16_t x) const { return from_bf16(x); }
};
struct FromF16 {
  float operator()(uint16_t x) const { return from_f16(x); }
};
#if defined(__AVX2__)
[[gnu::always_inline]] inline Vec from_bf16s(const uint16_t* p) {
#if defined(__AVX512F__)
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return reinterpret_cast<Vec>(_mm512_maskz_slli_epi32(0xffff, wide, 16));
#else
  return reinterpret_cast<Vec>(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
#endif
}
#endif

// out[k * height + r] = word k of row r, for rows of contiguous 32-bit words: floats, or pairs of bf16.
inline void pack_words(const char* const* row, int rows, int height, int64_t k, float* out) {
  for (int r0 = 0; r0 < height; r0 += kLanes) {
    const int lanes = height - r0 < kLanes ? height - r0 : kLanes, have = rows - r0 < lanes ? rows - r0 : lanes;
    const char* block[kLanes];
    for (int i = 0; i < kLanes; ++i) block[i] = row[r0 + i < rows ? r0 + i : 0];
    int64_t p = 0;
    for (; p + kLanes <= k; p += kLanes) {
      // A whole vector may be stored where what it writes behind a short row is written again with the next k, or is full
      // itself.
      const bool whole = lanes == kLanes || (r0 == 0 && (k - p - kLanes + 1) * height >= kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        __builtin_prefetch(block[i] + 4 * p + 256, 0, 2);  // more streams than the hardware follows
      Vec v[kLanes];
      load_transposed(block, 4 * p, v);
      if (have < lanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) v[i] = first_lanes(v[i], have < 0 ? 0 : have);
      }
      if (whole) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(out + (p + i) * height + r0, v[i]);
      } else {
        for (int i = 0; i < kLanes; ++i) store_some(out + (p + i) * height + r0, v[i], lanes);
      }
    }
    for (; p < k; ++p)
      for (int i = 0; i < lanes; ++i) {
        out[p * height + r0 + i] = 0.0f;
        if (i < have) std::memcpy(out + p * height + r0 + i, block[i] + 4 * p, 4);
      }
  }
}

template <class T, class Widen>
void pack_widened(const PackArgs& p, Widen widen_one) {
  const T* src = static_cast<const T*>(p.src);
  float* out = static_cast<float*>(p.out);
  bool side_by_side = p.rows == p.height;
  for (int r = 1; r < p.rows; ++r) side_by_side = side_by_side && p.rows_at[r] == p.rows_at[0] + r;
  if (side_by_side) {
    const T* s = src + p.rows_at[0];
#if defined(__AVX2__)
    if constexpr (std::is_same_v<Widen, FromBf16>)
      // Whole vectors are read as far as there are elements of other k behind these, and stored as for floats.
      if (p.height <= kLanes && p.k_stride > 0) {
        int64_t k = 0;
        for (; k < p.k && (p.k - 1 - k) * p.k_stride + p.height >= kLanes && (p.k - k) * p.height >= kLanes; ++k) {
          store(out, from_bf16s(s));
          s += p.k_stride, out += p.height;
        }
        for (; k < p.k; ++k, s += p.k_stride, out += p.height)
          for (int r = 0; r < p.height; ++r) out[r] = widen_one(s[r]);
        return;
      }
#endif
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == sizeof(float))
      if (p.height <= kLanes) {  // whole vectors are stored: what one writes behind its k is written again with the next
        for (int64_t k = 0; k < p.k; ++k, s += p.k_stride, out += p.height) {
          const Vec v = load_some(s, p.height);
          if ((p.k - k) * p.height >= kLanes)
            store(out, v);
          else
            store_some(out, v, p.height);
        }
        return;
      }
#endif
    for (int64_t k = 0; k < p.k; ++k, s += p.k_stride, out += p.height)
      for (int r = 0; r < p.height; ++r) out[r] = widen_one(s[r]);
    return;
  }
  // A few k of every row at a time keep both sides within the nearest cache.
  constexpr int64_t kRun = 16;
  for (int64_t k0 = 0; k0 < p.k; k0 += kRun) {
    const int64_t run = p.k - k0 < kRun ? p.k - k0 : kRun;
    for (int r = 0; r < p.height; ++r) {
      if (r < p.rows) {
        const T* s = src + p.rows_at[r] + k0 * p.k_stride;
        for (int64_t i = 0; i < run; ++i) out[(k0 + i) * p.height + r] = widen_one(s[i * p.k_stride]);
      } else {
        for (int64_t i = 0; i < run; ++i) out[(k0 + i) * p.height + r] = 0.0f;
      }
    }
  }
}

// Rows of contiguous halves: widened a run at a time, then packed as floats are.
template <class Widen>
void pack_runs(const PackArgs& p, Widen widen_one) {
  constexpr int64_t kRun = 64;
  float run[32][kRun];
  const char* row[32];
  for (int r = 0; r < p.rows; ++r) row[r] = reinterpret_cast<const char*>(run[r]);
  for (int64_t k0 = 0; k0 < p.k; k0 += kRun) {
    const int64_t n = p.k - k0 < kRun ? p.k - k0 : kRun;
    for (int r = 0; r < p.rows; ++r) {
      const uint16_t* s = static_cast<const uint16_t*>(p.src) + p.rows_at[r] + k0;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) run[r][i] = widen_one(s[i]);
    }
    pack_words(row, p.rows, p.height, n, static_cast<float*>(p.out) + k0 * p.height);
  }
}
template <class Widen>
void pack_halves(const PackArgs& p, Widen widen_one) {
  p.k_stride == 1 && p.rows > 1 ? pack_runs(p, widen_one) : pack_widened<uint16_t>(p, widen_one);
}

[[maybe_unused]] void pack_f32(const PackArgs& p) {
  if (p.dtype == TSR_BF16) return pack_halves(p, FromBf16{});
  if (p.dtype == TSR_F16) return pack_halves(p, FromF16{});
  if (p.k_stride != 1 || p.rows < 2) return pack_widened<float>(p, [](float x) { return x; });
  const char* row[32];
  for (int r = 0; r < p.rows; ++r) row[r] = reinterpret_cast<const char*>(static_cast<const float*>(p.src) + p.rows_at[r]);
  pack_words(row, p.rows, p.height, p.k, static_cast<float*>(p.out));
}

// Pairs of bf16; the caller passes an even k but for the end of a matrix, where one zero completes it.
[[maybe_unused]] void pack_pairs(const PackArgs& p) {
  const uint16_t* src = static_cast<const uint16_t*>(p.src);
  uint32_t* out = static_cast<uint32_t*>(p.out);
  const int64_t pairs = p.k / 2;
  if (p.k_stride == 1) {
    const char* row[32];
    for (int r = 0; r < p.rows; ++r) row[r] = reinterpret_cast<const char*>(src + p.rows_at[r]);
    pack_words(row, p.rows, p.height, pairs, reinterpret_cast<float*>(out));
  } else {
    for (int64_t k = 0; k < pairs; ++k)
      for (int r = 0; r < p.height; ++r) {
        const uint16_t* s = src + (r < p.rows ? p.rows_at[r] + 2 * k * p.k_stride : 0);
        out[k * p.height + r] = r < p.rows ? s[0] | static_cast<uint32_t>(s[p.k_stride]) << 16 : 0u;
      }
  }
  if (p.k % 2)
    for (int r = 0; r < p.height; ++r) out[pairs * p.height + r] = r < p.rows ? src[p.rows_at[r] + (p.k - 1) * p.k_stride] : 0u;
}

// Rows of 32 bf16 for tiles.
[[maybe_unused]] void pack_rows(const PackArgs& p) {
  const uint16_t* src = static_cast<const uint16_t*>(p.src);
  uint16_t* out = static_cast<uint16_t*>(p.out);
  for (int64_t k0 = 0; k0 < p.k; k0 += 32, out += 32 * p.height) {
    const int64_t run = p.k - k0 < 32 ? p.k - k0 : 32;
    for (int r = 0; r < p.height; ++r) {
      uint16_t* o = out + 32 * r;
      if (run < 32 || r >= p.rows) std::memset(o, 0, 64);
      if (r >= p.rows) continue;
      const uint16_t* s = src + p.rows_at[r] + k0 * p.k_stride;
      if (p.k_stride == 1)
        std::memcpy(o, s, static_cast<size_t>(2 * run));
      else
        for (int64_t i = 0; i < run; ++i) o[i] = s[i * p.k_stride];
    }
  }
}

}  // namespace
}  // namespace cpu
