// SPDX-License-Identifier: Apache-2.0
#include "dims.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tessera/plugin.hpp"
#include "tessera/sizes.hpp"

namespace tessera::opset {
namespace {

[[noreturn]] void overflow(const char* op, tsr_dim a, tsr_dim b) {
  throw sdk::Error(TSR_USER, "TSR-S001",
                   "size arithmetic overflows 64 bits: " + std::to_string(a) + " " + op + " " + std::to_string(b),
                   "make the tensors smaller");
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t compute(tsr_dim_op op, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (op) {
    case TSR_DIM_ADD:
      if (__builtin_add_overflow(a, b, &r)) overflow("+", a, b);
      return r;
    case TSR_DIM_SUB:
      if (__builtin_sub_overflow(a, b, &r)) overflow("-", a, b);
      return r;
    case TSR_DIM_MUL:
      if (__builtin_mul_overflow(a, b, &r)) overflow("*", a, b);
      return r;
    case TSR_DIM_FLOORDIV:
    case TSR_DIM_MOD:
      if (b == 0) throw sdk::Error(TSR_USER, "TSR-S003", "division of the size " + std::to_string(a) + " by zero");
      if (b == -1) return op == TSR_DIM_MOD ? 0 : compute(TSR_DIM_SUB, 0, a);
      return op == TSR_DIM_FLOORDIV ? floor_divide(a, b) : a - b * floor_divide(a, b);
    case TSR_DIM_MIN: return std::min(a, b);
    case TSR_DIM_MAX: return std::max(a, b);
    default: throw sdk::Error(TSR_BUG, "TSR-B004", "size expression with an unknown operation");
  }
}

bool holds(tsr_relation r, int64_t a, int64_t b) {
  switch (r) {
    case TSR_EQ: return a == b;
    case TSR_NE: return a != b;
    case TSR_LT: return a < b;
    case TSR_LE: return a <= b;
    case TSR_GT: return a > b;
    case TSR_GE: return a >= b;
    case TSR_DIVISIBLE: return b != 0 && compute(TSR_DIM_MOD, a, b) == 0;
  }
  return false;
}

constexpr size_t kReadable = 400;  // characters of an operand that are repeated in a message

const tsr_symbol& symbol_of(const tsr_tables& t, tsr_dim d) {
  const uint32_t symbol = TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d))->symbol;
  return *TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, symbol);
}

struct Text {
  std::string text;
  int precedence;  // 1 sum, 2 product, 3 atom
};

Text size_text(const tsr_tables& t, tsr_dim d) {
  const auto leaf = [&](tsr_dim x) { return Text{Dims::known(x) ? std::to_string(x) : symbol_of(t, x).name, 3}; };
  return sdk::fold_size<Text>(t, d, leaf, [](uint32_t op, const Text& a, const Text& b) {
    const auto part = [](const Text& x, int outer) {
      if (x.text.size() > kReadable) return std::string("...");
      return x.precedence < outer ? "(" + x.text + ")" : x.text;
    };
    const auto infix = [&](const char* name, int level) { return Text{part(a, level) + name + part(b, level + 1), level}; };
    const auto call = [&](const char* name) { return Text{name + ("(" + part(a, 0)) + ", " + part(b, 0) + ")", 3}; };
    switch (op) {
      case TSR_DIM_ADD: return infix(" + ", 1);
      case TSR_DIM_SUB: return infix(" - ", 1);
      case TSR_DIM_MUL: return infix(" * ", 2);
      case TSR_DIM_FLOORDIV: return call("floordiv");
      case TSR_DIM_MOD: return call("mod");
      case TSR_DIM_MIN: return call("min");
      default: return call("max");
    }
  });
}

double estimate_in(const tsr_tables& t, tsr_dim d) {
  const auto leaf = [&](tsr_dim x) {
    if (Dims::known(x)) return static_cast<double>(x);
    const tsr_symbol& s = symbol_of(t, x);
    return static_cast<double>(s.hint >= 0 ? s.hint : std::clamp<int64_t>(64, s.min, std::max(s.min, s.max)));
  };
  return sdk::fold_size<double>(t, d, leaf, [](uint32_t op, double a, double b) {
    switch (op) {
      case TSR_DIM_ADD: return a + b;
      case TSR_DIM_SUB: return a - b;
      case TSR_DIM_MUL: return a * b;
      case TSR_DIM_FLOORDIV: return b != 0 ? std::floor(a / b) : 0;
      case TSR_DIM_MOD: return b != 0 ? a - b * std::floor(a / b) : 0;
      case TSR_DIM_MIN: return std::min(a, b);
      default: return std::max(a, b);
    }
  });
}

}  // namespace

bool Dims::known(std::span<const tsr_dim> d) {
  return std::all_of(d.begin(), d.end(), [](tsr_dim x) { return known(x); });
}

tsr_dim Dims::make(tsr_dim_op op, tsr_dim a, tsr_dim b) const {
  if (known(a) && known(b)) return compute(op, a, b);
  if (!graph_) throw sdk::Error(TSR_BUG, "TSR-B008", "a symbolic size was given without a graph");
  tsr_dim out = 0;
  sdk::check(sdk::host().graph->dim(graph_, op, a, b, &out));
  return out;
}

tsr_dim Dims::product(std::span<const tsr_dim> d) const {
  // A zero first: [0, 2^40, 2^40] is a legal shape.
  if (std::find(d.begin(), d.end(), 0) != d.end()) return 0;
  tsr_dim p = 1;
  for (tsr_dim x : d) p = mul(p, x);
  return p;
}

tsr_dim Dims::distance(tsr_dim low, tsr_dim high) const {
  // The other operand of `op` in d, where one is `bound`.
  const auto clamped = [&](tsr_dim d, uint32_t op, tsr_dim bound, tsr_dim* other) {
    if (known(d)) return false;
    const tsr_tables& t = *sdk::host().graph->tables(graph_);
    const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d));
    *other = e.lhs == bound ? e.rhs : e.lhs;
    return e.op == op && (e.lhs == bound || e.rhs == bound);
  };
  tsr_dim other = 0;
  if (clamped(low, TSR_DIM_MIN, high, &other)) return max(sub(high, other), 0);
  if (clamped(high, TSR_DIM_MAX, low, &other)) return max(sub(other, low), 0);
  return sub(high, low);
}

tsr_truth Dims::compare(tsr_relation r, tsr_dim a, tsr_dim b) const {
  if (known(a) && known(b)) return holds(r, a, b) ? TSR_TRUE : TSR_FALSE;
  return graph_ ? sdk::host().graph->dim_compare(graph_, r, a, b) : TSR_UNKNOWN;
}

bool Dims::assume(tsr_relation r, tsr_dim a, tsr_dim b, const char* why) const {
  switch (compare(r, a, b)) {
    case TSR_TRUE: return true;
    case TSR_FALSE: return false;
    default: sdk::check(sdk::host().graph->dim_require(graph_, r, a, b, why)); return true;
  }
}

tsr_dim Dims::unbacked(int64_t min, int64_t max) const {
  if (!graph_) throw sdk::Error(TSR_BUG, "TSR-B008", "a size that depends on data cannot be inferred without a graph");
  return sdk::host().graph->symbol_create(graph_, "u", min, max, 1);
}

bool Dims::is_unbacked_symbol(tsr_dim d) const {
  if (known(d) || !graph_) return false;
  const tsr_tables& t = *sdk::host().graph->tables(graph_);
  const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d));
  return e.op == TSR_DIM_SYMBOL && TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, e.symbol)->unbacked;
}

std::vector<uint32_t> Dims::unbacked_symbols(tsr_dim d) const {
  std::vector<uint32_t> out;
  if (known(d) || !graph_) return out;
  const tsr_tables& t = *sdk::host().graph->tables(graph_);
  std::unordered_set<tsr_dim> seen;  // subexpressions are shared
  std::vector<tsr_dim> stack = {d};
  while (!stack.empty()) {
    const tsr_dim x = stack.back();
    stack.pop_back();
    if (known(x) || !seen.insert(x).second) continue;
    const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(x));
    if (e.op != TSR_DIM_SYMBOL) {
      stack.push_back(e.lhs);
      stack.push_back(e.rhs);
    } else if (TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, e.symbol)->unbacked) {
      out.push_back(e.symbol);
    }
  }
  return out;
}

// Whether the call at hand has given all the sizes that `d` is made of.
bool Dims::is_given(tsr_dim d) const {
  const tsr_tables& t = *sdk::host().graph->tables(graph_);
  const auto leaf = [&](tsr_dim x) { return known(x) || symbol_of(t, x).hint >= 0; };
  return sdk::fold_size<bool>(t, d, leaf, [](uint32_t, bool a, bool b) { return a && b; });
}

bool Dims::assume_repeats(tsr_dim have, tsr_dim want, const char* why) const {
  if (have == 1 || have == want) return true;
  const tsr_truth equal = compare(TSR_EQ, have, want), one = compare(TSR_EQ, have, 1);
  if (equal == TSR_TRUE || one == TSR_TRUE) return true;
  if (known(have) && known(want)) return false;
  const tsr_dim gap = max(sub(want, have), sub(have, want)), off = max(sub(have, 1), sub(1, have));
  const tsr_dim either = min(gap, off);
  // Before what follows from later assumptions: those may exclude one of both, and the node keeps the assumption that it was
  // made with.
  if (compare(TSR_LE, either, 0) == TSR_TRUE) return true;
  if (equal == TSR_FALSE) return assume(TSR_EQ, have, 1, why);
  // A guard on what this call has shown; other calls get an entry of their own.
  if (one == TSR_FALSE || (is_given(have) && is_given(want)) ||
      sdk::broadcast_means_equal(*sdk::host().graph->tables(graph_), have, want))
    return assume(TSR_EQ, have, want, why);
  return assume(TSR_LE, either, 0, why);
}

bool Dims::broadcast(tsr_dim a, tsr_dim b, tsr_dim& out) const {
  if (a == b || b == 1) return out = a, true;
  if (a == 1) return out = b, true;
  // Of two sizes that may be 1 at run time neither is taken for 1: that is what their assumed equality means.
  out = known(a) ? a : b;
  return assume(TSR_EQ, a, b, "sizes are broadcast against each other");
}

double Dims::estimate(tsr_dim d) const {
  if (known(d)) return static_cast<double>(d);
  return graph_ ? estimate_in(*sdk::host().graph->tables(graph_), d) : 0;
}

std::string Dims::print(tsr_dim d) const {
  if (known(d)) return std::to_string(d);
  return graph_ ? size_text(*sdk::host().graph->tables(graph_), d).text : "?";
}

std::string Dims::print(std::span<const tsr_dim> d) const {
  std::string s = "[";
  for (size_t i = 0; i < d.size(); ++i) s += (i ? ", " : "") + print(d[i]);
  return s + "]";
}

}  // namespace tessera::opset
