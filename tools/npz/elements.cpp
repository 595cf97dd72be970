// SPDX-License-Identifier: Apache-2.0
#include "npz/elements.hpp"

#include <cstring>

#include "tessera/dtypes.hpp"

namespace tessera::npz {

std::string descr_of(uint32_t dtype) {
  const int bits = dtype_bits(dtype);
  const auto number = [&](char kind) { return std::string(bits == 8 ? "|" : "<") + kind + std::to_string(bits / 8); };
  if (is_packed(dtype) || is_f8(dtype)) return "|V1";
  if (dtype == TSR_BF16) return "|V2";
  switch (dtype_info(dtype).cls) {
    case DtypeClass::Float: return number('f');
    case DtypeClass::Sint: return number('i');
    case DtypeClass::Uint: return number('u');
    case DtypeClass::Bool: return number('b');
    case DtypeClass::Complex: return number('c');
    case DtypeClass::Invalid: break;
  }
  return {};
}

std::vector<std::byte> to_elements(const Array& array, uint32_t dtype, const std::string& file) {
  const std::string expected = descr_of(dtype);
  const int bits = dtype_bits(dtype);
  const bool packed = is_packed(dtype);
  const bool own = array.descr == expected;
  const bool raw = array.descr == (bits <= 8 ? "|V1" : "|V2") && bits <= 16;
  const bool small =
      packed && ((is_signed_int(dtype) && array.descr == "|i1") || (is_unsigned_int(dtype) && array.descr == "|u1"));
  if (!is_valid_dtype(dtype) || !(own || raw || small))
    throw Error("TSR-N007", file, array.name, 0,
                "element type '" + array.descr + "', expected '" + expected + "' for " + std::string(dtype_name(dtype)),
                "convert the array before it is saved; a type that numpy lacks is saved with x.view('V1') or x.view('V2')");
  if (!packed) {
    std::vector<std::byte> out = array.data;
    if (dtype == TSR_BOOL)
      for (std::byte& b : out) b = std::byte{b != std::byte{0}};
    return out;
  }
  const int64_t count = static_cast<int64_t>(array.data.size());
  std::vector<std::byte> out(static_cast<size_t>(storage_bytes(dtype, count)));
  const int low = is_signed_int(dtype) ? -(1 << (bits - 1)) : 0;
  const int high = array.descr == "|i1" ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;  // raw: a value, or its code
  for (int64_t i = 0; i < count; ++i) {
    const auto byte = std::to_integer<uint8_t>(array.data[static_cast<size_t>(i)]);
    const int value = is_signed_int(dtype) ? static_cast<int8_t>(byte) : byte;
    if (value < low || value > high)
      throw Error("TSR-N008", file, array.name, static_cast<uint64_t>(i),
                  "element " + std::to_string(i) + " is byte " + std::to_string(byte) + ", which is no " +
                      std::string(dtype_name(dtype)),
                  "unpack the elements, one byte each, before saving");
    if (bits == 4)
      detail::store_packed<4>(out.data(), i, byte);
    else
      detail::store_packed<2>(out.data(), i, byte);
  }
  return out;
}

Array from_elements(std::string name, uint32_t dtype, std::vector<int64_t> shape, const void* data) {
  Array array{std::move(name), descr_of(dtype), std::move(shape), {}};
  int64_t count = 1;
  for (const int64_t d : array.shape) count *= d;
  if (!is_packed(dtype)) {
    array.data.resize(static_cast<size_t>(storage_bytes(dtype, count)));
    if (!array.data.empty()) std::memcpy(array.data.data(), data, array.data.size());
    return array;
  }
  array.data.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    array.data[static_cast<size_t>(i)] =
        is_float(dtype) ? std::byte{detail::load_packed<4>(data, i)} : static_cast<std::byte>(load_as<int64_t>(dtype, data, i));
  return array;
}

}  // namespace tessera::npz
