// SPDX-License-Identifier: Apache-2.0
// Strassen's sums of quarters and the way back, compiled once per instruction set. Products here are by powers of two, so
// contraction changes no bit.
#include "strassen/tables.hpp"

#include <cmath>

#include "gemm/isa/lanes.hpp"

#define CPU_CAT2(a, b) a##b
#define CPU_CAT(a, b)  CPU_CAT2(a, b)

namespace cpu {
namespace {

constexpr int kNR = 2 * kLanes;
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));

[[gnu::always_inline]] inline Ints magnitude(Vec v) { return reinterpret_cast<Ints>(reinterpret_cast<Bits>(v) & 0x7fffffffu); }
[[gnu::always_inline]] inline void look_at(Vec v, Ints& largest, Ints& nonzero) {
  const Ints m = magnitude(v);
  largest = m > largest ? m : largest;
  nonzero -= m != 0;
}

void look(const float* row, int64_t k, StrassenLook* out) {
  Ints largest[2] = {}, nonzero[2] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= k; i += 2 * kLanes) {
    look_at(load(row + i), largest[0], nonzero[0]);
    look_at(load(row + i + kLanes), largest[1], nonzero[1]);
  }
  for (; i < k; i += kLanes) look_at(load_some(row + i, lanes_of(k - i)), largest[0], nonzero[0]);
  out->largest = 0, out->nonzero = 0;
  for (int l = 0; l < kLanes; ++l)
    for (int h = 0; h < 2; ++h) {
      const uint32_t m = static_cast<uint32_t>(largest[h][l]);
      out->largest = m > out->largest ? m : out->largest;
      out->nonzero += nonzero[h][l];
    }
}

void look_down(const float* panel, int64_t k, StrassenLook* out) {
  Ints largest[2] = {}, nonzero[2] = {};
  for (int64_t i = 0; i < k; ++i, panel += kNR)
    for (int h = 0; h < 2; ++h) look_at(load(panel + h * kLanes), largest[h], nonzero[h]);
  for (int l = 0; l < kNR; ++l)
    out[l] = {static_cast<uint32_t>(largest[l / kLanes][l % kLanes]), nonzero[l / kLanes][l % kLanes]};
}

void scale_columns(float* panel, int64_t k, const float* factors) {
  const Vec f[2] = {load(factors), load(factors + kLanes)};
  for (int64_t i = 0; i < k; ++i, panel += kNR)
    for (int h = 0; h < 2; ++h) store(panel + h * kLanes, load(panel + h * kLanes) * f[h]);
}

// A whole vector of each quarter, or what exists of it.
template <bool kPlain, bool kWhole>
[[gnu::always_inline]] inline void left_sum(const StrassenLeft& s, int64_t k, Vec upper, Vec lower) {
  const auto in = [&](const float* row, int64_t have) __attribute__((always_inline)) {
    if constexpr (kWhole) return load(row);
    return have > 0 ? load_some(row, lanes_of(have)) : Vec{};
  };
  const Vec a11 = in(s.upper + k, s.first - k) * upper, a12 = in(s.upper + s.half + k, s.second - k) * upper,
            a21 = in(s.lower + k, s.first - k) * lower, a22 = in(s.lower + s.half + k, s.second - k) * lower;
  float* const out = s.out + k;
  const auto put = [&](int q, Vec v) __attribute__((always_inline)) { store(out + q * s.product, v); };
  if constexpr (kPlain) {
    put(0, a11), put(1, a12), put(2, a21), put(3, a22);
  } else {
    put(0, a11 + a22), put(1, a12 - a22), put(2, a22), put(3, a11 + a12), put(4, a11), put(5, a21 + a22), put(6, a21 - a11);
  }
}

template <bool kPlain>
void left_sums(const StrassenLeft& s) {
  const Vec upper = splat(s.upper_scale), lower = splat(s.lower_scale);
  const int64_t whole = s.first < s.second ? s.first : s.second;
  int64_t k = 0;
  for (; k + kLanes <= whole; k += kLanes) left_sum<kPlain, true>(s, k, upper, lower);
  for (; k < s.count; k += kLanes) left_sum<kPlain, false>(s, k, upper, lower);
}
void left(const StrassenLeft& s) { s.plain ? left_sums<true>(s) : left_sums<false>(s); }

[[gnu::always_inline]] inline bool any(Ints mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(mask), reinterpret_cast<__m512i>(mask)) != 0;
#elif defined(__AVX2__)
  return !_mm256_testz_si256(reinterpret_cast<__m256i>(mask), reinterpret_cast<__m256i>(mask));
#else
  int32_t some = 0;
  for (int i = 0; i < kLanes; ++i) some |= mask[i];
  return some != 0;
#endif
}

// x + y, rounded so that subtracting x again leaves the sign of y.
[[gnu::always_inline]] inline Vec revocable(Vec x, Vec y) {
  Vec sum = x + y;
  const Vec back = sum - x, zero{};
  if (__builtin_expect(any(((back > zero) != (y > zero)) | ((back < zero) != (y < zero))), 0))
    for (int i = 0; i < kLanes; ++i)
      if ((back[i] > 0) != (y[i] > 0) || (back[i] < 0) != (y[i] < 0)) sum[i] = std::nextafter(x[i], y[i] > 0 ? 4.0f : -4.0f);
  return sum;
}

void right(const StrassenRight& s) {
  const int64_t step = s.k * kNR;
  for (int64_t i = 0; i < step; i += kLanes) {
    const Vec b11 = load(s.b11 + i), b12 = load(s.b12 + i), b21 = load(s.b21 + i), b22 = load(s.b22 + i);
    float* o = s.out + i;
    store(o, b11 + b22);
    store(o + step, revocable(b22, b21));
    store(o + 2 * step, b21 - b11);
    store(o + 3 * step, b22);
    store(o + 4 * step, b12 - b22);
    store(o + 5 * step, b11);
    store(o + 6 * step, revocable(b11, b12));
  }
}

void back(const StrassenBack& s) {
  const int64_t step = s.k * kNR;
  for (int64_t i = 0; i < step; i += kLanes) {
    const int64_t j = i % kNR;
    const Vec l = load(s.left_factor + j), r = load(s.right_factor + j);
    const Vec b11 = load(s.sums + 5 * step + i), b22 = load(s.sums + 3 * step + i);
    store(s.out + i, b11 * l);
    store(s.out + step + i, (load(s.sums + 6 * step + i) - b11) * r);
    store(s.out + 2 * step + i, (load(s.sums + step + i) - b22) * l);
    store(s.out + 3 * step + i, b22 * r);
  }
}

}  // namespace

const StrassenIsa& CPU_CAT(strassen_, CPU_ISA_NAME)() {
  static constexpr StrassenIsa t{look, look_down, scale_columns, left, right, back};
  return t;
}

}  // namespace cpu
