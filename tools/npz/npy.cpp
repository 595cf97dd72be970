// SPDX-License-Identifier: Apache-2.0
// One .npy: the header (a Python dict literal) and the elements behind it.
// https://numpy.org/neps/nep-0001-npy-format.html
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <optional>

#include "npz/internal.hpp"

namespace tessera::npz {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are kept as little-endian files hold them");

constexpr size_t max_header =
    size_t{1} << 20;             // numpy refuses above 10,000 by default; structured types, refused below, are the long ones
constexpr size_t max_rank = 64;  // numpy 2's limit

constexpr char shape_hint[] = "save the array again with numpy.save or numpy.savez";

// ------------------------------------------------------------------------------------------------------- element types

struct Element {
  char kind = 0;  // f i u b c V
  size_t size = 0;
  bool big_endian = false;

  [[nodiscard]] std::string canonical() const {
    return std::string(size == 1 || kind == 'V' ? "|" : "<") + kind + std::to_string(size);
  }
};

std::optional<Element> parse_descr(const std::string& descr) {
  if (descr.size() < 3 || descr.size() > 4 || std::strchr("<>|=", descr[0]) == nullptr) return std::nullopt;
  Element e;
  e.kind = descr[1];
  for (size_t i = 2; i < descr.size(); ++i) {
    if (descr[i] < '0' || descr[i] > '9') return std::nullopt;
    e.size = e.size * 10 + static_cast<size_t>(descr[i] - '0');
  }
  if (descr[2] == '0') return std::nullopt;
  e.big_endian = descr[0] == '>' && e.size > 1;
  if (e.kind == 'f' && e.size == 1) e.kind = 'V';  // 8-bit floats, as some releases of ml_dtypes spell them
  const auto one_of = [&](std::initializer_list<size_t> sizes) { return std::ranges::find(sizes, e.size) != sizes.end(); };
  bool known = false;
  switch (e.kind) {
    case 'f': known = one_of({2, 4, 8}); break;
    case 'i':
    case 'u': known = one_of({1, 2, 4, 8}); break;
    case 'b': known = one_of({1}); break;
    case 'c': known = one_of({8, 16}); break;
    case 'V': known = one_of({1, 2}) && !e.big_endian; break;  // the bytes' order is unknown
    default: break;
  }
  if (!known || (descr[0] == '|' && e.size > 1 && e.kind != 'V')) return std::nullopt;
  return e;
}

std::string unsupported_hint(const std::string& descr) {
  const char kind = descr.size() > 1 ? descr[1] : 0;
  if (kind == 'O') return "object arrays hold pickled Python objects, which are never loaded; convert with .astype('float32')";
  if (kind == 'U' || kind == 'S') return "tensors hold no text; encode it as integers";
  if (kind == 'M' || kind == 'm') return "convert times to integers with .view('int64')";
  if (kind == 'V') return "save a type that numpy lacks as raw elements of 1 or 2 bytes: x.view('V1') or x.view('V2')";
  return "convert it with .astype(...) to one of float16/32/64, (u)int8/16/32/64, bool, complex64/128";
}

// -------------------------------------------------------------------------------------------------------------- header

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// The subset of Python literals that numpy writes: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(const ByteReader& in, const std::string& text, uint64_t base) : in_(in), text_(text), base_(base) {}

  Header parse() {
    Header h;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (peek() != '}') {
      const size_t at = at_;
      const std::string key = string();
      bool* seen = key == "descr" ? &descr : key == "fortran_order" ? &order : key == "shape" ? &shape : nullptr;
      if (!seen) fail(at, "unknown key " + in_quotes(key) + " in the header; expected descr, fortran_order and shape");
      if (*seen) fail(at, "key " + in_quotes(key) + " twice in the header");
      *seen = true;
      expect(':');
      if (seen == &descr)
        h.descr = element_type();
      else if (seen == &order)
        h.fortran_order = boolean();
      else
        h.shape = tuple();
      if (peek() != '}') expect(',');
    }
    expect('}');
    if (peek() != 0) fail(at_, "text after the header's closing brace");
    if (!descr || !order || !shape)
      fail(at_, std::string("the header has no ") + (!descr ? "'descr'" : !order ? "'fortran_order'" : "'shape'"));
    return h;
  }

 private:
  [[noreturn]] void fail(size_t at, const std::string& message, const char* code = "TSR-N006",
                         const std::string& hint = shape_hint) const {
    in_.fail(code, base_ + at, message, hint);
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  [[nodiscard]] std::string found() {
    return peek() == 0 && at_ >= text_.size() ? "the end" : in_quotes(std::string(1, text_[at_]));
  }
  void expect(char c) {
    if (peek() != c || at_ >= text_.size()) fail(at_, "found " + found() + " in the header, expected '" + c + "'");
    ++at_;
  }
  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(at_, "found " + found() + " in the header, expected a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string::npos) fail(at_, "unterminated string in the header");
    std::string value = text_.substr(at_ + 1, end - at_ - 1);
    if (value.find('\\') != std::string::npos) fail(at_, "escape in a string of the header");
    at_ = end + 1;
    return value;
  }
  std::string element_type() {
    if (peek() == '[' || peek() == '(')
      fail(at_, "a structured element type; expected a number type", "TSR-N007", "save each field as an array of its own");
    const size_t at = at_;
    std::string descr = string();
    if (!parse_descr(descr))
      fail(at, "element type " + in_quotes(descr) + " is none that tensors have", "TSR-N007", unsupported_hint(descr));
    return descr;
  }
  bool boolean() {
    peek();
    for (const bool value : {false, true}) {
      const std::string word = value ? "True" : "False";
      if (text_.compare(at_, word.size(), word) == 0) {
        at_ += word.size();
        return value;
      }
    }
    fail(at_, "found " + found() + " in the header, expected True or False");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    bool comma = true;
    while (peek() != ')') {
      if (!comma) fail(at_, "found " + found() + " in the shape, expected ',' or ')'");
      values.push_back(size());
      if (values.size() > max_rank)
        fail(at_, "more than " + std::to_string(max_rank) + " dimensions", "TSR-N008", "reshape the array");
      comma = peek() == ',';
      if (comma) ++at_;
    }
    if (values.size() == 1 && !comma) fail(at_, "found a number in parentheses, expected a tuple for the shape");
    expect(')');
    return values;
  }
  int64_t size() {
    const size_t at = at_;
    if (peek() == '-') fail(at_, "negative size in the shape", "TSR-N008");
    int64_t value = 0;
    bool digits = false;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      digits = true;
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, text_[at_] - '0', &value))
        fail(at, "a size in the shape does not fit 63 bits", "TSR-N008");
    }
    if (!digits) fail(at_, "found " + found() + " in the shape, expected a size");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
    return value;
  }

  const ByteReader& in_;
  const std::string& text_;
  uint64_t base_;
  size_t at_ = 0;
};

std::string print_shape(const std::vector<int64_t>& shape) {
  std::string s = "(";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + (shape.size() == 1 ? ",)" : ")");
}

// Bytes of the array, or nothing when they do not fit int64_t. A zero dimension does not excuse the others: strides are
// products of them.
std::optional<uint64_t> array_bytes(const std::vector<int64_t>& shape, size_t item) {
  uint64_t extent = item;
  bool empty = false;
  for (const int64_t d : shape) {
    if (d < 0) return std::nullopt;
    if (d == 0) empty = true;
    if (!multiply(extent, d == 0 ? 1 : static_cast<uint64_t>(d), extent)) return std::nullopt;
    if (extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  }
  return empty ? 0 : extent;
}

// ------------------------------------------------------------------------------------------------------------ elements

void swap_bytes(std::vector<std::byte>& data, size_t width) {
  for (size_t i = 0; i < data.size(); i += width)
    std::reverse(data.begin() + static_cast<ptrdiff_t>(i), data.begin() + static_cast<ptrdiff_t>(i + width));
}

template <size_t Item>
void gather_row_major(const std::byte* src, std::byte* dst, const std::vector<int64_t>& shape, size_t count) {
  const size_t rank = shape.size();
  std::array<size_t, max_rank> stride{}, index{};  // strides of the column-major source, in elements
  size_t step = 1;
  for (size_t d = 0; d < rank; ++d) {
    stride[d] = step;
    step *= static_cast<size_t>(shape[d]);
  }
  size_t from = 0;
  for (size_t to = 0; to < count; ++to) {
    std::memcpy(dst + to * Item, src + from * Item, Item);
    for (size_t d = rank; d-- > 0;) {
      from += stride[d];
      if (++index[d] < static_cast<size_t>(shape[d])) break;
      from -= stride[d] * static_cast<size_t>(shape[d]);
      index[d] = 0;
    }
  }
}

std::vector<std::byte> to_row_major(const std::vector<std::byte>& src, const std::vector<int64_t>& shape, size_t item) {
  std::vector<std::byte> dst(src.size());
  const size_t count = src.size() / item;
  switch (item) {
    case 1: gather_row_major<1>(src.data(), dst.data(), shape, count); break;
    case 2: gather_row_major<2>(src.data(), dst.data(), shape, count); break;
    case 4: gather_row_major<4>(src.data(), dst.data(), shape, count); break;
    case 8: gather_row_major<8>(src.data(), dst.data(), shape, count); break;
    default: gather_row_major<16>(src.data(), dst.data(), shape, count); break;
  }
  return dst;
}

}  // namespace

size_t item_size(const std::string& descr) noexcept {
  const auto e = parse_descr(descr);
  return e && e->canonical() == descr ? e->size : 0;
}

Array read_npy(ByteReader& in) {
  unsigned char prefix[12];
  if (in.size < 10) in.fail("TSR-N006", in.size, "the .npy ends in its first 10 bytes", save_again_hint);
  in.read(prefix, 8);
  if (std::memcmp(prefix, "\x93NUMPY", 6) != 0)
    in.fail("TSR-N006", 0, "it does not begin with \\x93NUMPY", "only .npy members are read: write the file with numpy.savez");
  const int major = prefix[6], minor = prefix[7];
  if (major < 1 || major > 3 || minor != 0)
    in.fail("TSR-N006", 6, ".npy version " + std::to_string(major) + "." + std::to_string(minor) + "; expected 1.0, 2.0 or 3.0",
            "save it with a current numpy");
  const size_t width = major == 1 ? 2 : 4;
  if (in.size < 8 + width) in.fail("TSR-N006", in.size, "the .npy ends inside its header", save_again_hint);
  in.read(prefix + 8, width);
  size_t length = prefix[8] | static_cast<size_t>(prefix[9]) << 8;
  if (width == 4) length |= static_cast<size_t>(prefix[10]) << 16 | static_cast<size_t>(prefix[11]) << 24;
  const uint64_t base = 8 + width;
  if (length > in.size - base || length > max_header)
    in.fail("TSR-N006", 8,
            "a header of " + std::to_string(length) + " bytes; expected at most " +
                std::to_string(std::min<uint64_t>(in.size - base, max_header)),
            save_again_hint);
  std::string text(length, '\0');
  in.read(text.data(), length);
  Header header = HeaderParser(in, text, base).parse();

  const Element element = *parse_descr(header.descr);
  const auto bytes = array_bytes(header.shape, element.size);
  const uint64_t rest = in.size - in.position;
  if (!bytes)
    in.fail("TSR-N008", base,
            "shape " + print_shape(header.shape) + " of '" + element.canonical() + "' exceeds 63 bits of bytes", shape_hint);
  if (*bytes != rest)
    in.fail("TSR-N008", in.position,
            "found " + std::to_string(rest) + " bytes of data, expected " + std::to_string(*bytes) + " for shape " +
                print_shape(header.shape) + " of '" + element.canonical() + "'",
            save_again_hint);

  Array array;
  array.descr = element.canonical();
  array.shape = std::move(header.shape);
  try {
    array.data.resize(static_cast<size_t>(*bytes));
    in.read(array.data.data(), array.data.size());
    in.finish();
    if (element.big_endian) swap_bytes(array.data, element.kind == 'c' ? element.size / 2 : element.size);
    if (element.kind == 'b')
      for (std::byte& b : array.data) b = std::byte{b != std::byte{0}};
    if (header.fortran_order && array.shape.size() > 1) array.data = to_row_major(array.data, array.shape, element.size);
  } catch (const std::bad_alloc&) {
    in.fail("TSR-N010", in.position, "no memory for " + std::to_string(*bytes) + " bytes", "use a machine with more memory");
  } catch (const std::length_error&) {
    in.fail("TSR-N010", in.position, "no memory for " + std::to_string(*bytes) + " bytes", "use a machine with more memory");
  }
  return array;
}

std::string npy_header(const Array& array, const std::string& file) {
  const size_t item = item_size(array.descr);
  if (item == 0)
    throw Error("TSR-N007", file, array.name, 0, "element type " + in_quotes(array.descr) + " cannot be written",
                "use a canonical descr such as '<f4', '|u1', '|b1' or '|V2'");
  const auto bytes = array_bytes(array.shape, item);
  if (!bytes || *bytes != array.data.size() || array.shape.size() > max_rank)
    throw Error("TSR-N008", file, array.name, 0,
                "the array has " + std::to_string(array.data.size()) + " bytes, expected " +
                    (bytes ? std::to_string(*bytes) : "a representable size") + " for shape " + print_shape(array.shape) +
                    " of '" + array.descr + "'",
                "pass contiguous data and at most 64 dimensions");
  std::string dict = "{'descr': '" + array.descr + "', 'fortran_order': False, 'shape': " + print_shape(array.shape) + ", }";
  // numpy leaves room for the first dimension to grow to 21 digits, and aligns the data to 64.
  if (!array.shape.empty()) dict.append(21 - std::to_string(array.shape[0]).size(), ' ');
  dict.append(63 - (10 + dict.size()) % 64, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 255);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace tessera::npz
