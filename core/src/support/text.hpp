// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cctype>
#include <cstdio>
#include <iterator>
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

// "12.5 MiB", as the command prints sizes.
inline std::string bytes_text(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

// What may stand in the name of a file: the rest becomes '_', and a long name ends early.
inline std::string file_safe(std::string s) {
  for (char& c : s)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '_';
  if (s.size() > 100) s.resize(100);
  return s;
}

}  // namespace tessera::core
