// SPDX-License-Identifier: Apache-2.0
// A transposed operand whose rows are a multiple of 4 KiB apart (2 KiB, of two-byte elements, which take two sets by turns).
// Lines of its rows fall into one set of the first-level cache, and so do those of a column of squares in the other tensors. A
// set takes in a line in about ten cycles (Zen 4), where lines of eight sets by turns take two each: squares of sixteen rows
// then run at half of what the caches give. Here each row of a block of the result is computed in one stretch, so that what is
// read and written beside the operand comes by turns from as many sets as that has lines. Of the operand one or two lines of
// each row are read, every line once: four rows at a time are taken apart in registers and stored, line beside line, and rows
// of the result are put together from fours of the copy. Copying the next block is part of computing this one, so that a core
// has both to do while it waits, and the block after that is asked for: its lines are too far apart for the hardware's own
// look-ahead.
#include "cpu_writer.hpp"

namespace tessera::kit {
namespace {

constexpr const char* kCopy = "copies";
constexpr int64_t kLineBytes = 64;
constexpr int kLanes = 8;  // of a vector where data is mostly moved

}  // namespace

bool KernelWriter::moves_mostly() const {
  return k_.insts.size() <= kFewInsts &&
         std::none_of(k_.insts.begin(), k_.insts.end(), [](const Inst& x) { return x.op == Op::Call; });
}

// Registers of 32 bytes move data in less time than those of 64; what computes much waits for itself more often in them. Of
// 2-byte elements they hold all lanes.
int KernelWriter::copy_width() {
  const bool half = type_bytes(k_.insts[transposed_loads().front()].type) == 2;
  return moves_mostly() && !half ? std::min(s_.width, kLanes) : s_.width;
}

std::string KernelWriter::sizes_double_buffer() {
  const Schedule ahead = double_buffered(s_);
  const Inst& x = k_.insts[transposed_loads().front()];
  const Expr step = k_.pool.affine(x.index, s_.lane_axis)->coefficient;
  const auto multiple = [&](Expr e, int64_t of) { return "(" + expr(e) + ") % " + std::to_string(of) + " == 0 && "; };
  Expr bytes = kZero;
  for (const Buffer& b : k_.buffers) bytes = k_.pool.add(bytes, k_.pool.mul(b.extent, k_.pool.number(type_bytes(b.type))));
  return multiple(k_.pool.extent(s_.tile_axis), ahead.tile_points) + multiple(k_.pool.extent(s_.lane_axis), ahead.block) +
         multiple(step, same_set(type_bytes(x.type)) / type_bytes(x.type)) + expr(bytes) +
         " <= " + std::to_string(s_.double_buffer_bytes);
}

void KernelWriter::block_of(const std::string& unit, uint32_t transposed, const std::string& to) {
  line("const " + d_.memory_type(k_.insts[transposed].type) + "* " + to + ";");
  open("{");
  line("const i64 unit = " + unit + ";");
  place_of_unit(Phase::Whole);
  line("(void)stop, (void)tile_end;");
  line("const i64 " + k_.axis_names[s_.tile_axis] + " = tile_begin;");
  line(to + " = " + pointer(transposed) + ";");
  close();
}

// The copy is made of squares, a vector's lanes both ways: those of the first points beside each other along the lanes, then
// those of the next.
void KernelWriter::copy_lanes(uint32_t transposed, const std::string& from, const std::string& to) {
  const Inst& x = k_.insts[transposed];
  const std::string step = expr(k_.pool.affine(x.index, s_.lane_axis)->coefficient);
  for (int64_t i = 0; i < s_.tile_points; i += s_.width)
    line(d_.four_rows(x.type, s_.width, from + " + " + std::to_string(i), step, to + " + " + std::to_string(i * s_.block),
                      m_.needs_) +
         ";");
}

void KernelWriter::first_copy() {
  const uint32_t id = transposed_loads().front();
  const Inst& x = k_.insts[id];
  const std::string step = expr(k_.pool.affine(x.index, s_.lane_axis)->coefficient);
  line("enum : i64 { copy_size = " + std::to_string(s_.tile_points * s_.block) + " };");
  line("alignas(64) " + d_.memory_type(x.type) + " " + kCopy + "[2 * copy_size];");
  open("if (begin < end) {");
  block_of("begin", id, "from");
  line(d_.memory_type(x.type) + "* to = " + kCopy + ";");
  open("for (i64 j = 0; j < " + std::to_string(s_.block) + "; j += 4) {");
  copy_lanes(id, "from", "to");
  line("from += 4 * (" + step + "), to += " + std::to_string(4 * s_.width) + ";");
  close();
  close();
}

std::string KernelWriter::in_copy(uint32_t id) const {
  const std::string axis = k_.axis_names[s_.lane_axis];
  if (k_.insts[id].op == Op::Store) return "result" + std::to_string(id) + " + (" + axis + " - " + axis + "_0)";
  return "fours + (" + axis + " - " + axis + "_begin) * " + std::to_string(s_.width);
}

void KernelWriter::columns_from_copy(const std::string& axis, const std::string& stop, uint32_t transposed,
                                     const std::function<void()>& vector) {
  const Inst& x = k_.insts[transposed];
  const std::string t = k_.axis_names[s_.tile_axis], w = std::to_string(s_.width);
  const std::string element = d_.memory_type(x.type), step = expr(k_.pool.affine(x.index, s_.lane_axis)->coefficient);
  // The last unit of a range copies itself once more.
  line("const i64 next_unit = min(unit + 1, end - 1), later_unit = min(unit + 2, end - 1);");
  block_of("next_unit", transposed, "next");
  block_of("later_unit", transposed, "later");
  line("const " + element + "* const copied = " + kCopy + " + ((unit - begin) & 1) * copy_size;");
  line(element + "* to = " + kCopy + " + ((unit - begin + 1) & 1) * copy_size;");
  line("const i64 " + axis + "_begin = " + axis + ";");
  // A block has four lanes for each of its rows.
  open("for (i64 " + t + " = tile_begin; " + t + " < tile_end; ++" + t + ") {");
  copy_lanes(transposed, "next", "to");
  for (int j = 0; j < 4; ++j)
    for (int64_t i = 0; i < s_.tile_points; i += kLineBytes / static_cast<int64_t>(type_bytes(x.type)))
      prefetch("", "later + " + std::to_string(j) + " * (" + step + ") + " + std::to_string(i));
  line("next += 4 * (" + step + "), later += 4 * (" + step + "), to += " + std::to_string(4 * s_.width) + ";");
  line("const i64 r = " + t + " - tile_begin;");
  line("const " + element + "* const fours = copied + r / " + w + " * " + std::to_string(s_.block * s_.width) + " + " +
       d_.four_at(x.type, s_.width, "(r % " + w + ")") + ";");
  in_tile_[transposed] = 1;
  if (moves_mostly()) {
    for (int64_t i = 0; i < s_.block; i += s_.width) {
      open("{");
      line("const i64 " + axis + " = " + axis + "_begin + " + std::to_string(i) + ";");
      vector();
      close();
    }
  } else {
    pairs(axis, stop, vector);
  }
  in_tile_[transposed] = 0;
  close();
}

// What is computed from one vector mostly waits for itself. No load may pass a store before it, so that both vectors of a pair
// are stored at its end.
void KernelWriter::pairs(const std::string& axis, const std::string& stop, const std::function<void()>& vector) {
  const std::string w = std::to_string(s_.width);
  std::vector<uint32_t> stores;
  for (const Item& i : k_.body)
    if (!i.is_loop && waits_in_square(i.id)) stores.push_back(i.id);
  const auto both = [&](const std::function<void()>& body) {
    for (const std::string& from : {std::string("0"), w}) {
      open("{");
      line("const i64 " + axis + " = " + axis + "_0 + " + from + ";");
      body();
      close();
    }
  };
  open("for (i64 " + axis + "_0 = " + axis + "_begin; " + axis + "_0 < " + stop + "; " + axis + "_0 += 2 * " + w + ") {");
  for (const uint32_t id : stores) {
    line("alignas(64) " + d_.memory_type(k_.buffers[k_.insts[id].id].type) + " result" + std::to_string(id) + "[2 * " + w +
         "];");
    in_tile_[id] = 1;
  }
  both(vector);
  for (const uint32_t id : stores) in_tile_[id] = 0;
  both([&] {
    for (const uint32_t id : stores) {
      const Type t = k_.buffers[k_.insts[id].id].type;
      line(d_.store(t, s_.width, pointer(id), d_.load(t, s_.width, in_copy(id), "", m_.needs_), "", m_.needs_) + ";");
    }
  });
  close();
}

}  // namespace tessera::kit
