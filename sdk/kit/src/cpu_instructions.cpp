// SPDX-License-Identifier: Apache-2.0
// One instruction of a kernel as statements: loads, stores, arithmetic.
#include "cpu_writer.hpp"

namespace tessera::kit {

void KernelWriter::inst(uint32_t id, const Lanes& outer) {
  const Inst& x = k_.insts[id];
  if (unneeded_[id] && !recompute_) return;
  if (x.origin != kNone && x.origin != said_ && x.op != Op::Const && x.op != Op::Reduce) {
    line("// " + k_.origins[x.origin]);
    said_ = x.origin;
  }
  const Lanes l = varying_[id] ? outer : Lanes{};
  const std::string t = x.type == Type::None ? "" : "const " + type(x.type, l.n) + " " + name(id) + " = ";
  switch (x.op) {
    case Op::Const: return;
    case Op::Index: return index(id, x, l);
    case Op::Load: return load(id, x, l);
    case Op::Store: return store(id, x, outer);
    case Op::Check: return fault(x, outer);
    case Op::Reduce: return;
    default: break;
  }
  if (reads_repeat(id) && !recompute_)
    return line(t + d_.load(x.type, l.n, repeat_place(repeats_[id], false), l.count, m_.needs_) + ";");
  line(t + value(id, x, l) + ";");
  if (repeats_[id] == id) line(d_.store(x.type, l.n, repeat_place(id, true), name(id), l.count, m_.needs_) + ";");
}

// What an instruction that computes something is, as an expression.
std::string KernelWriter::value(uint32_t id, const Inst& x, const Lanes& l) {
  if (through_half(id)) {
    if (s_.relaxed) return ref(k_.insts[x.args[0]].args[0], l.n);
    if (std::string r = rounded_half(id, l.n); !r.empty()) return r;
  }
  if (s_.relaxed && x.op == Op::Convert && k_.insts[x.args[0]].type == Type::F32)
    if (std::string r = d_.narrowed(x.type, l.n, ref(x.args[0], l.n), m_.needs_); !r.empty()) return r;
  std::vector<std::string> args;
  const Type in = x.args[0] == kNone ? x.type : k_.insts[x.args[0]].type;
  const bool plain = l.n > 1 && infix(x, in);
  for (const uint32_t a : x.args)
    if (a != kNone) {
      const Inst& o = k_.insts[a];
      const bool scalar = plain && !varying_[a];
      args.push_back(scalar ? (o.op == Op::Const ? d_.constant(o.type, o.bits) : name(a))
                            : shield(k_.insts, x, a, varying_[a] ? l.n : 1, ref(a, l.n)));
    }
  return operation(x, in, l.n, args, shift_of(k_.insts, x));
}

void KernelWriter::index(uint32_t id, const Inst& x, const Lanes& l) {
  if (l.n == 1) return line("const i64 " + name(id) + " = " + expr(x.index) + ";");
  // At equal steps along the lanes: that of the first one, and a constant.
  std::vector<uint32_t> values;
  k_.pool.collect(x.index, AtomKind::Value, values);
  const bool known = std::none_of(values.begin(), values.end(), [&](uint32_t v) { return varying_[v] != 0; });
  const auto along = k_.pool.affine(x.index, s_.lane_axis);
  if (const auto step = known && along ? k_.pool.as_number(along->coefficient) : std::nullopt) {
    std::string steps;
    for (int j = 0; j < l.n; ++j) steps += (j ? ", " : "") + std::to_string(j * *step);
    return line("const " + type(Type::I64, l.n) + " " + name(id) + " = (" + expr(x.index) + ") + " + type(Type::I64, l.n) +
                "{" + steps + "};");
  }
  line(type(Type::I64, l.n) + " " + name(id) + " = {};");
  lane_loop(l, name(id) + "[j] = " + expr(x.index, "j") + ";");
}

bool KernelWriter::contiguous(const Inst& x) {
  std::vector<uint32_t> values;
  k_.pool.collect(x.index, AtomKind::Value, values);
  for (const uint32_t v : values)
    if (varying_[v]) return false;
  const auto a = k_.pool.affine(x.index, s_.lane_axis);
  return a && a->coefficient == kOne;
}

// The value that alone is the index of a load from a buffer that has an element for every byte; kNone: it is none.
uint32_t KernelWriter::of_byte_table(const Inst& x) const {
  if (x.args[0] != kNone || k_.buffers[x.id].access != Access::In || k_.pool.as_number(k_.buffers[x.id].extent) != 256)
    return kNone;
  std::vector<uint32_t> values;
  k_.pool.collect(x.index, AtomKind::Value, values);
  return values.size() == 1 && x.index == k_.pool.value(values[0]) ? values[0] : kNone;
}

void KernelWriter::load(uint32_t id, const Inst& x, const Lanes& l) {
  const std::string t = type(x.type, l.n), n = name(id);
  const bool guarded = x.args[0] != kNone;
  if (l.n == 1) {
    const std::string v = d_.load(x.type, 1, pointer(id), "", m_.needs_);
    return line("const " + t + " " + n + " = " + (guarded ? ref(x.args[0], 1) + " ? " + v + " : " + ref(x.args[1], 1) : v) +
                ";");
  }
  if (in_tile_[id])
    return line("const " + t + " " + n + " = " +
                (s_.double_buffers ? d_.joined_fours(x.type, l.n, in_tile(id), m_.needs_)
                                   : d_.load(x.type, l.n, in_tile(id), "", m_.needs_)) +
                ";");
  const bool uniform_guard = guarded && !varying_[x.args[0]];
  if (contiguous(x) && (!guarded || uniform_guard)) {
    const std::string v = d_.load(x.type, l.n, pointer(id), l.count, m_.needs_);
    if (!guarded) return line("const " + t + " " + n + " = " + v + ";");
    line(t + " " + n + " = " + ref(x.args[1], l.n) + ";");
    return line("if (" + ref(x.args[0], 1) + ") " + n + " = " + v + ";");
  }
  if (const uint32_t at = of_byte_table(x); at != kNone && varying_[at])
    if (const std::string v = d_.of_byte_table(x.type, l.n, "b_" + k_.buffers[x.id].name, ref(at, l.n), m_.needs_); !v.empty())
      return line("const " + t + " " + n + " = " + v + ";");
  line(t + " " + n + " = " + (guarded ? ref(x.args[1], l.n) : "{}") + ";");
  std::string element = d_.load(x.type, 1, pointer(id, "j"), "", m_.needs_);
  if (x.type == Type::Bool) element = "-(int)(" + element + ")";
  if (!index_varies(x.index)) element = d_.load(x.type, 1, pointer(id), "", m_.needs_);
  if (x.type == Type::Bool && !index_varies(x.index)) element = "-(int)(" + element + ")";
  lane_loop(l, (guarded ? "if (" + name(x.args[0]) + (uniform_guard ? "" : "[j]") + ") " : "") + n + "[j] = " + element + ";");
}

void KernelWriter::store(uint32_t id, const Inst& x, const Lanes& outer) {
  // Along lanes the value varies, or the position does, or both do.
  const bool wide = outer.n > 1 && (varying_[x.args[0]] || index_varies(x.index));
  const Type t = k_.buffers[x.id].type;
  const std::string guard = x.args[1] == kNone ? "" : "if (" + ref(x.args[1], 1) + ") ";
  if (!wide) {
    const std::string v = ref(x.args[0], 1);
    return line(guard + d_.store(t, 1, pointer(id), v, "", m_.needs_) + ";");
  }
  if (in_tile_[id]) return line(d_.store(t, outer.n, in_tile(id), ref(x.args[0], outer.n), "", m_.needs_) + ";");
  if (streams_ && streamed_[id] && outer.count.empty() && outer.n == s_.width)
    return line(d_.stream(t, outer.n, pointer(id), ref(x.args[0], outer.n), stream_flag(x.id), m_.needs_) + ";");
  if (contiguous(x) && (x.args[1] == kNone || !varying_[x.args[1]]))
    return line(guard + d_.store(t, outer.n, pointer(id), ref(x.args[0], outer.n), outer.count, m_.needs_) + ";");
  std::string v = varying_[x.args[0]] ? name(x.args[0]) + "[j]" : ref(x.args[0], 1);
  if (t == Type::Bool) v = "(unsigned char)(" + v + " != 0)";
  const std::string lane_guard = x.args[1] == kNone ? "" : "if (" + name(x.args[1]) + (varying_[x.args[1]] ? "[j]" : "") + ") ";
  lane_loop(outer, lane_guard + d_.store(t, 1, pointer(id, "j"), v, "", m_.needs_) + ";");
}

std::string KernelWriter::stream_flag(uint32_t buffer) {
  if (!kept_[buffer] || k_.pool.as_number(points(k_.loops[0]))) return "stream";
  return "(stream && row_" + k_.buffers[buffer].name + " == memory_" + k_.buffers[buffer].name + ")";
}

void KernelWriter::row_memory() {
  for (uint32_t i = 0; i < k_.insts.size(); ++i)
    if (repeats_[i] == i)
      line("alignas(64) " + d_.memory_type(k_.insts[i].type) + " again_" + std::to_string(i) + "[" + std::to_string(kRow) +
           "];");
  for (uint32_t b = 0; b < k_.buffers.size(); ++b)
    if (kept_[b])
      line("alignas(64) " + d_.memory_type(k_.buffers[b].type) + " memory_" + k_.buffers[b].name + "[" + std::to_string(kRow) +
           "];");
}

void KernelWriter::row_pointers() {
  for (uint32_t b = 0; b < k_.buffers.size(); ++b) {
    if (!kept_[b]) continue;
    const std::string name = k_.buffers[b].name, t = d_.memory_type(k_.buffers[b].type) + "*";
    std::string at = "memory_" + name;
    if (!k_.pool.as_number(points(k_.loops[0]))) {
      const auto index = k_.pool.affine(k_.insts[last_store_[b]].index, s_.lane_axis);
      at = expr(points(k_.loops[0])) + " <= " + std::to_string(kRow) + " ? " + at + " : b_" + name + " + (" +
           expr(index->rest) + ")";
    }
    line(t + " const row_" + name + " = " + at + ";");
  }
}

void KernelWriter::fault(const Inst& x, const Lanes& outer) {
  if (!varying_[x.args[0]]) return line("if (!" + ref(x.args[0], 1) + ") faults |= " + std::to_string(x.id) + "u;");
  lane_loop(outer, "if (!" + name(x.args[0]) + "[j]) faults |= " + std::to_string(x.id) + "u;");
}

}  // namespace tessera::kit
