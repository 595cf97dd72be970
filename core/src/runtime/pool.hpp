// SPDX-License-Identifier: Apache-2.0
// The free lists of buffers and of tensor handles: a small cache per thread over a central pool per device.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::core {

struct Buffer;
class Device;

// Size classes: multiples of 64 bytes up to 256, then four per doubling. At most a fifth of a block is unused.
inline constexpr uint32_t kSizeClasses = 4 + 4 * 42;
constexpr uint32_t size_class_of(size_t bytes) noexcept {
  const uint64_t n = bytes <= 64 ? 1 : (bytes + 63) / 64;
  if (n <= 4) return static_cast<uint32_t>(n - 1);
  const auto log = static_cast<uint32_t>(std::bit_width(n - 1) - 1);  // 2^log < n <= 2^(log + 1)
  const uint32_t quarter = static_cast<uint32_t>((n - 1) >> (log - 2)) & 3;
  return 4 + (log - 2) * 4 + quarter;
}
constexpr size_t size_class_bytes(uint32_t c) noexcept {
  if (c < 4) return (c + 1) * size_t{64};
  const uint32_t log = (c - 4) / 4 + 2, quarter = (c - 4) % 4;
  return ((size_t{1} << log) + (size_t{quarter} + 1) * (size_t{1} << (log - 2))) * 64;
}
static_assert(size_class_of(64) == 0 && size_class_of(65) == 1 && size_class_of(256) == 3 && size_class_of(257) == 4);
static_assert(size_class_bytes(4) == 320 && size_class_bytes(7) == 512 && size_class_of(512) == 7 && size_class_of(513) == 8);

// What a thread keeps for itself: blocks of up to 64 KiB, at most 1 MiB per device, and handle blocks of one size.
struct ThreadCache {
  static constexpr uint32_t kClasses = size_class_of(64 << 10) + 1;
  static constexpr size_t kMaxBytes = 1 << 20;
  static constexpr uint32_t kMaxHandles = 256;
  static constexpr size_t kHandleBytes = 192;
  struct Bins {
    Buffer* head[kClasses] = {};
    size_t bytes = 0;
  };
  std::vector<std::unique_ptr<Bins>> devices;  // by device id
  struct FreeHandle {
    FreeHandle* next;
  };
  FreeHandle* handles = nullptr;
  uint32_t num_handles = 0;
  // Headers of wrapped buffers.
  Buffer* headers = nullptr;
  uint32_t num_headers = 0;

  ~ThreadCache();
  Bins& bins(uint32_t device) {
    if (device >= devices.size() || !devices[device]) add(device);
    return *devices[device];
  }

 private:
  void add(uint32_t device);
};

// The calling thread's cache, or null while the thread is being torn down.
ThreadCache* thread_cache() noexcept;

void* allocate_handle_block(size_t bytes);
void free_handle_block(void* p, size_t bytes) noexcept;

}  // namespace tessera::core
