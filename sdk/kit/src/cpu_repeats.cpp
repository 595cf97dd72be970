// SPDX-License-Identifier: Apache-2.0
// Values of elementary functions, and of 16-bit floats as f32, that several loops over one row compute: the first loop keeps
// them in a short row of memory, later loops read them there. The bits are the same, since the expression is. (Where an output
// has their type they wait in the output already, see lower_loops.cpp.)
#include <map>

#include "cpu_writer.hpp"

namespace tessera::kit {

void KernelWriter::find_repeats() {
  repeats_.assign(k_.insts.size(), kNone);
  unneeded_.assign(k_.insts.size(), 0);
  if (!s_.lanes_in_loop || s_.width == 1 || s_.split || k_.loops.size() < 2 || k_.loops[0].axes.size() != 1) return;
  if (const auto n = k_.pool.as_number(points(k_.loops[0])); n && *n > kRow) return;
  std::vector<uint32_t> loop_of(k_.insts.size(), kNone);
  for (uint32_t l = 0; l < k_.loops.size(); ++l) {
    if (k_.loops[l].axes != k_.loops[0].axes) return;
    for (const Item& i : k_.loops[l].body) {
      if (k_.insts[i.id].op == Op::Reduce && is_arg(k_.insts[i.id])) return;  // such a loop takes one point at a time
      loop_of[i.id] = l;
    }
  }

  std::map<std::pair<uint32_t, uint32_t>, bool> known;
  const auto same = [&](const auto& self, uint32_t a, uint32_t b) -> bool {
    if (a == b) return true;  // the result of a reduction, or made before the loops
    if (a == kNone || b == kNone || (loop_of[a] == kNone) != (loop_of[b] == kNone)) return false;
    const auto [at, fresh] = known.try_emplace({a, b}, false);
    if (!fresh) return at->second;
    const Inst &x = k_.insts[a], &y = k_.insts[b];
    if (x.op != y.op || x.type != y.type || x.id != y.id || x.bits != y.bits || x.exact != y.exact || x.index != y.index)
      return false;
    if (x.op == Op::Reduce || x.op == Op::Second || x.op == Op::Store || x.op == Op::Check) return false;
    if (x.op == Op::Load && k_.buffers[x.id].access != Access::In) return false;
    if (x.op == Op::Load || x.op == Op::Index) {
      std::vector<uint32_t> values;
      k_.pool.collect(x.index, AtomKind::Value, values);
      if (!values.empty()) return false;
    }
    for (size_t i = 0; i < x.args.size(); ++i)
      if (!self(self, x.args[i], y.args[i])) return false;
    return known[{a, b}] = true;
  };
  const auto first_of = [&](uint32_t id) {
    for (uint32_t l = 0; l < loop_of[id]; ++l)
      for (const Item& i : k_.loops[l].body)
        if (k_.insts[i.id].op == k_.insts[id].op && !unneeded_[i.id] && same(same, i.id, id)) return i.id;
    return kNone;
  };

  // A half type is widened, and maybe rounded before, in several steps.
  const auto worth = [&](uint32_t id) {
    const Inst& x = k_.insts[id];
    if (x.op == Op::Convert && x.type == Type::F32) {
      const Type from = k_.insts[x.args[0]].type;
      return from == Type::BF16 || from == Type::F16;
    }
    return x.op == Op::Call && is_float(x.type);
  };

  int64_t bytes = 0;
  for (uint32_t b = 0; b < k_.buffers.size(); ++b) bytes += kept_[b] ? kRow * type_bytes(k_.buffers[b].type) : 0;
  // From what a loop is for down to its operands: below a value that is read nothing is needed.
  for (uint32_t l = 1; l < k_.loops.size(); ++l) {
    std::vector<uint8_t> seen(k_.insts.size(), 0);
    const auto walk = [&](const auto& self, uint32_t id) -> void {
      if (id == kNone || loop_of[id] != l || seen[id]) return;
      seen[id] = 1;
      const Inst& x = k_.insts[id];
      if (varying_[id] && worth(id)) {
        const uint32_t first = first_of(id);
        const int64_t more = first == kNone || repeats_[first] == first ? 0 : kRow * type_bytes(x.type);
        if (first != kNone && bytes + more <= kRowBytes) {
          bytes += more;
          repeats_[first] = first;
          repeats_[id] = first;
          return;
        }
      }
      for (const uint32_t a : x.args) self(self, a);
      if (x.op != Op::Load && x.op != Op::Store && x.op != Op::Index) return;
      std::vector<uint32_t> values;
      k_.pool.collect(x.index, AtomKind::Value, values);
      for (const uint32_t v : values) self(self, v);
    };
    for (const Item& i : k_.loops[l].body) {
      const Op op = k_.insts[i.id].op;
      if (op == Op::Reduce || op == Op::Store || op == Op::Check) walk(walk, i.id);
    }
    for (const Item& i : k_.loops[l].body) unneeded_[i.id] = !seen[i.id];
  }
}

bool KernelWriter::reads_repeats(const Loop& l) const {
  return std::any_of(l.body.begin(), l.body.end(), [&](const Item& i) { return reads_repeat(i.id); });
}

std::string KernelWriter::repeat_place(uint32_t first, bool to_write) {
  // A row of unknown length may be too long to be read from here. It is written anyhow, round and round.
  const std::string axis = k_.axis_names[s_.lane_axis];
  const bool round = to_write && !k_.pool.as_number(points(k_.loops[0]));
  return "again_" + std::to_string(first) + " + " + (round ? "(" + axis + " & " + std::to_string(kRow - 1) + ")" : axis);
}

}  // namespace tessera::kit
