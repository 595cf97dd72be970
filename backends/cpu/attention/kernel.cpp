// SPDX-License-Identifier: Apache-2.0
// Softmax over keys with queries in lanes, compiled once per instruction set (contraction allowed, as for products).
#include "attention/tables.hpp"
#include "gemm/isa/gelu.hpp"
#include "gemm/isa/lanes.hpp"
#include "gemm/isa/load_transposed.hpp"
#include "gemm/isa/store.hpp"

#define CPU_CAT2(a, b) a##b
#define CPU_CAT(a, b)  CPU_CAT2(a, b)

namespace cpu {
namespace {

constexpr float kUnseen = -__builtin_inff();

// A query's score of one key: kLanes queries from `first` on. Masked: there is a mask, or some keys are not seen.
template <bool Masked>
[[gnu::always_inline]] inline Vec score(const WeighArgs& w, int64_t key, int first) {
  Vec s = load(w.scores + key * w.width + first) * splat(w.scale);
  if constexpr (Masked) {
    const int n = lanes_of(w.queries - first);
    const int64_t at = key * w.mask_col + first * w.mask_row;
    if (w.mask_add) {
      const float* m = w.mask_add + key * w.mask_step;
      s = s + (w.mask_by_query ? load(m + first) : splat(*m));
    } else if (w.mask_bool) {
      if (w.mask_row == 0) {
        s = w.mask_bool[at] ? s : splat(kUnseen);
      } else if (w.mask_row == 1 && n == kLanes) {
        typedef uint8_t Bytes __attribute__((vector_size(kLanes)));
        typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
        Bytes seen;
        std::memcpy(&seen, w.mask_bool + at, sizeof seen);
        s = __builtin_convertvector(seen, Ints) != 0 ? s : splat(kUnseen);
      } else {
        for (int i = 0; i < n; ++i) s[i] = w.mask_bool[at + i * w.mask_row] ? s[i] : kUnseen;
      }
    }
    for (int64_t i = 0; key >= w.seen + first + i && i < kLanes; ++i) s[i] = kUnseen;
  }
  return s;
}

template <bool Masked>
void weigh(const WeighArgs& w) {
  for (int first = 0; first < w.queries; first += kLanes) {
    const Vec before = load(w.top + first);
    Vec top = before, other = before;
    int64_t key = 0;
    for (; key + 2 <= w.keys; key += 2) {
      const Vec a = score<Masked>(w, key, first), b = score<Masked>(w, key + 1, first);
      store(w.scores + key * w.width + first, a);
      store(w.scores + (key + 1) * w.width + first, b);
      top = a > top ? a : top;
      other = b > other ? b : other;
    }
    if (key < w.keys) {
      const Vec a = score<Masked>(w, key, first);
      store(w.scores + key * w.width + first, a);
      top = a > top ? a : top;
    }
    top = other > top ? other : top;
    const Vec base = top == splat(kUnseen) ? Vec{} : top;  // no key is seen: all weights are exp(-inf)
    const Vec correction = exp_to_43_f32(before - base);
    Vec sum = load(w.sum + first) * correction, more{};
    key = 0;
    for (; key + 2 <= w.keys; key += 2) {
      float* p = w.scores + key * w.width + first;
      const Vec a = exp_to_43_f32(load(p) - base), b = exp_to_43_f32(load(p + w.width) - base);
      store(p, a);
      store(p + w.width, b);
      sum += a;
      more += b;
    }
    if (key < w.keys) {
      float* p = w.scores + key * w.width + first;
      const Vec a = exp_to_43_f32(load(p) - base);
      store(p, a);
      sum += a;
    }
    store(w.top + first, top);
    store(w.sum + first, sum + more);
    store(w.correction + first, correction);
  }
}

template <bool Masked>
void weigh_backward(const WeighBackwardArgs& a) {
  const WeighArgs& w = a.w;
  const Vec scale = splat(w.scale);
  for (int first = 0; first < w.queries; first += kLanes) {
    const Vec lse = load(a.lse + first), delta = load(a.delta + first);
    const Vec base = lse == splat(kUnseen) ? Vec{} : lse;  // no key is seen: all weights are exp(-inf)
    for (int64_t key = 0; key < w.keys; ++key) {
      float* const g = a.gradients + key * w.width + first;
      const Vec p = exp_f32(score<Masked>(w, key, first) - base);
      store(w.scores + key * w.width + first, p);
      store(g, p * (load(g) - delta) * scale);
    }
  }
}

// n lanes to element `at` of the result.
[[gnu::always_inline]] inline void put(const AttendedArgs& a, int64_t at, Vec v, int n) {
  if (a.dtype == TSR_F32) return store_some(static_cast<float*>(a.out) + at, v, n);
  uint16_t* out = static_cast<uint16_t*>(a.out) + at;
  uint16_t rounded[kLanes];
  if (a.dtype == TSR_BF16) {
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) rounded[i] = to_bf16(v[i]);
  } else {
    for (int i = 0; i < n; ++i) rounded[i] = to_f16(v[i]);
  }
  std::memcpy(out, rounded, static_cast<size_t>(n) * sizeof *out);
}

}  // namespace

void CPU_CAT(weigh_, CPU_ISA_NAME)(const WeighArgs& w) {
  // The last query sees the most keys, the first the least.
  if (w.mask_add || w.mask_bool || w.keys > w.seen)
    weigh<true>(w);
  else
    weigh<false>(w);
}

void CPU_CAT(weigh_backward_, CPU_ISA_NAME)(const WeighBackwardArgs& a) {
  if (a.w.mask_add || a.w.mask_bool || a.w.keys > a.w.seen)
    weigh_backward<true>(a);
  else
    weigh_backward<false>(a);
}

bool CPU_CAT(hidden_, CPU_ISA_NAME)(const float* scores, int64_t keys, int width, int queries) {
  constexpr int64_t kKeys = 8;  // whose comparisons are looked at together
  for (int64_t key = 0; key < keys; key += kKeys) {
    decltype(Vec{} != Vec{}) seen{};
    bool rest = false;
    for (int64_t k = key; k < keys && k < key + kKeys; ++k) {
      const float* s = scores + k * width;
      int first = 0;
      for (; first + kLanes <= queries; first += kLanes) seen |= load(s + first) != splat(kUnseen);
      for (; first < queries; ++first) rest |= s[first] != kUnseen;
    }
    for (int lane = 0; lane < kLanes; ++lane) rest |= seen[lane] != 0;
    if (rest) return false;
  }
  return true;
}

bool CPU_CAT(finite_, CPU_ISA_NAME)(const float* values, int64_t n) {
  Vec zero{};  // or NaN
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec v = load(values + i);
    zero += v - v;
  }
  float rest = 0;
  for (; i < n; ++i) rest += values[i] - values[i];
  for (int lane = 0; lane < kLanes; ++lane) rest += zero[lane];
  return rest == 0;
}

void CPU_CAT(correct_, CPU_ISA_NAME)(float* sums, int64_t values, int width, int queries, const float* factor) {
  for (int first = 0; first < queries; first += kLanes) {
    const Vec f = load(factor + first);
    for (int64_t v = 0; v < values; ++v) store(sums + v * width + first, load(sums + v * width + first) * f);
  }
}

void CPU_CAT(store_attended_, CPU_ISA_NAME)(const AttendedArgs& a) {
  for (int first = 0; first < a.queries; first += kLanes) {
    const int queries = lanes_of(a.queries - first);
    const Vec weights = load(a.weights + first), inverse = splat(1.0f) / weights,
              factor = a.blind != Blind::kNaN && weights == Vec{} ? Vec{} : inverse;
    for (int64_t v = 0; v < a.values; v += kLanes) {
      const int values = lanes_of(a.values - v);
      const char* row[kLanes];
      for (int i = 0; i < kLanes; ++i)
        row[i] = reinterpret_cast<const char*>(a.sums + (v + (i < values ? i : 0)) * a.width + first);
      Vec transposed[kLanes];
      load_transposed(row, 0, transposed);
      for (int q = 0; q < queries; ++q) {
        const bool none = a.blind == Blind::kNaNIsZero && weights[q] != weights[q];
        put(a, (first + q) * a.out_row + v, none ? Vec{} : transposed[q] * splat(factor[q]), values);
      }
    }
  }
}

}  // namespace cpu
