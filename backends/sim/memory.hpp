// SPDX-License-Identifier: Apache-2.0
// The memory of one simulated device: addresses that the host cannot follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>

namespace tessera::sim {

// Device addresses lie in a reservation without access rights, so that a host function that follows one ends in a fault. The
// bytes lie at a fixed distance behind, which only this backend adds. What is allocated, and what was freed, is full of
// kPoison. There are more addresses than memory, so that ranges of them can be reserved. Thread-safe.
class Memory {
 public:
  static constexpr unsigned char kPoison = 0xfd;  // a NaN in every float format, a wild index in every integer

  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;

  void reserve(size_t bytes);  // throws std::bad_alloc when the address space is not to be had
  size_t capacity() const { return limit_; }
  size_t used() const;

  char* allocate(size_t bytes, size_t align);  // null: no gap is large enough
  // False: nothing was allocated at `p`.
  bool free(void* p);
  // From here on nobody may be given the block at `p`, which is free()d when its stream comes to that.
  void retire(void* p);
  // Whether a live block, or a range, has these bytes.
  bool live(const void* p, size_t bytes) const;
  // Addresses without memory; null: no gap is large enough. free() gives them back.
  char* allocate_range(size_t bytes);
  // Memory for the first `bytes` bytes of a range. False: there is not so much.
  bool commit(void* range, size_t bytes);
  std::optional<size_t> committed_bytes(void* range) const;  // nothing: it is no range
  // Whether an address that lies in a range has memory.
  bool committed(const void* p, size_t bytes) const;
  bool contains(const void* p, size_t bytes) const {
    const auto at = reinterpret_cast<uintptr_t>(p), begin = reinterpret_cast<uintptr_t>(base_);
    return base_ && at >= begin && at - begin <= capacity_ && bytes <= capacity_ - (at - begin);
  }
  // Where the bytes of a device address lie.
  char* bytes_of(const void* p) const { return static_cast<char*>(const_cast<void*>(p)) + capacity_; }

 private:
  char* place(size_t size, size_t align);  // with the mutex held; null: no gap
  char* base_ = nullptr;
  size_t capacity_ = 0;  // of addresses
  size_t limit_ = 0;     // of memory
  mutable std::mutex mutex_;
  std::map<size_t, size_t> blocks_;  // offset -> bytes
  std::set<size_t> retired_;         // of blocks_, by offset
  struct Range {
    size_t bytes, committed;
  };
  std::map<size_t, Range> ranges_;  // by offset; blocks_ has them too
  size_t used_ = 0, next_ = 0;      // next_: where the search goes on, so that what was freed is reused late
};

}  // namespace tessera::sim
