// SPDX-License-Identifier: Apache-2.0
// The sizes of one plan as a straight-line program: symbols in, every size that a launch reads out.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Sizes;

struct DimRef {
  int32_t slot = -1;  // of dims[]; -1: `number`
  int64_t number = 0;
  int64_t value(const int64_t* dims) const { return slot < 0 ? number : dims[slot]; }
};

// dims[0 .. symbols) are the graph's symbols in table order; expressions follow. Built while a plan is compiled, immutable
// and thread-safe afterwards. A symbol becomes known in a section of the plan; an expression in the latest of its symbols'.
class SizeProgram {
 public:
  static constexpr uint32_t kUnknown = 0xffffffffu;
  explicit SizeProgram(const Sizes& sizes);

  void set_known(uint32_t symbol, uint32_t section) { section_[symbol] = section; }
  uint32_t known(uint32_t symbol) const { return section_[symbol]; }
  // The slot of an expression, made on first use; -1 for a number.
  int32_t slot(tsr_dim d);
  DimRef ref(tsr_dim d) { return TSR_DIM_IS_EXPR(d) ? DimRef{slot(d), 0} : DimRef{-1, d}; }
  // The same for a size that has its slot already.
  DimRef at(tsr_dim d) const;
  // Latest section among the symbols of `d`; kUnknown when one is never known.
  uint32_t section_of(tsr_dim d) const;
  // Sorts the instructions by section. Throws TSR-R023 for a symbol that nothing determines.
  void finish();

  size_t num_symbols() const { return section_.size(); }
  size_t num_slots() const { return num_slots_; }
  // Runs the instructions of one section. Throws TSR-S001 (overflow), TSR-S003 (division by zero).
  void evaluate(uint32_t section, int64_t* dims) const;
  // The largest value of every slot that ranges of symbols allow, each by itself. Empty: that of one of them is unknown.
  std::vector<int64_t> upper_bounds() const;

 private:
  struct Instruction {
    uint32_t op;
    int32_t target;
    DimRef a, b;
    uint32_t section;
    tsr_dim source;
  };
  const Sizes* sizes_;
  std::vector<uint32_t> section_;
  std::unordered_map<tsr_dim, int32_t> slots_;
  std::vector<tsr_dim> read_;  // plain symbols that somebody reads
  std::vector<Instruction> code_;
  std::vector<uint32_t> begin_;  // first instruction of each section
  size_t num_slots_;
};

}  // namespace tessera::core
