// SPDX-License-Identifier: Apache-2.0
// Memory that a cache keeps as an entry of its own, and that a later process maps instead of making it: constants that passes
// have computed, and constants in the form that kernels read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::core {

// Immutable once it has been filled; shared.
class Blob {
 public:
  // Aligned to 64 bytes, or to large pages, which it asks for, when it is large. Throws TSR-R001.
  static std::shared_ptr<Blob> allocate(size_t bytes);
  // Borrows from `owner`.
  static std::shared_ptr<const Blob> borrow(std::string_view bytes, std::shared_ptr<const void> owner, bool mapped);

  const char* data() const { return data_; }
  char* fill() { return const_cast<char*>(data_); }  // only of allocate(), before anybody else has it
  size_t bytes() const { return bytes_; }
  bool mapped() const { return mapped_; }  // shared with every process that maps the entry
  std::string_view view() const { return {data_, bytes_}; }

 private:
  Blob() = default;
  const char* data_ = nullptr;
  size_t bytes_ = 0;
  bool mapped_ = false;
  std::shared_ptr<const void> owner_;
};

// Which mapped entries have been read whole and found sound, and where they lay then. Checking all bytes takes longer than
// everything else on a warm path, so it is done once per boot: again when the machine has been started since, and when an entry
// lies elsewhere or has been written to. What it may miss is what changes bytes below the file system while the machine runs;
// what it cannot miss is an entry that was cut short, exchanged, damaged by a crash, or edited.
class CheckedBlobs {
 public:
  using Identity = std::array<uint64_t, 4>;  // tsr_mapping.identity
  bool has(const std::string& key, const Identity& identity) const;
  void add(const std::string& key, const Identity& identity);
  bool changed() const { return changed_; }

  std::string encode() const;
  void decode(std::string_view payload);  // of another boot, or malformed: nothing is known

 private:
  std::map<std::string, Identity, std::less<>> seen_;
  bool changed_ = false;
};

}  // namespace tessera::core
