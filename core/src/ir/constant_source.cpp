// SPDX-License-Identifier: Apache-2.0
#include "ir/constant_source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>

#include "plugin/sha256.hpp"

namespace tessera::core {

namespace {

// f_type of statfs(2), from linux/magic.h and the file systems' own sources (zfs, bcachefs).
constexpr std::array<uint32_t, 6> kKeepCtime = {0xef53,       // ext2, ext3, ext4
                                                0x58465342,   // xfs
                                                0x9123683e,   // btrfs
                                                0xf2f52010,   // f2fs
                                                0x2fc12fc1,   // zfs
                                                0xca451a4e};  // bcachefs
constexpr uint32_t kOverlay = 0x794c7630;

// Of pages from the first to the last of the file; "" when they cannot be read.
std::string sample(int fd, int64_t size) {
  constexpr int64_t kPages = 16, kPage = 4096;
  std::string bytes;
  std::array<char, kPage> page;
  for (int64_t i = 0; i < kPages; ++i) {
    const int64_t last = std::max<int64_t>(size - kPage, 0);
    const ssize_t n = pread(fd, page.data(), page.size(), last / (kPages - 1) * i);
    if (n < 0) return {};
    bytes.append(page.data(), static_cast<size_t>(n));
  }
  return sha256_hex(bytes);
}

}  // namespace

bool SourceFile::look(int fd, Look* out) {
  struct stat s {};
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) return false;
  *out = {static_cast<uint64_t>(s.st_dev),
          static_cast<uint64_t>(s.st_ino),
          static_cast<int64_t>(s.st_size),
          s.st_mtim.tv_sec,
          s.st_mtim.tv_nsec,
          s.st_ctim.tv_sec,
          s.st_ctim.tv_nsec};
  return true;
}

std::shared_ptr<const SourceFile> SourceFile::open(int fd) {
  std::shared_ptr<SourceFile> file(new SourceFile);
  file->named_at_ = static_cast<int64_t>(time(nullptr));
  if (!look(fd, &file->first_)) return nullptr;
  file->fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return file->fd_ < 0 ? nullptr : file;
}

SourceFile::~SourceFile() {
  if (fd_ >= 0) close(fd_);
}

std::string SourceFile::identity(int settle_seconds) const {
  Look now;
  struct statfs fs {};
  if (!look(fd_, &now) || now != first_ || fstatfs(fd_, &fs) != 0) return {};
  const auto type = static_cast<uint32_t>(fs.f_type);
  const bool image = now.mtime_s == now.ctime_s && now.mtime_ns == now.ctime_ns;
  if (std::find(kKeepCtime.begin(), kKeepCtime.end(), type) == kKeepCtime.end() && (type != kOverlay || image)) return {};
  if (first_.ctime_s + settle_seconds > named_at_) return {};
  std::array<int, 2> id{};
  static_assert(sizeof fs.f_fsid == sizeof id);
  __builtin_memcpy(id.data(), &fs.f_fsid, sizeof id);
  std::string out = "file system " + std::to_string(type) + " " + std::to_string(static_cast<uint32_t>(id[0])) + " " +
                    std::to_string(static_cast<uint32_t>(id[1]));
  out += " device " + std::to_string(now.device) + " inode " + std::to_string(now.inode) + " size " + std::to_string(now.size);
  out += " mtime " + std::to_string(now.mtime_s) + "." + std::to_string(now.mtime_ns);
  out += " ctime " + std::to_string(now.ctime_s) + "." + std::to_string(now.ctime_ns);
  const std::string sampled = sample(fd_, now.size);
  return sampled.empty() ? sampled : out + " sample " + sampled;
}

bool SourceFile::unchanged() const {
  Look now;
  return look(fd_, &now) && now == first_ && first_.ctime_s + kTick <= named_at_;
}

bool ConstantSources::unchanged() const {
  const SourceFile* last = nullptr;
  return std::all_of(all_.begin(), all_.end(),
                     [&](const ConstantSource& s) { return s.file.get() == last || (last = s.file.get())->unchanged(); });
}

void ConstantSources::add(const void* data, size_t length, int fd, uint64_t offset) {
  if (!data || length == 0) return;
  struct stat s {};
  if (fstat(fd, &s) != 0) return;
  std::shared_ptr<const SourceFile> file;
  for (auto it = all_.rbegin(); it != all_.rend() && !file; ++it)
    if (it->file->is(static_cast<uint64_t>(s.st_dev), static_cast<uint64_t>(s.st_ino))) file = it->file;
  if (!file) file = SourceFile::open(fd);
  if (!file) return;
  all_.push_back({static_cast<const char*>(data), length, std::move(file), offset});
  sorted_ = false;
}

const ConstantSource* ConstantSources::find(const void* data, size_t bytes) const {
  const std::less<> before;
  if (!sorted_) {
    std::sort(all_.begin(), all_.end(),
              [&](const ConstantSource& a, const ConstantSource& b) { return before(a.data, b.data); });
    sorted_ = true;
  }
  const auto* const p = static_cast<const char*>(data);
  auto it =
      std::upper_bound(all_.begin(), all_.end(), p, [&](const char* x, const ConstantSource& s) { return before(x, s.data); });
  if (it == all_.begin()) return nullptr;
  --it;
  const auto at = static_cast<size_t>(p - it->data);
  return at <= it->length && bytes <= it->length - at ? &*it : nullptr;
}

}  // namespace tessera::core
