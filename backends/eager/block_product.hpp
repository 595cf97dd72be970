// SPDX-License-Identifier: Apache-2.0
// Products of small blocks in any compute type, shared by contractions and convolutions.
#pragma once

#include "build.hpp"

namespace eager {

inline constexpr int64_t kBlockM = 96, kBlockN = 64, kBlockK = 128;

// c[i][j] += sum over p of a[i][p] * b[p][j]; rows of a are kBlockK apart, those of b and c kBlockN. f32 goes through the ISA's
// product.
template <class T>
void multiply_block(const Isa& isa, const T* a, const T* b, T* c, int64_t m, int64_t n, int64_t k) {
  if constexpr (std::is_same_v<T, float>) {
    GemmArgs g{};
    g.m = m, g.n = n, g.k = k;
    g.a = a, g.a_m = kBlockK, g.a_k = 1;
    g.b = b, g.b_k = kBlockN, g.b_n = 1;
    g.c = c, g.c_m = kBlockN;
    g.accumulate = true;
    isa.gemm(g);
    return;
  }
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p) {
      const T x = a[i * kBlockK + p];
      const T* row = b + p * kBlockN;
      T* out = c + i * kBlockN;
      if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>) {
        for (int64_t j = 0; j < n; ++j) {
          out[j].re += x.re * row[j].re - x.im * row[j].im;
          out[j].im += x.re * row[j].im + x.im * row[j].re;
        }
      } else {
        for (int64_t j = 0; j < n; ++j) out[j] += x * row[j];
      }
    }
}

// n elements from `index` on as T: loaded as the dtype's compute type, then converted (integers wrap or widen).
template <class T>
void load_as_type(const Isa& isa, uint32_t dtype, const void* base, int64_t index, int64_t step, int64_t n, T* dst,
                  int64_t dst_step) {
  alignas(64) char run[kTile * 16];
  for (int64_t done = 0; done < n; done += kTile) {
    const int64_t m = n - done < kTile ? n - done : kTile;
    load_run(isa, dtype, base, index + done * step, step, m, run);
    with_comp(comp_of(dtype), [&](auto zero) {
      using S = decltype(zero);
      const S* s = reinterpret_cast<const S*>(run);
      T* d = dst + done * dst_step;
      if constexpr (std::is_same_v<S, T>) {
        for (int64_t j = 0; j < m; ++j) d[j * dst_step] = s[j];
      } else if constexpr (std::is_arithmetic_v<S> && std::is_arithmetic_v<T>) {
        for (int64_t j = 0; j < m; ++j) d[j * dst_step] = static_cast<T>(s[j]);
      }
    });
  }
}

// n sums in T, rounded or wrapped once to `dtype`. T stands for the compute type with unsigned integers in the place of signed
// ones.
template <class T>
void store_as_type(const Isa& isa, uint32_t dtype, void* base, int64_t index, int64_t n, const T* values) {
  using Own = std::conditional_t<std::is_same_v<T, uint32_t>, int32_t, T>;
  const Comp comp = comp_of(dtype);
  if (comp == CompOf<Own>::value || (comp == Comp::I64 && std::is_same_v<T, uint64_t>))
    return store_run(isa, dtype, base, index, n, values);
  if constexpr (std::is_arithmetic_v<T>)
    for (int64_t j = 0; j < n; ++j) tessera::store_from(dtype, base, index + j, values[j]);
}

template <class T>
T add(T a, T b) {
  if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>)
    return {a.re + b.re, a.im + b.im};
  else
    return static_cast<T>(a + b);
}

// Calls f with a zero of the type in which products of `comp` accumulate: integers as unsigned ones, which wrap.
template <class F>
void with_accumulator(Comp comp, F f) {
  switch (comp) {
    case Comp::F64: return f(double{});
    case Comp::I32: return f(uint32_t{});
    case Comp::I64:
    case Comp::U64: return f(uint64_t{});
    case Comp::C64: return f(C64{});
    case Comp::C128: return f(C128{});
    default: return f(float{});
  }
}

}  // namespace eager
