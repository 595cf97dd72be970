// SPDX-License-Identifier: Apache-2.0
#include "ir/lexer.hpp"

#include <algorithm>

namespace tessera::core {
namespace {

// Not <cctype>: the grammar is ASCII whatever the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_alpha(c) || is_digit(c); }
bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Bytes of the UTF-8 character at `i`, or 0 when it is malformed there.
size_t utf8_length(std::string_view s, size_t i) {
  const auto c = static_cast<unsigned char>(s[i]);
  const size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
  if (n == 0 || i + n > s.size()) return 0;
  for (size_t k = 1; k < n; ++k)
    if (!is_continuation(s[i + k])) return 0;
  return n;
}

// What a terminal or a JSON document can take: controls become blanks, malformed UTF-8 '?'.
std::string printable(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size();) {
    const size_t n = utf8_length(s, i);
    if (n == 0) {
      out += '?';
      ++i;
    } else if (n == 1) {
      const auto c = static_cast<unsigned char>(s[i++]);
      out += c == '\t' || (c >= 0x20 && c != 0x7f) ? static_cast<char>(c) : ' ';
    } else {
      out += s.substr(i, n);
      i += n;
    }
  }
  return out;
}

constexpr size_t kClip = 100;  // characters of a source line shown on each side of the caret

}  // namespace

// ----------------------------------------------------------------------------------------------------------- messages

void Source::place(size_t offset, uint32_t& line, uint32_t& column) const {
  offset = std::min(offset, text.size());
  line = 1 + static_cast<uint32_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(offset), '\n'));
  const size_t newline = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  column = 1;
  for (size_t i = begin; i < offset; ++i) column += !is_continuation(text[i]);
}

Error Source::error(std::string code, size_t offset, std::string_view message, std::string hint) const {
  uint32_t line, column;
  offset = std::min(offset, text.size());
  place(offset, line, column);
  const size_t newline = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  size_t end = std::min(text.find('\n', offset), text.size());
  std::string before, after;
  if (offset - begin > kClip) {
    begin = offset - kClip;
    while (begin < offset && is_continuation(text[begin])) ++begin;
    before = "...";
  }
  if (end - offset > kClip) {
    end = offset + kClip;
    while (end > offset && is_continuation(text[end])) --end;
    after = "...";
  }
  before += printable(text.substr(begin, offset - begin));
  after = printable(text.substr(offset, end - offset)) + after;

  const std::string number = std::to_string(line);
  std::string out(printable(file));
  out += ":" + number + ":" + std::to_string(column) + ": ";
  out += printable(message);
  out += "\n  " + number + " | " + before + after;
  while (!out.empty() && (out.back() == ' ' || out.back() == '\t' || out.back() == '\r')) out.pop_back();
  out += "\n  " + std::string(number.size(), ' ') + " | ";
  for (char c : before)
    if (!is_continuation(c)) out += c == '\t' ? '\t' : ' ';
  out += '^';
  return user_error(std::move(code), std::move(out), std::move(hint));
}

void Source::fail_at(size_t offset, const Error& e) const {
  const Error placed = error(e.code(), offset, e.message(), e.hint());
  throw Error(e.family(), e.code(), placed.message(), e.hint());
}

std::string counted(uint64_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

std::string describe(const Token& t) {
  auto clip = [](std::string_view s) {
    std::string p = printable(s.substr(0, 40));
    return s.size() > 40 ? p + "..." : p;
  };
  switch (t.kind) {
    case Tok::kEnd: return "the end of the text";
    case Tok::kString: return "the string \"" + clip(t.text) + "\"";
    case Tok::kValue: return (t.quoted ? "'%\"" + clip(t.text) + "\"'" : "'%" + clip(t.text) + "'");
    case Tok::kAt: return "'@" + clip(t.text) + "'";
    case Tok::kAttr: return "'$" + clip(t.text) + "'";
    case Tok::kPunct: {
      std::string s;
      for (int shift = 16; shift >= 0; shift -= 8)
        if (const char c = static_cast<char>(t.punct >> shift & 0xff)) s += c;
      return "'" + s + "'";
    }
    default: return "'" + clip(t.text) + "'";
  }
}

bool is_plain_name(std::string_view s) {
  if (s.empty() || !is_word(s[0])) return false;
  for (size_t i = 1; i < s.size(); ++i)
    if (!is_word(s[i]) && !(s[i] == '.' && i + 1 < s.size() && is_word(s[i + 1]))) return false;
  return true;
}

bool is_identifier(std::string_view s) { return !s.empty() && is_alpha(s[0]) && std::all_of(s.begin(), s.end(), is_word); }

void append_quoted(std::string& out, std::string_view s) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (u < 0x20 || u == 0x7f) {
      out += "\\x";
      out += kHex[u >> 4];
      out += kHex[u & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

// -------------------------------------------------------------------------------------------------------------- tokens

Lexer::Lexer(std::string_view text, std::string_view file, bool multiline_strings)
    : source_{text, file}, multiline_strings_(multiline_strings) {
  advance();
}

void Lexer::skip_blanks() {
  const std::string_view s = source_.text;
  while (position_ < s.size()) {
    const char c = s[position_];
    if (c == '\n') {
      ++line_;
      ++position_;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++position_;
    } else if (c == '/' && look(1) == '/') {
      position_ = std::min(s.find('\n', position_), s.size());
    } else {
      return;
    }
  }
}

char Lexer::following() const {
  Lexer copy = *this;
  copy.skip_blanks();
  return copy.look(0);
}

void Lexer::read_string() {
  const std::string_view s = source_.text;
  const size_t open = position_++;
  const size_t begin = position_;
  for (;; ++position_) {
    if (position_ >= s.size() || (s[position_] == '\n' && !multiline_strings_))
      source_.fail("TSR-I001", open, "found a string without its closing quote, expected '\"' on the same line",
                   "a line break inside a string is written \\n");
    if (s[position_] == '\n') ++line_;
    if (s[position_] == '"') break;
    if (s[position_] == '\\' && position_ + 1 < s.size() && s[position_ + 1] != '\n') ++position_;
  }
  token_.text = s.substr(begin, position_ - begin);
  ++position_;
}

void Lexer::read_number() {
  const std::string_view s = source_.text;
  const size_t begin = position_;
  token_.kind = Tok::kInt;
  if (look(0) == '0' && look(1) == 'x' && hex_value(look(2)) >= 0) {
    position_ += 2;
    while (hex_value(look(0)) >= 0) ++position_;
  } else {
    while (is_digit(look(0))) ++position_;
    if (look(0) == '.' && is_digit(look(1))) {  // not "2..8"
      token_.kind = Tok::kFloat;
      ++position_;
      while (is_digit(look(0))) ++position_;
    }
    if (look(0) == 'e' || look(0) == 'E') {
      const size_t sign = look(1) == '+' || look(1) == '-' ? 1 : 0;
      if (is_digit(look(1 + sign))) {
        token_.kind = Tok::kFloat;
        position_ += 1 + sign;
        while (is_digit(look(0))) ++position_;
      }
    }
  }
  token_.text = s.substr(begin, position_ - begin);
  if (is_word(look(0)))
    source_.fail("TSR-I001", position_,
                 "found '" + std::string(1, look(0)) + "' right after the number " + std::string(token_.text.substr(0, 40)) +
                     ", expected a blank or punctuation");
}

void Lexer::advance() {
  const std::string_view s = source_.text;
  skip_blanks();
  token_ = Token{};
  token_.offset = position_;
  token_.line = line_;
  if (position_ >= s.size()) {
    token_.end = position_;
    return;
  }
  auto read_name = [&] {
    const size_t begin = position_;
    while (is_word(look(0)) || (look(0) == '.' && position_ > begin && is_word(look(1)))) ++position_;
    token_.text = s.substr(begin, position_ - begin);
  };
  const char c = s[position_];
  if (is_alpha(c)) {
    token_.kind = Tok::kIdent;
    read_name();
  } else if (is_digit(c)) {
    read_number();
  } else if (c == '"') {
    token_.kind = Tok::kString;
    token_.quoted = true;
    read_string();
  } else if ((c == '%' || c == '@') && look(1) == '"') {
    token_.kind = c == '%' ? Tok::kValue : Tok::kAt;
    token_.quoted = true;
    ++position_;
    read_string();
  } else if (c == '%' && is_word(look(1))) {
    token_.kind = Tok::kValue;
    ++position_;
    read_name();
  } else if (c == '$' && is_alpha(look(1))) {
    token_.kind = Tok::kAttr;
    ++position_;
    read_name();
  } else if (c == '@' && is_word(look(1))) {
    token_.kind = Tok::kAt;
    ++position_;
    read_name();
    if (look(0) == ':' && is_digit(look(1))) {  // a device and its number
      ++position_;
      while (is_digit(look(0))) ++position_;
    }
    token_.text = s.substr(token_.offset + 1, position_ - token_.offset - 1);
  } else {
    token_.kind = Tok::kPunct;
    size_t n = 1;
    if (c == '.' && look(1) == '.')
      n = look(2) == '.' ? 3 : 2;
    else if (c == '-' && look(1) == '>')
      n = 2;
    else if ((c == '=' || c == '!' || c == '<' || c == '>') && look(1) == '=')
      n = 2;
    else if (std::string_view("(){}[]<>,:;=+-*%?").find(c) == std::string_view::npos)
      source_.fail("TSR-I001", position_,
                   utf8_length(s, position_) == 1 && static_cast<unsigned char>(c) >= 0x20
                       ? "found '" + std::string(1, c) + "', which starts no token"
                       : "found a character that is not part of the language outside strings and comments");
    for (size_t i = 0; i < n; ++i) token_.punct = token_.punct << 8 | static_cast<unsigned char>(look(i));
    position_ += n;
    token_.text = s.substr(token_.offset, n);
  }
  token_.end = position_;
}

void Lexer::expect(const char* p) {
  if (!accept(p)) unexpected("'" + std::string(p) + "'");
}

void Lexer::expect_word(std::string_view w) {
  if (!accept_word(w)) unexpected("'" + std::string(w) + "'");
}

Token Lexer::expect(Tok kind, std::string_view what) {
  if (token_.kind != kind) unexpected(what);
  return next();
}

void Lexer::unexpected(std::string_view expected, std::string hint) const { unexpected(token_, expected, std::move(hint)); }

void Lexer::unexpected(const Token& found, std::string_view expected, std::string hint) const {
  source_.fail("TSR-I003", found.offset, "found " + describe(found) + ", expected " + std::string(expected), std::move(hint));
}

std::string Lexer::unescape(const Token& t) const {
  std::string out;
  out.reserve(t.text.size());
  const size_t base = static_cast<size_t>(t.text.data() - source_.text.data());
  for (size_t i = 0; i < t.text.size(); ++i) {
    const char c = t.text[i];
    if (c == '\n' || c == '\r') {  // only in records: a wrapped sentence
      while (!out.empty() && (out.back() == ' ' || out.back() == '\t')) out.pop_back();
      while (i + 1 < t.text.size() && std::string_view(" \t\r\n").find(t.text[i + 1]) != std::string_view::npos) ++i;
      out += ' ';
      continue;
    }
    if (c == '\0') source_.fail("TSR-I001", base + i, "found a zero byte in a string, expected text");
    if (c != '\\') {
      out += c;
      continue;
    }
    const char e = i + 1 < t.text.size() ? t.text[++i] : '\0';
    switch (e) {
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case 'r': out += '\r'; break;
      case '"':
      case '\\': out += e; break;
      case 'x': {
        const int hi = i + 1 < t.text.size() ? hex_value(t.text[i + 1]) : -1;
        const int lo = i + 2 < t.text.size() ? hex_value(t.text[i + 2]) : -1;
        if (hi < 0 || lo < 0 || hi + lo == 0)
          source_.fail("TSR-I001", base + i - 1, "found a bad \\x escape, expected two hex digits that are not 00");
        out += static_cast<char>(hi << 4 | lo);
        i += 2;
        break;
      }
      default: source_.fail("TSR-I001", base + i - 1, "found an unknown escape, expected \\n \\t \\r \\\" \\\\ or \\xHH");
    }
  }
  return out;
}

}  // namespace tessera::core
