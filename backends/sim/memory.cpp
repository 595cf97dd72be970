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
  limit_ = up(bytes, size_t{2} << 20);
  capacity_ = 4 * limit_;
  void* p = mmap(nullptr, 2 * capacity_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<char*>(p);
  if (mprotect(base_ + capacity_, capacity_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
}

size_t Memory::used() const {
  std::lock_guard lock(mutex_);
  return used_;
}

char* Memory::place(size_t size, size_t align) {
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
  if (size > capacity_ || (!fit(next_, &offset) && !fit(0, &offset))) return nullptr;
  blocks_[offset] = size;
  next_ = offset + size;
  return base_ + offset;
}

char* Memory::allocate(size_t bytes, size_t align) {
  std::lock_guard lock(mutex_);
  const size_t size = up(bytes ? bytes : 1, align) + kGap;
  if (size > limit_ || used_ > limit_ - size) return nullptr;
  char* const p = place(size, align);
  if (!p) return nullptr;
  used_ += size;
  std::memset(bytes_of(p), kPoison, size);
  return p;
}

char* Memory::allocate_range(size_t bytes) {
  std::lock_guard lock(mutex_);
  char* const p = bytes > capacity_ ? nullptr : place(up(bytes ? bytes : 1, 64) + kGap, 64);
  if (p) ranges_[static_cast<size_t>(p - base_)] = {bytes, 0};
  return p;
}

bool Memory::commit(void* range, size_t bytes) {
  std::lock_guard lock(mutex_);
  Range& r = ranges_.at(static_cast<size_t>(static_cast<char*>(range) - base_));
  if (bytes > r.bytes || used_ - r.committed > limit_ || bytes > limit_ - (used_ - r.committed)) return false;
  if (bytes > r.committed) std::memset(bytes_of(range) + r.committed, kPoison, bytes - r.committed);
  used_ = used_ - r.committed + bytes;
  r.committed = bytes;
  return true;
}

std::optional<size_t> Memory::committed_bytes(void* range) const {
  std::lock_guard lock(mutex_);
  const auto at = ranges_.find(static_cast<size_t>(static_cast<char*>(range) - base_));
  return at == ranges_.end() ? std::nullopt : std::optional(at->second.committed);
}

bool Memory::committed(const void* p, size_t bytes) const {
  std::lock_guard lock(mutex_);
  if (ranges_.empty()) return true;
  const auto offset = static_cast<size_t>(static_cast<const char*>(p) - base_);
  auto at = ranges_.upper_bound(offset);
  if (at == ranges_.begin()) return true;
  --at;
  if (offset >= at->first + at->second.bytes) return true;
  return offset + bytes <= at->first + at->second.committed;
}

bool Memory::free(void* p) {
  std::lock_guard lock(mutex_);
  const auto offset = static_cast<size_t>(static_cast<char*>(p) - base_);
  const auto at = blocks_.find(offset);
  if (at == blocks_.end()) return false;
  if (const auto range = ranges_.find(offset); range != ranges_.end()) {
    std::memset(bytes_of(p), kPoison, range->second.committed);
    used_ -= range->second.committed;
    ranges_.erase(range);
  } else {
    std::memset(bytes_of(p), kPoison, at->second);
    used_ -= at->second;
  }
  blocks_.erase(at);
  retired_.erase(offset);
  return true;
}

void Memory::retire(void* p) {
  std::lock_guard lock(mutex_);
  const auto offset = static_cast<size_t>(static_cast<char*>(p) - base_);
  if (blocks_.contains(offset)) retired_.insert(offset);
}

bool Memory::live(const void* p, size_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto offset = static_cast<size_t>(static_cast<const char*>(p) - base_);
  auto at = blocks_.upper_bound(offset);
  if (at == blocks_.begin()) return false;
  --at;
  return offset + bytes <= at->first + at->second && !retired_.contains(at->first);
}

}  // namespace tessera::sim
