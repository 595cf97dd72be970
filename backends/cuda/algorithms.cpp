// SPDX-License-Identifier: Apache-2.0
#include "algorithms.hpp"

namespace tessera::cuda {

std::string algorithm_problem(const Gpu& gpu, std::string_view library, std::string_view what,
                              std::initializer_list<int64_t> numbers) {
  std::string out = "tessera cuda algorithm 1\n" + gpu.model() + " " + gpu.architecture() + " units " +
                    std::to_string(gpu.attribute(kMultiprocessors)) + "\n";
  out.append(library).append("\n").append(what).append("\n");
  for (const int64_t n : numbers) out += std::to_string(n) + " ";
  return out;
}

std::string to_hexadecimal(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<unsigned char>(c);
    out += {kDigits[b >> 4], kDigits[b & 15]};
  }
  return out;
}

std::optional<std::string> from_hexadecimal(std::string_view text) {
  const auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const int high = value(text[i]), low = value(text[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high << 4 | low);
  }
  if (text.size() % 2 != 0) return std::nullopt;
  return out;
}

}  // namespace tessera::cuda
