// SPDX-License-Identifier: Apache-2.0
// A finished tile of sums to the result: rounded to its dtype, with a bias in between. Included by the files that are compiled
// per instruction set.
#pragma once

#include "../tables.hpp"
#include "finish.hpp"
#include "lanes.hpp"
#include "tessera/abi.h"

namespace cpu {
namespace {

// To nearest even; NaN becomes the quiet NaN.
inline uint16_t to_bf16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}
inline float bf16_to_float(uint16_t x) { return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16); }

// To nearest even by the addition of a power of two that leaves 10 bits of fraction; overflow gives infinity.
inline uint16_t to_f16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(0x7e00u);
  if (a >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (a < 0x38800000u) {  // subnormal results: units of 2^-24
    const float r = __builtin_bit_cast(float, a) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, r) - 0x3f000000u));
  }
  const uint32_t r = a + 0xfffu + (a >> 13 & 1);
  return static_cast<uint16_t>(sign | ((r - 0x38000000u) >> 13));
}
inline float f16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  const float m = rest < 0x400    ? static_cast<float>(rest) * 0x1p-24f
                  : rest < 0x7c00 ? __builtin_bit_cast(float, (rest << 13) + 0x38000000u)
                                  : __builtin_bit_cast(float, (rest << 13) | 0x7f800000u);
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, m) | sign);
}

// f32: bias and steps on the way to memory. Tiles of sums are whole vectors wide.
template <Chain C>
void store_f32(const StoreArgs& given, const FinishArgs& finish) {
  // What is known of a tile, of two vectors of columns, stays in registers: for all the compiler knows, a store could write to
  // what the arguments hold.
  const StoreArgs s = given;
  const Here<C> f(finish);
  float* const to = static_cast<float*>(s.out);
  for (int64_t j0 = 0; j0 < s.cols; j0 += 2 * kLanes) {
    const int64_t left = s.cols - j0;
    const auto rows = [&](auto whole) __attribute__((always_inline)) {
      const int n[2] = {whole ? kLanes : lanes_of(left), whole ? kLanes : static_cast<int>(left) - lanes_of(left)};
      Vec bias[2] = {}, factors[2] = {};
      for (int h = 0; h < 2; ++h) {
        if (n[h] <= 0) continue;
        if (s.bias) bias[h] = load_some(s.bias + j0 + h * kLanes, n[h]);
        if (s.column_factors) factors[h] = load_some(s.column_factors + j0 + h * kLanes, n[h]);
      }
      for (int64_t i = 0; i < s.rows; ++i) {
        // z - 0 is z for every z, and so is z + -0.
        const Vec of_row = splat(s.row_bias ? s.row_bias[i] : -0.0f);
        for (int h = 0; h < 2; ++h) {
          const int64_t j = j0 + h * kLanes;
          if (n[h] <= 0) continue;
          Vec sum = load(s.sums + i * s.ld + j);
          if (s.column_factors) sum = sum * (splat(s.row_factors[i]) * factors[h]);
          const Vec z = sum + (s.bias ? bias[h] : of_row);
          store_some(to + i * s.out_ld + j, finished<C>(z, f.args, i, j, n[h]), n[h]);
        }
      }
    };
    if (left >= 2 * kLanes)
      rows(std::true_type{});
    else
      rows(std::false_type{});
  }
}

[[maybe_unused]] void store_tile(const StoreArgs& s, const FinishArgs& f) {
  if (s.dtype == TSR_F32) return with_chain(f, [&](auto c) { store_f32<c()>(s, f); });
  for (int i = 0; i < s.rows; ++i) {
    const float* x = s.sums + i * s.ld;
    uint16_t* y = static_cast<uint16_t*>(s.out) + i * s.out_ld;
    if (s.dtype == TSR_BF16) {
      if (s.bias) {
#pragma omp simd
        for (int j = 0; j < s.cols; ++j) y[j] = to_bf16(bf16_to_float(to_bf16(x[j])) + s.bias[j]);
      } else {
#pragma omp simd
        for (int j = 0; j < s.cols; ++j) y[j] = to_bf16(x[j]);
      }
    } else {
      for (int j = 0; j < s.cols; ++j) {
        const uint16_t h = to_f16(x[j]);
        y[j] = s.bias ? to_f16(f16_to_float(h) + s.bias[j]) : h;
      }
    }
  }
}

}  // namespace
}  // namespace cpu
