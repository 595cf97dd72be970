// SPDX-License-Identifier: Apache-2.0
// Writes the text of one kernel for the CPU: range bodies of three shapes.
//  - lanes along a parallel axis (pointwise kernels; reductions of columns, whose running values are arrays of vectors),
//  - lanes along the innermost axis of a reduction (rows: running values in registers, folded at the end),
//  - no lanes (what fits neither), one point at a time.
// Every vector loop is an unmasked body and one masked tail, left out where sizes say that there is none.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/kit/emit.hpp"
#include "tessera/kit/interpret.hpp"

namespace tessera::kit {

// Each section of the declarations is defined in the file that it names.
class KernelWriter {
 public:
  KernelWriter(ModuleText& m, Kernel& k, const Schedule& s)
      : m_(m), d_(m.dialect_), k_(k), s_(s), varying_(k.insts.size(), 0) {}

  std::string run();

 private:
  static constexpr ReduceOrder kOrder{};
  static constexpr int64_t kGrainPoints = 16384;  // of one task: several microseconds
  static constexpr int64_t kRow = 4096;           // elements of a row that is kept beside the output, at most
  static constexpr int64_t kRowBytes = 32 << 10;  // of all of them together

  static constexpr size_t kFewInsts = 8;  // whose text may stand there several times: the compiler unrolls nothing

  enum class Phase { Whole, Partial, Join };
  struct Lanes {
    int n = 1;
    std::string count;  // text of how many are alive; empty: all
  };

  // ---- cpu_writer.cpp
  void check();
  // Which values differ between lanes.
  void classify();
  // Outputs that hold a value of an earlier loop until the last one: that value can wait in a short row of its own instead,
  // which stays in the first-level cache. Rows of more elements stay in the output.
  void find_kept();
  bool in_row(uint32_t id) const;
  // Stores of whole vectors to memory that this kernel does not read.
  void find_streamed();
  bool index_varies(Expr e) const;
  void symbols(const std::string& from);
  void range(const std::string& function, Phase phase);
  void range_body(Phase phase);
  // Sizes that only the launch knows may be such that less is to be done: a condition, as an expression, or nothing; and a text
  // for where it holds.
  std::string easy_sizes();
  void with_easy_sizes(const std::function<void()>& text);

  // ---- cpu_half.cpp
  // A value of f32 that was rounded to a half type and is widened again.
  bool through_half(uint32_t id) const;
  // Which values of f32 have zeros in the lower half of their bits where they are NaN, and which of 16 bits are more than a
  // step between two of f32.
  void find_halves();
  // Such a step in one go; empty: there is none.
  std::string rounded_half(uint32_t id, int lanes);

  // ---- cpu_repeats.cpp
  void find_repeats();
  bool reads_repeat(uint32_t id) const { return repeats_[id] != kNone && repeats_[id] != id; }
  bool reads_repeats(const Loop& l) const;
  // Where the value of this point is kept.
  std::string repeat_place(uint32_t first, bool to_write);

  // ---- cpu_text.cpp
  void line(const std::string& s) { out_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + s + "\n"; }
  void open(const std::string& s);
  void close(const std::string& s = "}");
  std::string expr(Expr e, const std::string& lane = {}) const;
  // Apart from every other name here.
  std::string symbol_name(uint32_t s) const { return "d_" + k_.symbols[s].name; }
  std::string extent(uint32_t axis) const { return expr(k_.pool.extent(axis)); }
  std::string name(uint32_t v) const { return "v" + std::to_string(v); }
  std::string type(Type t, int lanes) { return d_.type(t, lanes, m_.needs_); }
  // An operand as a value of so many lanes.
  std::string ref(uint32_t v, int lanes);
  // In an infix operation a scalar may stand beside a vector.
  bool infix(const Inst& x, Type in) const;
  void function_text(uint32_t id, int lanes);
  // LLVM 19 folds bitwise operations of three operands, one of them a constant, under a mask into a vpternlog with the wrong
  // table. So that it never sees two in a row, the operand of one that comes from another is hidden.
  std::string shield(const std::vector<Inst>& insts, const Inst& x, uint32_t operand, int lanes, const std::string& text);
  static int shift_of(const std::vector<Inst>& insts, const Inst& x);
  std::string operation(const Inst& x, Type in, int lanes, std::span<const std::string> args, int shift);
  std::string pointer(uint32_t id, const std::string& lane = {}) const;
  void lane_loop(const Lanes& l, const std::string& statement);

  // ---- cpu_instructions.cpp
  void inst(uint32_t id, const Lanes& outer);
  std::string value(uint32_t id, const Inst& x, const Lanes& l);
  void index(uint32_t id, const Inst& x, const Lanes& l);
  // 1: contiguous along the lanes.
  bool contiguous(const Inst& x);
  uint32_t of_byte_table(const Inst& x) const;
  void load(uint32_t id, const Inst& x, const Lanes& l);
  void store(uint32_t id, const Inst& x, const Lanes& outer);
  // Whether stores to the buffer go past the caches: the launch says so, and a long row may still have to be read.
  std::string stream_flag(uint32_t buffer);
  // Memory of rows, once per range; and where the row of this point is.
  void row_memory();
  void row_pointers();
  void fault(const Inst& x, const Lanes& outer);

  // ---- cpu_reductions.cpp
  static ReduceKind kind(const Inst& x) { return static_cast<ReduceKind>(x.id); }
  Type reduced_type(const Inst& x) const { return k_.insts[x.args[0]].type; }
  static bool is_arg(const Inst& x) { return kind(x) == ReduceKind::ArgMax || kind(x) == ReduceKind::ArgMin; }
  std::string identity(const Inst& x, int lanes);
  // The name of the function that combines two running values.
  std::string combiner(const Inst& x, int lanes);
  // Of one vector's lanes, by halves.
  std::string folder(const Inst& x, int lanes);
  std::vector<uint32_t> reductions(const Loop& l) const;
  Expr points(const Loop& l);
  // The value that a reduction takes in, as so many lanes; a dot multiplies first.
  std::string taken(const Inst& x, int lanes);
  void serial_loop(const Loop& l, const Lanes& lanes);
  // Points come in order, so a later one wins only when it is strictly more, or the first NaN.
  void take_arg(uint32_t r, const Inst& x, int n);

  // ---- cpu_lanes.cpp
  void body_of(const Loop& l, const Lanes& lanes);
  // Stores only: full vectors, then what is left.
  void store_loop(const Loop& l);
  bool divides(Expr n, int64_t by) { return k_.pool.mod(n, k_.pool.number(by)) == kZero; }
  // for (; axis + W <= end; axis += W) { body } and the masked rest.
  template <class F>
  void lane_range(const std::string& axis, const std::string& end, bool whole, F body) {
    const std::string w = std::to_string(s_.width);
    open("for (; " + axis + " + " + w + " <= " + end + "; " + axis + " += " + w + ") {");
    body(Lanes{s_.width, ""});
    close();
    if (whole) return;
    open("if (" + axis + " < " + end + ") {");
    line("const i64 m = " + end + " - " + axis + ";");
    body(Lanes{s_.width, "m"});
    close();
  }
  // One chunk [c0, c1) of the row, in groups of `group` lanes (32, or 8 in short rows); declares s<r> for each reduction.
  void row_chunk(const Loop& l, const std::string& c0, const std::string& c1, int group, bool whole);
  void declare_results(const std::vector<uint32_t>& rs);
  // Short and long rows are reduced in different numbers of lanes.
  void row_by_length(const Loop& l, const std::string& c0, const std::string& c1, const std::optional<int64_t>& total,
                     bool chunks_are_long);
  void row_loop(const Loop& l);
  // Rows of sizes that only the launch knows are mostly whole vectors, and of one chunk: the condition, as an expression;
  // empty: there are no such rows.
  std::string rows_are_whole();
  // f<r>[8] holds the second level after `chunks` chunks, s<r> the only one; the result goes to s<r>.
  void fold_chunks(const std::vector<uint32_t>& rs);

  // ---- cpu_split.cpp
  std::string chunk_count(const Loop& l);
  std::string partial(uint32_t which, const Inst& x, const std::string& c);
  void partial_loop(const Loop& l);
  // The same of columns side by side: where the chunk's values of all columns of a row begin.
  std::string partial_row(uint32_t which, const Inst& x, const std::string& c);
  void join_loop(const Loop& l);

  // ---- cpu_columns.cpp
  std::string tile_count();
  // Lanes along a parallel axis: what is equal for all of them first.
  void columns(const std::string& axis, const std::string& stop, Phase phase);
  // Loads that are contiguous along the tile's axis and at equal steps along the lanes.
  std::vector<uint32_t> transposed_loads();
  // A tile of points, as many rows as columns, a vector's lanes both ways. Loads along the other axis are transposed in
  // registers first. `row` computes one row of it; results wait until all loads are done: rows are often a multiple of 4 KiB
  // apart, and there a load waits for a store before it that only seems to overlap.
  void transposed_tile(const std::vector<uint32_t>& transposed, const std::function<void()>& row);
  // `row` for each row of a tile. Where rows are a size known at run time apart, loads and stores of `walking` go from row to
  // row by a pointer: offsets of all rows would fill the registers.
  void each_row(const std::vector<uint32_t>& walking, const std::function<void()>& row);
  // Stores whose values do.
  bool waits_in_square(uint32_t id) const;
  // No loaded value is part of the index.
  bool knows_place(uint32_t id) const;
  // Where the row of a transposed load, or of a store that waits, is.
  std::string in_tile(uint32_t id) const;
  // Asks for what the next tile or row will read: rows are too far apart for the hardware's own look-ahead.
  void prefetch(const std::string& loop, const std::string& address);
  // Of columns side by side: row by row, whole stretches of memory at a time. The running values of all columns of the unit are
  // in memory.
  bool by_rows() const;
  void columns_by_rows(const std::string& axis, const std::string& stop, Phase phase);
  // Asks for the next point of the loop: the hardware's own look-ahead begins anew with every stretch of a row.
  void next_row(const Loop& l);

  // ---- cpu_double_buffer.cpp Blocks that a thread computes from a copy of what is read across the lanes, and copies the next
  // one of meanwhile. How many lanes its vectors have; whether so little is computed that all vectors of a row may stand there
  // one after the other.
  int copy_width();
  bool moves_mostly() const;
  // The condition of it where only the launch knows the sizes.
  std::string sizes_double_buffer();
  // Declares `to`: where the block of a unit begins in memory.
  void block_of(const std::string& unit, uint32_t transposed, const std::string& to);
  // Copies four lanes of a block, taken apart.
  void copy_lanes(uint32_t transposed, const std::string& from, const std::string& to);
  // Before the first unit: its own copy.
  void first_copy();
  // `vector` computes one vector of a row of the result.
  void columns_from_copy(const std::string& axis, const std::string& stop, uint32_t transposed,
                         const std::function<void()>& vector);
  void pairs(const std::string& axis, const std::string& stop, const std::function<void()>& vector);
  // Where the first four of a vector of the copy are, or a store that waits for its neighbour.
  std::string in_copy(uint32_t id) const;

  // ---- cpu_units.cpp
  std::vector<uint32_t> outer_axes() const;
  // Declares where the points of `unit` are: every axis, and the ends of the tile and of the lanes.
  void place_of_unit(Phase phase);
  std::string product(const std::vector<uint32_t>& axes);
  bool parallel_lanes() const { return s_.lane_axis != kNone && !s_.lanes_in_loop && s_.width > 1; }
  void units(Phase phase);
  void rows(Phase phase);
  void row(const Loop& l, Phase phase);
  bool depends_on_loop(uint32_t id) const { return after_loop_[id] != 0; }
  void plan();

  ModuleText& m_;
  const Dialect& d_;
  Kernel& k_;
  Schedule s_;
  std::vector<uint8_t> varying_;     // by instruction: differs between lanes
  std::vector<uint8_t> after_loop_;  // needs the result of a loop
  std::vector<uint8_t> streamed_;    // stores that may go past the caches
  bool streams_ = false;
  std::vector<uint8_t> in_tile_;     // loads that read a transposed tile at this place of the text, and stores that wait in one
  std::vector<uint8_t> by_pointer_;  // loads and stores that a pointer leads to at this place of the text
  uint32_t said_ = kNone;            // the source op that the last comment names
  std::vector<uint8_t> kept_;        // by buffer: its earlier values wait in a row
  std::vector<uint32_t> last_store_;  // by buffer
  std::vector<uint8_t> short_nan_, stays_half_;
  std::vector<uint32_t>
      repeats_;  // by instruction: that of an earlier loop with the same value; itself where its value is kept
  std::vector<uint8_t> unneeded_;  // by instruction: only what is read instead needs it
  bool recompute_ = false;         // what repeats is computed again, in this text
  bool whole_rows_ = false;        // rows_are_whole() holds, in this text
  std::string head_, out_;
  int indent_ = 0;
};

}  // namespace tessera::kit
