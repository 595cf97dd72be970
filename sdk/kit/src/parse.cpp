// SPDX-License-Identifier: Apache-2.0
// Recursive descent over the text form. Values keep the numbers they have in the text when those are dense; otherwise they are renumbered in
// order of appearance, as the printer would.
#include <cctype>
#include <charconv>
#include <map>

#include "tessera/kit/text.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

constexpr int kMaxNesting = 64;
constexpr size_t kMaxInsts = 1u << 20;

class Parser {
 public:
  explicit Parser(std::string_view text) : s_(text) {}

  Kernel run() {
    expect("kernel");
    k_.name = name('@');
    expect("(");
    // Symbols are written behind the buffers that use them: they are declared at first sight, and their minimum is read twice.
    const size_t start = at_;
    scan_symbols();
    at_ = start;
    while (!accept(")")) {
      if (!k_.buffers.empty()) expect(",");
      buffer();
    }
    if (accept("symbols")) {
      expect("(");
      do {
        word();
        expect(">=");
        integer();
      } while (accept(","));
      expect(")");
    }
    expect("{");
    expect("parallel");
    k_.parallel = axes();
    expect("{");
    k_.body = body(0);
    expect("}");
    skip();
    if (at_ != s_.size()) fail("the end of the text");
    return std::move(k_);
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < s_.size(); ++i) {
      ++column;
      if (s_[i] == '\n') ++line, column = 1;
    }
    const std::string found =
        at_ < s_.size() ? "'" + std::string(s_.substr(at_, s_.substr(at_, 16).find('\n'))).substr(0, 16) + "'" : "the end";
    throw sdk::Error(
        TSR_USER, "TSR-K025",
        "kernel text:" + std::to_string(line) + ":" + std::to_string(column) + ": expected " + expected + ", found " + found);
  }

  // ---- tokens
  void skip() {
    while (at_ < s_.size()) {
      if (std::isspace(static_cast<unsigned char>(s_[at_])))
        ++at_;
      else if (s_.substr(at_, 2) == "//")
        while (at_ < s_.size() && s_[at_] != '\n') ++at_;
      else
        return;
    }
  }
  static bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
  bool accept(std::string_view token) {
    skip();
    if (s_.substr(at_, token.size()) != token) return false;
    const size_t end = at_ + token.size();
    if (in_word(token.back()) && end < s_.size() && in_word(s_[end])) return false;
    at_ = end;
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("'" + std::string(token) + "'");
  }
  std::string word() {
    skip();
    const size_t start = at_;
    while (at_ < s_.size() && in_word(s_[at_])) ++at_;
    if (at_ == start) fail("a name");
    return std::string(s_.substr(start, at_ - start));
  }
  std::string name(char sigil) {
    skip();
    if (at_ >= s_.size() || s_[at_] != sigil) fail(std::string("a name that begins with '") + sigil + "'");
    ++at_;
    return word();
  }
  int64_t integer() {
    skip();
    int64_t n = 0;
    const auto [end, error] = std::from_chars(s_.data() + at_, s_.data() + s_.size(), n);
    if (error != std::errc()) fail("an integer");
    at_ = static_cast<size_t>(end - s_.data());
    return n;
  }
  Type type() {
    skip();
    const size_t before = at_;
    const Type t = type_named(word());
    if (t == Type::None) {
      at_ = before;
      fail("a type");
    }
    return t;
  }

  // ---- signature
  void scan_symbols() {
    const size_t open = s_.find('{', at_);
    const size_t at = s_.substr(0, open).find("symbols(", at_);
    if (at == s_.npos) return;
    at_ = at + 8;
    do {
      const std::string symbol = word();
      expect(">=");
      if (!symbols_.try_emplace(symbol, k_.add_symbol(symbol, integer())).second) fail("a symbol of another name");
    } while (accept(","));
  }
  void buffer() {
    Buffer b;
    b.name = name('%');
    expect(":");
    b.access = accept("inout") ? Access::InOut : accept("in") ? Access::In : (expect("out"), Access::Out);
    b.type = type();
    expect("[");
    b.extent = expr();
    expect("]");
    if (!buffers_.try_emplace(b.name, static_cast<uint32_t>(k_.buffers.size())).second) fail("a buffer of another name");
    k_.buffers.push_back(std::move(b));
  }
  std::vector<uint32_t> axes() {
    std::vector<uint32_t> out;
    skip();
    if (at_ < s_.size() && s_[at_] == '{') return out;
    do {
      const std::string axis = word();
      expect("<");
      const Expr extent = expr();
      const auto known = axes_.find(axis);
      if (known == axes_.end()) {
        axes_[axis] = k_.add_axis(axis, extent);
      } else if (k_.pool.extent(known->second) != extent) {
        fail("the extent that '" + axis + "' had before");
      }
      out.push_back(axes_[axis]);
    } while (accept(","));
    return out;
  }

  // ---- index expressions
  Expr expr(int depth = 0) {
    if (depth > kMaxNesting) fail("less nesting");
    Expr e = accept("-") ? k_.pool.sub(kZero, product(depth)) : product(depth);
    for (;;) {
      if (accept("+"))
        e = k_.pool.add(e, product(depth));
      else if (accept("-"))
        e = k_.pool.sub(e, product(depth));
      else
        return e;
    }
  }
  Expr product(int depth) {
    Expr e = factor(depth);
    while (accept("*")) e = k_.pool.mul(e, factor(depth));
    return e;
  }
  Expr factor(int depth) {
    skip();
    if (at_ >= s_.size()) fail("an index");
    const char c = s_[at_];
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '-') return k_.pool.number(integer());
    if (c == '%') return k_.pool.value(value());
    if (accept("(")) {
      const Expr e = expr(depth + 1);
      expect(")");
      return e;
    }
    const std::string w = word();
    if (w == "floordiv" || w == "mod" || w == "min" || w == "max") {
      expect("(");
      const Expr a = expr(depth + 1);
      expect(",");
      const Expr b = expr(depth + 1);
      expect(")");
      if (w == "min") return k_.pool.min(a, b);
      if (w == "max") return k_.pool.max(a, b);
      if (const auto n = k_.pool.as_number(b); n && *n <= 0) fail("a positive divisor");
      return w == "mod" ? k_.pool.mod(a, b) : k_.pool.floordiv(a, b);
    }
    if (const auto a = axes_.find(w); a != axes_.end()) return k_.pool.axis(a->second);
    if (const auto s = symbols_.find(w); s != symbols_.end()) return k_.pool.symbol(s->second);
    fail("an axis or a symbol, not '" + w + "'");
  }

  // ---- instructions
  uint32_t value() {
    const std::string n = name('%');
    const auto at = values_.find(n);
    if (at == values_.end()) fail("a value that was defined before, not '%" + n + "'");
    return at->second;
  }
  uint32_t buffer_ref() {
    const std::string n = name('%');
    const auto at = buffers_.find(n);
    if (at == buffers_.end()) fail("a buffer, not '%" + n + "'");
    return at->second;
  }
  std::vector<Item> body(int depth) {
    if (depth > kMaxNesting) fail("fewer nested loops");
    std::vector<Item> items;
    while (!accept("}")) {
      if (accept("loop")) {
        Loop loop;
        loop.axes = axes();
        expect("{");
        loop.body = body(depth + 1);
        k_.loops.push_back(std::move(loop));
        items.push_back({true, static_cast<uint32_t>(k_.loops.size() - 1)});
        continue;
      }
      if (k_.insts.size() >= kMaxInsts) fail("fewer instructions");
      const uint32_t id = inst();
      items.push_back({false, id});
    }
    return items;
  }
  uint32_t push(const Inst& x, const std::string& result = {}) {
    k_.insts.push_back(x);
    const auto id = static_cast<uint32_t>(k_.insts.size() - 1);
    if (!result.empty() && !values_.try_emplace(result, id).second) fail("a value of another name than '%" + result + "'");
    return id;
  }
  uint32_t inst() {
    Inst x;
    if (accept("store")) {
      x.op = Op::Store;
      x.id = buffer_ref();
      expect("[");
      x.index = expr();
      expect("]");
      expect(",");
      x.args[0] = value();
      if (accept("if")) x.args[1] = value();
      return push(x);
    }
    if (accept("check")) {
      x.op = Op::Check;
      x.args[0] = value();
      expect(",");
      x.id = static_cast<uint32_t>(integer());
      return push(x);
    }
    const std::string result = name('%');
    expect("=");
    const std::string op = word();
    int found = -1;
    for (int i = 0; i < kNumOps; ++i)
      if (op == op_name(static_cast<Op>(i))) found = i;
    if (found < 0 || op == "param") fail("an instruction, not '" + op + "'");
    x.op = static_cast<Op>(found);
    std::string literal;
    switch (x.op) {
      case Op::Const:
        skip();
        while (at_ < s_.size() && !std::isspace(static_cast<unsigned char>(s_[at_])) && s_[at_] != ':') literal += s_[at_++];
        break;
      case Op::Index: x.index = expr(); break;
      case Op::Load:
        x.id = buffer_ref();
        expect("[");
        x.index = expr();
        expect("]");
        if (accept("if")) {
          x.args[0] = value();
          expect("else");
          x.args[1] = value();
        }
        break;
      default: {
        if (x.op == Op::Convert) x.exact = accept("exact");
        if (x.op == Op::Lookup) x.id = table_named(word());
        if (x.op == Op::Call) x.id = function_named(word());
        if (x.op == Op::Reduce) {
          const std::string kind = word();
          for (uint32_t i = 0; i < kNumReduceKinds; ++i)
            if (kind == reduce_name(static_cast<ReduceKind>(i))) x.id = i;
          if (x.id == kNone) fail("a kind of reduction, not '" + kind + "'");
        }
        size_t n = 0;
        skip();
        if (at_ < s_.size() && s_[at_] == '%') do {
            if (n == 3) fail("at most three operands");
            x.args[n++] = value();
          } while (accept(","));
      }
    }
    expect(":");
    x.type = type();
    if (x.op == Op::Const) x.bits = constant(x.type, literal);
    return push(x, result);
  }
  uint64_t constant(Type t, const std::string& s) {
    const char *begin = s.data(), *end = s.data() + s.size();
    if (t == Type::Bool && (s == "true" || s == "false")) return s == "true";
    if (s.starts_with("0x")) {
      uint64_t bits = 0;
      if (std::from_chars(begin + 2, end, bits, 16).ptr != end) fail("a constant");
      return bits;
    }
    if (is_float(t)) {
      double x = 0;
      if (t == Type::F64) {
        if (std::from_chars(begin, end, x).ptr != end || s.empty()) fail("a number");
        return constant_bits(t, x);
      }
      float f = 0;
      if (std::from_chars(begin, end, f).ptr != end || s.empty()) fail("a number");
      return constant_bits(t, static_cast<double>(f));
    }
    if (is_unsigned(t)) {
      uint64_t n = 0;
      if (std::from_chars(begin, end, n).ptr != end || s.empty()) fail("a number");
      return constant_bits(t, static_cast<int64_t>(n));
    }
    int64_t n = 0;
    if (std::from_chars(begin, end, n).ptr != end || s.empty()) fail("a number");
    return constant_bits(t, n);
  }

  std::string_view s_;
  size_t at_ = 0;
  Kernel k_;
  std::map<std::string, uint32_t> symbols_, buffers_, axes_, values_;
};

}  // namespace

Kernel parse(std::string_view text) { return Parser(text).run(); }

}  // namespace tessera::kit
