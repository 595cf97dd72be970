// SPDX-License-Identifier: Apache-2.0
// A folder as a store. Entries are files that appear whole or not at all, whatever process dies when:
//   PATH/1/ab/abcdef...   an entry, read only
//   PATH/1/new/PID-N      one that is being written; leftovers of dead processes are removed after an hour
// Any number of processes may share a folder. Recency is the time of access, renewed at most once a minute; the time of
// modification stays that of the writing, so that a mapped entry says whether it has been touched since.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "tessera/abi.h"

namespace tessera::store {

class DiskStore {
 public:
  // `path` empty: there is no store. 0: no limit.
  DiskStore(std::string path, uint64_t max_bytes);

  struct Info {
    std::string why;  // not exclusive
    bool exclusive = false, writable = false;
  };
  // Makes the folder when it is missing. Throws a TSR-K error when it can neither be made nor read.
  Info info();
  const std::string& path() const { return path_; }

  // Thread-safe. Keys are 64 lower-case hex digits; anything else throws. False: there is no such entry.
  bool get(const std::string& key, const std::function<void*(size_t)>& alloc);
  void put(const std::string& key, std::span<const tsr_part> parts);
  struct Mapping {
    const void* bytes = nullptr;
    size_t length = 0;
    uint64_t identity[4] = {};  // device, inode, length, time of modification
  };
  static void unmap(const void* bytes, size_t length);
  bool map(const std::string& key, Mapping* out);  // until unmap()
  void remove(const std::string& key);             // one that is not there is no error
  void list(const std::function<void(const std::string& key, uint64_t bytes, int64_t used)>& each);

 private:
  std::string root() const { return path_ + "/1"; }
  std::string file_of(const std::string& key) const;
  void make_room(uint64_t added);
  std::string path_;
  uint64_t max_bytes_;
  std::mutex mutex_;       // of the estimate
  int64_t estimate_ = -1;  // bytes in the folder as far as this process knows; -1: not looked yet
  std::atomic<uint64_t> next_{0};
};

}  // namespace tessera::store
