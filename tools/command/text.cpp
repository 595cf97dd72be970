// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "command.hpp"
#include "tessera/closest.hpp"

namespace tessera::command {
namespace {

template <class T>
std::string shortest(T v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v).ptr;
  std::string s(buffer, end);
  if (s.find_first_of(".e") == s.npos) s += ".0";
  return s;
}

std::string formatted(const char* format, double v, const char* unit) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, v);
  return std::string(buffer) + unit;
}

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T v{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return v;
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* best = closest_word(word, candidates);
  return best ? "; did you mean " + quote(*best) + "?" : "";
}

std::string join(const std::vector<std::string>& items, const char* separator) {
  std::string out;
  for (const std::string& s : items) {
    if (!out.empty()) out += separator;
    out += s;
  }
  return out;
}

std::string quote(std::string_view text) { return "'" + printable(text) + "'"; }

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u >= 0x20 && u != 0x7f) {
      out += c;
    } else {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", u);
      out += escaped;
    }
  }
  return out;
}

std::string name_text(std::string_view name) {
  const bool plain = name.find_first_of("\"\\") == name.npos && !name.starts_with(' ') && !name.ends_with(' ') &&
                     std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (plain) return std::string(name);
  std::string out = "\"";
  for (const char c : name) out += c == '"' || c == '\\' ? std::string{'\\', c} : printable({&c, 1});
  return out + "\"";
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (true) {
    const size_t at = std::min(text.find(separator), text.size());
    std::string_view item = text.substr(0, at);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    out.emplace_back(item);
    if (at == text.size()) return out;
    text.remove_prefix(at + 1);
  }
}

std::string indent(std::string_view text, size_t spaces) {
  std::string out;
  for (const std::string& line : split(text, '\n')) {
    if (!out.empty()) out += '\n';
    out += std::string(spaces, ' ') + line;
  }
  return out;
}

std::optional<int64_t> parse_int(std::string_view text) { return parse_whole<int64_t>(text); }

std::optional<double> parse_number(std::string_view text) {
  const auto v = parse_whole<double>(text);
  return v && std::isfinite(*v) ? v : std::nullopt;
}

std::pair<std::string, std::string> name_and_value(const std::string& option, const std::string& text, const char* expected) {
  const size_t at = text.rfind('=');  // a name may have one, the values never do
  if (at == text.npos || at == 0) throw usage_error("TSR-U004", option + ": found " + quote(text) + ", expected " + expected);
  return {text.substr(0, at), text.substr(at + 1)};
}

std::string bytes_text(double bytes) {
  static constexpr const char* units[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return formatted(unit == 0 ? "%.0f" : "%.1f", bytes, units[unit]);
}

std::string ms_text(double ms) {
  if (ms < 1e-3) return formatted("%.0f", ms * 1e6, " ns");
  if (ms < 1) return formatted("%.3g", ms * 1e3, " us");
  if (ms < 1e3) return formatted("%.4g", ms, " ms");
  return formatted("%.4g", ms / 1e3, " s");
}

std::string number_text(double v) { return formatted("%.4g", v, ""); }
std::string float_text(double v) { return shortest(v); }
std::string float_text(float v) { return shortest(v); }

std::string read_file(const std::string& path) {
  std::ostringstream out;
  if (path == "-") {
    out << std::cin.rdbuf();
    return out.str();
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  // A directory opens and then fails to read.
  if (in) in.peek();
  if (!in && !in.eof())
    throw usage_error("TSR-U008", path + ": cannot be read: " + (errno ? std::strerror(errno) : "not a readable file"),
                      "name an existing file");
  in.clear();
  out << in.rdbuf();
  return out.str();
}

void write_file(const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out)
    throw usage_error("TSR-U008", path + ": cannot be written: " + (errno ? std::strerror(errno) : "unknown reason"),
                      "name a file in an existing, writable directory");
}

}  // namespace tessera::command
