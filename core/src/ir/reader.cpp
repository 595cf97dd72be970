// SPDX-License-Identifier: Apache-2.0
#include "ir/reader.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ir/sizes.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {
namespace {

// Numbers below belong to the handles of size expressions (TSR_DIM_IS_EXPR).
constexpr int64_t kSmallestDim = INT64_MIN + (int64_t{1} << 32);

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (uint32_t i = 1; i < TSR_DTYPE_COUNT; ++i) names.emplace_back(dtype_name(i));
  return names;
}

}  // namespace

const char* Reader::copy(std::string_view s) {
  char* p = allocate<char>(s.size() + 1);
  std::memcpy(p, s.data(), s.size());
  p[s.size()] = 0;
  return p;
}

const char* Reader::string() { return copy(unescape(expect(Tok::kString, "a string"))); }

int64_t Reader::integer(const Token& t, bool negative) {
  const bool hex = t.text.size() > 2 && t.text[1] == 'x';
  const std::string_view digits = hex ? t.text.substr(2) : t.text;
  uint64_t magnitude = 0;
  const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, hex ? 16 : 10);
  const uint64_t limit = static_cast<uint64_t>(INT64_MAX) + (negative ? 1 : 0);
  if (ec != std::errc{} || end != digits.data() + digits.size() || magnitude > limit)
    source().fail("TSR-I006", t.offset, std::string("found ") + (negative ? "-" : "") + std::string(t.text.substr(0, 40)) +
                  ", expected a number that fits 64 bits");
  return negative ? static_cast<int64_t>(0 - magnitude) : static_cast<int64_t>(magnitude);
}

int64_t Reader::integer() {
  const bool negative = accept("-");
  return integer(expect(Tok::kInt, "an integer"), negative);
}

double Reader::real(const Token& t, bool negative) {
  double v = 0;
  if (t.kind == Tok::kIdent && t.text == "inf") {
    v = std::numeric_limits<double>::infinity();
  } else if (t.kind == Tok::kIdent && t.text == "nan" && !negative) {
    uint64_t bits = 0x7ff8000000000000;
    if (accept("(")) {
      const Token payload = expect(Tok::kInt, "the bits of a NaN, such as 0x7ff8000000000001");
      const std::string_view digits = payload.text.substr(std::min<size_t>(2, payload.text.size()));
      const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
      if (payload.text.substr(0, 2) != "0x" || ec != std::errc{} || end != digits.data() + digits.size() ||
          !std::isnan(std::bit_cast<double>(bits)))
        unexpected(payload, "the bits of a NaN, such as 0x7ff8000000000001");
      expect(")");
    }
    return std::bit_cast<double>(bits);
  } else if (t.kind == Tok::kInt || t.kind == Tok::kFloat) {
    const auto [end, ec] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
    if (ec != std::errc{} || end != t.text.data() + t.text.size())
      source().fail("TSR-I006", t.offset, "found " + std::string(t.text.substr(0, 40)) + ", expected a number that f64 can hold");
  } else {
    unexpected(t, "a number");
  }
  return negative ? -v : v;
}

double Reader::number() {
  const bool negative = accept("-");
  return real(next(), negative);
}

tsr_dtype Reader::dtype() {
  const Token t = expect(Tok::kIdent, "a dtype");
  const tsr_dtype d = dtype_from_name(t.text);
  if (d == TSR_DTYPE_INVALID)
    source().fail("TSR-I007", t.offset, "found '" + std::string(t.text.substr(0, 40)) + "', expected a dtype" +
                  did_you_mean(t.text.substr(0, 40), dtype_names()),
                  "dtypes: f64 f32 f16 bf16 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1 i2 .. i64 u2 .. u64 bool c64 c128");
  return d;
}

// --------------------------------------------------------------------------------------------------------------- sizes

tsr_dim Reader::plain(const Token& t, bool negative) {
  const int64_t v = integer(t, negative);
  if (v < kSmallestDim) source().fail("TSR-I006", t.offset, "found " + std::to_string(v) + ", expected a size of at least " +
                                      std::to_string(kSmallestDim));
  return v;
}

tsr_dim Reader::combine(tsr_dim_op op, tsr_dim a, tsr_dim b, const Token& at, DimState& state) {
  if (++state.operators > limits_.expression_operators)
    source().fail("TSR-I002", at.offset, "found a size of more than " + std::to_string(limits_.expression_operators) +
                  " operators, expected a shorter one");
  if (sizes_) {
    try {
      return sizes_->make(op, a, b);
    } catch (const Error& e) {
      source().fail_at(at.offset, e);
    }
  }
  source().fail("TSR-I003", at.offset, "found an expression, expected a plain number: there are no symbols here");
}

tsr_dim Reader::dim_atom(DimState& state) {
  if (++state.depth > limits_.expression_depth)
    source().fail("TSR-I002", peek().offset, "found a size nested deeper than " + std::to_string(limits_.expression_depth) + " levels");
  tsr_dim result;
  const Token t = peek();
  if (accept("-")) {
    if (peek().kind == Tok::kInt) result = plain(next(), true);
    else result = combine(TSR_DIM_MUL, dim_atom(state), -1, t, state);
  } else if (accept("(")) {
    result = dim_sum(state);
    expect(")");
  } else if (t.kind == Tok::kInt) {
    result = plain(next(), false);
  } else if (t.kind == Tok::kIdent) {
    next();
    static constexpr std::pair<std::string_view, tsr_dim_op> kFunctions[] = {
        {"floordiv", TSR_DIM_FLOORDIV}, {"mod", TSR_DIM_MOD}, {"min", TSR_DIM_MIN}, {"max", TSR_DIM_MAX}};
    const auto* f = std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](auto& k) { return k.first == t.text; });
    if (at("(")) {
      if (f == std::end(kFunctions)) unexpected(t, "floordiv, mod, min or max before '('");
      next();
      const tsr_dim a = dim_sum(state);
      expect(",");
      const tsr_dim b = dim_sum(state);
      expect(")");
      result = combine(f->second, a, b, t, state);
    } else {
      if (!sizes_) unexpected(t, "a plain number: there are no symbols here");
      if (!is_identifier(t.text)) unexpected(t, "a symbol: letters, digits and _ only");
      const std::string name(t.text);
      result = sizes_->find(name);
      if (result == -1) result = sizes_->symbol(name, 0, INT64_MAX, false);
    }
  } else {
    unexpected("a size: a number, a symbol or an expression of them");
  }
  --state.depth;
  return result;
}

tsr_dim Reader::dim_product(DimState& state) {
  tsr_dim a = dim_atom(state);
  while (at("*")) {
    const Token op = next();
    a = combine(TSR_DIM_MUL, a, dim_atom(state), op, state);
  }
  return a;
}

tsr_dim Reader::dim_sum(DimState& state) {
  tsr_dim a = dim_product(state);
  while (at("+") || at("-")) {
    const Token op = next();
    a = combine(op.punct == punct("+") ? TSR_DIM_ADD : TSR_DIM_SUB, a, dim_product(state), op, state);
  }
  return a;
}

tsr_dim Reader::dim() {
  DimState state;
  return dim_sum(state);
}

// --------------------------------------------------------------------------------------------------------------- types

std::string type_problem(const Sizes* sizes, const tsr_type& t) {
  if (!is_valid_dtype(t.dtype)) return "its dtype is invalid";
  if (t.rank > kMaxRank) return "it has " + std::to_string(t.rank) + " dimensions, more than " + std::to_string(kMaxRank);
  int64_t elements = 1;
  bool overflow = false, fixed = true;
  for (uint32_t i = 0; i < t.rank; ++i) {
    const tsr_dim d = t.sizes[i];
    if (TSR_DIM_IS_EXPR(d)) {
      fixed = false;
      if (sizes && sizes->range(d).max < 0) return "the size of dimension " + std::to_string(i) + ", " + sizes->print(d) + ", is negative";
    } else if (d < 0) {
      return "the size of dimension " + std::to_string(i) + ", " + std::to_string(d) + ", is negative";
    } else if (d > 0) {  // a zero elsewhere does not help: strides would still overflow
      overflow |= __builtin_mul_overflow(elements, d, &elements);
    }
  }
  int64_t bits;
  if (overflow || __builtin_mul_overflow(elements, int64_t{dtype_bits(t.dtype)}, &bits)) return "its size in bytes does not fit 64 bits";
  if (t.strides && dtype_bits(t.dtype) < 8) {
    if (!fixed) return "a packed dtype has no strides";
    int64_t dense = 1;
    for (uint32_t i = t.rank; i-- > 0;) {
      if (t.sizes[i] > 1 && t.strides[i] != dense) return "a packed dtype must be row-major";
      dense *= std::max<int64_t>(t.sizes[i], 1);
    }
  }
  return {};
}

tsr_type Reader::type() {
  const size_t begin = peek().offset;
  tsr_type t{};
  t.dtype = dtype();
  tsr_dim buffer[kMaxRank];
  auto read = [&](const char* closing) {
    uint32_t n = 0;
    if (!at(closing) && !at("]")) do {
        if (n == kMaxRank) source().fail("TSR-I008", peek().offset, "found more than " + std::to_string(kMaxRank) + " dimensions");
        buffer[n++] = dim();
      } while (accept(","));
    tsr_dim* p = allocate<tsr_dim>(n);
    std::copy(buffer, buffer + n, p);
    t.rank = n;
    return p;
  };
  expect("[");
  t.sizes = read(";");
  if (at(";")) {
    const Token semicolon = next();
    const uint32_t rank = t.rank;
    const tsr_dim* strides = read("]");
    if (t.rank != rank)
      source().fail("TSR-I008", semicolon.offset, "found " + counted(t.rank, "stride") + " for " + counted(rank, "dimension") + ", expected one each");
    if (rank > 0) t.strides = strides;
  }
  if (!at("]")) unexpected(t.strides ? "',' or ']'" : "',', ';' or ']'");
  next();
  if (peek().kind == Tok::kAt) t.device = host_core().device_id(name(next()).c_str());
  if (const std::string problem = type_problem(sizes_, t); !problem.empty())
    source().fail("TSR-I008", begin, "found a type that no tensor can have: " + problem,
                  "sizes are 0 or more, and their product times the element's size fits 64 bits");
  return t;
}

// ---------------------------------------------------------------------------------------------------------- attributes

template <class F>
uint32_t Reader::list(F&& element) {
  uint32_t n = 0;
  expect("[");
  if (!at("]")) do {
      element();
      ++n;
    } while (accept(","));
  if (!at("]")) unexpected("',' or ']'");
  next();
  return n;
}

tsr_attr Reader::attr(uint32_t kind) {
  tsr_attr a{};
  a.kind = kind;
  switch (kind) {
    case TSR_ATTR_INT: a.i = integer(); break;
    case TSR_ATTR_FLOAT: a.f = number(); break;
    case TSR_ATTR_BOOL:
      if (accept_word("true")) a.i = 1;
      else if (!accept_word("false")) unexpected("true or false");
      break;
    case TSR_ATTR_STRING: a.s = string(); break;
    case TSR_ATTR_DTYPE:
      if (!accept_word("invalid")) a.i = dtype();
      break;
    case TSR_ATTR_DIM: a.i = dim(); break;
    case TSR_ATTR_INTS:
    case TSR_ATTR_DIMS: {
      std::vector<int64_t> v;
      a.count = list([&] { v.push_back(kind == TSR_ATTR_INTS ? integer() : dim()); });
      a.ints = copy(v);
      break;
    }
    case TSR_ATTR_FLOATS: {
      std::vector<double> v;
      a.count = list([&] { v.push_back(number()); });
      a.floats = copy(v);
      break;
    }
    case TSR_ATTR_STRINGS: {
      std::vector<const char*> v;
      a.count = list([&] { v.push_back(string()); });
      a.strings = copy(v);
      break;
    }
    case TSR_ATTR_TENSOR: a.tensor = dense(); break;
    default: throw bug("TSR-B002", "attribute kind " + std::to_string(kind) + " has no text form");
  }
  return a;
}

// ----------------------------------------------------------------------------------------------------- dense constants

namespace {

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

}  // namespace

void Reader::float_element(uint32_t dtype, void* data, int64_t index) {
  const Token first = peek();
  const bool negative = accept("-");
  const Token t = next();
  auto refuse = [&](const char* why) {
    source().fail("TSR-I011", first.offset, "found " + std::string(negative ? "-" : "") + std::string(t.text.substr(0, 40)) +
                  ", expected a value of " + std::string(dtype_name(dtype)) + ": " + why);
  };
  if (dtype == TSR_F32 && (t.kind == Tok::kFloat || t.kind == Tok::kInt)) {
    float v;  // straight from the text: through f64 it would round twice
    const auto [end, ec] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
    if (ec != std::errc{} || end != t.text.data() + t.text.size()) refuse("it is out of range");
    return store_from(dtype, data, index, negative ? -v : v);
  }
  double v = real(t, negative);
  if (dtype == TSR_F8E8M0 && std::isfinite(v)) v = static_cast<float>(v);  // 2^-127 prints as the shortest f32, a little above it
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
      const uint64_t limit = is_signed ? (uint64_t{1} << (bits - 1)) - (negative ? 0 : 1)
                             : negative ? 0 : bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1;
      if (ec != std::errc{} || end != t.text.data() + t.text.size() || magnitude > limit)
        source().fail("TSR-I011", first.offset, std::string("found ") + (negative ? "-" : "") + std::string(t.text.substr(0, 40)) +
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
  if (type.strides || type.device) source().fail("TSR-I011", type_offset, "found strides or a device, expected a plain dtype and shape");
  for (uint32_t i = 0; i < type.rank; ++i) {
    if (TSR_DIM_IS_EXPR(type.sizes[i])) source().fail("TSR-I011", type_offset, "found a symbolic size, expected numbers: a constant's shape is fixed");
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
  if (accept_word("splat")) {
    if (elements > 0) {
      if (bytes > limits_.splat_bytes - splat_bytes_)
        source().fail("TSR-I002", begin, "found splat constants of more than " + std::to_string(limits_.splat_bytes >> 20) +
                      " MiB, expected a smaller constant", "use a `full` op, or an input, for a large tensor of one value");
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
      source().fail("TSR-I011", t.offset, "found " + std::to_string(t.text.size()) + " hex digits, expected " + std::to_string(bytes) +
                    " bytes of two digits");
    reserve(bytes);
    auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    for (int64_t i = 0; i < bytes; ++i) {
      const int hi = value(t.text[static_cast<size_t>(2 * i)]), lo = value(t.text[static_cast<size_t>(2 * i + 1)]);
      if (hi < 0 || lo < 0) source().fail("TSR-I011", t.offset + 1 + static_cast<size_t>(2 * i), "found something that is no hex digit");
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
        if (n == elements) source().fail("TSR-I011", peek().offset, "found more elements than the " + std::to_string(elements) + " of the shape");
        element(type.dtype, data, n++);
      } while (accept(","));
    if (!at("]")) unexpected("',' or ']'");
    next();
    if (n != elements)
      source().fail("TSR-I011", open.offset, "found " + counted(static_cast<uint64_t>(n), "element") + ", expected " + std::to_string(elements));
  }
  expect(">");

  auto* tensor = allocate<tsr_tensor>(1);
  auto* strides = allocate<int64_t>(type.rank);
  int64_t s = 1;
  for (uint32_t i = type.rank; i-- > 0;) {
    strides[i] = s;
    s *= std::max<int64_t>(type.sizes[i], 1);
  }
  *tensor = {data, type.dtype, type.rank, type.sizes, strides, 0, TSR_TENSOR_CONTIGUOUS};
  return tensor;
}

}  // namespace tessera::core
