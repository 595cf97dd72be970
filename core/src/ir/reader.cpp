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
    source().fail("TSR-I006", t.offset,
                  std::string("found ") + (negative ? "-" : "") + std::string(t.text.substr(0, 40)) +
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
      source().fail("TSR-I006", t.offset,
                    "found " + std::string(t.text.substr(0, 40)) + ", expected a number that f64 can hold");
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
    source().fail("TSR-I007", t.offset,
                  "found '" + std::string(t.text.substr(0, 40)) + "', expected a dtype" +
                      did_you_mean(t.text.substr(0, 40), dtype_names()),
                  "dtypes: f64 f32 f16 bf16 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1 i2 .. i64 u2 .. u64 "
                  "bool c64 c128");
  return d;
}

// --------------------------------------------------------------------------------------------------------------- sizes

tsr_dim Reader::plain(const Token& t, bool negative) {
  const int64_t v = integer(t, negative);
  if (v < kSmallestDim)
    source().fail("TSR-I006", t.offset,
                  "found " + std::to_string(v) + ", expected a size of at least " + std::to_string(kSmallestDim));
  return v;
}

tsr_dim Reader::combine(tsr_dim_op op, tsr_dim a, tsr_dim b, const Token& at, DimState& state) {
  if (++state.operators > limits_.expression_operators)
    source().fail(
        "TSR-I002", at.offset,
        "found a size of more than " + std::to_string(limits_.expression_operators) + " operators, expected a shorter one");
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
    source().fail("TSR-I002", peek().offset,
                  "found a size nested deeper than " + std::to_string(limits_.expression_depth) + " levels");
  tsr_dim result;
  const Token t = peek();
  if (accept("-")) {
    if (peek().kind == Tok::kInt)
      result = plain(next(), true);
    else
      result = combine(TSR_DIM_MUL, dim_atom(state), -1, t, state);
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
      if (const auto it = defined_.find(name); it != defined_.end()) {
        result = it->second;
      } else {
        result = sizes_->find(name);
        if (result == -1) result = sizes_->symbol(name, 0, INT64_MAX, false);
      }
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
      if (sizes && sizes->range(d).max < 0)
        return "the size of dimension " + std::to_string(i) + ", " + sizes->print(d) + ", is negative";
    } else if (d < 0) {
      return "the size of dimension " + std::to_string(i) + ", " + std::to_string(d) + ", is negative";
    } else if (d > 0) {  // a zero elsewhere does not help: strides would still overflow
      overflow |= __builtin_mul_overflow(elements, d, &elements);
    }
  }
  int64_t bits;
  if (overflow || __builtin_mul_overflow(elements, int64_t{dtype_bits(t.dtype)}, &bits))
    return "its size in bytes does not fit 64 bits";
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
        if (n == kMaxRank)
          source().fail("TSR-I008", peek().offset, "found more than " + std::to_string(kMaxRank) + " dimensions");
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
      source().fail("TSR-I008", semicolon.offset,
                    "found " + counted(t.rank, "stride") + " for " + counted(rank, "dimension") + ", expected one each");
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
      if (accept_word("true"))
        a.i = 1;
      else if (!accept_word("false"))
        unexpected("true or false");
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
    default: throw bug("TSR-B006", "attribute kind " + std::to_string(kind) + " has no text form");
  }
  return a;
}

}  // namespace tessera::core
