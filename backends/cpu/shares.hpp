// SPDX-License-Identifier: Apache-2.0
// Units of work, cut into one run of neighbours for each slot. Kernels that cut what they share (positions of an image, say) the same way let a thread find
// what it wrote in its own caches: a line that another core wrote last takes as long as one from memory. Who is done takes from the others, so one slow
// thread costs what it would with a common queue.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace cpu {

class Shares {
 public:
  static constexpr int64_t kMost = 64;  // slots beyond that have no units of their own

  Shares(int64_t units, int64_t slots) : units_(units), shares_(std::clamp<int64_t>(slots, 1, kMost)) {
    for (int64_t s = 0; s < shares_; ++s) next_[s].unit.store(first(s), std::memory_order_relaxed);
  }

  // Up to `chunk` units [*from, *to), of the slot's own share first. False: all are taken. From any thread.
  bool take(int64_t slot, int64_t chunk, int64_t* from, int64_t* to) {
    for (int64_t i = 0; i < shares_; ++i) {
      const int64_t share = (slot + i) % shares_, end = first(share + 1);
      std::atomic<int64_t>& next = next_[share].unit;
      if (next.load(std::memory_order_relaxed) >= end) continue;
      const int64_t at = next.fetch_add(chunk, std::memory_order_relaxed);
      if (at >= end) continue;
      *from = at;
      *to = std::min(end, at + chunk);
      return true;
    }
    return false;
  }

 private:
  int64_t first(int64_t share) const { return units_ / shares_ * share + std::min(share, units_ % shares_); }

  struct alignas(64) Next {
    std::atomic<int64_t> unit;
  };
  int64_t units_, shares_;
  Next next_[kMost];
};

}  // namespace cpu
