// SPDX-License-Identifier: Apache-2.0
#include "wordpiece.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <fstream>

#include "error.hpp"

namespace sentences {
namespace {

constexpr size_t kLongestWord = 100;  // characters; a longer one is [UNK] whole

using Word = std::vector<int32_t>;

bool is_white(int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return true;
    default: return c == '\t' || c == '\n' || c == '\r';
  }
}

// Control, format, private and unassigned characters are dropped; tabs and line ends are white space.
bool is_dropped(int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CN: return c != '\t' && c != '\n' && c != '\r';
    default: return c == 0xfffd;
  }
}

bool is_punctuation(int32_t c) {
  if (c < 128) return (c > 32 && c < 48) || (c > 57 && c < 65) || (c > 90 && c < 97) || (c > 122 && c < 127);
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
  }
}

// The blocks of CJK ideographs, whose characters are words of their own; not kana or hangul, which are written with spaces or
// cut up.
bool is_ideograph(int32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b820 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

// `f` takes each character's decomposition without accents, in lower case.
template <class F>
void each_plain(int32_t c, F&& f) {
  int32_t parts[32];
  int boundary = 0;
  const auto n =
      utf8proc_decompose_char(c, parts, std::size(parts), static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE), &boundary);
  if (n < 0 || n > static_cast<utf8proc_ssize_t>(std::size(parts))) return f(c);
  for (utf8proc_ssize_t i = 0; i < n; ++i)
    if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN) f(utf8proc_tolower(parts[i]));
}

std::vector<Word> words(std::string_view text) {
  std::vector<Word> out;
  bool open = false;  // whether the last word goes on
  const auto add = [&](int32_t c, bool alone) {
    if (alone || !open) out.emplace_back();
    out.back().push_back(c);
    open = !alone;
  };
  const auto* p = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    int32_t c = 0;
    utf8proc_ssize_t n = utf8proc_iterate(p, left, &c);
    if (n <= 0) {  // not UTF-8
      n = 1;
      c = 0xfffd;
    }
    p += n;
    left -= n;
    if (is_dropped(c)) continue;
    if (is_white(c)) {
      open = false;
      continue;
    }
    const bool ideograph = is_ideograph(c);
    each_plain(c, [&](int32_t plain) {
      if (is_white(plain))
        open = false;
      else
        add(plain, ideograph || is_punctuation(plain));
    });
  }
  return out;
}

void append(std::string* out, int32_t c) {
  utf8proc_uint8_t bytes[4];
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(utf8proc_encode_char(c, bytes)));
}

}  // namespace

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> out;
  for (const Word& w : words(text)) {
    out.emplace_back();
    for (const int32_t c : w) append(&out.back(), c);
  }
  return out;
}

WordPiece::WordPiece(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot read " + path, "the vocabulary lies beside the weights");
  for (std::string line; std::getline(in, line); ++size_) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    ids_.emplace(line, static_cast<int64_t>(size_));
  }
  const auto special = [&](const char* name) {
    const auto found = ids_.find(name);
    if (found == ids_.end()) throw Error(path + ": no token " + name, "this is not the vocabulary of a BERT model");
    return found->second;
  };
  cls_ = special("[CLS]");
  sep_ = special("[SEP]");
  unk_ = special("[UNK]");
  pad_ = special("[PAD]");
}

void WordPiece::pieces(const Word& word, std::vector<int64_t>* ids) const {
  if (word.size() > kLongestWord) return ids->push_back(unk_);
  const size_t before = ids->size();
  for (size_t begin = 0; begin < word.size();) {
    int64_t found = -1;
    size_t end = word.size();
    std::string piece = begin == 0 ? "" : "##";
    std::vector<size_t> lengths;
    for (size_t i = begin; i < end; ++i) {
      append(&piece, word[i]);
      lengths.push_back(piece.size());
    }
    for (; end > begin; --end) {  // the longest first
      piece.resize(lengths[end - begin - 1]);
      if (const auto at = ids_.find(piece); at != ids_.end()) {
        found = at->second;
        break;
      }
    }
    if (found < 0) {
      ids->resize(before);
      ids->push_back(unk_);
      return;
    }
    ids->push_back(found);
    begin = end;
  }
}

std::vector<int64_t> WordPiece::encode(std::string_view text, size_t max_length) const {
  std::vector<int64_t> ids = {cls_};
  for (const Word& w : words(text)) pieces(w, &ids);
  if (ids.size() > std::max<size_t>(max_length, 3) - 1) ids.resize(std::max<size_t>(max_length, 3) - 1);
  ids.push_back(sep_);
  return ids;
}

}  // namespace sentences
