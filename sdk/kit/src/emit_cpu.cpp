// SPDX-License-Identifier: Apache-2.0
// Range bodies for the CPU. Three shapes of loops:
//  - lanes along a parallel axis (pointwise kernels; reductions of columns, whose running values are arrays of vectors),
//  - lanes along the innermost axis of a reduction (rows: running values in registers, folded at the end),
//  - no lanes (what fits neither), one point at a time.
// Every vector loop is an unmasked body and one masked tail, left out where sizes say that there is none.
#include <algorithm>

#include "tessera/kit/emit.hpp"
#include "tessera/kit/interpret.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

constexpr ReduceOrder kOrder;
constexpr int64_t kGrainPoints = 16384;  // of one task: several microseconds
constexpr int64_t kRow = 4096;           // elements of a row that is kept beside the output, at most
constexpr int64_t kRowBytes = 32 << 10;  // of all of them together

}  // namespace

class KernelWriter {
 public:
  KernelWriter(ModuleText& m, Kernel& k, const Schedule& s)
      : m_(m), d_(m.dialect_), k_(k), s_(s), varying_(k.insts.size(), 0) {}

  std::string run() {
    check();
    classify();
    find_kept();
    find_streamed();
    head_ = "// " + k_.name + ": ";
    for (const Buffer& b : k_.buffers) head_ += b.name + (&b == &k_.buffers.back() ? "\n" : ", ");
    out_ = head_;
    range(k_.name, s_.split ? Phase::Partial : Phase::Whole);
    if (s_.split) range(k_.name + "_join", Phase::Join);
    plan();
    return std::move(out_);
  }

 private:
  enum class Phase { Whole, Partial, Join };
  struct Lanes {
    int n = 1;
    std::string count;  // text of how many are alive; empty: all
  };

  // ---- analysis

  void check() {
    for (const Inst& x : k_.insts)
      if (x.op == Op::Second || (x.op == Op::Reduce && (x.id == static_cast<uint32_t>(ReduceKind::Welford) ||
                                                        x.id == static_cast<uint32_t>(ReduceKind::OnlineSoftmax))))
        throw sdk::Error(TSR_BUG, "TSR-K040",
                         "kernel @" + k_.name + ": " +
                             reduce_name(static_cast<ReduceKind>(x.op == Op::Second ? k_.insts[x.args[0]].id : x.id)) +
                             " reductions are not emitted for the CPU",
                         "use max, sum and a second loop");
    for (const Loop& l : k_.loops)
      for (const Item& i : l.body)
        if (i.is_loop)
          throw sdk::Error(TSR_BUG, "TSR-K040", "kernel @" + k_.name + ": nested loops are not emitted for the CPU");
  }

  // Which values differ between lanes.
  void classify() {
    after_loop_.assign(k_.insts.size(), 0);
    for (uint32_t i = 0; i < k_.insts.size(); ++i) {
      const Inst& x = k_.insts[i];
      bool after = x.op == Op::Reduce;
      for (const uint32_t a : x.args) after = after || (a != kNone && after_loop_[a]);
      std::vector<uint32_t> values;
      if (x.op == Op::Index || x.op == Op::Load || x.op == Op::Store) k_.pool.collect(x.index, AtomKind::Value, values);
      for (const uint32_t v : values) after = after || after_loop_[v];
      after_loop_[i] = after;
    }
    if (s_.lane_axis == kNone || s_.width == 1) return;
    for (uint32_t i = 0; i < k_.insts.size(); ++i) {
      const Inst& x = k_.insts[i];
      bool v = false;
      for (const uint32_t a : x.args) v = v || (a != kNone && varying_[a]);
      if (x.op == Op::Index || x.op == Op::Load || x.op == Op::Store) v = v || index_varies(x.index);
      if (x.op == Op::Reduce && s_.lanes_in_loop) v = false;  // after its loop it is one value
      varying_[i] = v;
    }
  }
  // Outputs that hold a value of an earlier loop until the last one: that value can wait in a short row of its own instead, which stays in the
  // first-level cache. Rows of more elements stay in the output.
  void find_kept() {
    in_square_.assign(k_.insts.size(), 0);
    kept_.assign(k_.buffers.size(), 0);
    last_store_.assign(k_.buffers.size(), kNone);
    for (const Loop& l : k_.loops)
      for (const Item& i : l.body)
        if (!i.is_loop && k_.insts[i.id].op == Op::Store) last_store_[k_.insts[i.id].id] = i.id;
    if (!s_.lanes_in_loop || s_.width == 1 || s_.split || k_.loops.empty() || k_.loops[0].axes.size() != 1) return;
    const auto n = k_.pool.as_number(points(k_.loops[0]));
    if (n && *n > kRow) return;
    int64_t bytes = 0;
    for (uint32_t b = 0; b < k_.buffers.size(); ++b) {
      if (k_.buffers[b].access != Access::Out) continue;
      bool loaded = false, fits = true;
      for (const Inst& x : k_.insts) {
        if ((x.op != Op::Load && x.op != Op::Store) || x.id != b) continue;
        loaded = loaded || x.op == Op::Load;
        fits = fits && contiguous(x) && x.args[x.op == Op::Load ? 0 : 1] == kNone && last_store_[b] != kNone &&
               x.index == k_.insts[last_store_[b]].index;
      }
      bytes += kRow * type_bytes(k_.buffers[b].type);
      if (loaded && fits && bytes <= kRowBytes) kept_[b] = 1;
    }
  }
  bool in_row(uint32_t id) const {
    const Inst& x = k_.insts[id];
    return kept_[x.id] && (x.op == Op::Load || last_store_[x.id] != id);
  }

  // Stores of whole vectors to memory that this kernel does not read.
  void find_streamed() {
    streamed_.assign(k_.insts.size(), 0);
    if (s_.lane_axis == kNone || s_.width == 1 || (parallel_lanes() && !k_.loops.empty())) return;
    for (uint32_t id = 0; id < k_.insts.size(); ++id) {
      const Inst& x = k_.insts[id];
      if (x.op != Op::Store || k_.buffers[x.id].access != Access::Out || x.args[1] != kNone || !contiguous(x)) continue;
      const bool loaded =
          std::any_of(k_.insts.begin(), k_.insts.end(), [&](const Inst& y) { return y.op == Op::Load && y.id == x.id; });
      streamed_[id] = !loaded || (kept_[x.id] && last_store_[x.id] == id);
    }
    streams_ = std::any_of(streamed_.begin(), streamed_.end(), [](uint8_t x) { return x != 0; });
  }

  bool index_varies(Expr e) const {
    if (k_.pool.uses(e, AtomKind::Axis, s_.lane_axis)) return true;
    std::vector<uint32_t> values;
    k_.pool.collect(e, AtomKind::Value, values);
    return std::any_of(values.begin(), values.end(), [&](uint32_t v) { return varying_[v] != 0; });
  }

  // ---- text

  void line(const std::string& s) { out_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + s + "\n"; }
  void open(const std::string& s) {
    line(s);
    ++indent_;
  }
  void close(const std::string& s = "}") {
    --indent_;
    line(s);
  }

  std::string expr(Expr e, const std::string& lane = {}) const {
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
  // Apart from every other name here.
  std::string symbol_name(uint32_t s) const { return "d_" + k_.symbols[s].name; }
  std::string extent(uint32_t axis) const { return expr(k_.pool.extent(axis)); }
  std::string name(uint32_t v) const { return "v" + std::to_string(v); }
  std::string type(Type t, int lanes) { return d_.type(t, lanes, m_.needs_); }

  // An operand as a value of so many lanes.
  std::string ref(uint32_t v, int lanes) {
    const Inst& x = k_.insts[v];
    const std::string scalar = x.op == Op::Const ? d_.constant(x.type, x.bits) : name(v);
    return lanes == 1 || varying_[v] ? (varying_[v] && lanes == 1 ? name(v) : scalar)
                                     : d_.splat(x.type, lanes, scalar, m_.needs_);
  }
  // In an infix operation a scalar may stand beside a vector.
  bool infix(const Inst& x, Type in) const {
    if (in == Type::Bool || type_bytes(in) < 4) return false;
    if (is_compare(x.op)) return true;
    if (is_float(x.type)) return x.op >= Op::Add && x.op <= Op::Div;
    return x.op == Op::And || x.op == Op::Or || x.op == Op::Xor;
  }

  void function_text(uint32_t id, int lanes) {
    if (!m_.emitted_.emplace(id, lanes).second) return;
    const Function& f = function(id);
    if (!f.external.empty()) return;
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
      const bool plain =
          lanes > 1 && infix(x, in) && !(f.insts[x.args[0]].op == Op::Const && f.insts[x.args[1]].op == Op::Const);
      for (const uint32_t a : x.args)
        if (a != kNone) args.push_back(shield(f.insts, x, a, lanes, arg(a, !plain)));
      body += "  const " + type(x.type, lanes) + " v" + std::to_string(i) + " = " +
              operation(x, in, lanes, args, shift_of(f.insts, x)) + ";\n";
    }
    body += "  return " + arg(f.value, true) + ";\n}\n";
    m_.functions_ += d_.function_head(f, lanes, m_.needs_) + d_.instead(f, lanes) + body;
  }

  // LLVM 19 folds bitwise operations of three operands, one of them a constant, under a mask into a vpternlog with the wrong table. So that
  // it never sees two in a row, the operand of one that comes from another is hidden.
  std::string shield(const std::vector<Inst>& insts, const Inst& x, uint32_t operand, int lanes, const std::string& text) {
    const auto bitwise = [](const Inst& i) {
      return (i.op == Op::And || i.op == Op::Or || i.op == Op::Xor || i.op == Op::Not) && i.type != Type::Bool;
    };
    if (lanes == 1 || !bitwise(x)) return text;
    const Inst* from = &insts[operand];
    while (from->op == Op::Bitcast) from = &insts[from->args[0]];
    return bitwise(*from) ? d_.hide(x.type, lanes, text, m_.needs_) : text;
  }

  static int shift_of(const std::vector<Inst>& insts, const Inst& x) {
    if ((x.op != Op::Shl && x.op != Op::Shr) || insts[x.args[1]].op != Op::Const) return -1;
    const uint64_t n = insts[x.args[1]].bits;
    return n < static_cast<uint64_t>(type_bytes(x.type) * 8) ? static_cast<int>(n) : -1;
  }

  std::string operation(const Inst& x, Type in, int lanes, std::span<const std::string> args, int shift) {
    if (x.op != Op::Call) return d_.instruction(x, in, lanes, args, shift, m_.needs_);
    const Function& f = function(x.id);
    function_text(x.id, lanes);
    if (!f.external.empty()) return d_.external(f, lanes, args, m_.needs_);
    std::string s = d_.function_name(f, lanes) + "(";
    for (size_t i = 0; i < args.size(); ++i) s += (i ? ", " : "") + args[i];
    return s + ")";
  }

  std::string pointer(uint32_t id, const std::string& lane = {}) const {
    const Inst& x = k_.insts[id];
    if (in_row(id))
      return "row_" + k_.buffers[x.id].name + " + " + k_.axis_names[s_.lane_axis] + (lane.empty() ? "" : " + " + lane);
    return "b_" + k_.buffers[x.id].name + " + (" + expr(x.index, lane) + ")";
  }

  // ---- instructions

  void inst(uint32_t id, const Lanes& outer) {
    const Inst& x = k_.insts[id];
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
    line(t + operation(x, in, l.n, args, shift_of(k_.insts, x)) + ";");
  }

  void lane_loop(const Lanes& l, const std::string& statement) {
    line("for (i64 j = 0; j < " + (l.count.empty() ? std::to_string(l.n) : l.count) + "; ++j) " + statement);
  }

  void index(uint32_t id, const Inst& x, const Lanes& l) {
    if (l.n == 1) return line("const i64 " + name(id) + " = " + expr(x.index) + ";");
    line(type(Type::I64, l.n) + " " + name(id) + " = {};");
    lane_loop(l, name(id) + "[j] = " + expr(x.index, "j") + ";");
  }

  // 1: contiguous along the lanes.
  bool contiguous(const Inst& x) {
    std::vector<uint32_t> values;
    k_.pool.collect(x.index, AtomKind::Value, values);
    for (const uint32_t v : values)
      if (varying_[v]) return false;
    const auto a = k_.pool.affine(x.index, s_.lane_axis);
    return a && a->coefficient == kOne;
  }

  void load(uint32_t id, const Inst& x, const Lanes& l) {
    const std::string t = type(x.type, l.n), n = name(id);
    const bool guarded = x.args[0] != kNone;
    if (l.n == 1) {
      const std::string v = d_.load(x.type, 1, pointer(id), "", m_.needs_);
      return line("const " + t + " " + n + " = " + (guarded ? ref(x.args[0], 1) + " ? " + v + " : " + ref(x.args[1], 1) : v) +
                  ";");
    }
    if (in_square_[id]) {
      const std::string axis = k_.axis_names[s_.tile_axis];
      const std::string at = "square" + std::to_string(id) + " + (" + axis + " - " + axis + "_0) * " + std::to_string(l.n);
      return line("const " + t + " " + n + " = " + d_.load(x.type, l.n, at, "", m_.needs_) + ";");
    }
    const bool uniform_guard = guarded && !varying_[x.args[0]];
    if (contiguous(x) && (!guarded || uniform_guard)) {
      const std::string v = d_.load(x.type, l.n, pointer(id), l.count, m_.needs_);
      if (!guarded) return line("const " + t + " " + n + " = " + v + ";");
      line(t + " " + n + " = " + ref(x.args[1], l.n) + ";");
      return line("if (" + ref(x.args[0], 1) + ") " + n + " = " + v + ";");
    }
    line(t + " " + n + " = " + (guarded ? ref(x.args[1], l.n) : "{}") + ";");
    std::string element = d_.load(x.type, 1, pointer(id, "j"), "", m_.needs_);
    if (x.type == Type::Bool) element = "-(int)(" + element + ")";
    if (!index_varies(x.index)) element = d_.load(x.type, 1, pointer(id), "", m_.needs_);
    if (x.type == Type::Bool && !index_varies(x.index)) element = "-(int)(" + element + ")";
    lane_loop(l,
              (guarded ? "if (" + name(x.args[0]) + (uniform_guard ? "" : "[j]") + ") " : "") + n + "[j] = " + element + ";");
  }

  void store(uint32_t id, const Inst& x, const Lanes& outer) {
    // Along lanes the value varies, or the position does, or both do.
    const bool wide = outer.n > 1 && (varying_[x.args[0]] || index_varies(x.index));
    const Type t = k_.buffers[x.id].type;
    const std::string guard = x.args[1] == kNone ? "" : "if (" + ref(x.args[1], 1) + ") ";
    if (!wide) {
      const std::string v = ref(x.args[0], 1);
      return line(guard + d_.store(t, 1, pointer(id), v, "", m_.needs_) + ";");
    }
    if (streamed_[id] && outer.count.empty() && outer.n == s_.width)
      return line(d_.stream(t, outer.n, pointer(id), ref(x.args[0], outer.n), stream_flag(x.id), m_.needs_) + ";");
    if (contiguous(x) && (x.args[1] == kNone || !varying_[x.args[1]]))
      return line(guard + d_.store(t, outer.n, pointer(id), ref(x.args[0], outer.n), outer.count, m_.needs_) + ";");
    std::string v = varying_[x.args[0]] ? name(x.args[0]) + "[j]" : ref(x.args[0], 1);
    if (t == Type::Bool) v = "(unsigned char)(" + v + " != 0)";
    const std::string lane_guard =
        x.args[1] == kNone ? "" : "if (" + name(x.args[1]) + (varying_[x.args[1]] ? "[j]" : "") + ") ";
    lane_loop(outer, lane_guard + d_.store(t, 1, pointer(id, "j"), v, "", m_.needs_) + ";");
  }

  // Whether stores to the buffer go past the caches: the launch says so, and a long row may still have to be read.
  std::string stream_flag(uint32_t buffer) {
    if (!kept_[buffer] || k_.pool.as_number(points(k_.loops[0]))) return "stream";
    return "(stream && row_" + k_.buffers[buffer].name + " == memory_" + k_.buffers[buffer].name + ")";
  }
  // Memory of rows, once per range; and where the row of this point is.
  void row_memory() {
    for (uint32_t b = 0; b < k_.buffers.size(); ++b)
      if (kept_[b])
        line("alignas(64) " + d_.memory_type(k_.buffers[b].type) + " memory_" + k_.buffers[b].name + "[" +
             std::to_string(kRow) + "];");
  }
  void row_pointers() {
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

  void fault(const Inst& x, const Lanes& outer) {
    if (!varying_[x.args[0]]) return line("if (!" + ref(x.args[0], 1) + ") faults |= " + std::to_string(x.id) + "u;");
    lane_loop(outer, "if (!" + name(x.args[0]) + "[j]) faults |= " + std::to_string(x.id) + "u;");
  }

  // ---- reductions

  static ReduceKind kind(const Inst& x) { return static_cast<ReduceKind>(x.id); }
  Type reduced_type(const Inst& x) const { return k_.insts[x.args[0]].type; }
  static bool is_arg(const Inst& x) { return kind(x) == ReduceKind::ArgMax || kind(x) == ReduceKind::ArgMin; }

  std::string identity(const Inst& x, int lanes) {
    const Type t = reduced_type(x);
    const bool fl = is_float(t);
    uint64_t bits = 0;
    switch (kind(x)) {
      case ReduceKind::Prod: bits = constant_bits(t, int64_t{1}); break;
      case ReduceKind::All: bits = 1; break;
      case ReduceKind::Max:
        bits = fl ? constant_bits(t, -__builtin_inf()) : is_unsigned(t) ? 0 : uint64_t{1} << (type_bytes(t) * 8 - 1);
        break;
      case ReduceKind::Min:
        bits = fl ? constant_bits(t, __builtin_inf()) : (~uint64_t{0} >> (64 - type_bytes(t) * 8)) >> (is_unsigned(t) ? 0 : 1);
        break;
      default: break;
    }
    return d_.splat(t, lanes, d_.constant(t, bits), m_.needs_);
  }

  // The name of the function that combines two running values.
  std::string combiner(const Inst& x, int lanes) {
    const Type t = reduced_type(x);
    const ReduceKind k = kind(x);
    const std::string v = type(t, lanes);
    const std::string f = std::string(k == ReduceKind::Dot ? "sum" : reduce_name(k)) + "_" + type_name(t) +
                          (lanes == 1 ? "" : "_x" + std::to_string(lanes));
    if (!m_.combiners_.insert(f).second) return f;
    std::string body;
    const std::string args[] = {"a", "b"};
    Inst op;
    op.type = t;
    switch (k) {
      case ReduceKind::Max: body = is_float(t) ? "((a != a) | (a > b)) ? a : b" : "(a > b) ? a : b"; break;
      case ReduceKind::Min: body = is_float(t) ? "((a != a) | (a < b)) ? a : b" : "(a < b) ? a : b"; break;
      default:
        op.op = k == ReduceKind::Prod ? Op::Mul : k == ReduceKind::Any ? Op::Or : k == ReduceKind::All ? Op::And : Op::Add;
        body = d_.instruction(op, t, lanes, args, -1, m_.needs_);
    }
    m_.functions_ += "INLINE " + v + " " + f + "(" + v + " a, " + v + " b) { return " + body + "; }\n";
    return f;
  }

  // Of one vector's lanes, by halves.
  std::string folder(const Inst& x, int lanes) {
    const Type t = reduced_type(x);
    const std::string f = std::string("fold_") + (kind(x) == ReduceKind::Dot ? "sum" : reduce_name(kind(x))) + "_" +
                          type_name(t) + "_x" + std::to_string(lanes);
    if (!m_.combiners_.insert(f).second) return f;
    std::string body, v = "v";
    for (int w = lanes / 2; w > 1; w /= 2) {
      std::string low, high;
      for (int j = 0; j < w; ++j) low += ", " + std::to_string(j), high += ", " + std::to_string(j + w);
      const std::string next = "w" + std::to_string(w);
      const std::string part = "__builtin_shufflevector(" + v + ", " + v;
      body += "  const " + type(t, w) + " " + next + " = " + combiner(x, w) + "(" + part + low + "), " + part + high + "));\n";
      v = next;
    }
    const std::string one = t == Type::Bool ? "(" + v + "[0] != 0, " + v + "[1] != 0)" : "(" + v + "[0], " + v + "[1])";
    const std::string scalar = combiner(x, 1);
    m_.functions_ +=
        "INLINE " + type(t, 1) + " " + f + "(" + type(t, lanes) + " v) {\n" + body + "  return " + scalar + one + ";\n}\n";
    return f;
  }

  std::vector<uint32_t> reductions(const Loop& l) const {
    std::vector<uint32_t> r;
    for (const Item& i : l.body)
      if (k_.insts[i.id].op == Op::Reduce) r.push_back(i.id);
    return r;
  }
  Expr points(const Loop& l) {
    Expr e = kOne;
    for (const uint32_t a : l.axes) e = k_.pool.mul(e, k_.pool.extent(a));
    return e;
  }

  // The value that a reduction takes in, as so many lanes; a dot multiplies first.
  std::string taken(const Inst& x, int lanes) {
    if (kind(x) != ReduceKind::Dot) return ref(x.args[0], lanes);
    return ref(x.args[0], lanes) + " * " + ref(x.args[1], lanes);
  }

  // ---- a loop point by point; lanes, if any, lie along a parallel axis

  void serial_loop(const Loop& l, const Lanes& lanes) {
    const std::vector<uint32_t> rs = reductions(l);
    const auto total = k_.pool.as_number(points(l));
    const bool chunked = !total || *total > kOrder.chunk;
    if (!rs.empty()) {
      line("i64 t = 0" + std::string(chunked ? ", chunks = 0;" : ";"));
      if (!total) line("const i64 g = " + expr(points(l)) + " >= 128 ? 32 : 8;");
    }
    const std::string g = total ? (*total >= kOrder.long_from ? "32" : "8") : "g";
    for (const uint32_t r : rs) {
      const Inst& x = k_.insts[r];
      const int n = varying_[r] ? lanes.n : 1;
      const std::string v = type(reduced_type(x), n), a = "a" + std::to_string(r);
      if (is_arg(x)) {
        line(v + " " + a + " = " + identity(x, n) + ";");
        line(type(Type::I64, n) + " i" + a + " = " + d_.splat(Type::I64, n, "(i64)-1", m_.needs_) + ";");
        continue;
      }
      line(v + " " + a + "[32];");
      line("for (int j = 0; j < 32; ++j) " + a + "[j] = " + identity(x, n) + ";");
      if (chunked) line(v + " f" + a + "[8];"), line("for (int j = 0; j < 8; ++j) f" + a + "[j] = " + identity(x, n) + ";");
    }
    const auto halves = [&](uint32_t r, const std::string& array, const std::string& from) {
      const int n = varying_[r] ? lanes.n : 1;
      line("for (i64 w = " + from + " / 2; w > 0; w /= 2)");
      line("  for (i64 j = 0; j < w; ++j) " + array + "[j] = " + combiner(k_.insts[r], n) + "(" + array + "[j], " + array +
           "[j + w]);");
    };
    const auto close_chunk = [&] {
      for (const uint32_t r : rs) {
        const Inst& x = k_.insts[r];
        if (is_arg(x)) continue;
        const int n = varying_[r] ? lanes.n : 1;
        const std::string a = "a" + std::to_string(r);
        halves(r, a, g);
        line("f" + a + "[chunks & 7] = chunks < 8 ? " + a + "[0] : " + combiner(x, n) + "(f" + a + "[chunks & 7], " + a +
             "[0]);");
        line("for (int j = 0; j < 32; ++j) " + a + "[j] = " + identity(x, n) + ";");
      }
      line("++chunks;");
    };
    for (const uint32_t a : l.axes)
      open("for (i64 " + k_.axis_names[a] + " = 0; " + k_.axis_names[a] + " < " + extent(a) + "; ++" + k_.axis_names[a] +
           ") {");
    for (const Item& i : l.body) {
      const Inst& x = k_.insts[i.id];
      if (x.op != Op::Reduce) {
        inst(i.id, lanes);
        continue;
      }
      const int n = varying_[i.id] ? lanes.n : 1;
      const std::string a = "a" + std::to_string(i.id);
      if (is_arg(x)) {
        take_arg(i.id, x, n);
        continue;
      }
      const std::string slot = a + "[t & (" + g + " - 1)]";
      line(slot + " = " + combiner(x, n) + "(" + slot + ", " + taken(x, n) + ");");
    }
    if (!rs.empty()) {
      if (chunked) {
        open("if ((++t & 4095) == 0) {");
        close_chunk();
        close();
      } else {
        line("++t;");
      }
    }
    for (size_t i = 0; i < l.axes.size(); ++i) close();
    if (rs.empty()) return;
    if (chunked) {
      open("if ((t & 4095) != 0 || chunks == 0) {");
      close_chunk();
      close();
    }
    for (const uint32_t r : rs) {
      const Inst& x = k_.insts[r];
      const std::string a = "a" + std::to_string(r);
      const std::string t = "const " + type(x.type, varying_[r] ? lanes.n : 1) + " " + name(r) + " = ";
      if (is_arg(x)) {
        line(t + "i" + a + ";");
      } else if (chunked) {
        open("if (chunks > 1) {");
        halves(r, "f" + a, "8");
        close();
        line(t + "f" + a + "[0];");
      } else {
        halves(r, a, g);
        line(t + a + "[0];");
      }
    }
  }

  // Points come in order, so a later one wins only when it is strictly more, or the first NaN.
  void take_arg(uint32_t r, const Inst& x, int n) {
    const Type t = reduced_type(x);
    const std::string a = "a" + std::to_string(r), v = ref(x.args[0], n), cmp = kind(x) == ReduceKind::ArgMax ? " > " : " < ";
    const std::string m = "m" + std::to_string(r);
    std::string better = "(" + v + cmp + a + ")";
    if (is_float(t)) better = "(" + better + " | ((" + v + " != " + v + ") & (" + a + " == " + a + ")))";
    if (n == 1) {
      line("if (ia" + std::to_string(r) + " < 0 || " + better + ") " + a + " = " + v + ", i" + a + " = t;");
      return;
    }
    const bool wide = type_bytes(t) == 8;
    const std::string i64s = type(Type::I64, n);
    line("const " + i64s + " " + m + " = (i" + a + " < 0) | " +
         (wide ? better : "__builtin_convertvector(" + better + ", " + i64s + ")") + ";");
    line(a + " = " + (wide ? m : "__builtin_convertvector(" + m + ", " + type(Type::I32, n) + ")") + " ? " + v + " : " + a +
         ";");
    line("i" + a + " = " + m + " ? " + d_.splat(Type::I64, n, "t", m_.needs_) + " : i" + a + ";");
  }

  // ---- a loop whose innermost axis runs along the lanes

  void body_of(const Loop& l, const Lanes& lanes) {
    for (const Item& i : l.body)
      if (k_.insts[i.id].op != Op::Reduce) inst(i.id, lanes);
  }

  // Stores only: full vectors, then what is left.
  void store_loop(const Loop& l) {
    const std::string axis = k_.axis_names[s_.lane_axis], n = extent(s_.lane_axis);
    for (size_t i = 0; i + 1 < l.axes.size(); ++i)
      open("for (i64 " + k_.axis_names[l.axes[i]] + " = 0; " + k_.axis_names[l.axes[i]] + " < " + extent(l.axes[i]) + "; ++" +
           k_.axis_names[l.axes[i]] + ") {");
    line("i64 " + axis + " = 0;");
    lane_range(axis, n, divides(k_.pool.extent(s_.lane_axis), s_.width), [&](const Lanes& lanes) { body_of(l, lanes); });
    for (size_t i = 0; i + 1 < l.axes.size(); ++i) close();
  }

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
  void row_chunk(const Loop& l, const std::string& c0, const std::string& c1, int group, bool whole) {
    const std::vector<uint32_t> rs = reductions(l);
    const int w = std::min(s_.width, group), copies = group / w;
    const std::string axis = k_.axis_names[s_.lane_axis];
    const auto acc = [&](uint32_t r, int c) { return "a" + std::to_string(r) + "_" + std::to_string(c); };
    for (const uint32_t r : rs) {
      const Inst& x = k_.insts[r];
      for (int c = 0; c < copies; ++c) line(type(reduced_type(x), w) + " " + acc(r, c) + " = " + identity(x, w) + ";");
    }
    line("i64 " + axis + " = " + c0 + ";");
    open("for (; " + axis + " + " + std::to_string(group) + " <= " + c1 + ";) {");
    for (int c = 0; c < copies; ++c) {
      open("{");
      body_of(l, {w, ""});
      for (const uint32_t r : rs)
        line(acc(r, c) + " = " + combiner(k_.insts[r], w) + "(" + acc(r, c) + ", " + taken(k_.insts[r], w) + ");");
      close();
      line(axis + " += " + std::to_string(w) + ";");
    }
    close();
    if (!whole) {
      open("if (" + axis + " < " + c1 + ") {");
      for (const uint32_t r : rs) {
        std::string list;
        for (int c = 0; c < copies; ++c) list += (c ? ", " : "") + acc(r, c);
        line(type(reduced_type(k_.insts[r]), w) + " b" + std::to_string(r) + "[" + std::to_string(copies) + "] = {" + list +
             "};");
      }
      open("for (int c = 0; " + axis + " < " + c1 + "; ++c, " + axis + " += " + std::to_string(w) + ") {");
      line("const i64 m = min(" + std::to_string(w) + ", " + c1 + " - " + axis + ");");
      std::string iota;
      for (int j = 0; j < w; ++j) iota += (j ? ", " : "") + std::to_string(j);
      const std::string mask = type(Type::Bool, w);
      if (w > 1) line("const " + mask + " alive = " + mask + "{" + iota + "} < (int)m;");
      body_of(l, {w, "m"});
      for (const uint32_t r : rs) {
        const std::string b = "b" + std::to_string(r) + "[c]";
        const std::string combined = combiner(k_.insts[r], w) + "(" + b + ", " + taken(k_.insts[r], w) + ")";
        Inst sel;
        sel.op = Op::Select;
        sel.type = reduced_type(k_.insts[r]);
        const std::string args[] = {"alive", combined, b};
        line(b + " = " + (w > 1 ? d_.instruction(sel, Type::Bool, w, args, -1, m_.needs_) : combined) + ";");
      }
      close();
      for (const uint32_t r : rs)
        for (int c = 0; c < copies; ++c) line(acc(r, c) + " = b" + std::to_string(r) + "[" + std::to_string(c) + "];");
      close();
    }
    for (const uint32_t r : rs) {
      const Inst& x = k_.insts[r];
      for (int h = copies / 2; h > 0; h /= 2)
        for (int c = 0; c < h; ++c) line(acc(r, c) + " = " + combiner(x, w) + "(" + acc(r, c) + ", " + acc(r, c + h) + ");");
      line("s" + std::to_string(r) + " = " + (w > 1 ? folder(x, w) + "(" + acc(r, 0) + ")" : acc(r, 0)) + ";");
    }
  }

  void declare_results(const std::vector<uint32_t>& rs) {
    for (const uint32_t r : rs) line(type(reduced_type(k_.insts[r]), 1) + " s" + std::to_string(r) + ";");
  }

  // Short and long rows are reduced in different numbers of lanes.
  void row_by_length(const Loop& l, const std::string& c0, const std::string& c1, const std::optional<int64_t>& total,
                     bool chunks_are_long) {
    if (total) {
      const int group = static_cast<int>(*total >= kOrder.long_from ? kOrder.long_lanes : kOrder.short_lanes);
      return row_chunk(l, c0, c1, group, *total % group == 0);
    }
    if (chunks_are_long) return row_chunk(l, c0, c1, static_cast<int>(kOrder.long_lanes), false);
    open("if (" + expr(points(l)) + " >= 128) {");
    row_chunk(l, c0, c1, static_cast<int>(kOrder.long_lanes), false);
    close("} else {");
    ++indent_;
    row_chunk(l, c0, c1, static_cast<int>(kOrder.short_lanes), false);
    close();
  }

  void row_loop(const Loop& l) {
    const std::vector<uint32_t> rs = reductions(l);
    const auto total = k_.pool.as_number(points(l));
    const std::string n = expr(points(l));
    if (total && *total <= kOrder.chunk) {
      declare_results(rs);
      open("{");
      row_by_length(l, "0", n, total, false);
      close();
    } else {
      declare_results(rs);
      for (const uint32_t r : rs) line(type(reduced_type(k_.insts[r]), 1) + " f" + std::to_string(r) + "[8];");
      line("i64 chunks = 0;");
      open("for (i64 c0 = 0; c0 < " + n + " || c0 == 0; c0 += 4096, ++chunks) {");
      line("const i64 c1 = min(c0 + 4096, " + n + ");");
      row_by_length(l, "c0", "c1", total, false);
      for (const uint32_t r : rs) {
        const std::string f = "f" + std::to_string(r) + "[chunks & 7]", s = "s" + std::to_string(r);
        line(f + " = chunks < 8 ? " + s + " : " + combiner(k_.insts[r], 1) + "(" + f + ", " + s + ");");
      }
      close();
      fold_chunks(rs);
    }
    for (const uint32_t r : rs) line("const " + type(k_.insts[r].type, 1) + " " + name(r) + " = s" + std::to_string(r) + ";");
  }

  // f<r>[8] holds the second level after `chunks` chunks; the result goes to s<r>.
  void fold_chunks(const std::vector<uint32_t>& rs) {
    open("if (chunks > 1) {");
    for (const uint32_t r : rs) {
      const std::string f = "f" + std::to_string(r);
      line("for (i64 j = chunks; j < 8; ++j) " + f + "[j] = " + identity(k_.insts[r], 1) + ";");
      line("for (int w = 4; w > 0; w /= 2)");
      line("  for (int j = 0; j < w; ++j) " + f + "[j] = " + combiner(k_.insts[r], 1) + "(" + f + "[j], " + f + "[j + w]);");
    }
    close();
    for (const uint32_t r : rs) line("s" + std::to_string(r) + " = f" + std::to_string(r) + "[0];");
  }

  // ---- a split reduction: partial results of chunk c of row u at workspace[(which * rows + u) * chunks + c], 8 bytes each

  std::string chunk_count(const Loop& l) { return "max(1, (" + expr(points(l)) + " + 4095) / 4096)"; }
  std::string partial(uint32_t which, const Inst& x, const std::string& c) {
    return "((" + type(reduced_type(x), 1) + "*)((u64*)a->workspace + (" + std::to_string(which) +
           " * rows + row) * n_chunks + " + c + "))[0]";
  }
  void partial_loop(const Loop& l) {
    const std::vector<uint32_t> rs = reductions(l);
    declare_results(rs);
    open("{");
    line("const i64 c0 = chunk * 4096, c1 = min(c0 + 4096, " + expr(points(l)) + ");");
    row_by_length(l, "c0", "c1", k_.pool.as_number(points(l)), false);
    close();
    for (uint32_t i = 0; i < rs.size(); ++i) line(partial(i, k_.insts[rs[i]], "chunk") + " = s" + std::to_string(rs[i]) + ";");
  }
  void join_loop(const Loop& l) {
    const std::vector<uint32_t> rs = reductions(l);
    declare_results(rs);
    for (const uint32_t r : rs) line(type(reduced_type(k_.insts[r]), 1) + " f" + std::to_string(r) + "[8];");
    line("i64 chunks = 0;");
    open("for (; chunks < n_chunks; ++chunks) {");
    for (uint32_t i = 0; i < rs.size(); ++i) {
      const std::string f = "f" + std::to_string(rs[i]) + "[chunks & 7]", s = partial(i, k_.insts[rs[i]], "chunks");
      line(f + " = chunks < 8 ? " + s + " : " + combiner(k_.insts[rs[i]], 1) + "(" + f + ", " + s + ");");
    }
    close();
    fold_chunks(rs);
    for (const uint32_t r : rs) line("const " + type(k_.insts[r].type, 1) + " " + name(r) + " = s" + std::to_string(r) + ";");
  }

  // ---- ranges

  std::vector<uint32_t> outer_axes() const {
    std::vector<uint32_t> o;
    for (const uint32_t a : k_.parallel)
      if ((a != s_.lane_axis || s_.width == 1) && a != s_.tile_axis) o.push_back(a);
    return o;
  }
  std::string product(const std::vector<uint32_t>& axes) {
    Expr e = kOne;
    for (const uint32_t a : axes) e = k_.pool.mul(e, k_.pool.extent(a));
    return expr(e);
  }
  bool parallel_lanes() const { return s_.lane_axis != kNone && !s_.lanes_in_loop && s_.width > 1; }

  void symbols(const std::string& from) {
    for (uint32_t i = 0; i < k_.symbols.size(); ++i)
      line("const i64 " + symbol_name(i) + " = " + from + "[" + std::to_string(i) + "]; (void)" + symbol_name(i) + ";");
  }

  void range(const std::string& function, Phase phase) {
    open("extern \"C\" void " + function + "(const tsr_kernel_args* a, i64 begin, i64 end) {");
    symbols("a->dims");
    for (size_t i = 0; i < k_.buffers.size(); ++i) {
      const Buffer& b = k_.buffers[i];
      const std::string t = std::string(b.access == Access::In ? "const " : "") + d_.memory_type(b.type) + "*";
      line(t + " const b_" + b.name + " = (" + t + ")a->buffers[" + std::to_string(i) + "]; (void)b_" + b.name + ";");
    }
    bool faults = false;
    for (const Inst& x : k_.insts) faults = faults || x.op == Op::Check;
    if (faults) line("unsigned faults = 0;");
    if (streams_) line("const i64 stream = a->stream;");
    row_memory();
    units(phase);
    if (streams_) line(d_.stream_fence("stream", m_.needs_) + ";");
    if (faults) line("if (faults) __atomic_fetch_or(a->faults, faults, __ATOMIC_RELAXED);");
    close();
  }

  void units(Phase phase) {
    const std::vector<uint32_t> outer = outer_axes();
    const bool lanes = parallel_lanes();
    if (phase != Phase::Whole) {
      line("const i64 n_chunks = " + chunk_count(k_.loops[0]) + ", rows = " + product(outer) + ";");
    }
    const bool tiled = s_.tile_axis != kNone;
    if (lanes && outer.empty() && !tiled && !by_rows()) {  // units are neighbours: one run
      const std::string axis = k_.axis_names[s_.lane_axis];
      line("i64 " + axis + " = begin * " + std::to_string(s_.block) + ";");
      line("const i64 stop = min(" + extent(s_.lane_axis) + ", end * " + std::to_string(s_.block) + ");");
      return columns(axis, "stop");
    }
    open("for (i64 unit = begin; unit < end; ++unit) {");
    std::string rest = "unit";
    const auto take = [&](const std::string& what, const std::string& n, bool last) {
      if (last) return line("const i64 " + what + " = " + rest + ";");
      line("const i64 " + what + " = " + rest + " % (" + n + "), " + what + "_rest = " + rest + " / (" + n + ");");
      rest = what + "_rest";
    };
    const std::string block = std::to_string(s_.block);
    const auto n_lane = lanes ? k_.pool.as_number(k_.pool.extent(s_.lane_axis)) : std::nullopt;
    const bool one_block = n_lane && *n_lane <= s_.block;
    if (phase == Phase::Partial) {
      take("chunk", "n_chunks", false);
      line("const i64 row = " + rest + ";");
    }
    if (phase == Phase::Join) line("const i64 row = unit;");
    if (lanes && !one_block)
      take("block", "(" + extent(s_.lane_axis) + " + " + std::to_string(s_.block - 1) + ") / " + block, false);
    if (tiled) take("tile", tile_count(), false);
    for (size_t i = outer.size(); i-- > 0;) take(k_.axis_names[outer[i]], extent(outer[i]), i == 0);
    if (outer.empty()) line("(void)" + rest + ";");
    if (tiled) {
      const std::string n = std::to_string(s_.tile_points);
      line("const i64 tile_begin = tile * " + n + ", tile_end = min(" + extent(s_.tile_axis) + ", tile_begin + " + n + ");");
    }
    if (lanes) {
      const std::string axis = k_.axis_names[s_.lane_axis];
      line("i64 " + axis + " = " + (one_block ? "0" : "block * " + block) + ";");
      line("const i64 stop = " +
           (one_block ? extent(s_.lane_axis) : "min(" + extent(s_.lane_axis) + ", " + axis + " + " + block + ")") + ";");
      columns(axis, "stop");
    } else {
      rows(phase);
    }
    close();
  }

  std::string tile_count() {
    const std::string n = std::to_string(s_.tile_points), less = std::to_string(s_.tile_points - 1);
    return "(" + extent(s_.tile_axis) + " + " + less + ") / " + n;
  }

  // Lanes along a parallel axis: what is equal for all of them first.
  void columns(const std::string& axis, const std::string& stop) {
    if (by_rows()) return columns_by_rows(axis, stop);
    const bool tiled = s_.tile_axis != kNone;
    const auto equal_for_all = [&] {
      for (const Item& i : k_.body)
        if (!i.is_loop && !varying_[i.id] && !after_loop_[i.id] && k_.insts[i.id].op != Op::Store) inst(i.id, {});
    };
    const auto items = [&](const Lanes& lanes) {
      for (const Item& i : k_.body) {
        if (i.is_loop) {
          const Loop& l = k_.loops[i.id];
          const auto rs = reductions(l);
          // Results are seen after the loop; its other names are not.
          for (const uint32_t r : rs) line(type(k_.insts[r].type, varying_[r] ? lanes.n : 1) + " r" + std::to_string(r) + ";");
          open("{");
          serial_loop(l, lanes);
          for (const uint32_t r : rs) line("r" + std::to_string(r) + " = " + name(r) + ";");
          close();
          for (const uint32_t r : rs)
            line("const " + type(k_.insts[r].type, varying_[r] ? lanes.n : 1) + " " + name(r) + " = r" + std::to_string(r) +
                 ";");
        } else if (varying_[i.id] || after_loop_[i.id] || k_.insts[i.id].op == Op::Store) {
          inst(i.id, lanes);
        }
      }
    };
    if (!tiled) equal_for_all();
    const std::vector<uint32_t> turned = tiled ? transposed_loads() : std::vector<uint32_t>();
    const std::string w = std::to_string(s_.width);
    lane_range(axis, stop, divides(k_.pool.extent(s_.lane_axis), s_.width), [&](const Lanes& lanes) {
      if (!tiled) return items(lanes);
      const std::string t = k_.axis_names[s_.tile_axis];
      line("i64 " + t + "_0 = tile_begin;");
      if (!turned.empty() && lanes.count.empty()) {  // squares that are loaded along the other axis and transposed in registers
        open("for (; " + t + "_0 + " + w + " <= tile_end; " + t + "_0 += " + w + ") {");
        for (const uint32_t id : turned) {
          const Inst& x = k_.insts[id];
          const auto along = k_.pool.affine(x.index, s_.lane_axis);
          const std::string square = "square" + std::to_string(id);
          line("alignas(64) " + d_.memory_type(x.type) + " " + square + "[" + w + " * " + w + "];");
          open("{");
          line("const i64 " + t + " = " + t + "_0;");
          line(d_.transpose(x.type, s_.width, pointer(id), expr(along->coefficient), square, m_.needs_) + ";");
          close();
          in_square_[id] = 1;
        }
        open("for (i64 " + t + " = " + t + "_0; " + t + " < " + t + "_0 + " + w + "; ++" + t + ") {");
        equal_for_all();
        items(lanes);
        close();
        for (const uint32_t id : turned) in_square_[id] = 0;
        close();
      }
      open("for (i64 " + t + " = " + t + "_0; " + t + " < tile_end; ++" + t + ") {");
      equal_for_all();
      items(lanes);
      close();
    });
  }

  // Loads that are contiguous along the tile's axis and at equal steps along the lanes.
  std::vector<uint32_t> transposed_loads() {
    std::vector<uint32_t> out;
    for (const Item& i : k_.body) {
      if (i.is_loop) continue;
      const Inst& x = k_.insts[i.id];
      if (x.op != Op::Load || x.args[0] != kNone || x.type == Type::Bool || type_bytes(x.type) > 4 || s_.width < 4) continue;
      std::vector<uint32_t> values;
      k_.pool.collect(x.index, AtomKind::Value, values);
      const auto along = k_.pool.affine(x.index, s_.tile_axis), lanes = k_.pool.affine(x.index, s_.lane_axis);
      if (values.empty() && along && along->coefficient == kOne && lanes && lanes->coefficient != kZero &&
          lanes->coefficient != kOne)
        out.push_back(i.id);
    }
    return out;
  }

  // Of columns side by side: row by row, whole stretches of memory at a time. The running values of all columns of the unit are in memory.
  bool by_rows() const {
    if (!s_.row_by_row || k_.loops.size() != 1) return false;
    const std::vector<uint32_t> rs = reductions(k_.loops[0]);
    return !rs.empty() && std::all_of(rs.begin(), rs.end(), [&](uint32_t r) { return varying_[r] && !is_arg(k_.insts[r]); });
  }
  void columns_by_rows(const std::string& axis, const std::string& stop) {
    const Loop& l = k_.loops[0];
    const std::vector<uint32_t> rs = reductions(l);
    const auto total = k_.pool.as_number(points(l));
    const bool chunked = !total || *total > kOrder.chunk, whole = divides(k_.pool.extent(s_.lane_axis), s_.width);
    const std::string vectors = std::to_string(s_.block / s_.width), w = std::to_string(s_.width);
    const std::string g = total ? (*total >= kOrder.long_from ? "32" : "8") : "g";
    const auto items = [&](const Lanes& lanes, bool after) {
      for (const Item& i : k_.body) {
        if (i.is_loop) continue;
        const bool store = k_.insts[i.id].op == Op::Store, late = after_loop_[i.id] || store;
        if (late ? after : varying_[i.id] != 0) inst(i.id, lanes);
      }
    };
    const auto each_vector = [&](const auto& body) {
      open("{");
      line("i64 " + axis + " = first, c = 0;");
      open("for (; " + axis + " + " + w + " <= " + stop + "; " + axis + " += " + w + ", ++c) {");
      body(Lanes{s_.width, ""});
      close();
      if (!whole) {
        open("if (" + axis + " < " + stop + ") {");
        line("const i64 m = " + stop + " - " + axis + ";");
        body(Lanes{s_.width, "m"});
        close();
      }
      close();
    };
    const auto halves = [&](uint32_t r, const std::string& array, const std::string& from) {
      line("for (i64 h = " + from + " / 2; h > 0; h /= 2)");
      line("  for (i64 j = 0; j < h; ++j) " + array + "[j][c] = " + combiner(k_.insts[r], s_.width) + "(" + array + "[j][c], " +
           array + "[j + h][c]);");
    };
    line("const i64 first = " + axis + ";");
    for (const Item& i : k_.body)
      if (!i.is_loop && !varying_[i.id] && !after_loop_[i.id] && k_.insts[i.id].op != Op::Store) inst(i.id, {});
    line("i64 t = 0" + std::string(chunked ? ", chunks = 0;" : ";"));
    if (!total) line("const i64 g = " + expr(points(l)) + " >= 128 ? 32 : 8;");
    for (const uint32_t r : rs) {
      const std::string v = type(reduced_type(k_.insts[r]), s_.width), a = "a" + std::to_string(r);
      line(v + " " + a + "[" + (total ? g : "32") + "][" + vectors + "];");
      line("for (i64 j = 0; j < " + g + "; ++j)");
      line("  for (i64 c = 0; c < " + vectors + "; ++c) " + a + "[j][c] = " + identity(k_.insts[r], s_.width) + ";");
      if (!chunked) continue;
      line(v + " f" + a + "[8][" + vectors + "];");
      line("for (i64 j = 0; j < 8; ++j)");
      line("  for (i64 c = 0; c < " + vectors + "; ++c) f" + a + "[j][c] = " + identity(k_.insts[r], s_.width) + ";");
    }
    const auto close_chunk = [&] {
      open("for (i64 c = 0; c < " + vectors + "; ++c) {");
      for (const uint32_t r : rs) {
        const std::string a = "a" + std::to_string(r), f = "f" + a + "[chunks & 7][c]";
        halves(r, a, g);
        line(f + " = chunks < 8 ? " + a + "[0][c] : " + combiner(k_.insts[r], s_.width) + "(" + f + ", " + a + "[0][c]);");
        line("for (i64 j = 0; j < " + g + "; ++j) " + a + "[j][c] = " + identity(k_.insts[r], s_.width) + ";");
      }
      close();
      line("++chunks;");
    };
    for (const uint32_t a : l.axes)
      open("for (i64 " + k_.axis_names[a] + " = 0; " + k_.axis_names[a] + " < " + extent(a) + "; ++" + k_.axis_names[a] +
           ") {");
    each_vector([&](const Lanes& lanes) {
      items(lanes, false);
      for (const Item& i : l.body) {
        const Inst& x = k_.insts[i.id];
        if (x.op != Op::Reduce) {
          inst(i.id, lanes);
          continue;
        }
        const std::string slot = "a" + std::to_string(i.id) + "[t & (" + g + " - 1)][c]";
        line(slot + " = " + combiner(x, s_.width) + "(" + slot + ", " + taken(x, s_.width) + ");");
      }
    });
    if (chunked) {
      open("if ((++t & 4095) == 0) {");
      close_chunk();
      close();
    } else {
      line("++t;");
    }
    for (size_t i = 0; i < l.axes.size(); ++i) close();
    if (chunked) {
      open("if ((t & 4095) != 0 || chunks == 0) {");
      close_chunk();
      close();
    }
    each_vector([&](const Lanes& lanes) {
      for (const uint32_t r : rs) {
        const std::string a = "a" + std::to_string(r);
        if (chunked) {
          open("if (chunks > 1) {");
          halves(r, "f" + a, "8");
          close();
        } else {
          halves(r, a, g);
        }
        line("const " + type(k_.insts[r].type, s_.width) + " " + name(r) + " = " + (chunked ? "f" : "") + a + "[0][c];");
      }
      items(lanes, true);
    });
  }

  void rows(Phase phase) {
    row_pointers();
    for (const Item& i : k_.body) {
      if (!i.is_loop) {
        if (phase != Phase::Partial || k_.insts[i.id].op != Op::Store) {
          // After the loop a partial phase has nothing left to do.
          if (phase == Phase::Partial && depends_on_loop(i.id)) continue;
          inst(i.id, {});
        }
        continue;
      }
      const Loop& l = k_.loops[i.id];
      const std::vector<uint32_t> rs = reductions(l);
      const bool vector = s_.lanes_in_loop && s_.width > 1 &&
                          std::none_of(rs.begin(), rs.end(), [&](uint32_t r) { return is_arg(k_.insts[r]); });
      if (phase == Phase::Partial) return open("{"), partial_loop(l), close();
      for (const uint32_t r : rs) line(type(k_.insts[r].type, 1) + " r" + std::to_string(r) + ";");
      open("{");
      if (phase == Phase::Join) {
        join_loop(l);
      } else if (vector && rs.empty()) {
        store_loop(l);
      } else if (vector && l.axes.size() == 1) {
        row_loop(l);
      } else {
        const std::vector<uint8_t> before = varying_;
        std::fill(varying_.begin(), varying_.end(), 0);
        serial_loop(l, {});
        varying_ = before;
      }
      for (const uint32_t r : rs) line("r" + std::to_string(r) + " = " + name(r) + ";");
      close();
      for (const uint32_t r : rs) line("const " + type(k_.insts[r].type, 1) + " " + name(r) + " = r" + std::to_string(r) + ";");
    }
  }

  bool depends_on_loop(uint32_t id) const { return after_loop_[id] != 0; }

  void plan() {
    open("extern \"C\" void " + k_.name + "_plan(const i64* dims, i64* plan) {");
    symbols("dims");
    const std::vector<uint32_t> outer = outer_axes();
    const bool lanes = parallel_lanes();
    line("const i64 rows = " + product(outer) + ";");
    // Points of a unit: of its lanes and of every loop.
    Expr inner =
        k_.loops.empty() ? kOne : k_.pool.mul(points(k_.loops[0]), k_.pool.number(static_cast<int64_t>(k_.loops.size())));
    std::string grain_points = expr(inner);
    if (s_.split) {
      line("const i64 n_chunks = " + chunk_count(k_.loops[0]) + ";");
      line("plan[0] = 8 * rows * n_chunks * " + std::to_string(reductions(k_.loops[0]).size()) + ";");
      line("plan[1] = rows * n_chunks;");
      line("plan[2] = " + std::to_string(kGrainPoints / kOrder.chunk) + ";");
      line("plan[3] = rows;");
      line("plan[4] = 64;");
    } else {
      line("plan[0] = 0;");
      if (lanes) {
        const std::string n = extent(s_.lane_axis), b = std::to_string(s_.block);
        const std::string tiles = s_.tile_axis == kNone ? "" : " * (" + tile_count() + ")";
        if (s_.tile_axis != kNone) grain_points = std::to_string(s_.tile_points);
        line("plan[1] = rows * ((" + n + " + " + std::to_string(s_.block - 1) + ") / " + b + ")" + tiles + ";");
        line("plan[2] = max(1, " + std::to_string(kGrainPoints) + " / max(1, min(" + n + ", " + b + ") * (" + grain_points +
             ")));");
      } else {
        line("plan[1] = rows;");
        line("plan[2] = max(1, " + std::to_string(kGrainPoints) + " / max(1, " + grain_points + "));");
      }
      line("plan[3] = 0;");
      line("plan[4] = 1;");
    }
    close();
  }

  ModuleText& m_;
  const Dialect& d_;
  Kernel& k_;
  Schedule s_;
  std::vector<uint8_t> varying_;     // by instruction: differs between lanes
  std::vector<uint8_t> after_loop_;  // needs the result of a loop
  std::vector<uint8_t> streamed_;    // stores that may go past the caches
  bool streams_ = false;
  std::vector<uint8_t> in_square_;    // loads that read a transposed square at this place of the text
  uint32_t said_ = kNone;             // the source op that the last comment names
  std::vector<uint8_t> kept_;         // by buffer: its earlier values wait in a row
  std::vector<uint32_t> last_store_;  // by buffer
  std::string head_, out_;
  int indent_ = 0;
};

void ModuleText::add(Kernel& k, const Schedule& s) { kernels_ += KernelWriter(*this, k, s).run(); }

std::string ModuleText::text() const { return dialect_.prelude(needs_) + functions_ + kernels_; }

}  // namespace tessera::kit
