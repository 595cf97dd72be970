// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace tessera::sim {

namespace {

constexpr size_t kGap = 64;  // between blocks, so that neighbours do not touch

size_t up(size_t n, size_t align) { return (n + align - 1) / align * align; }

}  // namespace

Memory::~Memory() {
  if (base_) munmap(base_, 2 * capacity_);
}

void Memory::reserve(size_t bytes) {
  capacity_ = up(bytes, size_t{2} << 20);
  void* p = mmap(nullptr, 2 * capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<char*>(p);
  if (mprotect(base_ + capacity_, capacity_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
}

size_t Memory::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

char* Memory::allocate(size_t bytes, size_t align) {
  std::lock_guard lock(mutex_);
  const size_t size = up(bytes ? bytes : 1, align) + kGap;
  if (size > capacity_) return nullptr;
  // First fit from where the last search ended, then from the beginning.
  const auto fit = [&](size_t from, size_t* at) {
    size_t offset = up(from, align);
    auto block = blocks_.upper_bound(from);
    if (block != blocks_.begin())
      if (const auto before = std::prev(block); before->first + before->second > offset)
        offset = up(before->first + before->second, align);
    for (;; ++block) {
      const size_t end = block == blocks_.end() ? capacity_ : block->first;
      if (offset <= end && size <= end - offset) {
        *at = offset;
        return true;
      }
      if (block == blocks_.end()) return false;
      offset = up(block->first + block->second, align);
    }
  };
  size_t offset = 0;
  if (!fit(next_, &offset) && !fit(0, &offset)) return nullptr;
  blocks_[offset] = size;
  used_ += size;
  next_ = offset + size;
  std::memset(base_ + capacity_ + offset, kPoison, size);
  return base_ + offset;
}

bool Memory::free(void* p) {
  std::lock_guard lock(mutex_);
  const auto at = blocks_.find(static_cast<size_t>(static_cast<char*>(p) - base_));
  if (at == blocks_.end()) return false;
  std::memset(bytes_of(p), kPoison, at->second);
  used_ -= at->second;
  blocks_.erase(at);
  return true;
}

}  // namespace tessera::sim
