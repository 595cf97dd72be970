// SPDX-License-Identifier: Apache-2.0
#include "pass/pipeline.hpp"

#include <cctype>

#include "context/context.hpp"
#include "support/error.hpp"

namespace tessera::core {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<PipelineItem> items() {
    std::vector<PipelineItem> out;
    skip();
    while (at_ < text_.size()) {
      out.push_back(item());
      skip();
      if (!accept(',') && at_ < text_.size()) fail("',' or the end");
      skip();
    }
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    const unsigned char c = at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : 0;
    const std::string found = at_ >= text_.size()  ? "the end"
                              : c > ' ' && c < 127 ? "'" + std::string(1, text_[at_]) + "'"
                                                   : "byte " + std::to_string(c);
    // One line, cut where it would not fit a screen; the caret counts the characters shown.
    constexpr size_t kBefore = 60, kAfter = 40;
    const size_t from = at_ > kBefore ? at_ - kBefore : 0;
    std::string shown(text_.substr(from, at_ - from + kAfter));
    for (char& x : shown)
      if (static_cast<unsigned char>(x) < ' ') x = ' ';
    throw user_error("TSR-C020",
                     "pipeline, column " + std::to_string(at_ + 1) + ": found " + found + ", expected " + expected + "\n  " +
                         shown + "\n  " + std::string(at_ - from, ' ') + "^",
                     "write passes as: canonicalize, fuse{max_size=64}, dce");
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string word(const char* what) {
    skip();
    const size_t begin = at_;
    auto part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' || c == '+';
    };
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    if (at_ == begin) fail(what);
    return std::string(text_.substr(begin, at_ - begin));
  }
  // A value is TOML text: a bare word, a string, or an array of them. Its content is checked where the option is known. Words
  // in an array get quotes here, because arrays are only ever of strings and TOML has no bare ones.
  std::string value() {
    if (!accept('[')) return scalar();
    std::string s = "[";
    while (!accept(']')) {
      const std::string item = scalar();
      s += item[0] == '"' ? item : "\"" + item + "\"";
      if (accept(','))
        s += ", ";
      else if (skip(); at_ >= text_.size() || text_[at_] != ']')
        fail("',' or ']'");
    }
    return s + "]";
  }
  std::string scalar() {
    skip();
    if (at_ >= text_.size() || text_[at_] != '"') return word("a value");
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) {
      at_ = text_.size();
      fail("'\"'");
    }
    ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  PipelineItem item() {
    PipelineItem p;
    p.name = word("the name of a pass");
    if (!accept('{')) return p;
    while (!accept('}')) {
      const size_t begin = (skip(), at_);
      std::string name = word("the name of an option, or '}'");
      for (const auto& given : p.given)
        if (given.first == name) {
          at_ = begin;
          fail("another option: '" + name + "' is given twice");
        }
      if (!accept('=')) fail("'='");
      p.given.emplace_back(std::move(name), value());
      if (!accept(',') && (skip(), at_ >= text_.size() || text_[at_] != '}')) fail("',' or '}'");
    }
    return p;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<PipelineItem> parse_pipeline(std::string_view text) { return Reader(text).items(); }

std::vector<BoundPass> bind_pipeline(const Context& context, std::string_view text) {
  std::vector<BoundPass> out;
  for (const PipelineItem& item : parse_pipeline(text)) {
    const Factory& f = context.pass(item.name);
    out.push_back({&f, context.pass_options(item.name, item.given, "pipeline")});
  }
  return out;
}

std::string print_pipeline(const std::vector<BoundPass>& passes) {
  std::string s;
  for (const BoundPass& p : passes) {
    s += (s.empty() ? "" : ", ") + p.factory->name;
    const auto& values = p.options.values();
    if (values.empty()) continue;
    s += "{";
    for (size_t i = 0; i < values.size(); ++i) s += (i ? ", " : "") + values[i].first + "=" + to_text(values[i].second);
    s += "}";
  }
  return s;
}

}  // namespace tessera::core
