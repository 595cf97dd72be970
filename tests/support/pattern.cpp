// SPDX-License-Identifier: Apache-2.0
#include "pattern.hpp"

#include <regex>

namespace tessera::test {

bool matches(const std::string& text, const std::string& pattern) { return std::regex_search(text, std::regex(pattern)); }

std::string replaced(const std::string& text, const std::string& pattern, const std::string& with) {
  return std::regex_replace(text, std::regex(pattern), with);
}

std::vector<std::string> captured(const std::string& text, const std::string& pattern) {
  const std::regex compiled(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), compiled), end; it != end; ++it) found.push_back((*it)[1]);
  return found;
}

}  // namespace tessera::test
