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
};
struct Schedule {
  std::vector<Item> items;        // in program order
  std::vector<int64_t> bytes;     // by value, of its memory
  std::vector<uint8_t> outputs;   // by value: the caller gets it, so that its memory is counted elsewhere
  std::vector<uint32_t> item_of;  // by node of the problem; kNoItem: a view
};
inline constexpr uint32_t kNoItem = 0xffffffffu;

// Bytes of values at the peak when what the plan computes again stands before its first reader, and every value dies behind its
// last one. Before fusion: an estimate that orders plans.
int64_t peak_bytes(const Schedule& schedule, const Plan& plan);

// Nodes of the forward half after which one value alone is read on, apart from values that are read all over: whoever keeps
// that one can compute what follows again without what comes before.
struct Separators {
  std::vector<uint32_t> nodes;    // in program order
  std::vector<uint8_t> anywhere;  // by node: gives a value that is read all over
};
Separators find_separators(const Schedule& schedule, size_t nodes);

}  // namespace tessera::remat
