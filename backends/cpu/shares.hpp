// SPDX-License-Identifier: Apache-2.0
// Units of work, cut into one run of neighbours for each slot. Kernels that cut what they share (positions of an image, say)
// the same way let a thread find what it wrote in its own caches: a line that another core wrote last takes as long as one from
// memory. Who is done takes from the others, so one slow thread costs what it would with a common queue.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "tessera/plugin.hpp"

namespace cpu {

// How many of the slots that a workspace has a call cuts its work for: one where it has one thread, within a loop of others.
// The workspace is enough for both.
inline int slots_now(int slots) { return tessera::sdk::host().core->num_threads() == 1 ? 1 : slots; }

class Shares {
 public:
  static constexpr int64_t kMost = 64;  // slots beyond that have no units of their own

  Shares(int64_t units, int64_t slots) : units_(units), shares_(std::clamp<int64_t>(slots, 1, kMost)) {
    for (int64_t s = 0; s < shares_; ++s) next_[s].unit.store(first(s), std::memory_order_relaxed);
  }

  // Up to `most` units [*from, *to), of the slot's own share first; at most half of what is left of a share, so that all slots
  // are done at the same time. More than `whole` units end at a multiple of it. Of another slot's share nothing is taken where
  // fewer than `least` are left. False: there is nothing to take. From any thread.
  bool take(int64_t slot, int64_t most, int64_t whole, int64_t* from, int64_t* to, int64_t least = 1) {
    for (int64_t i = 0; i < shares_; ++i) {
      const int64_t share = (slot + i) % shares_, end = first(share + 1);
      std::atomic<int64_t>& next = next_[share].unit;
      int64_t at = next.load(std::memory_order_relaxed);
      while (end - at >= (i == 0 ? 1 : least)) {
        const int64_t behind = at + stretch(at, end - at, most, whole);
        if (!next.compare_exchange_weak(at, behind, std::memory_order_relaxed)) continue;
        *from = at;
        *to = behind;
        return true;
      }
    }
    return false;
  }
  bool take(int64_t slot, int64_t* from, int64_t* to) { return take(slot, 1, 1, from, to); }

 private:
  static int64_t stretch(int64_t at, int64_t left, int64_t most, int64_t whole) {
    const int64_t n = std::clamp<int64_t>(left / 2, 1, most), over = (at + n) % whole;
    return n > over ? n - over : n;
  }
  int64_t first(int64_t share) const { return units_ / shares_ * share + std::min(share, units_ % shares_); }

  struct alignas(64) Next {
    std::atomic<int64_t> unit;
  };
  int64_t units_, shares_;
  Next next_[kMost];
};

}  // namespace cpu
