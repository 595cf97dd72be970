// SPDX-License-Identifier: Apache-2.0
// The candidate that a mistyped word was probably meant to be: for "did you mean" in the errors of the command, the core and
// plugins. Header-only, no state: any thread may call it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Levenshtein distance in bytes: the fewest insertions, deletions and substitutions that turn `a` into `b`. O(|a| |b|) time,
// O(|b|) memory.
inline size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// The first of the nearest candidates, borrowed from `candidates`; null if none is near: more than two edits away (a third of
// the word's length, if that is more), or so far that nothing of either word is left.
inline const std::string* closest_word(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  size_t nearest = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < nearest && distance < std::max(word.size(), candidate.size())) {
      best = &candidate;
      nearest = distance;
    }
  }
  return best;
}

}  // namespace tessera
