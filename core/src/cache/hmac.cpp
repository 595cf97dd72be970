// SPDX-License-Identifier: Apache-2.0
#include "cache/hmac.hpp"

#include "plugin/sha256.hpp"

namespace tessera::core {

namespace {

constexpr size_t kBlock = 64;  // of SHA-256, in bytes

std::string from_hex(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) out += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return out;
}

std::string padded(const std::string& key, char with) {
  std::string out = key;
  for (char& c : out) c = static_cast<char>(c ^ with);
  return out;
}

}  // namespace

std::string hmac_sha256_hex(std::string_view given, std::string_view message) {
  std::string key = given.size() > kBlock ? from_hex(sha256_hex(given)) : std::string(given);
  key.resize(kBlock, '\0');
  const std::string inner = from_hex(sha256_hex(padded(key, 0x36) + std::string(message)));
  return sha256_hex(padded(key, 0x5c) + inner);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return difference == 0;
}

}  // namespace tessera::core
