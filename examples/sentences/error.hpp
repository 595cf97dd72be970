// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace sentences {

// A file that is not as it must be: what was found where, and what to do.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, const std::string& hint = {})
      : std::runtime_error("error: " + message + (hint.empty() ? "" : "\n  hint: " + hint)) {}
};

}  // namespace sentences
