// SPDX-License-Identifier: Apache-2.0
// Host memory whose end lies against a page that cannot be touched, so that a kernel that reads or writes beyond a tensor ends
// its process instead of giving a number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::conformance {

class GuardedMemory {
 public:
  // At least `bytes`, aligned to 64, at most 63 bytes before the untouchable page; all of them `fill`.
  explicit GuardedMemory(size_t bytes, uint8_t fill = 0);
  ~GuardedMemory();
  GuardedMemory(GuardedMemory&& o) noexcept;
  GuardedMemory(const GuardedMemory&) = delete;
  [[nodiscard]] char* data() const { return data_; }
  void make_read_only() const;  // for tensors that a kernel only reads
  // Whether the bytes before and behind the tensor, up to the pages' ends, still have their value.
  [[nodiscard]] bool margins_intact() const;

 private:
  char *pages_ = nullptr, *data_ = nullptr;
  size_t mapped_ = 0, usable_ = 0, bytes_ = 0;
};

}  // namespace tessera::conformance
