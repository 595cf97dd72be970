// SPDX-License-Identifier: Apache-2.0
// Rows of softmax and of the normalisations, compiled once per ISA. Sums follow reduce_order.hpp.
#include "lanes.hpp"
#include "vec_math.hpp"

namespace eager {
namespace {

[[gnu::always_inline]] inline float exp_(float x) { return fexp(x); }
[[gnu::always_inline]] inline double exp_(double x) { return __builtin_exp(x); }
inline float log_(float x) { return static_cast<float>(dlog(x)); }
inline double log_(double x) { return __builtin_log(x); }
inline float rsqrt_(float x) { return 1.0f / __builtin_sqrtf(x); }
inline double rsqrt_(double x) { return 1.0 / __builtin_sqrt(x); }

// y = exp(x - shift); returns the sum of y, added up chunk by chunk while they are in the cache.
template <class T>
T exp_sum(T* y, const T* x, int64_t n, T shift) {
  ChunkFold<SumOp, T> fold;
  for (int64_t start = 0; start < n; start += kChunk) {
    const int64_t m = n - start < kChunk ? n - start : kChunk;
    EAGER_SIMD
    for (int64_t i = 0; i < m; ++i) y[start + i] = exp_(x[start + i] - shift);
    fold.add(chunk<SumOp>(y + start, m));
  }
  return fold.result();
}
template <class T>
T exp_sum(const T* x, int64_t n, T shift) {
  T buffer[kChunk];
  ChunkFold<SumOp, T> fold;
  for (int64_t start = 0; start < n; start += kChunk) {
    const int64_t m = n - start < kChunk ? n - start : kChunk;
    EAGER_SIMD
    for (int64_t i = 0; i < m; ++i) buffer[i] = exp_(x[start + i] - shift);
    fold.add(chunk<SumOp>(buffer, m));
  }
  return fold.result();
}

template <class T>
void softmax(T* y, const T* x, int64_t n, bool log) {
  if (n <= 0) return;
  const T top = reduce_run<MaxOp>(x, n);
  if (log) {
    const T shift = log_(exp_sum(x, n, top));
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - top) - shift;
    return;
  }
  const T sum = exp_sum(y, x, n, top);
  EAGER_SIMD
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] / sum;
}

template <class T>
T logsumexp(const T* x, int64_t n) {
  const T top = reduce_run<MaxOp>(x, n);
  if (!(fabs_(top) < kInf<T>)) return top;  // empty or all -inf; inf; NaN
  return top + log_(exp_sum(x, n, top));
}

template <class T>
T sum_sq_diff(const T* x, int64_t n, T mean) {
  return reduce_run<SumOp>(x, n, SquaredFrom<T>{mean});
}

template <class T>
void moments(const T* x, int64_t n, T eps, bool rms, T* mean, T* rstd) {
  const T count = static_cast<T>(n);
  *mean = rms ? T(0) : reduce_run<SumOp>(x, n) / count;
  const T square = rms ? reduce_run<SumOp>(x, n, Squared{}) : sum_sq_diff(x, n, *mean);
  *rstd = rsqrt_(square / count + eps);
}

template <class T>
void normalise(T* y, const T* x, int64_t n, T mean, T rstd, const T* w, const T* b) {
  if (w && b) {
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) y[i] = ((x[i] - mean) * rstd) * w[i] + b[i];
  } else if (w) {
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) y[i] = ((x[i] - mean) * rstd) * w[i];
  } else if (b) {
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd + b[i];
  } else {
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd;
  }
}

template <class T>
void affine(T* y, const T* x, int64_t n, T mean, T rstd, T scale, T shift) {
  EAGER_SIMD
  for (int64_t i = 0; i < n; ++i) y[i] = ((x[i] - mean) * rstd) * scale + shift;
}

template <class T>
constexpr RowFns<T> table() {
  return {softmax<T>, moments<T>, normalise<T>, affine<T>, logsumexp<T>, sum_sq_diff<T>};
}

}  // namespace

void EAGER_ISA(fill_rows)(RowFns<float>& f, RowFns<double>& d) {
  f = table<float>();
  d = table<double>();
}

}  // namespace eager
