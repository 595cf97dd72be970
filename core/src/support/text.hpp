// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::core {

// "a, b, c"; `none` when there is nothing to list.
inline std::string listed(const std::vector<std::string>& items, std::string_view none = {}) {
  std::string out;
  for (const std::string& s : items) out += (out.empty() ? "" : ", ") + s;
  return out.empty() ? std::string(none) : out;
}

}  // namespace tessera::core
