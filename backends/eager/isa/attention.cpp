// SPDX-License-Identifier: Apache-2.0
// Attention of one head for a block of query rows, compiled once per ISA (contraction allowed). Online softmax (Milakov and Gimelshein
// 2018; Dao et al. 2022): keys are visited in blocks, the running maximum and sum of every row are corrected as they grow, and the
// score matrix is never stored.
#include "lanes.hpp"
#include "vec_math.hpp"

namespace eager {

void EAGER_ISA(attention)(const AttentionArgs& a) {
  constexpr int64_t kRows = kAttentionRows, kKeys = kAttentionKeys;
  float score[kRows * kKeys];
  float top[kRows], sum[kRows];
  for (int64_t i = 0; i < a.q_rows; ++i) {
    top[i] = -kInf<float>;
    sum[i] = 0.0f;
    for (int64_t c = 0; c < a.value; ++c) a.out[i * a.out_row + c] = 0.0f;
  }
  for (int64_t start = 0; start < a.kv_rows; start += kKeys) {
    const int64_t keys = a.kv_rows - start < kKeys ? a.kv_rows - start : kKeys;
    // Rows before `first` see none of these keys.
    int64_t first = 0;
    if (a.causal) {
      first = start - a.first_query;
      if (first < 0) first = 0;
      if (first >= a.q_rows) break;
    }
    const int64_t rows = a.q_rows - first;
    GemmArgs s{};
    s.m = rows, s.n = keys, s.k = a.head;
    s.a = a.q + first * a.q_row, s.a_m = a.q_row, s.a_k = a.q_col;
    s.b = a.k + start * a.k_row, s.b_k = a.k_col, s.b_n = a.k_row;
    s.c = score, s.c_m = kKeys;
    EAGER_ISA(gemm)(s);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = first + i;
      float* p = score + i * kKeys;
      int64_t seen = keys;
      if (a.causal) {
        const int64_t limit = a.first_query + row + 1 - start;
        if (limit < seen) seen = limit;
      }
      EAGER_SIMD
      for (int64_t j = 0; j < seen; ++j) p[j] *= a.scale;
      if (a.mask_bool) {
        const uint8_t* m = a.mask_bool + row * a.mask_row + start * a.mask_col;
        if (a.mask_col == 1) {
          EAGER_SIMD
          for (int64_t j = 0; j < seen; ++j) p[j] = m[j] ? p[j] : -kInf<float>;
        } else {
          for (int64_t j = 0; j < seen; ++j) p[j] = m[j * a.mask_col] ? p[j] : -kInf<float>;
        }
      } else if (a.mask_add) {
        const float* m = a.mask_add + row * a.mask_row + start * a.mask_col;
        if (a.mask_col == 1) {
          EAGER_SIMD
          for (int64_t j = 0; j < seen; ++j) p[j] += m[j];
        } else {
          for (int64_t j = 0; j < seen; ++j) p[j] += m[j * a.mask_col];
        }
      }
      const float block_top = MaxOp::run(top[row], chunk<MaxOp>(p, seen));
      float correction = 1.0f;
      if (block_top == -kInf<float>) {  // nothing seen so far
        EAGER_SIMD
        for (int64_t j = 0; j < seen; ++j) p[j] = 0.0f;
      } else {
        EAGER_SIMD
        for (int64_t j = 0; j < seen; ++j) p[j] = fexp(p[j] - block_top);
        correction = fexp(top[row] - block_top);
        sum[row] = sum[row] * correction + chunk<SumOp>(p, seen);
        top[row] = block_top;
      }
      for (int64_t j = seen; j < keys; ++j) p[j] = 0.0f;
      if (correction != 1.0f) {
        float* o = a.out + row * a.out_row;
        EAGER_SIMD
        for (int64_t c = 0; c < a.value; ++c) o[c] *= correction;
      }
    }
    GemmArgs o{};
    o.m = rows, o.n = a.value, o.k = keys;
    o.a = score, o.a_m = kKeys, o.a_k = 1;
    o.b = a.v + start * a.v_row, o.b_k = a.v_row, o.b_n = a.v_col;
    o.c = a.out + first * a.out_row, o.c_m = a.out_row;
    o.accumulate = true;
    EAGER_ISA(gemm)(o);
  }
  for (int64_t i = 0; i < a.q_rows; ++i) {
    float* o = a.out + i * a.out_row;
    if (top[i] == -kInf<float>) continue;  // sees no key: 0
    const float total = sum[i];
    EAGER_SIMD
    for (int64_t c = 0; c < a.value; ++c) o[c] /= total;
  }
}

}  // namespace eager
