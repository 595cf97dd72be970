// SPDX-License-Identifier: Apache-2.0
// What is compiled once per instruction set for attention. Queries lie side by side in lanes, `width` of them (the columns of a
// product's panel), so the greatest score and the sum of a query's weights need no horizontal steps, and weights are the right
// side of the second product as they are.
#pragma once

#include <cstdint>

namespace cpu {

// Scores of `keys` keys, scores[key * width + query], become weights exp(score * scale + mask - top) in place. Vectors without
// queries are not looked at.
struct WeighArgs {
  float* scores;
  int64_t keys;
  int width, queries;  // queries: how many are not padding
  float scale;
  // Null, or: one value for all queries, `mask_step` elements between keys, or, where `mask_by_query`, [key][width] with
  // mask_step == width.
  const float* mask_add;
  bool mask_by_query;
  int64_t mask_step;
  const uint8_t* mask_bool;    // of the first of these keys and queries, or null; 0: not seen
  int64_t mask_row, mask_col;  // elements between queries and between keys
  int64_t seen;                // query i sees keys below seen + i; a number beyond all of them where it sees all
  float *top, *sum;            // [width]: over the keys before; updated
  float* correction;           // [width], out: what earlier sums, and results, are multiplied by
};
using Weigh = void(const WeighArgs&);

// The gradient of scores: `scores` become weights p = exp(score * scale + mask - lse), and what `gradients` has for the weights
// becomes p * (gradient - delta) * scale. `top`, `sum` and `correction` are not used.
struct WeighBackwardArgs {
  WeighArgs w;
  float* gradients;          // [key][width]
  const float *lse, *delta;  // [width]
};
using WeighBackward = void(const WeighBackwardArgs&);

// Are all of these scores -inf? Their weights are 0 then, as long as ..
using Hidden = bool(const float* scores, int64_t keys, int width, int queries);
// .. all values are finite: 0 times infinity is NaN.
using Finite = bool(const float* values, int64_t n);

// Results of the second product, sums[value * width + query]: multiplied by a factor per query.
using Correct = void(float* sums, int64_t values, int width, int queries, const float* factor);

// What a query gives of whose keys all scores are -inf, so that the sum of its weights is 0.
enum class Blind : uint8_t {
  kZero,
  kNaN,        // as softmax does
  kNaNIsZero,  // 0, and so does one whose weights are NaN
};

// Divided by the sums of weights, to rows of the result.
struct AttendedArgs {
  const float* sums;
  int64_t values;
  int width, queries;
  const float* weights;  // [width], the sums of weights
  void* out;
  uint32_t dtype;   // f32, bf16 or f16, rounded once
  int64_t out_row;  // elements
  Blind blind;
};
using StoreAttended = void(const AttendedArgs&);

Weigh weigh_baseline, weigh_avx2, weigh_avx512;
WeighBackward weigh_backward_baseline, weigh_backward_avx2, weigh_backward_avx512;
Hidden hidden_baseline, hidden_avx2, hidden_avx512;
Finite finite_baseline, finite_avx2, finite_avx512;
Correct correct_baseline, correct_avx2, correct_avx512;
StoreAttended store_attended_baseline, store_attended_avx2, store_attended_avx512;

}  // namespace cpu
