// SPDX-License-Identifier: Apache-2.0
#include "ir/dense.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/printer.hpp"
#include "ir/reader.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {
namespace {

constexpr int64_t kListElements = 64;  // constants up to here are printed element by element

// Largest finite magnitude, so that a literal that would silently become infinity or saturate is refused.
double largest_finite(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return std::numeric_limits<double>::max();
    case TSR_F32: return std::numeric_limits<float>::max();
    case TSR_F16: return 65504;
    case TSR_BF16: return 0x1.fep127;
    case TSR_F8E4M3FN: return 448;
    case TSR_F8E4M3FNUZ: return 240;
    case TSR_F8E5M2:
    case TSR_F8E5M2FNUZ: return 57344;
    case TSR_F8E8M0: return 0x1p127;
    default: return 6;  // f4e2m1
  }
}

int64_t element_count(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.sizes[i];
  return n;
}

// Has the element exactly one value in the text form: not a NaN with a payload, not a bool other than 0 and 1?
bool has_plain_text(const tsr_tensor& t, int64_t index) {
  switch (dtype_info(t.dtype).cls) {
    case DtypeClass::Float: {
      if (!std::isnan(load_as<double>(t.dtype, t.data, index))) return true;
      unsigned char canonical[16] = {};
      store_from(t.dtype, canonical, 0, std::numeric_limits<double>::quiet_NaN());
      const auto size = static_cast<size_t>(dtype_bits(t.dtype) / 8);  // no packed dtype has a NaN
      return std::memcmp(canonical, static_cast<const char*>(t.data) + static_cast<size_t>(index) * size, size) == 0;
    }
    case DtypeClass::Complex: {
      tsr_tensor parts = t;
      parts.dtype = t.dtype == TSR_C64 ? TSR_F32 : TSR_F64;
      return has_plain_text(parts, 2 * index) && has_plain_text(parts, 2 * index + 1);
    }
    case DtypeClass::Bool: return static_cast<const unsigned char*>(t.data)[index] <= 1;
    default: return true;
  }
}

void append_element(std::string& out, const tsr_tensor& t, int64_t i) {
  switch (dtype_info(t.dtype).cls) {
    case DtypeClass::Float:
      if (t.dtype == TSR_F64)
        append_float(out, load_as<double>(t.dtype, t.data, i));
      else
        append_float(out, load_as<float>(t.dtype, t.data, i));
      break;
    case DtypeClass::Complex: {
      tsr_tensor parts = t;
      parts.dtype = t.dtype == TSR_C64 ? TSR_F32 : TSR_F64;
      out += '(';
      append_element(out, parts, 2 * i);
      out += ", ";
      append_element(out, parts, 2 * i + 1);
      out += ')';
      break;
    }
    case DtypeClass::Bool: out += load_as<bool>(t.dtype, t.data, i) ? "true" : "false"; break;
    case DtypeClass::Uint: out += std::to_string(load_as<uint64_t>(t.dtype, t.data, i)); break;
    default: append_int(out, load_as<int64_t>(t.dtype, t.data, i)); break;
  }
}

bool same_elements(const tsr_tensor& t, int64_t n) {
  const auto* bytes = static_cast<const char*>(t.data);
  if (!is_packed(t.dtype)) {
    const auto size = static_cast<size_t>(dtype_bits(t.dtype) / 8);
    return std::memcmp(bytes, bytes + size, static_cast<size_t>(n - 1) * size) == 0;
  }
  const uint32_t bits = dtype_bits(t.dtype) == 2 ? TSR_U2 : TSR_U4;
  for (int64_t i = 1; i < n; ++i)
    if (load_as<uint32_t>(bits, bytes, i) != load_as<uint32_t>(bits, bytes, 0)) return false;
  return true;
}

// Bytes as the text form sees them: the unused bits of a packed tensor's last byte are zero.
unsigned char byte_of(const tsr_tensor& t, int64_t n, int64_t bytes, int64_t i) {
  unsigned byte = static_cast<const unsigned char*>(t.data)[i];
  if (i == bytes - 1 && is_packed(t.dtype)) {
    const int bits = dtype_bits(t.dtype);
    if (const int64_t used = n % (8 / bits); used != 0) byte &= (1u << used * bits) - 1;
  }
  return static_cast<unsigned char>(byte);
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------- reading

void Reader::float_element(uint32_t dtype, void* data, int64_t index) {
  const Token first = peek();
  const bool negative = accept("-");
  const Token t = next();
  auto refuse = [&](const char* why) {
    source().fail("TSR-I011", first.offset,
                  "found " + std::string(negative ? "-" : "") + std::string(t.text.substr(0, 40)) + ", expected a value of " +
                      std::string(dtype_name(dtype)) + ": " + why);
  };
  if (dtype == TSR_F32 && (t.kind == Tok::kFloat || t.kind == Tok::kInt)) {
    float v;  // straight from the text: through f64 it would round twice
    const auto [end, ec] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
    if (ec != std::errc{} || end != t.text.data() + t.text.size()) refuse("it is out of range");
    return store_from(dtype, data, index, negative ? -v : v);
  }
  double v = real(t, negative);
  if (dtype == TSR_F8E8M0 && std::isfinite(v))
    v = static_cast<float>(v);  // 2^-127 prints as the shortest f32, a little above it
  if (std::isnan(v)) {
    if (std::bit_cast<uint64_t>(v) != 0x7ff8000000000000) refuse("a NaN with a payload is written as hex");
    store_from(dtype, data, index, std::numeric_limits<double>::quiet_NaN());
    if (!std::isnan(load_as<double>(dtype, data, index))) refuse("this dtype has no NaN");
    return;
  }
  // As f32, for the largest bf16 prints as the shortest f32, a little above it.
  const double magnitude = dtype == TSR_F64 ? std::fabs(v) : std::fabs(static_cast<float>(v));
  if (std::isfinite(v) && magnitude > largest_finite(dtype)) refuse("it is out of range");
  if (dtype == TSR_F8E8M0 && !(v > 0)) refuse("it holds positive numbers only");
  store_from(dtype, data, index, v);
  if (std::isinf(v) && load_as<double>(dtype, data, index) != v) refuse("this dtype has no infinity");
}

void Reader::element(uint32_t dtype, void* data, int64_t index) {
  switch (dtype_info(dtype).cls) {
    case DtypeClass::Float: return float_element(dtype, data, index);
    case DtypeClass::Bool:
      if (accept_word("true")) return store_from(dtype, data, index, true);
      if (!accept_word("false")) unexpected("true or false");
      return store_from(dtype, data, index, false);
    case DtypeClass::Complex: {
      const uint32_t part = dtype == TSR_C64 ? TSR_F32 : TSR_F64;
      expect("(");
      float_element(part, data, 2 * index);
      expect(",");
      float_element(part, data, 2 * index + 1);
      expect(")");
      return;
    }
    case DtypeClass::Uint:
    case DtypeClass::Sint: {
      const Token first = peek();
      const bool negative = accept("-");
      const Token t = expect(Tok::kInt, "an integer");
      uint64_t magnitude = 0;
      const auto [end, ec] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), magnitude);
      const int bits = dtype_bits(dtype);
      const bool is_signed = is_signed_int(dtype);
      const uint64_t limit = is_signed    ? (uint64_t{1} << (bits - 1)) - (negative ? 0 : 1)
                             : negative   ? 0
                             : bits == 64 ? UINT64_MAX
                                          : (uint64_t{1} << bits) - 1;
      if (ec != std::errc{} || end != t.text.data() + t.text.size() || magnitude > limit)
        source().fail("TSR-I011", first.offset,
                      std::string("found ") + (negative ? "-" : "") + std::string(t.text.substr(0, 40)) +
                          ", expected a value of " + std::string(dtype_name(dtype)) + ": it is out of range");
      return store_from(dtype, data, index, negative ? 0 - magnitude : magnitude);
    }
    case DtypeClass::Invalid: break;
  }
}

const tsr_tensor* Reader::dense() {
  const size_t begin = peek().offset;
  expect_word("dense");
  expect("<");
  const size_t type_offset = peek().offset;
  const tsr_type type = this->type();
  int64_t elements = 1;
  if (type.strides || type.device)
    source().fail("TSR-I011", type_offset, "found strides or a device, expected a plain dtype and shape");
  for (uint32_t i = 0; i < type.rank; ++i) {
    if (TSR_DIM_IS_EXPR(type.sizes[i]))
      source().fail("TSR-I011", type_offset, "found a symbolic size, expected numbers: a constant's shape is fixed");
    elements = type.sizes[i] == 0 || elements == 0 ? 0 : elements * type.sizes[i];  // type() checked the product
  }
  const int64_t bytes = storage_bytes(type.dtype, elements);
  expect(":");

  char* data = nullptr;
  auto reserve = [&](int64_t n) {
    data = static_cast<char*>(memory_->allocate(static_cast<size_t>(std::max<int64_t>(n, 16)), 16));
    std::memset(data, 0, static_cast<size_t>(std::min<int64_t>(n, 16)));
    if (is_packed(type.dtype) && n > 0) data[n - 1] = 0;
  };
  uint32_t flags = TSR_TENSOR_CONTIGUOUS;
  if (limits_.constants && accept_word("ref")) {
    const Token t = expect(Tok::kInt, "the number of a constant");
    uint64_t number = 0;
    std::from_chars(t.text.data(), t.text.data() + t.text.size(), number);
    data = static_cast<char*>(const_cast<void*>(limits_.constants->find(number, type.dtype, bytes)));
    if (!data) source().fail("TSR-I011", t.offset, "found the number of a constant that is not there, or of another size");
    flags |= TSR_TENSOR_KEPT;
  } else if (accept_word("splat")) {
    if (elements > 0) {
      if (bytes > limits_.splat_bytes - splat_bytes_)
        source().fail("TSR-I002", begin,
                      "found splat constants of more than " + std::to_string(limits_.splat_bytes >> 20) +
                          " MiB, expected a smaller constant",
                      "use a `full` op, or an input, for a large tensor of one value");
      splat_bytes_ += bytes;
    }
    reserve(bytes);
    alignas(16) char one[16] = {};
    element(type.dtype, one, 0);
    const int bits = dtype_bits(type.dtype);
    if (bits < 8) {  // a byte of equal elements, and zeros behind the last one
      for (int64_t i = 1; i < 8 / bits; ++i) cast_element(type.dtype, one, i, type.dtype, one, 0);
      if (bytes > 0) std::memset(data, one[0], static_cast<size_t>(bytes));
      if (const int64_t used = elements % (8 / bits); used != 0)
        data[bytes - 1] = static_cast<char>(data[bytes - 1] & ((1 << used * bits) - 1));
    } else {
      const auto size = static_cast<size_t>(bits / 8);
      for (int64_t i = 0; i < elements; ++i) std::memcpy(data + static_cast<size_t>(i) * size, one, size);
    }
  } else if (accept_word("hex")) {
    const Token t = expect(Tok::kString, "the bytes as a string of hex digits");
    if (t.text.size() / 2 != static_cast<uint64_t>(bytes) || t.text.size() % 2 != 0)
      source().fail(
          "TSR-I011", t.offset,
          "found " + std::to_string(t.text.size()) + " hex digits, expected " + std::to_string(bytes) + " bytes of two digits");
    reserve(bytes);
    auto value = [](char c) {
      return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    for (int64_t i = 0; i < bytes; ++i) {
      const int hi = value(t.text[static_cast<size_t>(2 * i)]), lo = value(t.text[static_cast<size_t>(2 * i + 1)]);
      if (hi < 0 || lo < 0)
        source().fail("TSR-I011", t.offset + 1 + static_cast<size_t>(2 * i), "found something that is no hex digit");
      data[i] = static_cast<char>(hi << 4 | lo);
    }
    if (is_packed(type.dtype)) {
      const int bits = dtype_bits(type.dtype);
      const int64_t used = elements % (8 / bits);
      if (used != 0 && (static_cast<unsigned char>(data[bytes - 1]) >> used * bits) != 0)
        source().fail("TSR-I011", t.offset, "found bits behind the last element, expected zeros there");
    }
  } else if (type.rank == 0 && !at("[")) {
    reserve(bytes);
    element(type.dtype, data, 0);
  } else {
    const Token open = peek();
    // Each element takes a character at least, so a short text cannot claim much memory.
    if (static_cast<uint64_t>(elements) > source().text.size() - open.offset)
      source().fail("TSR-I011", open.offset, "found too few elements, expected " + std::to_string(elements));
    reserve(bytes);
    int64_t n = 0;
    expect("[");
    if (!at("]")) do {
        if (n == elements)
          source().fail("TSR-I011", peek().offset,
                        "found more elements than the " + std::to_string(elements) + " of the shape");
        element(type.dtype, data, n++);
      } while (accept(","));
    if (!at("]")) unexpected("',' or ']'");
    next();
    if (n != elements)
      source().fail("TSR-I011", open.offset,
                    "found " + counted(static_cast<uint64_t>(n), "element") + ", expected " + std::to_string(elements));
  }
  expect(">");

  auto* tensor = allocate<tsr_tensor>(1);
  auto* strides = allocate<int64_t>(type.rank);
  int64_t s = 1;
  for (uint32_t i = type.rank; i-- > 0;) {
    strides[i] = s;
    s *= std::max<int64_t>(type.sizes[i], 1);
  }
  *tensor = {data, type.dtype, type.rank, type.sizes, strides, 0, flags};
  return tensor;
}

// ------------------------------------------------------------------------------------------------------------ printing

void append_dense(std::string& out, const tsr_tensor& t, uint32_t flags, const NamedConstants* names) {
  static constexpr char kHex[] = "0123456789abcdef";
  const int64_t n = element_count(t);
  out += "dense<";
  tsr_type type{};
  type.dtype = t.dtype;
  type.rank = t.rank;
  type.sizes = t.sizes;
  append_type(out, nullptr, type);
  out += ": ";
  if (names) {
    const size_t at = out.size();
    out += "ref ";
    if (names->print(out, t)) {
      out += '>';
      return;
    }
    out.resize(at);
  }
  if (is_splat(t)) {
    out += "splat ";
    append_element(out, t, 0);
    out += '>';
    return;
  }
  bool list = n <= kListElements;
  for (int64_t i = 0; list && i < n; ++i) list = has_plain_text(t, i);
  if (list) {
    if (t.rank > 0) out += '[';
    for (int64_t i = 0; i < n; ++i) {
      if (i) out += ", ";
      append_element(out, t, i);
    }
    if (t.rank > 0) out += ']';
  } else if (n > kListElements && (flags & kPrintElideConstants)) {
    out += "elided";
  } else {
    const int64_t bytes = storage_bytes(t.dtype, n);
    out += "hex \"";
    const size_t at = out.size();
    out.resize(at + 2 * static_cast<size_t>(bytes));
    for (int64_t i = 0; i < bytes; ++i) {
      const unsigned char byte = byte_of(t, n, bytes, i);
      out[at + static_cast<size_t>(2 * i)] = kHex[byte >> 4];
      out[at + static_cast<size_t>(2 * i + 1)] = kHex[byte & 15];
    }
    out += '"';
  }
  out += '>';
}

bool is_splat(const tsr_tensor& t) {
  const int64_t n = element_count(t);
  return n > 1 && same_elements(t, n) && has_plain_text(t, 0);
}

bool same_constant(const tsr_tensor& x, const tsr_tensor& y) {
  if (x.dtype != y.dtype || x.rank != y.rank || !std::equal(x.sizes, x.sizes + x.rank, y.sizes)) return false;
  const int64_t n = element_count(x), bytes = storage_bytes(x.dtype, n);
  if (bytes <= 0) return true;
  return std::memcmp(x.data, y.data, static_cast<size_t>(bytes - 1)) == 0 &&
         byte_of(x, n, bytes, bytes - 1) == byte_of(y, n, bytes, bytes - 1);
}

}  // namespace tessera::core
