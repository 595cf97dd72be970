// SPDX-License-Identifier: Apache-2.0
//
// Number formats of 16 bits and less: f16, bf16, the 8-bit formats and f4e2m1, from and to float and double, one value
// at a time.
//
// Pure, constexpr, never throws, for kernels and for tessera/dtypes.hpp, which applies them to elements of a dtype.
// Everything assumes the default floating-point environment and must not be compiled with -ffast-math. The bits do not
// depend on the ISA.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera {

// ------------------------------------------------------------------------------------------------ formats

// What happens to a value whose rounded magnitude exceeds the largest finite one. It concerns the 8-bit formats only:
// f16 and bf16 always go to infinity and f4e2m1, which has neither infinity nor NaN, always to its largest value.
//
//                     e4m3fn            e4m3fnuz        e5m2              e5m2fnuz          e8m0
//   PyTorch           448 (inf too)     NaN             inf               NaN               NaN
//   Special           NaN               NaN             inf               NaN               NaN
//   Saturate          448 (inf too)     240 (inf too)   57344 (inf too)   57344 (inf too)   2^127
//
// Special is ONNX's Cast with saturate = 0 and ml_dtypes; Saturate is ONNX's Cast with saturate = 1.
// PyTorch's e4m3fn gave NaN in earlier releases; the row is what 2.15 computes (torch/headeronly/util/Float8_e4m3fn.h).
enum class Overflow : uint8_t { PyTorch, Special, Saturate };

// A sign-magnitude binary format: 1 sign bit, exp_bits, man_bits, subnormals. Codes are without the sign bit.
struct FloatFormat {
  int exp_bits, man_bits, bias;
  uint32_t max_finite;  // code of the largest finite value
  uint32_t overflow;    // code of what overflows under Overflow::Special
  uint32_t nan;         // code of NaN
  bool fnuz;            // NaN is the code of negative zero: neither zero nor NaN has a sign
  bool has_inf;

  bool operator==(const FloatFormat&) const = default;
  [[nodiscard]] constexpr int bits() const noexcept { return 1 + exp_bits + man_bits; }
  [[nodiscard]] constexpr uint32_t sign_bit() const noexcept { return 1u << (exp_bits + man_bits); }
};

// IEEE 754 binary16; bfloat16; e4m3fn and e5m2: OCP 8-bit floating point specification 1.0; fnuz: Noune et al. 2022,
// arXiv:2206.02915; e2m1: OCP Microscaling formats 1.0. f4e2m1 has no NaN: NaN becomes +6, as PTX's
// cvt.satfinite.e2m1x2.
inline constexpr FloatFormat format_f16{5, 10, 15, 0x7BFF, 0x7C00, 0x7E00, false, true};
inline constexpr FloatFormat format_bf16{8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0, false, true};
inline constexpr FloatFormat format_f8e4m3fn{4, 3, 7, 0x7E, 0x7F, 0x7F, false, false};
inline constexpr FloatFormat format_f8e4m3fnuz{4, 3, 8, 0x7F, 0x80, 0x80, true, false};
inline constexpr FloatFormat format_f8e5m2{5, 2, 15, 0x7B, 0x7C, 0x7F, false, true};
inline constexpr FloatFormat format_f8e5m2fnuz{5, 2, 16, 0x7F, 0x80, 0x80, true, false};
inline constexpr FloatFormat format_f4e2m1{2, 1, 1, 0x7, 0x7, 0x7, false, false};

namespace detail {

template <class S>
struct IeeeTraits;
template <>
struct IeeeTraits<float> {
  using Bits = uint32_t;
  static constexpr int man_bits = 23, bias = 127;
};
template <>
struct IeeeTraits<double> {
  using Bits = uint64_t;
  static constexpr int man_bits = 52, bias = 1023;
};

// x rounded once to nearest even. S's subnormals must be below half of F's smallest value (true but for float -> bf16,
// which has its own function).
//
// NaN: f16 keeps the sign and the upper payload bits and sets the quiet bit (IEEE 754-2019 6.2.3, F16C, _Float16); bf16
// gives 0x7FC0 without sign (c10::BFloat16); e4m3fn and e5m2 keep the sign and give 0x7F (PyTorch); fnuz has the one
// NaN 0x80.
template <FloatFormat F, class S>
[[nodiscard]] constexpr uint32_t encode(S x, Overflow mode) noexcept {
  using T = IeeeTraits<S>;
  using Bits = typename T::Bits;
  static_assert(!(std::is_same_v<S, float> && F.exp_bits == 8));
  constexpr Bits sign_mask = Bits{1} << (sizeof(Bits) * 8 - 1);
  constexpr Bits man_mask = (Bits{1} << T::man_bits) - 1;
  constexpr Bits inf_bits = ~sign_mask & ~man_mask;
  const Bits raw = std::bit_cast<Bits>(x);
  const Bits mag = raw & ~sign_mask;
  const uint32_t sign = raw != mag ? F.sign_bit() : 0;

  if (mag > inf_bits) {
    if (F.fnuz || F.exp_bits == 2 || F == format_bf16) return F.nan;
    if (F == format_f16) return sign | F.nan | static_cast<uint32_t>((mag & man_mask) >> (T::man_bits - F.man_bits));
    return sign | F.nan;
  }
  constexpr int emin = 1 - F.bias;  // exponent of the smallest normal value
  const int e = static_cast<int>(mag >> T::man_bits) - T::bias;
  uint32_t code = 0;
  if (mag <= man_mask) {
    // zero, or a subnormal of S
  } else if (const int shift = T::man_bits - F.man_bits + (e < emin ? emin - e : 0); shift <= T::man_bits + 1) {
    // Round the significand to the spacing that F has at this exponent. A carry out of it lands in the exponent field,
    // which is the right neighbour, infinity's code included.
    const Bits sig = (mag & man_mask) | (man_mask + 1);
    const Bits rest = sig & ((Bits{1} << shift) - 1);
    const Bits half = Bits{1} << (shift - 1);
    code = static_cast<uint32_t>(sig >> shift);
    if (rest > half || (rest == half && (code & 1))) ++code;
    if (e >= emin) code += static_cast<uint32_t>(e - emin) << F.man_bits;
  }  // else below half of the smallest subnormal: zero
  if (code > F.max_finite) {
    const bool clamp = F.exp_bits == 2 ||
                       (F.bits() == 8 && (mode == Overflow::Saturate || (mode == Overflow::PyTorch && F == format_f8e4m3fn)));
    if (!clamp && F.fnuz) return F.nan;
    code = clamp ? F.max_finite : F.overflow;
  }
  return code == 0 && F.fnuz ? 0 : sign | code;
}

// Exact: every value of these formats is a float. NaN becomes the quiet NaN with empty payload, with F's sign where it
// has one; f16 (half_to_float) keeps its payload.
template <FloatFormat F>
[[nodiscard]] constexpr float decode(uint32_t code) noexcept {
  static_assert(F.exp_bits < 8);  // bf16's subnormals are float's
  const uint32_t sign = (code & F.sign_bit()) ? 0x80000000u : 0;
  const uint32_t mag = code & (F.sign_bit() - 1);
  if (F.fnuz && code == F.sign_bit()) return std::bit_cast<float>(0x7FC00000u);
  if (mag > F.max_finite) {
    const bool inf = F.has_inf && mag == F.overflow;
    return std::bit_cast<float>(sign | (inf ? 0x7F800000u : 0x7FC00000u));
  }
  int exponent = static_cast<int>(mag >> F.man_bits);
  uint32_t man = mag & ((1u << F.man_bits) - 1);
  if (exponent == 0) {
    if (man == 0) return std::bit_cast<float>(sign);
    const int up = F.man_bits + 1 - std::bit_width(man);  // normalise
    man = (man << up) & ((1u << F.man_bits) - 1);
    exponent = 1 - up;
  }
  const uint32_t biased = static_cast<uint32_t>(exponent - F.bias + 127);
  return std::bit_cast<float>(sign | biased << 23 | man << (23 - F.man_bits));
}

template <FloatFormat F, std::size_t N>
[[nodiscard]] consteval std::array<float, N> decode_all() {
  std::array<float, N> table{};
  for (uint32_t i = 0; i < N; ++i) table[i] = decode<F>(i);
  return table;
}

#if defined(__F16C__)
// The instructions themselves, without <immintrin.h>'s weight. Casts through _Float16 will not do: the optimiser folds
// a pair of them away, and with it the quieting of a signalling NaN.
using FloatLanes [[gnu::vector_size(16)]] = float;
using HalfLanes [[gnu::vector_size(16)]] = short;
#endif

inline constexpr auto table_f8e4m3fn = decode_all<format_f8e4m3fn, 256>();
inline constexpr auto table_f8e4m3fnuz = decode_all<format_f8e4m3fnuz, 256>();
inline constexpr auto table_f8e5m2 = decode_all<format_f8e5m2, 256>();
inline constexpr auto table_f8e5m2fnuz = decode_all<format_f8e5m2fnuz, 256>();
inline constexpr auto table_f4e2m1 = decode_all<format_f4e2m1, 16>();

}  // namespace detail

// ------------------------------------------------------------------------------------------------ scalars, for kernels

// f16 -> f32, exact; a signalling NaN becomes quiet and keeps its payload. The same bits with and without F16C.
[[nodiscard]] constexpr float half_to_float(uint16_t h) noexcept {
#if defined(__F16C__)
  if (!std::is_constant_evaluated()) return __builtin_ia32_vcvtph2ps(detail::HalfLanes{static_cast<short>(h)})[0];
#endif
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t mag = (h & 0x7FFFu) << 13;
  uint32_t bits = 0;
  if (mag >= 0x0F800000u)  // infinity, NaN
    bits = mag + ((255u - 31u) << 23) + (mag > 0x0F800000u && !(mag & 0x400000u) ? 0x400000u : 0);
  else if (mag >= 0x00800000u)
    bits = mag + ((127u - 15u) << 23);
  else  // subnormal: m * 2^-24 = (2^-14 + m * 2^-24) - 2^-14, exactly (F. Giesen, half_to_float_fast5)
    bits = std::bit_cast<uint32_t>(std::bit_cast<float>(mag + (113u << 23)) - std::bit_cast<float>(113u << 23));
  return std::bit_cast<float>(sign | bits);
}

// f32 -> f16, nearest even, beyond 65519.99.. infinity. The same bits with and without F16C (NaN: see detail::encode).
[[nodiscard]] constexpr uint16_t float_to_half(float x) noexcept {
#if defined(__F16C__)
  if (!std::is_constant_evaluated())
    return static_cast<uint16_t>(__builtin_ia32_vcvtps2ph(detail::FloatLanes{x}, 0)[0]);  // 0: to nearest even
#endif
  const uint32_t raw = std::bit_cast<uint32_t>(x);
  const uint32_t mag = raw & 0x7FFFFFFFu;
  uint32_t code = 0;
  if (mag >= 0x47800000u)  // 2^16 and above
    code = mag > 0x7F800000u ? 0x7E00u | ((mag >> 13) & 0x3FFu) : 0x7C00u;
  else if (mag < 0x38800000u)  // subnormal or zero: adding 0.5 lets the FPU round at 2^-24
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(mag) + 0.5f) - 0x3F000000u;
  else
    code = (mag + 0xC8000FFFu + ((mag >> 13) & 1u)) >> 13;
  return static_cast<uint16_t>((raw ^ mag) >> 16 | code);
}
[[nodiscard]] constexpr uint16_t double_to_half(double x) noexcept {
  return static_cast<uint16_t>(detail::encode<format_f16>(x, Overflow::PyTorch));
}

[[nodiscard]] constexpr float bf16_to_float(uint16_t b) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}
[[nodiscard]] constexpr uint16_t float_to_bf16(float x) noexcept {
  const uint32_t raw = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (raw + 0x7FFFu + ((raw >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((raw & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
}
[[nodiscard]] constexpr uint16_t double_to_bf16(double x) noexcept {
  return static_cast<uint16_t>(detail::encode<format_bf16>(x, Overflow::PyTorch));
}

[[nodiscard]] constexpr float f8e4m3fn_to_float(uint8_t b) noexcept { return detail::table_f8e4m3fn[b]; }
[[nodiscard]] constexpr float f8e4m3fnuz_to_float(uint8_t b) noexcept { return detail::table_f8e4m3fnuz[b]; }
[[nodiscard]] constexpr float f8e5m2_to_float(uint8_t b) noexcept { return detail::table_f8e5m2[b]; }
[[nodiscard]] constexpr float f8e5m2fnuz_to_float(uint8_t b) noexcept { return detail::table_f8e5m2fnuz[b]; }
[[nodiscard]] constexpr float f4e2m1_to_float(uint8_t low4) noexcept { return detail::table_f4e2m1[low4 & 15]; }
// 2^(b - 127), no sign and no zero; 255 is NaN.
[[nodiscard]] constexpr float f8e8m0_to_float(uint8_t b) noexcept {
  return std::bit_cast<float>(b == 255 ? 0x7FC00000u : b == 0 ? 0x00400000u : static_cast<uint32_t>(b) << 23);
}

template <std::floating_point S>
[[nodiscard]] constexpr uint8_t to_f8e4m3fn(S x, Overflow mode = Overflow::PyTorch) noexcept {
  return static_cast<uint8_t>(detail::encode<format_f8e4m3fn>(x, mode));
}
template <std::floating_point S>
[[nodiscard]] constexpr uint8_t to_f8e4m3fnuz(S x, Overflow mode = Overflow::PyTorch) noexcept {
  return static_cast<uint8_t>(detail::encode<format_f8e4m3fnuz>(x, mode));
}
template <std::floating_point S>
[[nodiscard]] constexpr uint8_t to_f8e5m2(S x, Overflow mode = Overflow::PyTorch) noexcept {
  return static_cast<uint8_t>(detail::encode<format_f8e5m2>(x, mode));
}
template <std::floating_point S>
[[nodiscard]] constexpr uint8_t to_f8e5m2fnuz(S x, Overflow mode = Overflow::PyTorch) noexcept {
  return static_cast<uint8_t>(detail::encode<format_f8e5m2fnuz>(x, mode));
}
template <std::floating_point S>  // low 4 bits
[[nodiscard]] constexpr uint8_t to_f4e2m1(S x) noexcept {
  return static_cast<uint8_t>(detail::encode<format_f4e2m1>(x, Overflow::Saturate));
}

// As c10::Float8_e8m0fnu: the sign is dropped and zero becomes 2^-127; halfway (1.5 * 2^k) goes up, because the implied
// significand bit counts as an odd last bit; everything strictly between 2^-127 and 2^-126 goes up to 2^-126 (PyTorch
// rounds float's subnormals by guard and sticky bits, and its reading of them is the rule here).
[[nodiscard]] constexpr uint8_t to_f8e8m0(double x, Overflow mode = Overflow::PyTorch) noexcept {
  const uint64_t mag = std::bit_cast<uint64_t>(x) & ~(uint64_t{1} << 63);
  constexpr uint64_t inf = uint64_t{0x7FF} << 52;
  if (mag > inf) return 255;
  if (mag <= std::bit_cast<uint64_t>(0x1p-127)) return 0;
  if (mag < std::bit_cast<uint64_t>(0x1p-126)) return 1;
  const uint64_t code = ((mag + (uint64_t{1} << 51)) >> 52) - (1023 - 127);
  return static_cast<uint8_t>(code < 255 ? code : mode == Overflow::Saturate ? 254 : 255);
}

}  // namespace tessera
