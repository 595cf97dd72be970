// SPDX-License-Identifier: Apache-2.0
#include "cache/blob.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <fstream>

#include "cache/entry.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// "" where the kernel does not say: then nothing counts as checked.
const std::string& boot() {
  static const std::string id = [] {
    std::ifstream in("/proc/sys/kernel/random/boot_id");
    std::string line;
    std::getline(in, line);
    return line;
  }();
  return id;
}

}  // namespace

std::shared_ptr<Blob> Blob::allocate(size_t bytes) {
  // Weights are read from end to end in every call: large pages spare most misses of the TLB.
  constexpr size_t kLargePage = size_t{2} << 20;
  const size_t align = bytes >= 4 * kLargePage ? kLargePage : 64;
  const size_t size = (bytes + align - 1) / align * align;
  void* p = std::aligned_alloc(align, size ? size : align);
  if (!p) throw environment_error("TSR-R001", "out of memory for a constant of " + std::to_string(bytes) + " bytes");
  if (align == kLargePage) madvise(p, size, MADV_HUGEPAGE);  // advice: where it is refused, nothing is lost
  std::shared_ptr<Blob> b(new Blob);
  b->data_ = static_cast<const char*>(p);
  b->bytes_ = bytes;
  b->owner_.reset(p, [](const void* q) { std::free(const_cast<void*>(q)); });
  return b;
}

std::shared_ptr<const Blob> Blob::borrow(std::string_view bytes, std::shared_ptr<const void> owner, bool mapped) {
  std::shared_ptr<Blob> b(new Blob);
  b->data_ = bytes.data();
  b->bytes_ = bytes.size();
  b->mapped_ = mapped;
  b->owner_ = std::move(owner);
  return b;
}

bool CheckedBlobs::has(const std::string& key, const Identity& identity) const {
  const auto at = seen_.find(key);
  return at != seen_.end() && at->second == identity;
}

void CheckedBlobs::add(const std::string& key, const Identity& identity) {
  if (boot().empty()) return;
  seen_[key] = identity;
  changed_ = true;
}

std::string CheckedBlobs::encode() const {
  ByteWriter out;
  out.text(boot());
  out.u32(static_cast<uint32_t>(seen_.size()));
  for (const auto& [key, identity] : seen_) {
    out.text(key);
    for (const uint64_t n : identity) out.u64(n);
  }
  return out.take();
}

void CheckedBlobs::decode(std::string_view payload) {
  seen_.clear();
  ByteReader in(payload);
  std::string at;
  uint32_t count = 0;
  if (!in.text(&at) || at.empty() || at != boot() || !in.u32(&count)) return;
  for (uint32_t i = 0; i < count; ++i) {
    std::string key;
    Identity identity{};
    bool read = in.text(&key);
    for (uint64_t& n : identity) read = read && in.u64(&n);
    if (!read) return;
    seen_[key] = identity;
  }
}

}  // namespace tessera::core
