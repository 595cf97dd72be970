// SPDX-License-Identifier: Apache-2.0
//
// Element types: their names and sizes, exact conversion of single elements, and the promotion rules.
//
// Header-only, depends on tessera/abi.h and tessera/float_formats.hpp. Every function is pure, never throws and may be
// called from any thread (store_from on a packed type rewrites the byte that it shares with its neighbours, see there).
// All of it assumes the default floating-point environment (round to nearest even) and must not be compiled with
// -ffast-math.
//
// A dtype is taken as uint32_t, the type of the `dtype` fields of the C ABI, so that a number read from outside is
// never cast to an enum that cannot hold it; tsr_dtype converts implicitly.
#pragma once

#include <array>
#include <bit>
#include <cassert>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "tessera/abi.h"
#include "tessera/float_formats.hpp"

namespace tessera {

// --------------------------------------------------------------------------------------------------------------- table

enum class DtypeClass : uint8_t { Invalid, Float, Sint, Uint, Bool, Complex };

struct DtypeInfo {
  std::string_view name;     // of the text form, configs and messages: "f32"
  std::string_view display;  // PyTorch's ScalarType name, as guard texts print it: "Float"
  int bits;                  // of one element in memory: 2 and 4 are packed, element 0 in the low bits of byte 0
  DtypeClass cls;
};

inline constexpr std::array<DtypeInfo, TSR_DTYPE_COUNT> dtype_table = {{
    {"invalid", "Undefined", 0, DtypeClass::Invalid},
    {"f64", "Double", 64, DtypeClass::Float},
    {"f32", "Float", 32, DtypeClass::Float},
    {"f16", "Half", 16, DtypeClass::Float},
    {"bf16", "BFloat16", 16, DtypeClass::Float},
    {"f8e4m3fn", "Float8_e4m3fn", 8, DtypeClass::Float},
    {"f8e4m3fnuz", "Float8_e4m3fnuz", 8, DtypeClass::Float},
    {"f8e5m2", "Float8_e5m2", 8, DtypeClass::Float},
    {"f8e5m2fnuz", "Float8_e5m2fnuz", 8, DtypeClass::Float},
    {"f8e8m0", "Float8_e8m0fnu", 8, DtypeClass::Float},
    {"f4e2m1", "Float4_e2m1fn", 4, DtypeClass::Float},  // PyTorch's type is the pair, Float4_e2m1fn_x2
    {"i2", "Int2", 2, DtypeClass::Sint},
    {"i4", "Int4", 4, DtypeClass::Sint},
    {"i8", "Char", 8, DtypeClass::Sint},
    {"i16", "Short", 16, DtypeClass::Sint},
    {"i32", "Int", 32, DtypeClass::Sint},
    {"i64", "Long", 64, DtypeClass::Sint},
    {"u2", "UInt2", 2, DtypeClass::Uint},
    {"u4", "UInt4", 4, DtypeClass::Uint},
    {"u8", "Byte", 8, DtypeClass::Uint},
    {"u16", "UInt16", 16, DtypeClass::Uint},
    {"u32", "UInt32", 32, DtypeClass::Uint},
    {"u64", "UInt64", 64, DtypeClass::Uint},
    {"bool", "Bool", 8, DtypeClass::Bool},
    {"c64", "ComplexFloat", 64, DtypeClass::Complex},
    {"c128", "ComplexDouble", 128, DtypeClass::Complex},
}};
static_assert(dtype_table[TSR_F4E2M1].name == "f4e2m1" && dtype_table[TSR_I64].name == "i64" &&
                  dtype_table[TSR_U64].name == "u64" && dtype_table[TSR_C128].name == "c128",
              "dtype_table is indexed by tsr_dtype");

[[nodiscard]] constexpr bool is_valid_dtype(uint32_t dtype) noexcept {
  return dtype != TSR_DTYPE_INVALID && dtype < TSR_DTYPE_COUNT;
}
// The entry of TSR_DTYPE_INVALID (0 bits, class Invalid) for any number that is not a dtype.
[[nodiscard]] constexpr const DtypeInfo& dtype_info(uint32_t dtype) noexcept {
  return dtype_table[is_valid_dtype(dtype) ? dtype : 0];
}
[[nodiscard]] constexpr std::string_view dtype_name(uint32_t dtype) noexcept { return dtype_info(dtype).name; }
[[nodiscard]] constexpr std::string_view dtype_display_name(uint32_t dtype) noexcept { return dtype_info(dtype).display; }
[[nodiscard]] constexpr int dtype_bits(uint32_t dtype) noexcept { return dtype_info(dtype).bits; }
// By `name`; TSR_DTYPE_INVALID when there is no such dtype.
[[nodiscard]] constexpr tsr_dtype dtype_from_name(std::string_view name) noexcept {
  for (uint32_t i = 1; i < TSR_DTYPE_COUNT; ++i)
    if (dtype_table[i].name == name) return static_cast<tsr_dtype>(i);
  return TSR_DTYPE_INVALID;
}

[[nodiscard]] constexpr bool is_float(uint32_t d) noexcept { return dtype_info(d).cls == DtypeClass::Float; }
[[nodiscard]] constexpr bool is_signed_int(uint32_t d) noexcept { return dtype_info(d).cls == DtypeClass::Sint; }
[[nodiscard]] constexpr bool is_unsigned_int(uint32_t d) noexcept { return dtype_info(d).cls == DtypeClass::Uint; }
[[nodiscard]] constexpr bool is_int(uint32_t d) noexcept { return is_signed_int(d) || is_unsigned_int(d); }
[[nodiscard]] constexpr bool is_bool(uint32_t d) noexcept { return dtype_info(d).cls == DtypeClass::Bool; }
[[nodiscard]] constexpr bool is_complex(uint32_t d) noexcept { return dtype_info(d).cls == DtypeClass::Complex; }
[[nodiscard]] constexpr bool is_f8(uint32_t d) noexcept { return d >= TSR_F8E4M3FN && d <= TSR_F8E8M0; }
[[nodiscard]] constexpr bool is_packed(uint32_t d) noexcept { return dtype_bits(d) == 2 || dtype_bits(d) == 4; }

// Bytes of `count` contiguous elements; a packed type's last byte may be partly used. -1: the dtype is invalid, the
// count negative, or the size does not fit int64_t.
[[nodiscard]] constexpr int64_t storage_bytes(uint32_t dtype, int64_t count) noexcept {
  const int bits = dtype_bits(dtype);
  if (bits == 0 || count < 0) return -1;
  if (bits < 8) return count / (8 / bits) + (count % (8 / bits) != 0);
  const int64_t size = bits / 8;
  return count > std::numeric_limits<int64_t>::max() / size ? -1 : count * size;
}

// ------------------------------------------------------------------------------------------------------------ elements

// A complex number without <complex>'s weight. load_as and store_from take std::complex as well.
template <std::floating_point R>
struct ComplexValue {
  using value_type = R;
  R re{}, im{};
  [[nodiscard]] constexpr R real() const noexcept { return re; }
  [[nodiscard]] constexpr R imag() const noexcept { return im; }
};

template <class T>
concept ComplexScalar = requires(const T& z) {
  typename T::value_type;
  { z.real() } -> std::convertible_to<typename T::value_type>;
  { z.imag() } -> std::convertible_to<typename T::value_type>;
};
template <class T>
concept ElementScalar = std::is_arithmetic_v<T> || ComplexScalar<T>;

// Truncates toward zero; beyond the range of the n-bit integer the nearest bound, NaN gives 0. C++ and PyTorch leave
// both undefined (on x86 PyTorch's results differ between its scalar and vector code); this is Tessera's rule on every
// backend. The result is sign extended to 64 bits.
[[nodiscard]] constexpr uint64_t saturate_to_int(double x, int bits, bool is_signed) noexcept {
  if (x != x) return 0;
  const double limit = static_cast<double>(uint64_t{1} << (bits - 1)) * (is_signed ? 1.0 : 2.0);
  const uint64_t ones = ~uint64_t{0} >> (64 - bits);
  if (is_signed) {
    if (x >= limit) return ones >> 1;
    if (x < -limit) return ~(ones >> 1);
    return static_cast<uint64_t>(static_cast<int64_t>(x));
  }
  if (x >= limit) return ones;
  return x > 0 ? static_cast<uint64_t>(x) : 0;
}

namespace detail {

// m as double, rounded to odd, so that a later rounding to 24 bits or fewer sees one rounding only (Boldo and Melquiond
// 2008).
[[nodiscard]] constexpr double round_to_odd(uint64_t m) noexcept {
  const int excess = std::bit_width(m) - 53;
  if (excess > 0) {
    const uint64_t step = uint64_t{1} << excess;
    m = (m & ~(step - 1)) | ((m & (step - 1)) ? step : 0);
  }
  return static_cast<double>(m);
}
template <std::integral I>
[[nodiscard]] constexpr double odd_double(I v) noexcept {
  if constexpr (std::is_signed_v<I>)
    return v < 0 ? -round_to_odd(~static_cast<uint64_t>(v) + 1) : round_to_odd(static_cast<uint64_t>(v));
  else
    return round_to_odd(v);
}

template <class To, class From>
[[nodiscard]] constexpr To convert(const From& v) noexcept {
  if constexpr (ComplexScalar<From>) {
    if constexpr (ComplexScalar<To>) {
      using R = typename To::value_type;
      return To{static_cast<R>(v.real()), static_cast<R>(v.imag())};
    } else if constexpr (std::is_same_v<To, bool>) {
      return v.real() != 0 || v.imag() != 0;
    } else {
      return convert<To>(v.real());
    }
  } else if constexpr (ComplexScalar<To>) {
    return To{convert<typename To::value_type>(v), 0};
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != 0;
  } else if constexpr (std::floating_point<From> && std::integral<To>) {
    return static_cast<To>(saturate_to_int(static_cast<double>(v), sizeof(To) * 8, std::is_signed_v<To>));
  } else {
    return static_cast<To>(v);
  }
}

template <class T>
[[nodiscard]] inline T load_raw(const void* base, int64_t index) noexcept {
  T v;
  std::memcpy(&v, static_cast<const char*>(base) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}
template <class T>
inline void store_raw(void* base, int64_t index, T v) noexcept {
  std::memcpy(static_cast<char*>(base) + index * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}
template <int Bits>
[[nodiscard]] inline uint8_t load_packed(const void* base, int64_t index) noexcept {
  constexpr int per_byte = 8 / Bits;
  const unsigned byte = static_cast<const unsigned char*>(base)[index / per_byte];
  return static_cast<uint8_t>(byte >> (index % per_byte * Bits) & ((1u << Bits) - 1));
}
template <int Bits>
inline void store_packed(void* base, int64_t index, uint64_t v) noexcept {
  constexpr int per_byte = 8 / Bits;
  constexpr unsigned mask = (1u << Bits) - 1;
  const int shift = static_cast<int>(index % per_byte) * Bits;
  unsigned char& byte = static_cast<unsigned char*>(base)[index / per_byte];
  byte = static_cast<unsigned char>((byte & ~(mask << shift)) | (static_cast<unsigned>(v) & mask) << shift);
}

// v as the n-bit integer pattern: integers wrap modulo 2^n, floats saturate, complex numbers give their real part.
template <class T>
[[nodiscard]] constexpr uint64_t int_bits(const T& v, int bits, bool is_signed) noexcept {
  if constexpr (ComplexScalar<T>)
    return int_bits(v.real(), bits, is_signed);
  else if constexpr (std::floating_point<T>)
    return saturate_to_int(static_cast<double>(v), bits, is_signed);
  else
    return static_cast<uint64_t>(v);
}
// v as the real number that the encoders round: exact, or rounded to odd.
template <class T>
[[nodiscard]] constexpr double real_of(const T& v) noexcept {
  if constexpr (ComplexScalar<T>)
    return static_cast<double>(v.real());
  else if constexpr (std::floating_point<T>)
    return static_cast<double>(v);
  else
    return odd_double(v);
}

}  // namespace detail

// Element `index` of the contiguous array at `base` (no alignment needed), converted to T: an arithmetic type or a
// complex one. Floats to T round once to nearest even; to an integer T they truncate and saturate (saturate_to_int);
// integers wrap modulo 2^n; to bool is `!= 0` (NaN is true); a complex element read as real gives its real part. A
// stored bool is true when its byte is not 0. Preconditions: is_valid_dtype(dtype), index >= 0 and inside the array. An
// invalid dtype gives T{} in release builds.
template <ElementScalar T>
[[nodiscard]] inline T load_as(uint32_t dtype, const void* base, int64_t index) noexcept {
  using namespace detail;
  switch (dtype) {
    case TSR_F64: return convert<T>(load_raw<double>(base, index));
    case TSR_F32: return convert<T>(load_raw<float>(base, index));
    case TSR_F16: return convert<T>(half_to_float(load_raw<uint16_t>(base, index)));
    case TSR_BF16: return convert<T>(bf16_to_float(load_raw<uint16_t>(base, index)));
    case TSR_F8E4M3FN: return convert<T>(f8e4m3fn_to_float(load_raw<uint8_t>(base, index)));
    case TSR_F8E4M3FNUZ: return convert<T>(f8e4m3fnuz_to_float(load_raw<uint8_t>(base, index)));
    case TSR_F8E5M2: return convert<T>(f8e5m2_to_float(load_raw<uint8_t>(base, index)));
    case TSR_F8E5M2FNUZ: return convert<T>(f8e5m2fnuz_to_float(load_raw<uint8_t>(base, index)));
    case TSR_F8E8M0: return convert<T>(f8e8m0_to_float(load_raw<uint8_t>(base, index)));
    case TSR_F4E2M1: return convert<T>(f4e2m1_to_float(load_packed<4>(base, index)));
    case TSR_I2: return convert<T>(static_cast<int8_t>((load_packed<2>(base, index) ^ 2) - 2));
    case TSR_I4: return convert<T>(static_cast<int8_t>((load_packed<4>(base, index) ^ 8) - 8));
    case TSR_I8: return convert<T>(load_raw<int8_t>(base, index));
    case TSR_I16: return convert<T>(load_raw<int16_t>(base, index));
    case TSR_I32: return convert<T>(load_raw<int32_t>(base, index));
    case TSR_I64: return convert<T>(load_raw<int64_t>(base, index));
    case TSR_U2: return convert<T>(load_packed<2>(base, index));
    case TSR_U4: return convert<T>(load_packed<4>(base, index));
    case TSR_U8: return convert<T>(load_raw<uint8_t>(base, index));
    case TSR_U16: return convert<T>(load_raw<uint16_t>(base, index));
    case TSR_U32: return convert<T>(load_raw<uint32_t>(base, index));
    case TSR_U64: return convert<T>(load_raw<uint64_t>(base, index));
    case TSR_BOOL: return convert<T>(static_cast<uint8_t>(load_raw<uint8_t>(base, index) != 0));
    case TSR_C64: return convert<T>(load_raw<ComplexValue<float>>(base, index));
    case TSR_C128: return convert<T>(load_raw<ComplexValue<double>>(base, index));
    default: assert(!"load_as: not a dtype"); return T{};
  }
}

// Converts `value` to `dtype` by the rules of load_as and writes element `index`. Floats round once from the value
// given, so f64 -> bf16 may differ from PyTorch, which goes through f32, by one unit in the last place. Overflow: see
// Overflow; f64 -> f32, f16 and bf16 give infinity. Neighbours of a packed element keep their bits, but their byte is
// rewritten: two threads must not store into one byte. Preconditions as for load_as; an invalid dtype writes nothing.
template <ElementScalar T>
inline void store_from(uint32_t dtype, void* base, int64_t index, const T& value, Overflow mode = Overflow::PyTorch) noexcept {
  using namespace detail;
  switch (dtype) {
    case TSR_F64: return store_raw(base, index, convert<double>(value));
    case TSR_F32: return store_raw(base, index, convert<float>(value));
    case TSR_F16:
      if constexpr (std::is_same_v<T, float>) return store_raw(base, index, float_to_half(value));
      return store_raw(base, index, double_to_half(real_of(value)));
    case TSR_BF16:
      if constexpr (std::is_same_v<T, float>) return store_raw(base, index, float_to_bf16(value));
      return store_raw(base, index, double_to_bf16(real_of(value)));
    case TSR_F8E4M3FN: return store_raw(base, index, to_f8e4m3fn(real_of(value), mode));
    case TSR_F8E4M3FNUZ: return store_raw(base, index, to_f8e4m3fnuz(real_of(value), mode));
    case TSR_F8E5M2: return store_raw(base, index, to_f8e5m2(real_of(value), mode));
    case TSR_F8E5M2FNUZ: return store_raw(base, index, to_f8e5m2fnuz(real_of(value), mode));
    case TSR_F8E8M0: return store_raw(base, index, to_f8e8m0(real_of(value), mode));
    case TSR_F4E2M1: return store_packed<4>(base, index, to_f4e2m1(real_of(value)));
    case TSR_I2: return store_packed<2>(base, index, int_bits(value, 2, true));
    case TSR_I4: return store_packed<4>(base, index, int_bits(value, 4, true));
    case TSR_I8: return store_raw(base, index, static_cast<uint8_t>(int_bits(value, 8, true)));
    case TSR_I16: return store_raw(base, index, static_cast<uint16_t>(int_bits(value, 16, true)));
    case TSR_I32: return store_raw(base, index, static_cast<uint32_t>(int_bits(value, 32, true)));
    case TSR_I64: return store_raw(base, index, int_bits(value, 64, true));
    case TSR_U2: return store_packed<2>(base, index, int_bits(value, 2, false));
    case TSR_U4: return store_packed<4>(base, index, int_bits(value, 4, false));
    case TSR_U8: return store_raw(base, index, static_cast<uint8_t>(int_bits(value, 8, false)));
    case TSR_U16: return store_raw(base, index, static_cast<uint16_t>(int_bits(value, 16, false)));
    case TSR_U32: return store_raw(base, index, static_cast<uint32_t>(int_bits(value, 32, false)));
    case TSR_U64: return store_raw(base, index, int_bits(value, 64, false));
    case TSR_BOOL: return store_raw(base, index, static_cast<uint8_t>(convert<bool>(value)));
    case TSR_C64: return store_raw(base, index, convert<ComplexValue<float>>(value));
    case TSR_C128: return store_raw(base, index, convert<ComplexValue<double>>(value));
    default: assert(!"store_from: not a dtype");
  }
}

// One element from one dtype to another, through the type that holds the source exactly.
inline void cast_element(uint32_t to, void* dst, int64_t dst_index, uint32_t from, const void* src, int64_t src_index,
                         Overflow mode = Overflow::PyTorch) noexcept {
  switch (dtype_info(from).cls) {
    case DtypeClass::Float:
      if (from == TSR_F64) return store_from(to, dst, dst_index, load_as<double>(from, src, src_index), mode);
      return store_from(to, dst, dst_index, load_as<float>(from, src, src_index), mode);
    case DtypeClass::Sint: return store_from(to, dst, dst_index, load_as<int64_t>(from, src, src_index), mode);
    case DtypeClass::Uint:
    case DtypeClass::Bool: return store_from(to, dst, dst_index, load_as<uint64_t>(from, src, src_index), mode);
    case DtypeClass::Complex: return store_from(to, dst, dst_index, load_as<ComplexValue<double>>(from, src, src_index), mode);
    case DtypeClass::Invalid: assert(!"cast_element: not a dtype");
  }
}

// ----------------------------------------------------------------------------------------------------------- promotion

// What Python's float and complex become, and integer tensors in true division: torch.get_default_dtype(), not
// configurable.
inline constexpr tsr_dtype default_float_dtype = TSR_F32;
inline constexpr tsr_dtype default_complex_dtype = TSR_C64;

// c64 for f32 and below, c128 for f64, complex dtypes themselves. PyTorch has complex halves for f16 and bf16; Tessera
// widens them to c64. INVALID for f8 and f4 (PyTorch refuses) and for what is not floating.
[[nodiscard]] constexpr tsr_dtype to_complex_dtype(uint32_t dtype) noexcept {
  switch (dtype) {
    case TSR_F64:
    case TSR_C128: return TSR_C128;
    case TSR_F32:
    case TSR_F16:
    case TSR_BF16:
    case TSR_C64: return TSR_C64;
    default: return TSR_DTYPE_INVALID;
  }
}
// The dtype of abs, real and imag: c64 -> f32, c128 -> f64, any other dtype itself.
[[nodiscard]] constexpr tsr_dtype to_real_dtype(uint32_t dtype) noexcept {
  if (dtype == TSR_C64) return TSR_F32;
  if (dtype == TSR_C128) return TSR_F64;
  return is_valid_dtype(dtype) ? static_cast<tsr_dtype>(dtype) : TSR_DTYPE_INVALID;
}
// Result of ops that need a float (exp, true division, mean): ints and bool -> f32, any other dtype itself.
[[nodiscard]] constexpr tsr_dtype to_float_dtype(uint32_t dtype) noexcept {
  if (is_int(dtype) || is_bool(dtype)) return default_float_dtype;
  return is_valid_dtype(dtype) ? static_cast<tsr_dtype>(dtype) : TSR_DTYPE_INVALID;
}

// The common dtype of two tensors (torch.promote_types, 2.15): the least upper bound in
//
//   bool - u8 -.                                     .- f16 -.
//       \       i16 - i32 - i64 (any int) - - - - - <         f32 - f64      c64 joins with f32 and below,
//        - i8 -'                                     '- bf16 -'              c128 with f64
//
// Outside of it PyTorch promotes little, and so does this: f8 types, i2 and i4 meet only themselves; u2, u4, u16, u32
// and u64 meet themselves and, as the weaker side, f64, f32, f16, bf16 and f4e2m1; f4e2m1 meets itself and those.
// Everything that PyTorch refuses gives TSR_DTYPE_INVALID: the caller reports it with both names.
[[nodiscard]] constexpr tsr_dtype promote(uint32_t a, uint32_t b) noexcept {
  if (!is_valid_dtype(a) || !is_valid_dtype(b)) return TSR_DTYPE_INVALID;
  if (a == b) return static_cast<tsr_dtype>(a);
  if (is_f8(a) || is_f8(b)) return TSR_DTYPE_INVALID;
  const auto bare_unsigned = [](uint32_t d) { return is_unsigned_int(d) && d != TSR_U8; };
  if (bare_unsigned(a) || bare_unsigned(b)) {
    if (is_float(a)) return static_cast<tsr_dtype>(a);
    if (is_float(b)) return static_cast<tsr_dtype>(b);
    return TSR_DTYPE_INVALID;
  }
  // The lattice, ranked along its longest chain; the two forks (u8 | i8, f16 | bf16) are settled apart.
  constexpr auto rank = [](uint32_t d) {
    switch (d) {
      case TSR_BOOL: return 0;
      case TSR_U8:
      case TSR_I8: return 1;
      case TSR_I16: return 2;
      case TSR_I32: return 3;
      case TSR_I64: return 4;
      case TSR_F16:
      case TSR_BF16: return 5;
      case TSR_F32: return 6;
      case TSR_F64: return 7;
      case TSR_C64: return 8;
      case TSR_C128: return 9;
      default: return -1;  // i2, i4, f4e2m1
    }
  };
  const int ra = rank(a), rb = rank(b);
  if (ra < 0 || rb < 0) return TSR_DTYPE_INVALID;
  if (ra == rb) return ra == 1 ? TSR_I16 : TSR_F32;
  const uint32_t high = ra > rb ? a : b, low = ra > rb ? b : a;
  return high == TSR_C64 && low == TSR_F64 ? TSR_C128 : static_cast<tsr_dtype>(high);
}

enum class ScalarKind : uint8_t { Bool, Int, Float, Complex };

[[nodiscard]] constexpr tsr_dtype scalar_dtype(ScalarKind kind) noexcept {
  switch (kind) {
    case ScalarKind::Bool: return TSR_BOOL;
    case ScalarKind::Int: return TSR_I64;
    case ScalarKind::Float: return default_float_dtype;
    case ScalarKind::Complex: return default_complex_dtype;
  }
  return TSR_DTYPE_INVALID;
}

// The result dtype of an op with any mix of operands (at::native::ResultTypeState). Tensors with dimensions decide; 0-d
// tensors raise the result only to a higher category (bool < int < float < complex), Python scalars only above both.
// Feed every operand, then ask.
//
//   ResultType r; r.add_tensor(TSR_F16, 2); r.add_tensor(TSR_F64, 0); r.add_scalar(ScalarKind::Int);
//   r.get() == TSR_F16
class ResultType {
 public:
  constexpr void add_tensor(uint32_t dtype, uint32_t rank) noexcept { merge(rank > 0 ? dim_ : zero_, dtype); }
  constexpr void add_scalar(ScalarKind kind) noexcept { merge(scalar_, scalar_dtype(kind)); }
  // INVALID when nothing was added, or two operands do not promote.
  [[nodiscard]] constexpr tsr_dtype get() const noexcept {
    if (failed_) return TSR_DTYPE_INVALID;
    bool failed = false;
    const uint32_t weak = combine(zero_, scalar_, failed);
    const uint32_t result = combine(dim_, weak, failed);
    return failed ? TSR_DTYPE_INVALID : static_cast<tsr_dtype>(result);
  }

 private:
  static constexpr uint32_t none = TSR_DTYPE_INVALID;

  constexpr void merge(uint32_t& slot, uint32_t dtype) noexcept {
    slot = slot == none ? dtype : uint32_t{promote(slot, dtype)};
    if (!is_valid_dtype(slot)) failed_ = true;
  }
  static constexpr uint32_t combine(uint32_t higher, uint32_t lower, bool& failed) noexcept {
    if (higher == none || lower == none) return higher == none ? lower : higher;
    uint32_t result = higher;
    if (is_complex(higher)) return result;
    if (is_float(higher)) {
      if (is_complex(lower)) result = to_complex_dtype(higher);
    } else if (is_bool(higher) || is_float(lower) || is_complex(lower)) {
      // u2, u4 and u16 to u64 do not promote with complex as tensors, but PyTorch lets a complex scalar raise them.
      result = is_complex(lower) && is_int(higher) ? lower : uint32_t{promote(higher, lower)};
    }
    if (result == none) failed = true;
    return result;
  }

  uint32_t dim_ = none, zero_ = none, scalar_ = none;
  bool failed_ = false;
};

// A tensor of any rank with one Python scalar: f16 + 2.5 -> f16, i32 + 2.5 -> f32, bool + 1 -> i64, f16 + 1j -> c64.
// INVALID where PyTorch refuses (f8 and f4 with a complex scalar, i2 and i4 with a float).
[[nodiscard]] constexpr tsr_dtype promote_scalar(uint32_t tensor, ScalarKind kind) noexcept {
  ResultType r;
  r.add_tensor(tensor, 1);
  r.add_scalar(kind);
  return r.get();
}

// The dtype in which sums, products and means accumulate: f16, bf16, f8 and f4 -> f32; f32, f64, c64, c128 themselves;
// integers and bool -> i64, which is also the dtype of torch.sum's result (u64 too: the bits are those of the sum
// modulo 2^64).
[[nodiscard]] constexpr tsr_dtype accumulate_dtype(uint32_t dtype) noexcept {
  switch (dtype_info(dtype).cls) {
    case DtypeClass::Float: return dtype == TSR_F64 ? TSR_F64 : TSR_F32;
    case DtypeClass::Complex: return static_cast<tsr_dtype>(dtype);
    case DtypeClass::Sint:
    case DtypeClass::Uint:
    case DtypeClass::Bool: return TSR_I64;
    case DtypeClass::Invalid: break;
  }
  return TSR_DTYPE_INVALID;
}

}  // namespace tessera
