// SPDX-License-Identifier: Apache-2.0
#include "memory/block_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>

namespace tessera::core {

namespace {

constexpr size_t kLine = 64;
// Larger blocks are rare, and fill pages of their own.
constexpr size_t kMaxLines = 64;
// Chunks begin small and grow, so that a program with one compiled function keeps little and one with many gets large pages.
constexpr size_t kFirstChunk = 32 << 10;

struct Pool {
  std::mutex mutex;
  struct Free {
    Free* next;
  };
  Free* free[kMaxLines + 1] = {};
  char *begin = nullptr, *end = nullptr;  // of what is left of the last chunk
  size_t chunk = kFirstChunk;

  void* take(size_t lines) {
    const std::lock_guard lock(mutex);
    if (Free* f = free[lines]) {
      free[lines] = f->next;
      return f;
    }
    if (static_cast<size_t>(end - begin) < lines * kLine) grow();
    char* p = begin;
    begin += lines * kLine;
    return p;
  }
  void give(void* p, size_t lines) noexcept {
    const std::lock_guard lock(mutex);
    put(p, lines);
  }

 private:
  void put(void* p, size_t lines) noexcept { free[lines] = ::new (p) Free{free[lines]}; }
  void grow() {
    auto* fresh = static_cast<char*>(::operator new (chunk, std::align_val_t{std::min(chunk, kHugePage)}));
    if (chunk >= kHugePage) madvise(fresh, chunk, MADV_HUGEPAGE);  // where that is refused, small pages do
    if (begin != end) put(begin, static_cast<size_t>(end - begin) / kLine);
    begin = fresh;
    end = fresh + chunk;
    chunk = std::min(4 * chunk, kHugePage);
  }
};

Pool& pool() {
  static auto* p = new Pool;  // never destroyed: callables with static storage go after any destructor here
  return *p;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPooled = false;  // let it watch each block
#elif defined(__has_feature)
constexpr bool kPooled = !__has_feature(address_sanitizer);
#else
constexpr bool kPooled = true;
#endif

}  // namespace

void* allocate_lines(size_t bytes) {
  const size_t lines = std::max<size_t>(1, (bytes + kLine - 1) / kLine);
  return kPooled && lines <= kMaxLines ? pool().take(lines) : ::operator new (lines* kLine, std::align_val_t{kLine});
}

void free_lines(void* p, size_t bytes) noexcept {
  if (!p) return;
  const size_t lines = std::max<size_t>(1, (bytes + kLine - 1) / kLine);
  if (kPooled && lines <= kMaxLines)
    pool().give(p, lines);
  else
    ::operator delete (p, std::align_val_t{kLine});
}

}  // namespace tessera::core
