// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>

#include "print_parts.hpp"
#include "tessera/kit/text.hpp"

namespace tessera::kit {
namespace {

std::string value_name(uint32_t v) { return "%" + std::to_string(v); }

}  // namespace

std::string constant_text(Type t, uint64_t bits) {
  if (t == Type::Bool) return bits ? "true" : "false";
  char buffer[64];
  if (is_float(t)) {
    const double x = constant_float(t, bits);
    if (std::isfinite(x)) {
      const auto end = t == Type::F64 ? std::to_chars(buffer, buffer + sizeof buffer, x).ptr
                                      : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(x)).ptr;
      std::string s(buffer, end);
      return s.find_first_of(".e") == s.npos ? s + ".0" : s;
    }
    if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
    return "0x" + std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, bits, 16).ptr);
  }
  if (is_unsigned(t)) return std::to_string(bits);
  const int unused = 64 - type_bytes(t) * 8;
  return std::to_string(static_cast<int64_t>(bits << unused) >> unused);
}

namespace {

std::string operands(const Inst& x) {
  std::string s;
  for (const uint32_t a : x.args)
    if (a != kNone) s += (s.empty() ? " " : ", ") + value_name(a);
  return s;
}

}  // namespace

std::string pure_text(uint32_t id, const Inst& x) {
  std::string s = value_name(id) + " = " + op_name(x.op);
  if (x.op == Op::Const) s += " " + constant_text(x.type, x.bits);
  if (x.op == Op::Convert && x.exact) s += " exact";
  if (x.op == Op::Lookup) s += " " + table(x.id).name;
  if (x.op == Op::Call) s += " " + function(x.id).name;
  if (x.op == Op::Reduce) s += std::string(" ") + reduce_name(static_cast<ReduceKind>(x.id));
  return s + operands(x) + " : " + type_name(x.type);
}

namespace {

class Printer {
 public:
  Printer(const Kernel& k, bool origins) : k_(k), origins_(origins) {}

  std::string run() {
    out_ = "kernel @" + k_.name + "(";
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const Buffer& b = k_.buffers[i];
      static constexpr const char* access[] = {"in", "out", "inout"};
      out_ += std::string(i ? ", %" : "%") + b.name + ": " + access[static_cast<int>(b.access)] + " " + type_name(b.type) +
              "[" + expr(b.extent) + "]";
    }
    out_ += ")";
    for (size_t i = 0; i < k_.symbols.size(); ++i)
      out_ += (i ? ", " : " symbols(") + k_.symbols[i].name + " >= " + std::to_string(k_.symbols[i].min);
    if (!k_.symbols.empty()) out_ += ")";
    out_ += " {\n";
    out_ += "  parallel" + axes(k_.parallel) + " {\n";
    body(k_.body, 4);
    out_ += "  }\n}\n";
    return std::move(out_);
  }

 private:
  std::string expr(Expr e) const {
    return k_.pool.text(e, [&](const Atom& a) {
      if (a.kind == AtomKind::Axis) return k_.axis_names[a.id];
      if (a.kind == AtomKind::Symbol) return k_.symbols[a.id].name;
      return value_name(a.id);
    });
  }
  std::string axes(const std::vector<uint32_t>& list) const {
    std::string s;
    for (const uint32_t a : list) s += (s.empty() ? " " : ", ") + k_.axis_names[a] + " < " + expr(k_.pool.extent(a));
    return s;
  }
  void body(const std::vector<Item>& items, size_t indent) {
    for (const Item& i : items) {
      const std::string pad(indent, ' ');
      if (i.is_loop) {
        out_ += pad + (k_.loops[i.id].across ? "loop across" : "loop") + axes(k_.loops[i.id].axes) + " {\n";
        body(k_.loops[i.id].body, indent + 2);
        out_ += pad + "}\n";
        continue;
      }
      const Inst& x = k_.insts[i.id];
      out_ += pad + inst(i.id, x);
      if (origins_ && x.origin != kNone) out_ += "  // " + k_.origins[x.origin];
      out_ += "\n";
    }
  }

  std::string inst(uint32_t id, const Inst& x) const {
    switch (x.op) {
      case Op::Index: return value_name(id) + " = index " + expr(x.index) + " : i64";
      case Op::Load: {
        std::string s = value_name(id) + " = load %" + k_.buffers[x.id].name + "[" + expr(x.index) + "]";
        if (x.args[0] != kNone) s += " if " + value_name(x.args[0]) + " else " + value_name(x.args[1]);
        return s + " : " + type_name(x.type);
      }
      case Op::Store: {
        std::string s = "store %" + k_.buffers[x.id].name + "[" + expr(x.index) + "], " + value_name(x.args[0]);
        if (x.args[1] != kNone) s += " if " + value_name(x.args[1]);
        return s;
      }
      case Op::Check: return "check " + value_name(x.args[0]) + ", " + std::to_string(x.id);
      default: return pure_text(id, x);
    }
  }

  const Kernel& k_;
  bool origins_;
  std::string out_;
};

}  // namespace

std::string print(const Kernel& k, bool origins) { return Printer(k, origins).run(); }

std::string print(const Function& f) {
  std::string s = "func @" + f.name + "(";
  for (size_t i = 0; i < f.params.size(); ++i)
    s += (i ? ", " : "") + value_name(static_cast<uint32_t>(i)) + ": " + type_name(f.params[i]);
  s += std::string(") -> ") + type_name(f.result);
  if (!f.external.empty()) return s + " = external " + f.external + "\n";
  s += " {\n";
  for (uint32_t i = static_cast<uint32_t>(f.params.size()); i < f.insts.size(); ++i)
    s += "  " + pure_text(i, f.insts[i]) + "\n";
  return s + "  return " + value_name(f.value) + "\n}\n";
}

}  // namespace tessera::kit
