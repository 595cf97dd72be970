// SPDX-License-Identifier: Apache-2.0
// f32 matrix product of one block, compiled once per ISA (contraction allowed: dot products are exempt from the bit-for-bit
// rules). Goto and van de Geijn 2008: A packed by MR rows, B by NR columns, a micro-kernel that holds MR x NR sums in
// registers. Every element of C sums its products in the order of k, so the result does not depend on how C is split among
// threads.
#include "lanes.hpp"

namespace eager {
namespace {

using V = Vec<float>;
constexpr int64_t kV = VecOf<float>::width;
#if defined(__AVX512F__)
constexpr int kMR = 14;  // 28 accumulators of 32 registers
#else
constexpr int kMR = 6;  // 12 of 16
#endif
constexpr int64_t kNR = 2 * kV;
constexpr int64_t kKC = 256, kMC = kMR == 14 ? 112 : 96, kNC = 128;

[[gnu::always_inline]] inline V splat(float x) {
  return x - V{};
}  // x - 0 is x, and the compiler knows; 0 + x would turn -0 into 0

// acc = sum over p of a[p * kMR ..] x b[p * b_step ..]
template <int MR>
[[gnu::always_inline]] inline void kernel(int64_t kc, const float* a, int64_t a_m, int64_t a_k, const float* b, int64_t b_step,
                                          V (&acc)[MR][2]) {
  for (auto& row : acc) row[0] = row[1] = V{};
  for (int64_t p = 0; p < kc; ++p) {
    const V b0 = vload(b + p * b_step), b1 = vload(b + p * b_step + kV);
#pragma GCC unroll 14
    for (int i = 0; i < MR; ++i) {
      const V x = splat(a[i * a_m + p * a_k]);
      acc[i][0] += x * b0;
      acc[i][1] += x * b1;
    }
  }
}

// C block of `rows` x `cols` = acc (+ C unless `first`) (+ bias, which comes with the last block of k).
template <int MR>
[[gnu::always_inline]] inline void update(V (&acc)[MR][2], float* c, int64_t c_m, int64_t rows, int64_t cols, bool first,
                                          const float* bias) {
  if (cols == kNR) {
    V b0 = V{}, b1 = V{};
    if (bias) b0 = vload(bias), b1 = vload(bias + kV);
#pragma GCC unroll 14
    for (int i = 0; i < MR; ++i) {
      if (i >= rows) break;
      float* row = c + i * c_m;
      V s0 = acc[i][0], s1 = acc[i][1];
      if (!first) s0 += vload(row), s1 += vload(row + kV);
      vstore(row, s0 + b0);
      vstore(row + kV, s1 + b1);
    }
    return;
  }
  for (int i = 0; i < MR && i < rows; ++i) {
    float tile[kNR];
    vstore(tile, acc[i][0]);
    vstore(tile + kV, acc[i][1]);
    float* row = c + i * c_m;
    for (int64_t j = 0; j < cols; ++j) row[j] = (first ? tile[j] : tile[j] + row[j]) + (bias ? bias[j] : 0.0f);
  }
}

// Panels of kNR columns, k major within each; missing columns are zero.
void pack_b(const float* b, int64_t b_k, int64_t b_n, int64_t kc, int64_t n, float* out) {
  for (int64_t j = 0; j < n; j += kNR, out += kc * kNR) {
    const int64_t cols = n - j < kNR ? n - j : kNR;
    const float* src = b + j * b_n;
    if (cols == kNR && b_n == 1) {
      for (int64_t p = 0; p < kc; ++p) {
        vstore(out + p * kNR, vload(src + p * b_k));
        vstore(out + p * kNR + kV, vload(src + p * b_k + kV));
      }
    } else if (b_k == 1) {
      // Rows of B^T are contiguous: 8 values of k at a time for every column keep both sides within a few cache lines.
      for (int64_t p = 0; p < kc; p += 8) {
        const int64_t m = kc - p < 8 ? kc - p : 8;
        float* dst = out + p * kNR;
        for (int64_t c = 0; c < cols; ++c) {
          const float* s = src + c * b_n + p;
          if (m == 8) {
#pragma GCC unroll 8
            for (int64_t i = 0; i < 8; ++i) dst[i * kNR + c] = s[i];
          } else {
            for (int64_t i = 0; i < m; ++i) dst[i * kNR + c] = s[i];
          }
        }
        for (int64_t c = cols; c < kNR; ++c)
          for (int64_t i = 0; i < m; ++i) dst[i * kNR + c] = 0.0f;
      }
    } else {
      for (int64_t p = 0; p < kc; ++p) {
        for (int64_t c = 0; c < cols; ++c) out[p * kNR + c] = src[p * b_k + c * b_n];
        for (int64_t c = cols; c < kNR; ++c) out[p * kNR + c] = 0.0f;
      }
    }
  }
}

void pack_a(const float* a, int64_t a_m, int64_t a_k, int64_t m, int64_t kc, float* out) {
  for (int64_t i = 0; i < m; i += kMR, out += kc * kMR) {
    const int64_t rows = m - i < kMR ? m - i : kMR;
    for (int64_t r = 0; r < rows; ++r) {
      const float* src = a + (i + r) * a_m;
      for (int64_t p = 0; p < kc; ++p) out[p * kMR + r] = src[p * a_k];
    }
    for (int64_t r = rows; r < kMR; ++r)
      for (int64_t p = 0; p < kc; ++p) out[p * kMR + r] = 0.0f;
  }
}

// Few rows of A: packing would cost more than it saves.
template <int MR>
void few_rows(const GemmArgs& g) {
  int64_t j = 0;
  V acc[MR][2];
  for (; j + kNR <= g.n; j += kNR) {
    kernel<MR>(g.k, g.a, g.a_m, g.a_k, g.b + j, g.b_k, acc);
    update<MR>(acc, g.c + j, g.c_m, MR, kNR, !g.accumulate, g.bias ? g.bias + j : nullptr);
  }
  if (j == g.n) return;
  float panel[kKC * kNR];
  const int64_t cols = g.n - j;
  for (int64_t p = 0; p < g.k; p += kKC) {
    const int64_t kc = g.k - p < kKC ? g.k - p : kKC;
    pack_b(g.b + p * g.b_k + j, g.b_k, 1, kc, cols, panel);
    kernel<MR>(kc, g.a + p * g.a_k, g.a_m, g.a_k, panel, kNR, acc);
    update<MR>(acc, g.c + j, g.c_m, MR, cols, p == 0 && !g.accumulate, g.bias && p + kc == g.k ? g.bias + j : nullptr);
  }
}

[[gnu::always_inline]] inline float sum(V v) {
  float x[kV];
  vstore(x, v);
  for (int64_t w = kV / 2; w > 0; w /= 2)
    for (int64_t i = 0; i < w; ++i) x[i] += x[i + w];
  return x[0];
}

// Rows of A against rows of B^T, both contiguous: R x 4 dot products at a time.
template <int R>
void dots(const GemmArgs& g) {
  for (int64_t j = 0; j < g.n; j += 4) {
    const int64_t cols = g.n - j < 4 ? g.n - j : 4;
    const float* b[4];
    for (int64_t c = 0; c < 4; ++c) b[c] = g.b + (j + (c < cols ? c : cols - 1)) * g.b_n;
    V acc[R][4];
    for (auto& row : acc)
      for (V& v : row) v = V{};
    int64_t p = 0;
    for (; p + kV <= g.k; p += kV) {
      const V b0 = vload(b[0] + p), b1 = vload(b[1] + p), b2 = vload(b[2] + p), b3 = vload(b[3] + p);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const V x = vload(g.a + r * g.a_m + p);
        acc[r][0] += x * b0;
        acc[r][1] += x * b1;
        acc[r][2] += x * b2;
        acc[r][3] += x * b3;
      }
    }
    for (int r = 0; r < R; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        float s = sum(acc[r][c]);
        for (int64_t q = p; q < g.k; ++q) s += g.a[r * g.a_m + q] * b[c][q];
        float& out = g.c[r * g.c_m + j + c];
        if (g.accumulate) s += out;
        out = s + (g.bias ? g.bias[j + c] : 0.0f);
      }
  }
}

template <int Rows>
void rows_of(const GemmArgs& g) {
  if (g.b_n == 1)
    few_rows<Rows>(g);
  else
    dots<Rows>(g);
}

}  // namespace

void EAGER_ISA(gemm)(const GemmArgs& g) {
  if (g.k == 0) {
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j)
        g.c[i * g.c_m + j] = (g.accumulate ? g.c[i * g.c_m + j] : 0.0f) + (g.bias ? g.bias[j] : 0.0f);
    return;
  }
  if (g.m <= 4 && !g.packed && (g.b_n == 1 || (g.b_k == 1 && g.a_k == 1))) {
    switch (g.m) {
      case 0: return;
      case 1: return rows_of<1>(g);
      case 2: return rows_of<2>(g);
      case 3: return rows_of<3>(g);
      default: return rows_of<4>(g);
    }
  }
  alignas(64) float pa[kMC * kKC];
  alignas(64) float pb[kNC * kKC];
  for (int64_t jc = 0; jc < g.n; jc += kNC) {
    const int64_t nc = g.n - jc < kNC ? g.n - jc : kNC;
    for (int64_t pc = 0; pc < g.k; pc += kKC) {
      const int64_t kc = g.k - pc < kKC ? g.k - pc : kKC;
      pack_b(g.b + pc * g.b_k + jc * g.b_n, g.b_k, g.b_n, kc, nc, pb);
      for (int64_t ic = 0; ic < g.m; ic += kMC) {
        const int64_t mc = g.m - ic < kMC ? g.m - ic : kMC;
        pack_a(g.a + ic * g.a_m + pc * g.a_k, g.a_m, g.a_k, mc, kc, pa);
        for (int64_t j = 0; j < nc; j += kNR)
          for (int64_t i = 0; i < mc; i += kMR) {
            V acc[kMR][2];
            kernel<kMR>(kc, pa + i * kc, 1, kMR, pb + j * kc, kNR, acc);
            update<kMR>(acc, g.c + (ic + i) * g.c_m + jc + j, g.c_m, mc - i, nc - j < kNR ? nc - j : kNR,
                        pc == 0 && !g.accumulate, g.bias && pc + kc == g.k ? g.bias + jc + j : nullptr);
          }
      }
    }
  }
}

}  // namespace eager
