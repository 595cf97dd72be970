// SPDX-License-Identifier: Apache-2.0
// Regular expressions (ECMAScript) behind functions: a unit that includes <regex> compiles for five seconds longer.
// A pattern that is not well formed throws std::regex_error.
#pragma once

#include <string>
#include <vector>

namespace tessera::test {

bool matches(const std::string& text, const std::string& pattern);  // somewhere in the text
// `text` with each match replaced; `with` names groups as $1.
std::string replaced(const std::string& text, const std::string& pattern, const std::string& with);
std::vector<std::string> captured(const std::string& text,
                                  const std::string& pattern);  // the first group of each match, in their order

}  // namespace tessera::test
