// SPDX-License-Identifier: Apache-2.0
// Bytes of kernels for caches. Only this build reads them, on this machine's byte order; every length is checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/plugin.hpp"

namespace tessera::kit {

class SavedWriter {
 public:
  template <class T>
  void number(T v) {
    static_assert(std::is_trivially_copyable_v<T>);
    out_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void text(std::string_view s) {
    number<uint64_t>(s.size());
    out_ += s;
  }
  template <class T>
  void numbers(const std::vector<T>& v) {
    number<uint64_t>(v.size());
    for (const T& x : v) number(x);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

class SavedReader {  // throws TSR-J004 where the bytes end too early
 public:
  explicit SavedReader(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  T number() {
    static_assert(std::is_trivially_copyable_v<T>);
    T v;
    const std::string_view s = take(sizeof v);
    std::memcpy(&v, s.data(), sizeof v);
    return v;
  }
  std::string_view text() { return take(number<uint64_t>()); }
  template <class T>
  std::vector<T> numbers() {
    const auto n = number<uint64_t>();
    if (n > rest_.size() / sizeof(T)) fail();
    std::vector<T> v;
    for (uint64_t i = 0; i < n; ++i) v.push_back(number<T>());
    return v;
  }
  void end() const {
    if (!rest_.empty()) fail();
  }
  [[noreturn]] static void fail() { throw sdk::Error(TSR_ENVIRONMENT, "TSR-J004", "the bytes of a saved kernel are damaged"); }

 private:
  std::string_view take(uint64_t n) {
    if (n > rest_.size()) fail();
    const std::string_view s = rest_.substr(0, static_cast<size_t>(n));
    rest_.remove_prefix(static_cast<size_t>(n));
    return s;
  }
  std::string_view rest_;
};

// An object file as it is, so that it can be loaded in place, what else a kernel consists of, and the length of that.
inline std::string join_saved(std::string object, std::string_view rest) {
  SavedWriter length;
  length.number<uint64_t>(rest.size());
  object += rest;
  return object + length.take();
}
struct SavedParts {
  std::string_view object, rest;
};
inline SavedParts split_saved(std::string_view bytes) {  // throws TSR-J004
  constexpr size_t kLength = sizeof(uint64_t);
  if (bytes.size() < kLength) SavedReader::fail();
  const auto length = SavedReader(bytes.substr(bytes.size() - kLength)).number<uint64_t>();
  if (length > bytes.size() - kLength) SavedReader::fail();
  const size_t object = bytes.size() - kLength - static_cast<size_t>(length);
  return {bytes.substr(0, object), bytes.substr(object, static_cast<size_t>(length))};
}

}  // namespace tessera::kit
