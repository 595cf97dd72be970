// SPDX-License-Identifier: Apache-2.0
#include "guarded.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <utility>

namespace tessera::conformance {

namespace {
constexpr uint8_t kMargin = 0xC3;
}  // namespace

GuardedMemory::GuardedMemory(size_t bytes, uint8_t fill) : bytes_(bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t rounded = (bytes + 63) / 64 * 64;
  usable_ = (rounded + page - 1) / page * page;
  if (usable_ == 0) usable_ = page;
  mapped_ = usable_ + page;
  void* p = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  pages_ = static_cast<char*>(p);
  data_ = pages_ + usable_ - rounded;
  if (mprotect(pages_ + usable_, page, PROT_NONE) != 0) throw std::bad_alloc();
  std::memset(pages_, kMargin, usable_);
  if (bytes) std::memset(data_, fill, bytes);
}

GuardedMemory::GuardedMemory(GuardedMemory&& o) noexcept
    : pages_(std::exchange(o.pages_, nullptr)), data_(o.data_), mapped_(o.mapped_), usable_(o.usable_), bytes_(o.bytes_) {}

GuardedMemory::~GuardedMemory() {
  if (pages_) munmap(pages_, mapped_);
}

void GuardedMemory::make_read_only() const { mprotect(pages_, usable_, PROT_READ); }

bool GuardedMemory::margins_intact() const {
  for (const char* p = pages_; p < pages_ + usable_; ++p) {
    if (p == data_) p += bytes_;
    if (p == pages_ + usable_) break;
    if (static_cast<uint8_t>(*p) != kMargin) return false;
  }
  return true;
}

}  // namespace tessera::conformance
