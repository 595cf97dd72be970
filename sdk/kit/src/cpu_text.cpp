// SPDX-License-Identifier: Apache-2.0
// Lines, names, expressions and operations as text.
#include "cpu_writer.hpp"

namespace tessera::kit {

void KernelWriter::open(const std::string& s) {
  line(s);
  ++indent_;
}

void KernelWriter::close(const std::string& s) {
  --indent_;
  line(s);
}

std::string KernelWriter::expr(Expr e, const std::string& lane) const {
  return k_.pool.text(e, [&](const Atom& a) {
    if (a.kind == AtomKind::Symbol) return symbol_name(a.id);
    if (a.kind == AtomKind::Value && k_.insts[a.id].op == Op::Const)
      return "(i64)(" + d_.constant(k_.insts[a.id].type, k_.insts[a.id].bits) + ")";
    if (a.kind == AtomKind::Value)
      return "(i64)v" + std::to_string(a.id) + (varying_[a.id] && !lane.empty() ? "[" + lane + "]" : "");
    if (a.id == s_.lane_axis && !lane.empty()) return "(" + k_.axis_names[a.id] + " + " + lane + ")";
    return k_.axis_names[a.id];
  });
}

std::string KernelWriter::ref(uint32_t v, int lanes) {
  const Inst& x = k_.insts[v];
  const std::string scalar = x.op == Op::Const ? d_.constant(x.type, x.bits) : name(v);
  return lanes == 1 || varying_[v] ? (varying_[v] && lanes == 1 ? name(v) : scalar)
                                   : d_.splat(x.type, lanes, scalar, m_.needs_);
}

bool KernelWriter::infix(const Inst& x, Type in) const {
  if (in == Type::Bool || type_bytes(in) < 4) return false;
  if (is_compare(x.op)) return true;
  if (is_float(x.type)) return x.op >= Op::Add && x.op <= Op::Div;
  return x.op == Op::And || x.op == Op::Or || x.op == Op::Xor;
}

void KernelWriter::function_text(uint32_t id, int lanes) {
  if (!m_.emitted_.emplace(id, lanes).second) return;
  const Function& f = function(id);
  if (!f.external.empty()) return;
  if (lanes > 16 && !d_.instead(f, lanes).empty()) function_text(id, 16);  // the dialect's text may call it
  std::string body;
  const auto arg = [&](uint32_t v, bool splat) {
    const Inst& x = f.insts[v];
    if (x.op != Op::Const) return "v" + std::to_string(v);
    const std::string c = d_.constant(x.type, x.bits);
    return splat ? d_.splat(x.type, lanes, c, m_.needs_) : c;
  };
  for (uint32_t i = 0; i < f.insts.size(); ++i) {
    const Inst& x = f.insts[i];
    if (x.op == Op::Param || x.op == Op::Const) continue;
    std::vector<std::string> args;
    const Type in = x.args[0] == kNone ? x.type : f.insts[x.args[0]].type;
    const bool plain = lanes > 1 && infix(x, in) && !(f.insts[x.args[0]].op == Op::Const && f.insts[x.args[1]].op == Op::Const);
    for (const uint32_t a : x.args)
      if (a != kNone) args.push_back(shield(f.insts, x, a, lanes, arg(a, !plain)));
    body += "  const " + type(x.type, lanes) + " v" + std::to_string(i) + " = " +
            operation(x, in, lanes, args, shift_of(f.insts, x)) + ";\n";
  }
  body += "  return " + arg(f.value, true) + ";\n}\n";
  m_.functions_ += d_.function_head(f, lanes, m_.needs_) + d_.instead(f, lanes) + body;
}

std::string KernelWriter::shield(const std::vector<Inst>& insts, const Inst& x, uint32_t operand, int lanes,
                                 const std::string& text) {
  const auto bitwise = [](const Inst& i) {
    return (i.op == Op::And || i.op == Op::Or || i.op == Op::Xor || i.op == Op::Not) && i.type != Type::Bool;
  };
  if (lanes == 1 || !bitwise(x)) return text;
  const Inst* from = &insts[operand];
  while (from->op == Op::Bitcast) from = &insts[from->args[0]];
  return bitwise(*from) ? d_.hide(x.type, lanes, text, m_.needs_) : text;
}

int KernelWriter::shift_of(const std::vector<Inst>& insts, const Inst& x) {
  if ((x.op != Op::Shl && x.op != Op::Shr) || insts[x.args[1]].op != Op::Const) return -1;
  const uint64_t n = insts[x.args[1]].bits;
  return n < static_cast<uint64_t>(type_bytes(x.type) * 8) ? static_cast<int>(n) : -1;
}

std::string KernelWriter::operation(const Inst& x, Type in, int lanes, std::span<const std::string> args, int shift) {
  if (x.op != Op::Call) return d_.instruction(x, in, lanes, args, shift, m_.needs_);
  const Function& f = function(x.id);
  function_text(x.id, lanes);
  if (!f.external.empty()) return d_.external(f, lanes, args, m_.needs_);
  std::string s = d_.function_name(f, lanes) + "(";
  for (size_t i = 0; i < args.size(); ++i) s += (i ? ", " : "") + args[i];
  return s + ")";
}

std::string KernelWriter::pointer(uint32_t id, const std::string& lane) const {
  const Inst& x = k_.insts[id];
  if (by_pointer_[id]) return "at" + std::to_string(id) + (lane.empty() ? "" : " + " + lane);
  if (in_row(id))
    return "row_" + k_.buffers[x.id].name + " + " + k_.axis_names[s_.lane_axis] + (lane.empty() ? "" : " + " + lane);
  return "b_" + k_.buffers[x.id].name + " + (" + expr(x.index, lane) + ")";
}

void KernelWriter::lane_loop(const Lanes& l, const std::string& statement) {
  line("for (i64 j = 0; j < " + (l.count.empty() ? std::to_string(l.n) : l.count) + "; ++j) " + statement);
}

}  // namespace tessera::kit
