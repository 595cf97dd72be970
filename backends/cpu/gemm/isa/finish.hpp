// SPDX-License-Identifier: Apache-2.0
// Steps on finished results, a vector at a time. Included by the files that are compiled per instruction set, where contraction
// is allowed: so no step may hold a product that is added to something, and none contracts with the next.
#pragma once

#include <type_traits>

#include "../tables.hpp"
#include "gelu.hpp"
#include "lanes.hpp"

namespace cpu {
namespace {

// Both bounds propagate NaN of x; they are no NaN themselves. (Of what compares as neither the instructions take their second
// operand.)
[[gnu::always_inline]] inline Vec limited(Vec x, Vec lo, Vec hi) {
#if defined(__AVX512F__)
  const auto of = [](Vec v) { return reinterpret_cast<__m512>(v); };
  constexpr __mmask16 kAll = 0xffff;  // as plain max and min, of which GCC 12 warns
  return reinterpret_cast<Vec>(_mm512_maskz_min_ps(kAll, of(hi), _mm512_maskz_max_ps(kAll, of(lo), of(x))));
#elif defined(__AVX2__)
  const auto of = [](Vec v) { return reinterpret_cast<__m256>(v); };
  return reinterpret_cast<Vec>(_mm256_min_ps(of(hi), _mm256_max_ps(of(lo), of(x))));
#else
  const Vec a = x < lo ? lo : x;
  return a > hi ? hi : a;
#endif
}

// z / 6, rounded as a division rounds, for a fraction of its cycles: the quotient by the rounded reciprocal is off by one unit
// at most, and one step with the remainder, which is exact, rounds it (Markstein, "Computation of elementary functions on the
// IBM RISC System/6000 processor", 1990). Remainders of 6q - z are +0 where there is none, so that zeros keep their sign.
// Quotients that are infinite or subnormal are divided.
[[gnu::always_inline]] inline Vec sixth(Vec z) {
#if defined(__AVX512F__)
  const __m512 a = reinterpret_cast<__m512>(z), y = _mm512_set1_ps(1.0f / 6.0f), six = _mm512_set1_ps(6.0f);
  const __m512 q = _mm512_mul_ps(a, y), r = _mm512_fmsub_ps(six, q, a);
  constexpr int kInfinite = 0x18, kSubnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask(q, kInfinite | kSubnormal) != 0, 0)) return z / splat(6.0f);
  return reinterpret_cast<Vec>(_mm512_fnmadd_ps(r, y, q));
#else
  return z / splat(6.0f);
#endif
}

// What an add or mul takes for the n results from row i, column j of the tile on.
[[gnu::always_inline]] inline Vec other(const FinishStep& s, const FinishArgs& a, int64_t i, int64_t j, int n) {
  switch (s.mode) {
    case FinishStep::kDense: return load_some(s.data + a.at + i * a.ld + j, n);
    case FinishStep::kRow: return load_some(s.data + a.col + j, n);
    case FinishStep::kColumn: return splat(s.data[a.row + i]);
    default: return splat(s.lo);
  }
}

[[gnu::always_inline]] inline Vec relu(Vec z) { return z <= 0 ? Vec{} : z; }  // NaN stays
[[gnu::always_inline]] inline Vec hardswish(Vec z) { return sixth(z * limited(z + splat(3.0f), Vec{}, splat(6.0f))); }

// The chains of steps that models are made of: no step of these is looked at more than once for a tile.
enum class Chain { kNone, kRelu, kHardswish, kAdd, kAddRelu, kBiasGelu, kBiasGeluTanh, kAny };

[[gnu::always_inline]] inline Chain chain_of(const FinishArgs& a) {
  const FinishStep* s = a.steps;
  if (a.num_steps == 0) return Chain::kNone;
  const bool adds = s->kind == FinishStep::kAdd && s->mode == FinishStep::kDense;
  if (a.num_steps == 1)
    return s->kind == FinishStep::kRelu        ? Chain::kRelu
           : s->kind == FinishStep::kHardswish ? Chain::kHardswish
           : adds                              ? Chain::kAdd
                                               : Chain::kAny;
  if (a.num_steps > 2) return Chain::kAny;
  if (s->kind == FinishStep::kAdd && s->mode == FinishStep::kRow) {
    if (s[1].kind == FinishStep::kGelu) return Chain::kBiasGelu;
    if (s[1].kind == FinishStep::kGeluTanh) return Chain::kBiasGeluTanh;
  }
  return adds && s[1].kind == FinishStep::kRelu ? Chain::kAddRelu : Chain::kAny;
}

// All steps on z, the n results from row i, column j of the tile on. C: chain_of(a), or kAny.
template <Chain C>
[[gnu::always_inline]] inline Vec finished(Vec z, const FinishArgs& a, int64_t i, int64_t j, int n) {
  if constexpr (C == Chain::kAdd || C == Chain::kAddRelu) z = z + load_some(a.steps->data + a.at + i * a.ld + j, n);
  if constexpr (C == Chain::kBiasGelu || C == Chain::kBiasGeluTanh) {
    z = kept(z + load_some(a.steps->data + a.col + j, n));
    z = C == Chain::kBiasGelu ? gelu(z) : gelu_tanh(z);
  }
  if constexpr (C == Chain::kRelu || C == Chain::kAddRelu) z = relu(z);
  if constexpr (C == Chain::kHardswish) z = hardswish(z);
  if constexpr (C == Chain::kAny)
    for (int k = 0; k < a.num_steps; ++k) {
      const FinishStep& s = a.steps[k];
      switch (s.kind) {
        case FinishStep::kAdd: z = z + other(s, a, i, j, n); break;
        case FinishStep::kMul: z = z * other(s, a, i, j, n); break;
        case FinishStep::kRelu: z = relu(z); break;
        case FinishStep::kClamp: z = limited(z, splat(s.lo), splat(s.hi)); break;
        case FinishStep::kHardswish: z = hardswish(z); break;
        case FinishStep::kGelu: z = gelu(z); break;
        case FinishStep::kGeluTanh: z = gelu_tanh(z); break;
      }
      z = kept(z);
    }
  return z;
}

// Arguments for finished<C> whose first step lies beside them.
template <Chain C>
struct Here {
  FinishArgs args;
  FinishStep first{};
  explicit Here(const FinishArgs& a) : args(a) {
    if constexpr (C == Chain::kAdd || C == Chain::kAddRelu || C == Chain::kBiasGelu || C == Chain::kBiasGeluTanh)
      first = a.steps[0], args.steps = &first;
  }
  Here(const Here&) = delete;
};

// f(std::integral_constant<Chain, C>) of the chain in `a`.
template <class F>
[[gnu::always_inline]] inline auto with_chain(const FinishArgs& a, F&& f) {
  switch (chain_of(a)) {
    case Chain::kNone: return f(std::integral_constant<Chain, Chain::kNone>{});
    case Chain::kRelu: return f(std::integral_constant<Chain, Chain::kRelu>{});
    case Chain::kHardswish: return f(std::integral_constant<Chain, Chain::kHardswish>{});
    case Chain::kAdd: return f(std::integral_constant<Chain, Chain::kAdd>{});
    case Chain::kAddRelu: return f(std::integral_constant<Chain, Chain::kAddRelu>{});
    case Chain::kBiasGelu: return f(std::integral_constant<Chain, Chain::kBiasGelu>{});
    case Chain::kBiasGeluTanh: return f(std::integral_constant<Chain, Chain::kBiasGeluTanh>{});
    default: return f(std::integral_constant<Chain, Chain::kAny>{});
  }
}

}  // namespace
}  // namespace cpu
