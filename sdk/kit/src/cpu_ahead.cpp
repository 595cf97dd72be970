// SPDX-License-Identifier: Apache-2.0
// A transposed operand whose rows are a multiple of 4 KiB apart. Lines of its rows fall into one set of the first-level cache, which holds eight, and so do
// those of a column of squares in the other tensors: squares of sixteen rows then run at half of what the caches give. Here a block is copied line beside
// line, in the order in which memory holds it, and read from its copy four rows at a time. Copying the next block is part of computing this one, so that
// a core has both to do while it waits.
#include "cpu_writer.hpp"

namespace tessera::kit {
namespace {

constexpr int kRows = 4;  // of the result at a time
constexpr const char* kCopy = "copies";

}  // namespace

void KernelWriter::block_of(const std::string& unit, uint32_t turned, const std::string& to) {
  open("{");
  line("const i64 unit = " + unit + ";");
  place_of_unit(Phase::Whole);
  line("(void)stop, (void)tile_end;");
  line("const i64 " + k_.axis_names[s_.tile_axis] + " = tile_begin;");
  line(to + " = " + pointer(turned) + ";");
  close();
}

void KernelWriter::first_copy() {
  const uint32_t id = transposed_loads().front();
  const Inst& x = k_.insts[id];
  const std::string points = std::to_string(s_.tile_points), lanes = std::to_string(s_.block), w = std::to_string(s_.width);
  const std::string step = expr(k_.pool.affine(x.index, s_.lane_axis)->coefficient);
  line("enum : i64 { copy_row = " + points + ", copy_size = " + std::to_string(s_.tile_points * s_.block) + " };");
  line("alignas(64) " + d_.memory_type(x.type) + " " + kCopy + "[2 * copy_size];");
  open("if (begin < end) {");
  line("const " + d_.memory_type(x.type) + "* from;");
  block_of("begin", id, "from");
  line("for (i64 j = 0; j < " + lanes + "; ++j)");
  line("  for (i64 i = 0; i < " + points + "; i += " + w + ")");
  line("    " +
       d_.store(x.type, s_.width, std::string(kCopy) + " + j * copy_row + i",
                d_.load(x.type, s_.width, "from + j * (" + step + ") + i", "", m_.needs_), "", m_.needs_) +
       ";");
  close();
}

void KernelWriter::columns_from_copy(const std::string& axis, const std::string& stop, uint32_t turned,
                                     const std::function<void()>& row) {
  const Inst& x = k_.insts[turned];
  const std::string t = k_.axis_names[s_.tile_axis], w = std::to_string(s_.width), rows = std::to_string(kRows);
  const std::string element = d_.memory_type(x.type), step = expr(k_.pool.affine(x.index, s_.lane_axis)->coefficient);
  // The last unit of a range copies itself once more.
  line("const i64 next_unit = min(unit + 1, end - 1);");
  line("const " + element + "* next;");
  block_of("next_unit", turned, "next");
  line("const " + element + "* const copied = " + kCopy + " + ((unit - begin) & 1) * copy_size;");
  line(element + "* to = " + kCopy + " + ((unit - begin + 1) & 1) * copy_size;");
  line("const i64 " + axis + "_begin = " + axis + ";");
  // Each group of rows of the result copies as many lines as it writes.
  const int64_t lines = s_.tile_points / s_.width;
  const auto turn = [&](uint32_t id, const std::string& square) {
    line(d_.transpose(k_.insts[id].type, s_.width, kRows,
                      std::string("copied + (") + axis + " - " + axis + "_begin) * copy_row + (" + t + " - tile_begin)",
                      "copy_row", square, m_.needs_) +
         ";");
  };
  const auto copy = [&] {
    for (int i = 0; i < kRows; ++i) {
      const std::string j = std::to_string(i / lines), at = std::to_string(i % lines * s_.width);
      line(d_.store(x.type, s_.width, "to + " + j + " * copy_row + " + at,
                    d_.load(x.type, s_.width, "next + " + j + " * (" + step + ") + " + at, "", m_.needs_), "", m_.needs_) +
           ";");
    }
    const std::string n = std::to_string(kRows / lines);
    line("next += " + n + " * (" + step + "), to += " + n + " * copy_row;");
  };
  open("for (i64 " + t + "_0 = tile_begin; " + t + "_0 < tile_end; " + t + "_0 += " + rows + ") {");
  open("for (" + axis + " = " + axis + "_begin; " + axis + " < " + stop + "; " + axis + " += " + w + ") {");
  square({turned}, {kRows, false, turn, copy}, row);
  close();
  close();
}

}  // namespace tessera::kit
