// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "../print_parts.hpp"
#include "expr_text.hpp"
#include "tessera/kit/program/program.hpp"

namespace tessera::kit {

std::string expr_text(const IndexPool& pool, Expr e, const ExprSpelling& spelling) {
  struct Part {
    size_t atoms;
    std::string text;
    bool negative;
  };
  std::vector<Part> parts;
  for (const Term& t : pool.terms(e)) {
    std::vector<std::string> factors;
    for (const uint32_t id : t.atoms) {
      const Atom& a = pool.atom_at(id);
      if (a.kind <= AtomKind::Value) {
        factors.push_back(spelling.name(a));
        continue;
      }
      std::string x = expr_text(pool, a.a, spelling), y = expr_text(pool, a.b, spelling);
      if (a.kind >= AtomKind::Min && y < x) std::swap(x, y);
      factors.push_back(spelling.call(a, x, y));
    }
    std::sort(factors.begin(), factors.end());
    const bool negative = t.coefficient < 0;
    const uint64_t size = negative ? uint64_t{0} - static_cast<uint64_t>(t.coefficient) : static_cast<uint64_t>(t.coefficient);
    std::string text;
    if (factors.empty() || size != 1) text = std::to_string(size) + spelling.suffix;
    for (const std::string& f : factors) text += (text.empty() ? "" : " * ") + f;
    parts.push_back({factors.size(), std::move(text), negative});
  }
  // Numbers last, the first term without a sign where there is one.
  std::sort(parts.begin(), parts.end(), [](const Part& x, const Part& y) {
    return std::tuple(x.negative, y.atoms, x.text) < std::tuple(y.negative, x.atoms, y.text);
  });
  std::string out;
  for (const Part& p : parts) out += (out.empty() ? (p.negative ? "-" : "") : p.negative ? " - " : " + ") + p.text;
  return out.empty() ? "0" + spelling.suffix : out;
}

namespace {

class ProgramPrinter {
 public:
  ProgramPrinter(const Program& p, bool origins) : p_(p), origins_(origins), numbers_(p.statements.size(), kNone) {
    spelling_.name = [this](const Atom& a) {
      if (a.kind == AtomKind::Axis) return p_.axis_names[a.id];
      if (a.kind == AtomKind::Symbol) return p_.symbols[a.id].name;
      return "%" + std::to_string(numbers_[a.id]);
    };
    spelling_.call = [](const Atom& k, const std::string& a, const std::string& b) {
      static constexpr const char* names[] = {"floordiv", "mod", "min", "max"};
      return std::string(names[static_cast<int>(k.kind) - static_cast<int>(AtomKind::FloorDiv)]) + "(" + a + ", " + b + ")";
    };
  }

  std::string run() {
    out_ = "program @" + p_.name + "(";
    bool first = true;
    for (const ProgramBuffer& b : p_.buffers) {
      if (b.memory != Memory::Global) continue;
      static constexpr const char* access[] = {"in", "out", "inout"};
      out_ += (first ? "%" : ", %") + b.name + ": " + access[static_cast<int>(b.access)] + " " + typed(b);
      if (b.align != 16) out_ += " align " + std::to_string(b.align);
      first = false;
    }
    out_ += ")";
    for (size_t i = 0; i < p_.symbols.size(); ++i) {
      out_ += (i ? ", " : " symbols(") + p_.symbols[i].name + " >= " + std::to_string(p_.symbols[i].min);
      if (p_.symbols[i].multiple != 1) out_ += " multiple " + std::to_string(p_.symbols[i].multiple);
    }
    if (!p_.symbols.empty()) out_ += ")";
    out_ += " wave " + std::to_string(p_.wave) + " {\n";
    for (const ProgramBuffer& b : p_.buffers)
      if (b.memory == Memory::Workspace) out_ += "  workspace %" + b.name + ": " + typed(b) + "\n";
    for (const Program::Require& r : p_.require) out_ += "  require " + expr(r.size) + " <= " + std::to_string(r.most) + "\n";
    for (size_t l = 0; l < p_.launches.size(); ++l) {
      out_ += "  launch {\n";
      for (const ProgramBuffer& b : p_.buffers)
        if (b.memory >= Memory::Shared && b.launch == l)
          out_ += std::string("    ") + (b.memory == Memory::Shared ? "shared %" : "register %") + b.name + ": " + typed(b) +
                  (b.align != 16 ? " align " + std::to_string(b.align) : "") + "\n";
      body(p_.launches[l], 4);
      out_ += "  }\n";
    }
    return out_ + "}\n";
  }

 private:
  std::string expr(Expr e) const { return expr_text(p_.pool, e, spelling_); }
  std::string typed(const ProgramBuffer& b) const { return std::string(type_name(b.type)) + "[" + expr(b.extent) + "]"; }
  std::string value(uint32_t v) const { return "%" + std::to_string(numbers_[v]); }

  void body(const std::vector<uint32_t>& list, size_t indent) {
    const std::string pad(indent, ' ');
    for (const uint32_t id : list) {
      const Statement& x = p_.statements[id];
      if ((x.kind == StatementKind::Inst && x.inst.op != Op::Store && x.inst.op != Op::Check) ||
          x.kind == StatementKind::Shuffle)
        numbers_[id] = next_++;
      out_ += pad + statement(id, x);
      if (x.kind == StatementKind::Loop || x.kind == StatementKind::If) {
        out_ += " {\n";
        body(x.body, indent + 2);
        out_ += pad + "}";
      } else if (origins_ && x.inst.origin != kNone) {
        out_ += "  // " + p_.origins[x.inst.origin];
      }
      out_ += "\n";
    }
  }

  std::string statement(uint32_t id, const Statement& x) const {
    switch (x.kind) {
      case StatementKind::Loop:
        return std::string(bind_name(x.bind)) + " " + p_.axis_names[x.axis] + " < " + expr(p_.pool.extent(x.axis));
      case StatementKind::If: return "if " + value(x.inst.args[0]);
      case StatementKind::Barrier: return x.scope == BarrierScope::Block ? "barrier block" : "barrier warp";
      case StatementKind::Mma: {
        std::string s = std::string("mma ") + type_name(x.inst.type);
        for (size_t i = 0; i < x.fragments.size(); ++i)
          s += (i ? ", %" : " %") + p_.buffers[x.fragments[i].buffer].name + "[" + expr(x.fragments[i].at) + "]";
        return s;
      }
      case StatementKind::MmaGroup: {
        std::string s = std::string("mma_group ") + type_name(x.inst.type);
        for (size_t i = 0; i < x.fragments.size(); ++i) {
          s += (i ? ", %" : " %") + p_.buffers[x.fragments[i].buffer].name + "[" + expr(x.fragments[i].at) + "]";
          if (i > 0) s += " pitch " + std::to_string(x.group.pitch[i - 1]) + (x.group.turned[i - 1] ? " turned" : "");
        }
        return s + ", columns " + std::to_string(x.group.columns) + " depth " + std::to_string(x.group.depth);
      }
      case StatementKind::MmaWait:
        return "mma_wait %" + p_.buffers[x.fragments[0].buffer].name + "[" + expr(x.fragments[0].at) + "] columns " +
               std::to_string(x.group.columns);
      case StatementKind::Copy:
        return "copy " + std::to_string(x.count) + " %" + p_.buffers[x.fragments[0].buffer].name + "[" +
               expr(x.fragments[0].at) + "], %" + p_.buffers[x.fragments[1].buffer].name + "[" + expr(x.fragments[1].at) + "]" +
               (x.inst.args[0] == kNone ? "" : " if " + value(x.inst.args[0]));
      case StatementKind::CopyEnd: return "copy_end";
      case StatementKind::CopyWait: return "copy_wait " + std::to_string(x.count);
      case StatementKind::Shuffle: {
        std::string s = value(id) + " = shuffle ";
        s += x.exchange == Exchange::Xor ? "xor " + std::to_string(x.lane)
                                         : "from " + std::to_string(x.lane) + " of " + std::to_string(x.lanes);
        return s + " " + value(x.inst.args[0]) + " : " + type_name(x.inst.type);
      }
      case StatementKind::Inst: break;
    }
    Inst i = x.inst;
    const auto at = [&] { return "%" + p_.buffers[i.id].name + "[" + expr(i.index) + "]"; };
    switch (i.op) {
      case Op::Index: return value(id) + " = index " + expr(i.index) + " : i64";
      case Op::Load: {
        std::string s = value(id) + " = load " + at();
        if (i.args[0] != kNone) s += " if " + value(i.args[0]) + " else " + value(i.args[1]);
        return s + " : " + type_name(i.type);
      }
      case Op::Store: return "store " + at() + ", " + value(i.args[0]);
      case Op::Check: return "check " + value(i.args[0]) + ", " + std::to_string(i.id);
      default:
        for (uint32_t& a : i.args)
          if (a != kNone) a = numbers_[a];
        return pure_text(numbers_[id], i);
    }
  }

  const Program& p_;
  bool origins_;
  std::vector<uint32_t> numbers_;  // of values, in the order of the text
  uint32_t next_ = 0;
  ExprSpelling spelling_;
  std::string out_;
};

}  // namespace

std::string print(const Program& p, bool origins) { return ProgramPrinter(p, origins).run(); }

}  // namespace tessera::kit
