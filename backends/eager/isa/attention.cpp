// SPDX-License-Identifier: Apache-2.0
// Attention of one head for a block of query rows, compiled once per ISA (contraction allowed). Online softmax (Milakov and
// Gimelshein 2018; Dao et al. 2022): keys are visited in blocks, the running maximum and sum of every row are corrected as they
// grow, and the score matrix is never stored.
#include "lanes.hpp"
#include "left_rows.hpp"
#include "vec_math.hpp"

namespace eager {
namespace {

constexpr int64_t kRows = kAttentionRows, kKeys = kAttentionKeys;
static_assert(kKeys % kNR == 0 && kKeys <= kLeftStride);
constexpr int64_t kFewRows = 4;  // these are not worth panels of keys and values

// What one call works in; some 100 KiB of stack.
struct Space {
  alignas(64) float queries[kRows * kLeftStride];  // a piece of at most kKeys elements of each
  alignas(64) float score[kRows * kLeftStride];    // then weights
  alignas(64) float panel[kKeys * kNR];
  alignas(64) float tail[kRows * kNR];
};

// score[i][j] = q[first + i] . k[start + j]; columns behind `keys`, up to a multiple of kNR, become 0.
void scores(const AttentionArgs& a, int64_t first, int64_t rows, int64_t start, int64_t keys, Space& s) {
  const float* q = a.q + first * a.q_row;
  const float* k = a.k + start * a.k_row;
  if (rows <= kFewRows) {
    GemmArgs g{};
    g.m = rows, g.n = keys, g.k = a.head;
    g.a = q, g.a_m = a.q_row, g.a_k = a.q_col;
    g.b = k, g.b_k = a.k_col, g.b_n = a.k_row;
    g.c = s.score, g.c_m = kLeftStride;
    return EAGER_ISA(gemm)(g);
  }
  for (int64_t p = 0; p == 0 || p < a.head; p += kKeys) {
    const int64_t count = a.head - p < kKeys ? a.head - p : kKeys;
    copy_left(q + p * a.q_col, a.q_row, a.q_col, rows, count, s.queries);
    for (int64_t j = 0; j < keys; j += kNR) {
      pack_columns(k + p * a.k_col + j * a.k_row, a.k_col, a.k_row, count, keys - j < kNR ? keys - j : kNR, s.panel);
      multiply_rows(rows, count, s.queries, s.panel, kNR, s.score + j, kLeftStride, p > 0);
    }
  }
}

// out[first + i] (+)= sum over j of score[i][j] v[start + j]
void add_values(const AttentionArgs& a, int64_t first, int64_t rows, int64_t start, int64_t keys, Space& s) {
  const float* v = a.v + start * a.v_row;
  float* out = a.out + first * a.out_row;
  if (rows <= kFewRows) {
    GemmArgs g{};
    g.m = rows, g.n = a.value, g.k = keys;
    g.a = s.score, g.a_m = kLeftStride, g.a_k = 1;
    g.b = v, g.b_k = a.v_row, g.b_n = a.v_col;
    g.c = out, g.c_m = a.out_row;
    g.accumulate = start > 0;
    return EAGER_ISA(gemm)(g);
  }
  for (int64_t c = 0; c < a.value; c += kNR) {
    const int64_t columns = a.value - c < kNR ? a.value - c : kNR;
    const bool there = a.v_col == 1 && columns == kNR;
    if (!there) pack_columns(v + c * a.v_col, a.v_row, a.v_col, keys, columns, s.panel);
    const float* b = there ? v + c : s.panel;
    const int64_t step = there ? a.v_row : kNR;
    if (columns == kNR) {
      multiply_rows(rows, keys, s.score, b, step, out + c, a.out_row, start > 0);
      continue;
    }
    multiply_rows(rows, keys, s.score, b, step, s.tail, kNR, false);
    for (int64_t i = 0; i < rows; ++i) {
      float* o = out + i * a.out_row + c;
      for (int64_t j = 0; j < columns; ++j) o[j] = (start > 0 ? o[j] : 0.0f) + s.tail[i * kNR + j];
    }
  }
}

float top_of(const float* p, int64_t n) {  // n: whole vectors
  V top = splat(-kInf<float>);
  for (int64_t j = 0; j < n; j += kV) top = MaxOp::run(top, vload(p + j));
  float lanes[kV];
  vstore(lanes, top);
  return fold_lanes<MaxOp>(lanes, kV);
}

float sum_of(const float* p, int64_t n) {
  V sum{};
  for (int64_t j = 0; j < n; j += kV) sum += vload(p + j);
  float lanes[kV];
  vstore(lanes, sum);
  return fold_lanes<SumOp>(lanes, kV);
}

// Scores of one row to weights, of which those it does not see are 0. `p` has whole vectors.
void weigh(const AttentionArgs& a, int64_t row, int64_t start, int64_t keys, float* p, float& top, float& sum) {
  int64_t seen = keys;
  if (a.causal) {
    const int64_t limit = a.first_query + row + 1 - start;
    if (limit < seen) seen = limit;
  }
  const int64_t whole = (seen + kV - 1) / kV * kV;
  EAGER_SIMD
  for (int64_t j = 0; j < whole; ++j) p[j] *= a.scale;
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
  for (int64_t j = seen; j < whole; ++j) p[j] = -kInf<float>;
  const float block_top = MaxOp::run(top, top_of(p, whole));
  if (block_top == -kInf<float>) {  // nothing seen so far
    for (int64_t j = 0; j < keys; ++j) p[j] = 0.0f;
    return;
  }
  EAGER_SIMD
  for (int64_t j = 0; j < whole; ++j) p[j] = fexp(p[j] - block_top);
  const float correction = fexp(top - block_top);
  sum = sum * correction + sum_of(p, whole);
  top = block_top;
  for (int64_t j = seen; j < keys; ++j) p[j] = 0.0f;
  if (start == 0 || correction == 1.0f) return;
  float* o = a.out + row * a.out_row;
  EAGER_SIMD
  for (int64_t c = 0; c < a.value; ++c) o[c] *= correction;
}

}  // namespace

void EAGER_ISA(attention)(const AttentionArgs& a) {
  Space s;
  float top[kRows], sum[kRows];
  for (int64_t i = 0; i < a.q_rows; ++i) top[i] = -kInf<float>, sum[i] = 0.0f;
  if (a.kv_rows == 0)
    for (int64_t i = 0; i < a.q_rows; ++i) std::fill_n(a.out + i * a.out_row, a.value, 0.0f);
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
    scores(a, first, rows, start, keys, s);
    for (int64_t i = 0; i < rows; ++i)
      weigh(a, first + i, start, keys, s.score + i * kLeftStride, top[first + i], sum[first + i]);
    add_values(a, first, rows, start, keys, s);
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
