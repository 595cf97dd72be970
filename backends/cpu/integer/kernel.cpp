// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstring>

#include "integer/tables.hpp"

namespace cpu {
namespace {

#if defined(__AVX512VNNI__)
#define CPU_INTEGER_TABLE integer_avx512_vnni
#define CPU_INTEGER_NAME  "avx512_vnni"
#elif defined(__AVX512BW__)
#define CPU_INTEGER_TABLE integer_avx512
#define CPU_INTEGER_NAME  "avx512"
#elif defined(__AVX2__)
#define CPU_INTEGER_TABLE integer_avx2
#define CPU_INTEGER_NAME  "avx2"
#else
#define CPU_INTEGER_TABLE integer_baseline
#define CPU_INTEGER_NAME  "baseline"
#endif

// A vector of words, and sum + products of two of them. kUnsignedLeft: which side of a quad is unsigned.
#if defined(__AVX512BW__)
using Vec = __m512i;
constexpr int kMR = 14;
Vec load(const void* p) { return _mm512_loadu_si512(p); }
void store(void* p, Vec v) { _mm512_storeu_si512(p, v); }
Vec splat(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
Vec zero() { return _mm512_setzero_si512(); }
#if defined(__AVX512VNNI__)
constexpr int kPer = 4;
template <bool kUnsignedLeft>
Vec add_products(Vec sum, Vec left, Vec right) {
  return kUnsignedLeft ? _mm512_dpbusd_epi32(sum, left, right) : _mm512_dpbusd_epi32(sum, right, left);
}
#else
constexpr int kPer = 2;
template <bool>
Vec add_products(Vec sum, Vec left, Vec right) {
  return _mm512_add_epi32(sum, _mm512_madd_epi16(left, right));
}
#endif
#elif defined(__AVX2__)
using Vec = __m256i;
constexpr int kMR = 6, kPer = 2;
Vec load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
void store(void* p, Vec v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
Vec splat(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
Vec zero() { return _mm256_setzero_si256(); }
template <bool>
Vec add_products(Vec sum, Vec left, Vec right) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(left, right));
}
#else
using Vec = __m128i;
constexpr int kMR = 4, kPer = 2;
Vec load(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
void store(void* p, Vec v) { _mm_storeu_si128(static_cast<__m128i*>(p), v); }
Vec splat(uint32_t x) { return _mm_set1_epi32(static_cast<int>(x)); }
Vec zero() { return _mm_setzero_si128(); }
template <bool>
Vec add_products(Vec sum, Vec left, Vec right) {
  return _mm_add_epi32(sum, _mm_madd_epi16(left, right));
}
#endif
constexpr int kLanes = sizeof(Vec) / 4, kNR = 2 * kLanes;

template <int H, bool kUnsignedLeft>
void micro(int64_t words, const uint32_t* left, const uint32_t* right, int32_t* sums) {
  Vec acc[H][2];
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) acc[i][0] = acc[i][1] = zero();
  for (int64_t w = 0; w < words; ++w, left += H, right += kNR) {
    const Vec b0 = load(right), b1 = load(right + kLanes);
    __builtin_prefetch(right + 16 * kNR);
    __builtin_prefetch(right + 16 * kNR + 16);
#pragma GCC unroll 16
    for (int i = 0; i < H; ++i) {
      const Vec a = splat(left[i]);
      acc[i][0] = add_products<kUnsignedLeft>(acc[i][0], a, b0);
      acc[i][1] = add_products<kUnsignedLeft>(acc[i][1], a, b1);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < H; ++i) {
    store(sums + i * kNR, acc[i][0]);
    store(sums + i * kNR + kLanes, acc[i][1]);
  }
}

// Element j of a word.
uint32_t element(uint8_t byte, int j, Elements e) {
  if constexpr (kPer == 4) return static_cast<uint32_t>(static_cast<uint8_t>(byte ^ (e.flip ? 0x80 : 0))) << (8 * j);
  const int wide = e.is_signed ? static_cast<int8_t>(byte) : byte;
  return static_cast<uint32_t>(static_cast<uint16_t>(wide)) << (16 * j);
}

uint32_t word_of(const uint8_t* p, int64_t stride, int64_t count, Elements e) {
  uint32_t word = 0;
  for (int j = 0; j < count; ++j) word |= element(p[j * stride], j, e);
  return word;
}

// Rows whose bytes are side by side, a block of 16 words of each at a time so that what is written stays in the nearest cache.
void pack_dense(const PackWords& p, int64_t whole) {
  constexpr int64_t kBlock = 16;
  for (int64_t first = 0; first < whole; first += kBlock) {
    const int64_t last = first + kBlock < whole ? first + kBlock : whole;
    for (int r = 0; r < p.rows; ++r) {
      const uint8_t* from = p.src + p.at[r];
      for (int64_t w = first; w < last; ++w) {
        uint32_t word;
        if constexpr (kPer == 4) {
          std::memcpy(&word, from + 4 * w, 4);
          word ^= p.elements.flip ? 0x80808080u : 0u;
        } else {
          const uint8_t a = from[2 * w], b = from[2 * w + 1];
          const int x = p.elements.is_signed ? static_cast<int8_t>(a) : a,
                    y = p.elements.is_signed ? static_cast<int8_t>(b) : b;
          word = static_cast<uint32_t>(static_cast<uint16_t>(x)) | static_cast<uint32_t>(y) << 16;
        }
        p.out[w * p.height + r] = word;
      }
    }
  }
}

void pack(const PackWords& p) {
  const int64_t words = (p.k + kPer - 1) / kPer, whole = p.k / kPer;
  int64_t done = 0;
  if (p.k_stride == 1) pack_dense(p, whole), done = whole;
  for (int64_t w = done; w < words; ++w) {
    const int64_t count = p.k - w * kPer < kPer ? p.k - w * kPer : kPer;
    for (int r = 0; r < p.rows; ++r)
      p.out[w * p.height + r] = word_of(p.src + p.at[r] + w * kPer * p.k_stride, p.k_stride, count, p.elements);
  }
  if (p.rows < p.height)
    for (int64_t w = 0; w < words; ++w)
      std::memset(p.out + w * p.height + p.rows, 0, static_cast<size_t>(p.height - p.rows) * 4);
}

template <bool kSigned>
void interleave_as(const Interleave& p, uint32_t flip) {
  const uint8_t *a = p.from[0], *b = p.from[1];
  uint32_t* out = p.out;
  if constexpr (kPer == 4) {
    const uint8_t *c = p.from[2], *d = p.from[3];
#pragma omp simd
    for (int64_t i = 0; i < p.count; ++i)
      out[i] = (static_cast<uint32_t>(a[i]) | static_cast<uint32_t>(b[i]) << 8 | static_cast<uint32_t>(c[i]) << 16 |
                static_cast<uint32_t>(d[i]) << 24) ^
               flip;
  } else {
#pragma omp simd
    for (int64_t i = 0; i < p.count; ++i) {
      const int x = kSigned ? static_cast<int>(static_cast<int8_t>(a[i])) : a[i],
                y = kSigned ? static_cast<int>(static_cast<int8_t>(b[i])) : b[i];
      out[i] = (static_cast<uint32_t>(x) & 0xffffu) | static_cast<uint32_t>(y) << 16;
    }
  }
}
void interleave(const Interleave& p) {
  bool whole = true;
  for (int j = 0; j < kPer; ++j) whole = whole && p.from[j];
  if (whole)
    return p.elements.is_signed ? interleave_as<true>(p, p.elements.flip ? 0x80808080u : 0u)
                                : interleave_as<false>(p, p.elements.flip ? 0x80808080u : 0u);
  for (int64_t i = 0; i < p.count; ++i) {
    p.out[i] = 0;
    for (int j = 0; j < kPer; ++j)
      if (p.from[j]) p.out[i] |= element(p.from[j][i], j, p.elements);
  }
}

void take(const uint32_t* from, int64_t step, int64_t count, uint32_t* to) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  } else if (step == 2) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[2 * i];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[step * i];
  }
}

void add_up(const uint32_t* words, int64_t count, int width, bool is_signed, int32_t* sums) {
  for (int64_t w = 0; w < count; ++w, words += width) {
#pragma omp simd
    for (int j = 0; j < width; ++j) {
      const uint32_t x = words[j];
      if constexpr (kPer == 4)
        sums[j] += is_signed ? static_cast<int8_t>(x) + static_cast<int8_t>(x >> 8) + static_cast<int8_t>(x >> 16) +
                                   static_cast<int8_t>(x >> 24)
                             : static_cast<int>((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24));
      else
        sums[j] += static_cast<int16_t>(x) + static_cast<int16_t>(x >> 16);
    }
  }
}

void store_sums(const StoreSums& s) {
  for (int r = 0; r < s.rows; ++r) {
    const auto* sums = reinterpret_cast<const uint32_t*>(s.sums + r * kNR);
    const auto* column = reinterpret_cast<const uint32_t*>(s.column);
    auto* out = reinterpret_cast<uint32_t*>(s.out + r * s.ld);
    const auto row = static_cast<uint32_t>(s.row[r]);
    if (!s.by_row) {
#pragma omp simd
      for (int j = 0; j < s.cols; ++j) out[j] = sums[j] - row - column[j];
      continue;
    }
    const auto by_row = static_cast<uint32_t>(s.by_row[r]);
    const auto* by_column = reinterpret_cast<const uint32_t*>(s.by_column);
#pragma omp simd
    for (int j = 0; j < s.cols; ++j) out[j] = sums[j] - row - column[j] - by_row * by_column[j];
  }
}

template <int... H>
constexpr IntegerIsa table() {
  IntegerIsa t{.name = CPU_INTEGER_NAME,
               .mr = kMR,
               .nr = kNR,
               .per = kPer,
               .unsigned_left = {},
               .unsigned_right = {},
               .pack = pack,
               .interleave = interleave,
               .take = take,
               .add_up = add_up,
               .store = store_sums};
  ((t.unsigned_left[H] = micro<H, true>), ...);
  ((t.unsigned_right[H] = micro<H, false>), ...);
  return t;
}

}  // namespace

const IntegerIsa& CPU_INTEGER_TABLE() {
#if defined(__AVX512BW__)
  static constexpr IntegerIsa t = table<1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14>();
#elif defined(__AVX2__)
  static constexpr IntegerIsa t = table<1, 2, 3, 4, 5, 6>();
#else
  static constexpr IntegerIsa t = table<1, 2, 3, 4>();
#endif
  return t;
}

}  // namespace cpu
