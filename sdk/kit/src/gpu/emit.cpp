// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/gpu/emit.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "../program/expr_text.hpp"
#include "named_sizes.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

const char* value_type(Type t) {
  switch (t) {
    case Type::Bool: return "bool";
    case Type::I8: return "i8";
    case Type::I16: return "i16";
    case Type::I32: return "i32";
    case Type::I64: return "i64";
    case Type::U8: return "u8";
    case Type::U32: return "u32";
    case Type::U64: return "u64";
    case Type::F32: return "float";
    case Type::F64: return "double";
    default: return "u16";
  }
}
const char* memory_type(Type t) { return t == Type::Bool ? "u8" : value_type(t); }

// What a fault of a kernel is called in a record that the host reads.
uint32_t device_fault(uint32_t fault) { return fault == kFaultDivision ? TSR_FAULT_DIVISION : TSR_FAULT_INDEX; }

// `wide`: the suffix of a number of 64 bits.
std::string literal(Type t, uint64_t bits, const char* wide) {
  if (t == Type::Bool) return bits ? "true" : "false";
  if (t == Type::F32 || t == Type::F64) {
    const double x = constant_float(t, bits);
    const bool f64 = t == Type::F64;
    if (!std::isfinite(x)) return (f64 ? "as_double(" : "as_float(") + std::to_string(bits) + "u" + (f64 ? wide : "") + ")";
    char buffer[64];
    const auto end = f64 ? std::to_chars(buffer, buffer + sizeof buffer, x).ptr
                         : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(x)).ptr;
    std::string s(buffer, end);
    if (s.find_first_of(".e") == s.npos) s += ".0";
    if (!f64) s += "f";
    return s[0] == '-' ? "(" + s + ")" : s;
  }
  return "(" + std::string(value_type(t)) + ")" + std::to_string(bits) + "u" + (t == Type::U64 || t == Type::I64 ? wide : "");
}

}  // namespace

class GpuWriter {
 public:
  GpuWriter(GpuModuleText& m, Program& p) : m_(m), p_(p), uses_(p.statements.size(), 0), sizes_(p.pool) {
    // Index arithmetic in 32 bits where every buffer is known to be small enough; tiles may reach beyond a buffer's end before
    // they are cut off.
    small_ = true;
    for (const ProgramBuffer& b : p.buffers) {
      const auto n = p.pool.as_number(b.extent);
      small_ = small_ && n && *n < (int64_t{1} << 30);
    }
    index_ = small_ ? "i32" : "i64";
    spelling_.name = [this](const Atom& a) {
      if (a.kind == AtomKind::Axis) return p_.axis_names[a.id];
      if (a.kind == AtomKind::Symbol) return (small_ ? "(i32)" : "") + p_.symbols[a.id].name;
      return std::string("(") + index_ + ")" + value(a.id);
    };
    written_out_.name = spelling_.name;
    written_out_.call = [this](const Atom& k, const std::string& a, const std::string& b) {
      static constexpr const char* names[] = {"floor_div", "floor_mod", "least", "most"};
      const bool plain = k.kind <= AtomKind::Mod && p_.pool.nonnegative(k.a);
      return std::string(plain ? k.kind == AtomKind::Mod ? "remainder_of" : "quotient_of"
                               : names[static_cast<int>(k.kind) - static_cast<int>(AtomKind::FloorDiv)]) +
             "(" + a + ", " + b + ")";
    };
    spelling_.call = [this](const Atom& k, const std::string& a, const std::string& b) {
      const std::string* const name = sizes_.name(k);
      return name ? *name : written_out_.call(k, a, b);
    };
    if (!small_) spelling_.suffix = written_out_.suffix = m.dialect_.wide;
  }

  std::vector<GpuLaunch> run() {
    std::vector<GpuLaunch> all;
    for (size_t l = 0; l < p_.launches.size(); ++l) all.push_back(launch(l));
    return all;
  }

 private:
  [[noreturn]] void cannot(const std::string& what) const {
    throw sdk::Error(TSR_BUG, "TSR-K042", "program @" + p_.name + " cannot be written for a device: " + what);
  }

  // ---- what a launch needs

  void collect(const std::vector<uint32_t>& body, std::set<uint32_t>& buffers, std::set<uint32_t>& symbols, bool& faults) {
    const auto in = [&](Expr e) {
      std::vector<uint32_t> found;
      p_.pool.collect(e, AtomKind::Symbol, found);
      symbols.insert(found.begin(), found.end());
      if (!found.empty()) sizes_.collect(e);
      found.clear();
      p_.pool.collect(e, AtomKind::Value, found);
      for (const uint32_t v : found) ++uses_[v];
    };
    for (const uint32_t id : body) {
      const Statement& x = p_.statements[id];
      for (const uint32_t a : x.inst.args)
        if (a != kNone) ++uses_[a];
      if (x.kind == StatementKind::Loop) in(p_.pool.extent(x.axis));
      if (x.kind == StatementKind::MmaGroup) {
        for (const Fragment& f : x.fragments) in(f.at);
        group_text(Type::None, 0);
        group_text(Type::None, x.group.columns);
        group_text(x.inst.type, x.group.columns);
        groups_ = true;
      }
      if (x.kind == StatementKind::Copy) {
        for (size_t i = 0; i < 2; ++i) in(x.fragments[i].at);
        buffers.insert(x.fragments[1].buffer);
      }
      if (x.kind == StatementKind::Inst) {
        in(x.inst.index);
        if (x.inst.op == Op::Load || x.inst.op == Op::Store) buffers.insert(x.inst.id);
        faults = faults || x.inst.op == Op::Check;
        if (x.inst.op == Op::Call) function_text(x.inst.id);
      }
      collect(x.body, buffers, symbols, faults);
    }
  }

  GpuLaunch launch(size_t number) {
    GpuLaunch out;
    out.entry = p_.name + (p_.launches.size() > 1 ? "_" + std::to_string(number) : "");
    out.shape = launch_shape(p_, number);
    std::set<uint32_t> buffers, symbols;
    groups_ = false;
    sizes_ = NamedSizes(p_.pool);
    collect(p_.launches[number], buffers, symbols, out.faults);
    sizes_.give_names(prefix_of_sizes(), written_out_);
    std::string head, watched;
    for (const uint32_t b : buffers) {
      const ProgramBuffer& x = p_.buffers[b];
      if (x.memory > Memory::Workspace) continue;
      out.buffers.push_back(b);
      // A workspace that this launch only reads is as constant as an input.
      const bool read = (x.memory == Memory::Global && x.access == Access::In) || !stores(p_.launches[number], b);
      const std::string type = std::string(read ? "const " : "") + memory_type(x.type);
      head += (head.empty() ? "GLOBAL " : ", GLOBAL ") + type + (x.aliased ? "* " : "* RESTRICT ") + x.name +
              (m_.dialect_.watched ? "_memory" : "");
      if (m_.dialect_.watched)
        watched += "  WATCHED(" + type + ", " + x.name + ", " + std::to_string(out.buffers.size() - 1) + ");\n";
    }
    for (const uint32_t s : symbols) {
      out.symbols.push_back(s);
      head += (head.empty() ? "i64 " : ", i64 ") + p_.symbols[s].name;
    }
    if (out.faults) head += std::string(head.empty() ? "" : ", ") + "GLOBAL fault_record* faults, u64 site";
    out_ = "\nKERNEL(" + std::to_string(out.shape.threads) + ") void " + out.entry + "(" + head + ") {\n" + watched;
    const std::vector<int64_t> at = shared_offsets(p_, number);
    for (const uint32_t id : p_.launches[number]) no_clusters(id);
    // What is declared in a kernel may be no more than this on any device; a launch gives the rest.
    constexpr int64_t kDeclared = 48 << 10;
    bool aligned = false;  // to more than what a kernel declares is
    for (const ProgramBuffer& x : p_.buffers)
      aligned = aligned || (x.memory == Memory::Shared && x.launch == number && x.align > 16);
    if (out.shape.shared_bytes > kDeclared || aligned) {
      out.dynamic_shared = out.shape.shared_bytes;
      out_ += "  DYNAMIC_SHARED;\n";
    }
    const std::string declare = out.dynamic_shared > 0 ? "  SHARED_AT(" : "  SHARED(";
    for (size_t b = 0; b < p_.buffers.size(); ++b) {
      const ProgramBuffer& x = p_.buffers[b];
      if (x.memory < Memory::Shared || x.launch != number) continue;
      const std::string n = std::to_string(*p_.pool.as_number(x.extent));
      out_ +=
          x.memory == Memory::Shared
              ? declare + std::string(memory_type(x.type)) + ", " + x.name + ", " + n + ", " + std::to_string(at[b]) + ");\n"
              : "  alignas(16) " + std::string(memory_type(x.type)) + " " + x.name + "[" + n + "];\n";
    }
    const size_t begin = out_.size();
    nest(p_.launches[number]);
    out_.insert(begin, sizes_.declarations(index_, spelling_, written_out_));
    out_ += "}\n";
    m_.kernels_ += out_;
    if (m_.dialect_.thunks)
      m_.kernels_ += "extern \"C\" void " + out.entry + "_thunk(void* const* a) { call(" + out.entry + ", a); }\n";
    return out;
  }
  // That no other name in the text begins with.
  std::string prefix_of_sizes() const {
    std::string prefix = "size";
    const auto taken = [&](const std::string& name) { return name.starts_with(prefix); };
    while (std::any_of(p_.axis_names.begin(), p_.axis_names.end(), taken) ||
           std::any_of(p_.buffers.begin(), p_.buffers.end(), [&](const ProgramBuffer& b) { return taken(b.name); }) ||
           std::any_of(p_.symbols.begin(), p_.symbols.end(), [&](const ProgramSymbol& s) { return taken(s.name); }))
      prefix += "_";
    return prefix;
  }
  // No dialect launches blocks together, or reads another one's shared memory.
  void no_clusters(uint32_t id) const {
    const Statement& x = p_.statements[id];
    if (x.kind != StatementKind::Loop || !is_launch(x.bind)) return;
    if (x.bind == Bind::Cluster) cannot("a cluster of blocks, loop " + p_.axis_names[x.axis]);
    for (const uint32_t inner : x.body) no_clusters(inner);
  }
  bool stores(const std::vector<uint32_t>& body, uint32_t buffer) const {
    return std::any_of(body.begin(), body.end(), [&](uint32_t id) {
      const Statement& x = p_.statements[id];
      return (x.kind == StatementKind::Inst && x.inst.op == Op::Store && x.inst.id == buffer) || stores(x.body, buffer);
    });
  }

  // ---- the device's loops: numbers of blocks and threads taken apart

  void nest(const std::vector<uint32_t>& top) {
    std::vector<uint32_t> grid, inner;
    const std::vector<uint32_t>* list = &top;
    while (list->size() == 1) {
      const Statement& x = p_.statements[(*list)[0]];
      if (x.kind != StatementKind::Loop || !is_launch(x.bind)) break;
      (x.bind <= Bind::Cluster ? grid : inner).push_back(x.axis);
      list = &x.body;
    }
    take_apart("block_number()", grid, true);
    take_apart("thread_number()", inner, false);
    body(*list, 1);
  }
  void take_apart(const std::string& number, const std::vector<uint32_t>& axes, bool blocks) {
    if (axes.empty()) return;
    if (axes.size() == 1) {
      out_ += "  const " + std::string(index_) + " " + p_.axis_names[axes[0]] + " = " + number + ";\n";
      return;
    }
    const std::string name = blocks ? "block" : "thread";
    out_ += "  const u32 " + name + " = " + number + ";\n";
    // The last axis is the fastest.
    std::string rest = name;
    for (size_t i = axes.size(); i-- > 0;) {
      const std::string extent = "(u32)(" + expr(p_.pool.extent(axes[i])) + ")";
      out_ += "  const " + std::string(index_) + " " + p_.axis_names[axes[i]] + " = " +
              (i == 0 ? rest : rest + " % " + extent) + ";\n";
      rest = rest + " / " + extent;
    }
  }

  // ---- statements

  std::string expr(Expr e) const { return expr_text(p_.pool, e, spelling_); }
  std::string at(const Fragment& f) const {
    return p_.buffers[f.buffer].name + (f.at == kZero ? "" : " + (" + expr(f.at) + ")");
  }
  std::string value(uint32_t v) const {
    const Statement& x = p_.statements[v];
    if (x.kind == StatementKind::Inst && x.inst.op == Op::Const) return literal(x.inst.type, x.inst.bits, m_.dialect_.wide);
    return "v" + std::to_string(v);
  }

  void body(const std::vector<uint32_t>& list, int depth) {
    const std::string pad(static_cast<size_t>(depth) * 2, ' ');
    for (const uint32_t id : list) {
      const Statement& x = p_.statements[id];
      switch (x.kind) {
        case StatementKind::Loop:
          if (x.bind == Bind::Vector) {
            out_ += pad + vector(x) + "\n";
            break;
          }
          out_ += (x.bind == Bind::Unroll ? "#pragma unroll\n" : "#pragma unroll 1\n") + pad + "for (" + index_ + " " +
                  p_.axis_names[x.axis] + " = 0; " + p_.axis_names[x.axis] + " < " + expr(p_.pool.extent(x.axis)) + "; ++" +
                  p_.axis_names[x.axis] + ") {\n";
          body(x.body, depth + 1);
          out_ += pad + "}\n";
          break;
        case StatementKind::If:
          out_ += pad + "if (" + value(x.inst.args[0]) + ") {\n";
          body(x.body, depth + 1);
          out_ += pad + "}\n";
          break;
        case StatementKind::Barrier:
          if (x.scope == BarrierScope::Block && groups_) out_ += pad + "group_fence();\n";  // what was written is for them too
          out_ += pad + (x.scope == BarrierScope::Block ? "barrier_block();\n" : "barrier_warp();\n");
          break;
        case StatementKind::Shuffle:
          out_ += pad + "const " + value_type(x.inst.type) + " " + value(id) + " = " +
                  (x.exchange == Exchange::Xor ? "shuffle_xor(" + value(x.inst.args[0]) + ", " + std::to_string(x.lane) + ")"
                                               : "shuffle_from(" + value(x.inst.args[0]) + ", " + std::to_string(x.lane) +
                                                     ", " + std::to_string(x.lanes) + ")") +
                  ";\n";
          break;
        case StatementKind::Mma: {
          out_ += pad + "mma_" + type_name(x.inst.type) + "(";
          for (size_t i = 0; i < x.fragments.size(); ++i) out_ += (i ? ", " : "") + at(x.fragments[i]);
          out_ += ");\n";
          break;
        }
        case StatementKind::MmaGroup: {
          out_ += pad + "mma_group_" + type_name(x.inst.type) + "_" + std::to_string(x.group.columns) + "<" +
                  std::to_string(x.group.depth);
          for (size_t i = 0; i < 2; ++i) out_ += ", " + std::to_string(x.group.pitch[i]) + (x.group.turned[i] ? ", 1" : ", 0");
          out_ += ">(";
          for (size_t i = 0; i < x.fragments.size(); ++i) out_ += (i ? ", " : "") + at(x.fragments[i]);
          out_ += ");\n";
          break;
        }
        case StatementKind::MmaWait:
          out_ += pad + "mma_wait_" + std::to_string(x.group.columns) + "(" + at(x.fragments[0]) + ");\n";
          break;
        case StatementKind::Copy:
          out_ += pad + "COPY(" + std::to_string(x.count * type_bytes(p_.buffers[x.fragments[0].buffer].type)) + ", " +
                  at(x.fragments[0]) + ", " + at(x.fragments[1]) + ", " +
                  (x.inst.args[0] == kNone ? "true" : value(x.inst.args[0])) + ");\n";
          break;
        case StatementKind::CopyEnd: out_ += pad + "copy_end();\n"; break;
        case StatementKind::CopyWait: out_ += pad + "copy_wait(" + std::to_string(x.count) + ");\n"; break;
        case StatementKind::Inst: inst(id, x.inst, pad); break;
      }
    }
  }

  // One access of several elements.
  std::string vector(const Statement& x) const {
    const Inst &load = p_.statements[x.body[0]].inst, &store = p_.statements[x.body[1]].inst;
    const auto start = [&](const Inst& i) {
      const Expr e = p_.pool.affine(i.index, x.axis)->rest;
      return p_.buffers[i.id].name + (e == kZero ? "" : " + (" + expr(e) + ")");
    };
    const int64_t bytes = *p_.pool.as_number(p_.pool.extent(x.axis)) * type_bytes(load.type);
    return "MOVE(" + std::to_string(bytes) + ", " + start(store) + ", " + start(load) + ");";
  }

  void inst(uint32_t id, const Inst& x, const std::string& pad) {
    const auto at = [&] { return p_.buffers[x.id].name + "[" + expr(x.index) + "]"; };
    if (x.op == Op::Const || (uses_[id] == 0 && x.op != Op::Store && x.op != Op::Check)) return;
    std::string right;
    switch (x.op) {
      case Op::Index: right = "(i64)(" + expr(x.index) + ")"; break;
      case Op::Load:
        right = at();
        if (x.type == Type::Bool) right = "(" + right + " != 0)";
        if (x.args[0] != kNone) right = value(x.args[0]) + " ? " + right + " : " + value(x.args[1]);
        break;
      case Op::Store: out_ += pad + at() + " = " + value(x.args[0]) + ";" + origin(x) + "\n"; return;
      case Op::Check:
        out_ += pad + "if (!" + value(x.args[0]) + ") raise(faults, site, " + std::to_string(device_fault(x.id)) + ");\n";
        return;
      default: {
        std::vector<std::string> a;
        for (const uint32_t v : x.args)
          if (v != kNone) a.push_back(value(v));
        // Comparisons of places in the index type.
        const auto place = [&](uint32_t v) {
          return p_.statements[v].kind == StatementKind::Inst && p_.statements[v].inst.op == Op::Index;
        };
        if (is_compare(x.op) && place(x.args[0]) && place(x.args[1]) && small_)
          for (size_t i = 0; i < 2; ++i) a[i] = "(" + expr(p_.statements[x.args[i]].inst.index) + ")";
        right = rounds_to_bf16(x) ? "round_bf16(" + value(p_.statements[x.args[0]].inst.args[0]) + ")"
                                  : pure(x, p_.statements[x.args[0]].inst.type, a);
      }
    }
    out_ += pad + "const " + value_type(x.type) + " " + value(id) + " = " + right + ";" + origin(x) + "\n";
  }
  // An f32 that was rounded to bf16 and is an f32 again: devices have it as one instruction.
  bool rounds_to_bf16(const Inst& x) const {
    if (x.op != Op::Convert || x.type != Type::F32 || p_.statements[x.args[0]].kind != StatementKind::Inst) return false;
    const Inst& narrow = p_.statements[x.args[0]].inst;
    return narrow.op == Op::Convert && narrow.type == Type::BF16 && !narrow.exact &&
           p_.statements[narrow.args[0]].inst.type == Type::F32;
  }
  std::string origin(const Inst& x) {
    if (x.origin == kNone || x.origin == last_origin_) return "";
    last_origin_ = x.origin;
    std::string s = p_.origins[x.origin];
    std::replace(s.begin(), s.end(), '\n', ' ');
    return "  // " + s;
  }

  std::string pure(const Inst& x, Type in, const std::vector<std::string>& a) const {
    const bool integer = is_integer(x.type);
    const auto call = [&](const std::string& f) {
      std::string s = f + "(" + a[0];
      for (size_t i = 1; i < a.size(); ++i) s += ", " + a[i];
      return s + ")";
    };
    const auto infix = [&](const char* op) { return a[0] + " " + op + " " + a[1]; };
    switch (x.op) {
      case Op::Neg: return integer ? call("wrap_neg") : "-(" + a[0] + ")";
      case Op::Not: return x.type == Type::Bool ? "!" + a[0] : "~" + a[0];
      case Op::Abs: return is_unsigned(x.type) ? a[0] : call("abs_of");
      case Op::Sqrt: return call("sqrt_of");
      case Op::Floor: return call("floor_of");
      case Op::Ceil: return call("ceil_of");
      case Op::Trunc: return call("trunc_of");
      case Op::Round: return call("round_of");
      case Op::Popcount: return call("popcount_of");
      case Op::Convert: return convert(x, in, a[0]);
      case Op::Bitcast:
        return "as_" +
               std::string(x.type == Type::F32   ? "float"
                           : x.type == Type::F64 ? "double"
                                                 : value_type(x.type)) +
               "(" + a[0] + ")";
      case Op::Add: return integer ? call("wrap_add") : infix("+");
      case Op::Sub: return integer ? call("wrap_sub") : infix("-");
      case Op::Mul: return integer ? call("wrap_mul") : infix("*");
      case Op::Div: return integer ? call("wrap_div") : infix("/");
      case Op::Rem: return call("wrap_rem");
      case Op::And: return infix("&");
      case Op::Or: return infix("|");
      case Op::Xor: return infix("^");
      case Op::Shl: return call("shift_left");
      case Op::Shr: return call("shift_right");
      case Op::Eq: return infix("==");
      case Op::Ne: return infix("!=");
      case Op::Lt: return infix("<");
      case Op::Le: return infix("<=");
      case Op::Gt: return infix(">");
      case Op::Ge: return infix(">=");
      case Op::Fma: return call("fma_of");
      case Op::Select: return a[0] + " ? " + a[1] + " : " + a[2];
      case Op::Call: return call(function(x.id).name);
      default: cannot(std::string("instruction ") + op_name(x.op));
    }
  }

  static std::string convert(const Inst& x, Type in, std::string a) {
    if (in == Type::F16) a = "widen_f16(" + a + ")", in = Type::F32;
    if (in == Type::BF16) a = "widen_bf16(" + a + ")", in = Type::F32;
    switch (x.type) {
      case Type::Bool: return a + " != 0";
      case Type::F16: return "narrow_f16((float)" + a + ")";
      case Type::BF16: return (x.exact && in == Type::F32 ? "cut_bf16(" : "narrow_bf16((float)") + a + ")";
      default: return x.type == in ? a : "(" + std::string(value_type(x.type)) + ")" + a;
    }
  }

  // ---- functions of the library, once for a module

  void group_text(Type factors, int64_t columns) {
    if (!m_.dialect_.group) cannot("a matrix instruction of four waves");
    if (m_.groups_.insert({factors, columns}).second) m_.functions_ += m_.dialect_.group(factors, columns);
  }

  void function_text(uint32_t id) {
    if (!m_.emitted_.insert(id).second) return;
    const Function& f = function(id);
    std::string head = "DEVICE " + std::string(value_type(f.result)) + " " + f.name + "(";
    for (size_t i = 0; i < f.params.size(); ++i)
      head += (i ? ", " : "") + std::string(value_type(f.params[i])) + " v" + std::to_string(i);
    head += ") {\n";
    if (!f.external.empty()) {
      const bool guarded = f.params.size() == 2 && f.params[1] == Type::Bool;
      m_.functions_ += head + "  return " + (guarded ? "!v1 ? v0 : " : "") + "library_" + f.external + "(v0" +
                       (f.params.size() == 2 && !guarded ? ", v1" : "") + ");\n}\n";
      return;
    }
    for (const Inst& x : f.insts)
      if (x.op == Op::Call) function_text(x.id);
    const auto operand = [&](uint32_t v) {
      return f.insts[v].op == Op::Const ? literal(f.insts[v].type, f.insts[v].bits, m_.dialect_.wide) : "v" + std::to_string(v);
    };
    std::string text = head;
    for (uint32_t i = 0; i < f.insts.size(); ++i) {
      const Inst& x = f.insts[i];
      if (x.op == Op::Param || x.op == Op::Const) continue;
      std::vector<std::string> a;
      for (const uint32_t v : x.args)
        if (v != kNone) a.push_back(operand(v));
      text += "  const " + std::string(value_type(x.type)) + " v" + std::to_string(i) + " = " +
              pure(x, f.insts[x.args[0]].type, a) + ";\n";
    }
    m_.functions_ += text + "  return " + operand(f.value) + ";\n}\n";
  }

  GpuModuleText& m_;
  Program& p_;
  std::vector<uint32_t> uses_;
  bool small_ = true;
  bool groups_ = false;  // the launch has matrix instructions of four waves
  const char* index_ = "i32";
  ExprSpelling spelling_, written_out_;
  NamedSizes sizes_;
  uint32_t last_origin_ = kNone;
  std::string out_;
};

std::vector<GpuLaunch> GpuModuleText::add(Program& p) { return GpuWriter(*this, p).run(); }
std::string GpuModuleText::text() const { return std::string(dialect_.prelude) + functions_ + kernels_; }

}  // namespace tessera::kit
