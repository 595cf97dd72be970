// SPDX-License-Identifier: Apache-2.0
// Reductions along rows and what is computed from them, by a fixed number of threads for each row, in groups of 32 as the
// family's order has them. Chunks of a row go to the groups by turns; their results meet in registers, or in shared memory
// behind a barrier.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "build.hpp"

namespace tessera::kit {

constexpr int kWholeUnit = 1024;  // threads of a unit, where each has the registers that a row's loops take
// Bytes of shared memory that a block of so many threads may have: its share of a unit's, less what the device keeps for
// itself.
inline int64_t shared_share(const GpuDescription& d, int threads) {
  const int blocks = std::max(1, kWholeUnit / std::max(1, threads));
  return d.shared_bytes / blocks - (blocks > 1 ? 1024 : 0);
}

class RowWriter {
 public:
  struct Config {
    int threads = 32;         // of a row, a multiple of 32
    int rows = 1;             // of a block, beside each other
    bool persistent = false;  // what is loaded and what is expensive stays in registers
    std::set<uint32_t> unstored =
        {};  // buffers of the kernel that the program does not have: values of a row for the caller alone
  };
  RowWriter(ProgramBuilder& b, Kernel& k, const SimtOrder& o, const Config& c);
  // Which group of 32 of the row a thread belongs to, which thread of it it is, and to which of the block's rows beside each
  // other.
  void place_threads(Expr group, Expr lane, Expr row_in_block) { group_ = group, lane_ = lane, row_in_block_ = row_in_block; }

  // One row that the same threads compute; several slots are in flight beside each other.
  struct Slot {
    KernelCopy copy;
    Expr row = kZero;                           // certainly a row that there is
    uint32_t stores = kNone;                    // condition under which it is stored; kNone: always
    std::map<std::string, uint32_t> held = {};  // registers, by what lies in them
    std::set<std::string> loaded = {};          // those of loads that are there already, for the whole row
  };
  Slot slot(const std::vector<uint32_t>& buffers, int number);
  // Keeps in shared memory what several loops read of a row that no registers hold, as far as it fits: the first loop puts it
  // there, the others do not go to memory again. For one slot.
  void keep_in_shared(const GpuDescription& d);
  void set_row(Slot& s, Expr row, uint32_t stores);
  // Loads ahead of everything what the first loop, those after it alone, or all of them read of the row (persistent only), or
  // what is the same for all rows.
  enum class Loops { First, Later, All };
  void load(Slot& s, bool of_row, Loops which = Loops::First);
  // The whole kernel for these rows. `half`: where in doubled shared memory, for rows that follow each other without a barrier
  // between; its extent is `halves`.
  void run(std::vector<Slot*> slots, Expr half = kZero, int64_t halves = 1);

  // For each vector of 8 elements of a thread: its number in the registers' vectors, the column of its first element, and the
  // condition under which elements [h * width(), (h + 1) * width()) exist (kNone: always). Loops are unrolled.
  void each_vector(const std::function<void(Expr vector, Expr column)>& f);
  uint32_t inside(Expr column) { return b_.below(column, columns_); }
  int64_t width() const { return width_; }
  int64_t vectors() const { return chunks_per_group_ * steps_; }
  int64_t chunk_results() const;  // of one reduction of a row, in shared memory
  // Does a loop load what an earlier one stored to an output?
  bool waits_in_memory() const;
  bool persistent() const { return config_.persistent; }
  Expr columns() const { return columns_; }
  Expr rows() const { return rows_; }
  // What lies at an index, as text in which "column" and, by their place in `row_axes`, "row0", "row1".. stand for the point;
  // empty: it is no contiguous load. What differs from row to row has "row" in it.
  static std::string key_of(Kernel& k, const Inst& x, uint32_t column_axis, const std::vector<uint32_t>& row_axes);
  static std::vector<uint32_t> axes_of(const std::vector<AxisGroup>& groups);

 private:
  struct Partial {  // of one reduction of one slot
    uint32_t inst;
    Reducer reducer;
    uint32_t value, running, results;  // registers; results: registers or shared memory
  };
  bool shares() const { return groups_ > 1 || !chunks_known_; }
  void analyse();
  struct Cached {         // what loops read of a row
    uint32_t buffer;      // shared memory
    bool filled = false;  // by a loop before
  };
  void load_cached(Slot& s, const Inst& x, const Cached& cached, Expr i, Expr step, Expr h, Expr to);
  void loads(Slot& s, const std::vector<uint32_t>& needed, Expr i, bool all);
  void loop(std::vector<Slot*>& slots, const Loop& l, size_t number, Expr half, int64_t halves);
  void loop_body(Slot& s, const Loop& l, std::vector<Partial>& partials, Expr i);
  bool streams(uint32_t id, size_t loop);
  uint32_t finish(const Partial& p);
  // `vector`: its number among the thread's, `step`: among those of a chunk.
  uint32_t eval(Slot& s, uint32_t id, Expr vector, Expr step, Expr element);
  void set_columns(Slot& s, Expr column);
  std::string structure(uint32_t id);
  std::string load_key(const Inst& x);
  Expr first_column(Expr i, Expr step);
  std::vector<uint32_t> loads_of(const Loop& l);

  ProgramBuilder& b_;
  Kernel& k_;
  SimtOrder o_;
  Config config_;
  Expr group_ = kZero, lane_ = kZero, row_in_block_ = kZero;
  std::vector<AxisGroup> row_groups_, column_groups_;
  Expr rows_ = kZero, columns_ = kZero, chunks_ = kOne;
  bool chunks_known_ = false;
  int64_t groups_ = 1, chunks_per_group_ = 1, steps_ = 1, width_ = 8, num_chunks_ = 1;
  // Analysis of the kernel: instructions of loops, what is kept between loops, stores that a later loop makes again.
  std::vector<int> loop_of_;               // by instruction; -1: none
  std::map<uint32_t, std::string> kept_;   // calls and loads of outputs, by what they compute
  std::set<uint32_t> dropped_;             // stores that only keep a value
  std::map<uint32_t, std::string> keeps_;  // stores whose value is kept under this name
  Expr shared_base_ = kZero;               // of the row's chunk results, in shared memory
  std::map<std::string, Cached> cached_;   // by the key of a load
  int64_t cached_chunks_ = 0;              // of a group
};

}  // namespace tessera::kit
