// SPDX-License-Identifier: Apache-2.0
// The tokenizer of BERT's uncased models (Devlin et al. 2018): text cleaned, stripped of accents and lowered, split at white
// space, punctuation and CJK characters, words cut into the longest pieces that the vocabulary has. Special tokens written in a
// text are text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sentences {

class WordPiece {
 public:
  // One token per line; a line's number is its id. Throws Error when the file cannot be read or lacks [CLS], [SEP], [UNK] or
  // [PAD].
  explicit WordPiece(const std::string& vocabulary_path);

  // [CLS] pieces [SEP], cut to `max_length` ids in all (3 at least). Bytes that are no UTF-8 are left out.
  [[nodiscard]] std::vector<int64_t> encode(std::string_view text, size_t max_length) const;
  [[nodiscard]] int64_t pad() const { return pad_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  void pieces(const std::vector<int32_t>& word, std::vector<int64_t>* ids) const;
  std::unordered_map<std::string, int64_t> ids_;
  int64_t cls_, sep_, unk_, pad_;
  size_t size_ = 0;
};

// The words of a text, as they are looked up: for tests.
std::vector<std::string> split_words(std::string_view text);

}  // namespace sentences
