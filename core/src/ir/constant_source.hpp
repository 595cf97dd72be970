// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a graph's constants come from: tsr_graph_api.constant_source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::core {

// An open file and how it looked when it was first named, before anything that matters was read from it. Immutable,
// thread-safe.
class SourceFile {
 public:
  // Null: not a regular file, or out of descriptors. `fd` stays the caller's.
  static std::shared_ptr<const SourceFile> open(int fd);
  ~SourceFile();
  SourceFile(const SourceFile&) = delete;

  // What tells this file, with this content, from every other: file system, inode, size, times of the last change of data
  // (mtime) and of data or inode (ctime) in nanoseconds, and the content of sixteen pages, in case a file system was itself
  // copied with all of that. "" when it cannot tell:
  //  - the file has changed since it was first named, so that nobody knows which of its contents was read;
  //  - it changed less than `settle_seconds` before that, or in the future: a further write may leave the same times;
  //  - its file system does not keep ctime by itself, as far as is known here. A list names those that do: ext2 to ext4, xfs,
  //    btrfs, f2fs, zfs, bcachefs, and overlays where ctime is not mtime (an image below has one time for both, and another
  //    image may repeat it). Of network and FUSE file systems somebody else keeps the times; tmpfs does not count writes
  //    through shared mappings.
  // The kernel sets ctime at each write, truncation, rename and change of times, and no call sets it to anything but now, so
  // that equal identities mean equal bytes. What is written through a shared mapping counts when a page becomes dirty and again
  // after it has been written back; `settle_seconds` should exceed that delay (vm.dirty_expire_centisecs, 30 s).
  std::string identity(int settle_seconds) const;
  bool unchanged() const;
  bool is(uint64_t device, uint64_t inode) const { return device == first_.device && inode == first_.inode; }

 private:
  struct Look {
    uint64_t device = 0, inode = 0;
    int64_t size = 0, mtime_s = 0, mtime_ns = 0, ctime_s = 0, ctime_ns = 0;
    bool operator==(const Look&) const = default;
  };
  static constexpr int kTick = 2;  // seconds: the coarsest clock of a file system
  SourceFile() = default;
  static bool look(int fd, Look* out);
  int fd_ = -1;
  Look first_;
  int64_t named_at_ = 0;  // seconds since 1970, before first_ was taken
};

// `length` bytes at `data` equal those at `offset` of the file.
struct ConstantSource {
  const char* data;
  size_t length;
  std::shared_ptr<const SourceFile> file;
  uint64_t offset;
};

// The source that holds all of these bytes, or null. `sources` in any order.
class ConstantSources {
 public:
  // Does nothing when the file cannot be used.
  void add(const void* data, size_t length, int fd, uint64_t offset);
  const ConstantSource* find(const void* data, size_t bytes) const;
  // Whether every file still looks as it did when it was first named, and had then been left alone for a while (kTick). The
  // bytes that were read in between are those of one moment.
  bool unchanged() const;

 private:
  mutable std::vector<ConstantSource> all_;  // sorted by address once somebody asks
  mutable bool sorted_ = true;
};

}  // namespace tessera::core
