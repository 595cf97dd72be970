// SPDX-License-Identifier: Apache-2.0
// Tokens, index expressions and instructions of the text forms, which the parsers of kernels and of programs share.
#pragma once

#include <cctype>
#include <charconv>
#include <map>
#include <string>
#include <string_view>

#include "tessera/kit/ir.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

class TextParser {
 protected:
  static constexpr int kMaxNesting = 64;
  static constexpr size_t kMaxInsts = 1u << 20;

  // `what` and `code` of messages. The pool is used once the constructor has returned.
  TextParser(std::string_view text, const char* what, const char* code, IndexPool& pool)
      : s_(text), what_(what), code_(code), pool_(pool) {}

  [[noreturn]] void fail(const std::string& expected) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < s_.size(); ++i) {
      ++column;
      if (s_[i] == '\n') ++line, column = 1;
    }
    const std::string found =
        at_ < s_.size() ? "'" + std::string(s_.substr(at_, s_.substr(at_, 16).find('\n'))).substr(0, 16) + "'" : "the end";
    throw sdk::Error(TSR_USER, code_,
                     std::string(what_) + ":" + std::to_string(line) + ":" + std::to_string(column) + ": expected " + expected +
                         ", found " + found);
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

  // ---- index expressions
  Expr expr(int depth = 0) {
    if (depth > kMaxNesting) fail("less nesting");
    Expr e = accept("-") ? pool_.sub(kZero, product(depth)) : product(depth);
    for (;;) {
      if (accept("+"))
        e = pool_.add(e, product(depth));
      else if (accept("-"))
        e = pool_.sub(e, product(depth));
      else
        return e;
    }
  }
  Expr product(int depth) {
    Expr e = factor(depth);
    while (accept("*")) e = pool_.mul(e, factor(depth));
    return e;
  }
  Expr factor(int depth) {
    skip();
    if (at_ >= s_.size()) fail("an index");
    const char c = s_[at_];
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '-') return pool_.number(integer());
    if (c == '%') return pool_.value(value());
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
      if (w == "min") return pool_.min(a, b);
      if (w == "max") return pool_.max(a, b);
      if (const auto n = pool_.as_number(b); n && *n <= 0) fail("a positive divisor");
      return w == "mod" ? pool_.mod(a, b) : pool_.floordiv(a, b);
    }
    if (const auto a = axes_.find(w); a != axes_.end()) return pool_.axis(a->second);
    if (const auto s = symbols_.find(w); s != symbols_.end()) return pool_.symbol(s->second);
    fail("an axis or a symbol, not '" + w + "'");
  }

  // ---- references and instructions
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
  // A store or a check, if one stands here.
  bool effect(Inst& x, bool predicates = true) {
    if (accept("store")) {
      x.op = Op::Store;
      x.id = buffer_ref();
      expect("[");
      x.index = expr();
      expect("]");
      expect(",");
      x.args[0] = value();
      if (predicates && accept("if")) x.args[1] = value();
      return true;
    }
    if (accept("check")) {
      x.op = Op::Check;
      x.args[0] = value();
      expect(",");
      x.id = static_cast<uint32_t>(integer());
      return true;
    }
    return false;
  }
  // What follows the name of an instruction that gives a value.
  Inst operation(const std::string& op) {
    Inst x;
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
    return x;
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
  const char *what_, *code_;
  IndexPool& pool_;
  std::map<std::string, uint32_t> symbols_, buffers_, axes_, values_;
};

}  // namespace tessera::kit
