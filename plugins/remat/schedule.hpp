// SPDX-License-Identifier: Apache-2.0
// The order in which a joint graph runs, as plain arrays, and the memory that a plan takes in that order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tessera::remat {

// Values are those of the problem, followed by those of the backward half. Views are no items: who reads one reads what it
// views.
struct Item {
  bool backward = false;
  uint32_t node = 0;  // of the problem, when it belongs to the forward half
  std::vector<uint32_t> reads, writes;
  // A matrix product, convolution or attention: no kernel holds two of them, and what one reads is in memory.
  bool product = false;
  // A kernel may compute it together with those around it: what it writes is not in memory when only such items read it before
  // any other runs.
  bool fuses = false;
};
struct Schedule {
  std::vector<Item> items;        // in program order
  std::vector<int64_t> bytes;     // by value, of its memory
  std::vector<uint8_t> outputs;   // by value: the caller gets it, so that its memory is counted elsewhere
  std::vector<uint32_t> item_of;  // by node of the problem; kNoItem: a view
};
inline constexpr uint32_t kNoItem = 0xffffffffu;

// Bytes of values at the peak when what the plan computes again stands before its first reader, and every value dies behind its
// last one. Fusion is guessed (Item::fuses): an estimate that orders plans.
// Counts where values are written and read, by stretches: items in a row that fuse are one, any other item is one of its own.
class Stretches {
 public:
  void begin(const Item& item, bool backward) {
    if (!item.fuses || !fused_ || backward != backward_) ++now_;
    fused_ = item.fuses;
    backward_ = backward;
  }
  int32_t now() const { return fused_ ? now_ : -now_; }  // negative: of an item that does not fuse
  // Whether a value passes inside a kernel that is written in one stretch and read in another.
  static bool inside(int32_t written, int32_t read) { return written > 0 && written == read; }

 private:
  int32_t now_ = 0;
  bool fused_ = false, backward_ = false;
};

int64_t peak_bytes(const Schedule& schedule, const Plan& plan);

// Nodes of the forward half after which one value alone is read on, apart from values that are read all over: whoever keeps
// that one can compute what follows again without what comes before.
struct Separators {
  std::vector<uint32_t> nodes;    // in program order
  std::vector<uint8_t> anywhere;  // by node: gives a value that is read all over
};
Separators find_separators(const Schedule& schedule, size_t nodes);

}  // namespace tessera::remat
