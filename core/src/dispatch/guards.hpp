// SPDX-License-Identifier: Apache-2.0
// Guards of one compiled call: which facts about the arguments it relies on, as a key that is hashed and compared, and as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dispatch/words.hpp"
#include "ir/sizes.hpp"
#include "tessera/embed.h"

namespace tessera::core {

// What is fixed about one leaf of the flattened arguments.
struct LeafGuard {
  uint32_t kind = 0;     // tsr_arg_kind
  bool guarded = false;  // of tensors: the graph relies on it. Other leaves always are.
  bool dense = false;    // row-major; else the strides are part of the key
  uint32_t rank = 0;
  uint64_t fixed = 0;  // bit i: the size at index i is part of the key; else it is a symbol
  bool operator==(const LeafGuard&) const = default;
};

// The mask of a group of entries: entries with equal masks differ in numbers only, so one probe finds the right one.
struct Mask {
  std::vector<LeafGuard> leaves;
  bool symbolic = false;
  size_t words = 0;  // of a key, texts not counted
  void finish();
  bool operator==(const Mask& o) const { return leaves == o.leaves; }
  // Appends the words of these arguments. False: they cannot match whatever the numbers are (count, kinds, ranks).
  bool key(const tsr_arg* args, size_t count, WordBuffer& out) const;
};

// The arguments at capture, kept to explain why a later call does not match.
struct Expected {
  std::string path;  // "x", "state['h'][0]"
  uint32_t kind = 0;
  bool guarded = true;
  int64_t i = 0;
  double f = 0;
  std::string s;
  uint32_t dtype = 0, requires_grad = 0, role = 0;
  tsr_device device = 0;
  std::vector<int64_t> sizes, strides;
  bool dense = true;
  std::vector<int32_t> symbols;  // by dimension: the symbol, or -1 for a fixed size
};

// Relations among sizes that are symbols.
struct SymbolicGuards {
  struct Place {
    uint32_t leaf, dim, symbol;
  };
  std::vector<Place> binds, equals;  // the first place of each symbol gives it its value
  struct Bounds {
    uint32_t symbol;
    int64_t min, max;
    uint32_t leaf, dim;
  };
  std::vector<Bounds> bounds;
  const Sizes* sizes = nullptr;  // of the executable's graph
  std::vector<Assumption> relations;
  bool empty() const { return binds.empty() && relations.empty(); }
  bool hold(const tsr_arg* args) const;
};

// Why these arguments do not match, in the words of docs/recompiles.md: the first guard that fails, structure and plain values before
// tensors. `all`: every failing guard. Empty: everything matches.
std::vector<std::string> mismatches(const std::vector<Expected>& expected, const SymbolicGuards& symbolic, const tsr_arg* args,
                                    size_t count, bool all);
// Every guard as text: "c == 0.5", "tensor 'x': f32[3], cpu".
std::vector<std::string> guard_texts(const std::vector<Expected>& expected, const SymbolicGuards& symbolic);

}  // namespace tessera::core
