// SPDX-License-Identifier: Apache-2.0
// Ranges of device addresses, with memory behind the first part of each: arenas that grow in place.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu.hpp"

namespace tessera::cuda {

// Thread-safe, one range by one thread at a time.
class Reserved {
 public:
  explicit Reserved(Gpu& gpu) : gpu_(gpu) {}
  void* reserve(size_t bytes);
  void commit(void* range, size_t bytes, tsr_stream* stream);
  void unreserve(void* range) noexcept;

 private:
  struct Piece {
    CUmemoryHandle handle;
    size_t bytes;
  };
  struct Range {
    size_t bytes = 0, committed = 0;
    std::vector<Piece> pieces;
  };
  size_t granularity();
  void shrink(CUdeviceptr base, Range& range, size_t bytes);

  Gpu& gpu_;
  std::mutex mutex_;
  size_t granularity_ = 0;
  std::map<void*, std::unique_ptr<Range>> ranges_;
};

}  // namespace tessera::cuda
