// SPDX-License-Identifier: Apache-2.0
// Tokens of the text IR and of op records, and messages that show the place in the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "support/error.hpp"

namespace tessera::core {

// A text being read. Borrowed: must outlive every Lexer over it.
struct Source {
  std::string_view text, file;

  // "FILE:LINE:COL: message", the source line and a caret under `offset`. Columns count characters from 1.
  Error error(std::string code, size_t offset, std::string_view message, std::string hint = {}) const;
  [[noreturn]] void fail(std::string code, size_t offset, std::string_view message, std::string hint = {}) const {
    throw error(std::move(code), offset, message, std::move(hint));
  }
  // The same fault with this place in front.
  [[noreturn]] void fail_at(size_t offset, const Error& e) const;
  void place(size_t offset, uint32_t& line, uint32_t& column) const;
};

enum class Tok : uint8_t {
  kEnd,
  kIdent,   // add, acme.relu6, f32, _
  kInt,     // digits, or 0x and hex digits; no sign
  kFloat,   // 1.5, 1e-5; no sign
  kString,  // text: between the quotes, escapes not yet read
  kValue,   // %name: text is the name; `quoted`: as a string
  kAt,      // @name, @null:0
  kAttr,    // $name
  kPunct,
};

struct Token {
  Tok kind = Tok::kEnd;
  bool quoted = false;
  uint32_t punct = 0;  // packed characters of a kPunct
  uint32_t line = 1;
  size_t offset = 0, end = 0;
  std::string_view text;
};

// Up to three characters in one number, so that a token compares in one step.
constexpr uint32_t punct(const char* s) {
  uint32_t p = 0;
  for (; *s; ++s) p = p << 8 | static_cast<unsigned char>(*s);
  return p;
}

class Lexer {
 public:
  // `multiline_strings`: a line break inside a string, with the blanks around it, reads as one space (op records).
  Lexer(std::string_view text, std::string_view file, bool multiline_strings = false);

  const Source& source() const { return source_; }
  const Token& peek() const { return token_; }
  Token next() {
    Token t = token_;
    advance();
    return t;
  }
  bool at(const char* p) const { return token_.kind == Tok::kPunct && token_.punct == punct(p); }
  bool at_word(std::string_view w) const { return token_.kind == Tok::kIdent && token_.text == w; }
  bool accept(const char* p) { return at(p) && (advance(), true); }
  bool accept_word(std::string_view w) { return at_word(w) && (advance(), true); }
  // TSR-I003 "found .., expected .." unless the token is as asked.
  void expect(const char* p);
  void expect_word(std::string_view w);
  Token expect(Tok kind, std::string_view what);
  [[noreturn]] void unexpected(std::string_view expected, std::string hint = {}) const;
  [[noreturn]] void unexpected(const Token& found, std::string_view expected, std::string hint = {}) const;

  // Reads the escapes of a string token (or of a quoted name). TSR-I001 for a bad escape or a zero byte.
  std::string unescape(const Token& t) const;
  std::string name(const Token& t) const { return t.quoted ? unescape(t) : std::string(t.text); }

  struct Mark {
    size_t position;
    uint32_t line;
    Token token;
  };
  Mark mark() const { return {position_, line_, token_}; }
  void reset(const Mark& m) {
    position_ = m.position;
    line_ = m.line;
    token_ = m.token;
  }
  // The single following character after the current token, blanks skipped; 0 at the end. For one-character look-ahead.
  char following() const;

 private:
  void advance();
  void skip_blanks();
  void read_string();
  void read_number();
  char look(size_t ahead) const { return position_ + ahead < source_.text.size() ? source_.text[position_ + ahead] : '\0'; }

  Source source_;
  bool multiline_strings_;
  size_t position_ = 0;
  uint32_t line_ = 1;
  Token token_;
};

// Is `s` a name that needs no quotes after % or @ ("0", "x", "layers.0.w")?
bool is_plain_name(std::string_view s);
// Is `s` an identifier without dots (symbols)?
bool is_identifier(std::string_view s);
// Appends `s` in quotes, escaped so that unescape() gives the same bytes.
void append_quoted(std::string& out, std::string_view s);
// "1 operand", "2 operands".
std::string counted(uint64_t n, std::string_view noun);
// "'add'", "'}'", "the string \"..\"", "the end of the text": for messages, clipped.
std::string describe(const Token& t);

}  // namespace tessera::core
