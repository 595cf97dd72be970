// SPDX-License-Identifier: Apache-2.0
// The free lists of buffers and of tensor handles: a small cache per thread over a central pool per device.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include "memory/block_pool.hpp"
#include "memory/buffer.hpp"
#include "memory/device.hpp"

namespace tessera::core {

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

// Thread-locals of this library that every call reads: initial-exec saves the call per access that a shared library otherwise
// pays, also when it is loaded with dlopen. They are few and small, because they come out of the little static TLS that is left
// then.
#if defined(__GNUC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TESSERA_INITIAL_EXEC __attribute__((tls_model("initial-exec")))
#else
#define TESSERA_INITIAL_EXEC
#endif

inline int64_t counted_bytes(size_t bytes) { return static_cast<int64_t>((bytes + kAlignment - 1) / kAlignment * kAlignment); }

// What a thread keeps for itself: blocks of up to 64 KiB, at most 1 MiB per device, and handle blocks of one size, which begin
// at cache lines.
struct ThreadCache {
  static constexpr size_t kMaxBlock = 64 << 10;
  static constexpr uint32_t kClasses = size_class_of(kMaxBlock) + 1;
  static constexpr size_t kMaxBytes = 1 << 20;
  static constexpr uint32_t kMaxHandles = 256;
  static constexpr size_t kHandleBytes = 192;
  struct Bins {
    Buffer* head[kClasses] = {};
    size_t bytes = 0;
    Device::Ledger ledger;
  };
  Bins* by_device[kMaxDevices] = {};
  struct FreeHandle {
    FreeHandle* next;
  };
  FreeHandle* handles = nullptr;
  uint32_t num_handles = 0;
  // Headers of wrapped buffers.
  Buffer* headers = nullptr;
  uint32_t num_headers = 0;

  ~ThreadCache();
  Bins& bins(Device& device) {
    Bins* b = by_device[device.id()];
    return b ? *b : add(device);
  }
  // A block of class c, counted, with one reference. Null: there is none here.
  Buffer* take(Device& device, uint32_t c, size_t bytes) {
    Bins& own = bins(device);
    Buffer* b = own.head[c];
    if (!b) [[unlikely]]
      return nullptr;
    own.head[c] = b->next;
    own.bytes -= b->capacity;
    b->refs.store(1, std::memory_order_relaxed);
    b->bytes = bytes;
    device.count_allocated(counted_bytes(bytes), own.ledger);
    return b;
  }
  // A block of class c for the time of a call, when what the thread has noted as freed covers it: the device's count and its
  // maximum include it then already. Null: there is none, or it has to be counted.
  Buffer* borrow(Device& device, uint32_t c, size_t bytes) {
    Bins& own = bins(device);
    Buffer* b = own.head[c];
    if (!b || own.ledger.freed.load(std::memory_order_relaxed) < counted_bytes(bytes)) [[unlikely]]
      return nullptr;
    own.head[c] = b->next;
    own.bytes -= b->capacity;
    return b;
  }
  void put_back(Buffer* b) {
    Bins& own = bins(*b->device);
    b->next = own.head[b->size_class];
    own.head[b->size_class] = b;
    own.bytes += b->capacity;
  }
  // Takes in, and counts as freed, a pooled block that nobody refers to. False: it is too large, or there are enough of them.
  bool give(Buffer* b) {
    if (b->size_class >= kClasses) [[unlikely]]
      return false;
    Bins& own = bins(*b->device);
    if (own.bytes + b->capacity > kMaxBytes) [[unlikely]]
      return false;
    b->device->count_freed(counted_bytes(b->bytes), own.ledger);
    b->next = own.head[b->size_class];
    own.head[b->size_class] = b;
    own.bytes += b->capacity;
    return true;
  }

 private:
  Bins& add(Device& device);
};

extern constinit thread_local ThreadCache* t_thread_cache TESSERA_INITIAL_EXEC;
ThreadCache* make_thread_cache() noexcept;
// The calling thread's cache, or null while the thread is being torn down.
inline ThreadCache* thread_cache() noexcept { return t_thread_cache ? t_thread_cache : make_thread_cache(); }

// The device's counters take over what the calling thread has noted.
void settle_counts(Device& device) noexcept;

inline void* allocate_handle_block(size_t bytes, ThreadCache* cache) {
  if (bytes > ThreadCache::kHandleBytes) [[unlikely]]
    return allocate_lines(bytes);
  if (!cache || !cache->handles) [[unlikely]]
    return allocate_lines(ThreadCache::kHandleBytes);
  ThreadCache::FreeHandle* h = cache->handles;
  cache->handles = h->next;
  --cache->num_handles;
  return h;
}

inline void free_handle_block(void* p, size_t bytes, ThreadCache* cache) noexcept {
  if (bytes <= ThreadCache::kHandleBytes) [[likely]]
    if (cache && cache->num_handles < ThreadCache::kMaxHandles) [[likely]] {
      cache->handles = ::new (p) ThreadCache::FreeHandle{cache->handles};
      ++cache->num_handles;
      return;
    }
  free_lines(p, bytes <= ThreadCache::kHandleBytes ? ThreadCache::kHandleBytes : bytes);
}

}  // namespace tessera::core
