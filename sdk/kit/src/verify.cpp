// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/verify.hpp"

#include <algorithm>

#include "inst_types.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

class Verifier {
 public:
  explicit Verifier(Kernel& k) : k_(k), seen_(k.insts.size(), 0), visible_(k.insts.size(), 0), loops_(k.loops.size(), 0) {}

  void run() {
    if (k_.axis_names.size() != k_.pool.num_axes() || k_.symbols.size() != k_.pool.num_symbols())
      fail(kNone, "V9", "axes and symbols are numbered as in the pool");
    axes_ = k_.parallel;
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i] >= k_.axis_names.size()) fail(kNone, "V9", "there is no such axis");
      if (std::count(axes_.begin(), axes_.end(), axes_[i]) > 1) fail(kNone, "V9", "an axis is parallel once");
    }
    body(k_.body, 0);
    for (uint32_t i = 0; i < seen_.size(); ++i)
      if (!seen_[i]) fail(i, "V1", "every instruction stands in a body");
    for (uint32_t i = 0; i < loops_.size(); ++i)
      if (!loops_[i]) fail(kNone, "V1", "every loop stands in a body");
  }

 private:
  [[noreturn]] void fail(uint32_t inst, const char* check, const std::string& expected) const {
    std::string where = "kernel @" + k_.name;
    if (inst != kNone) where += ", %" + std::to_string(inst) + " = " + op_name(k_.insts[inst].op);
    throw sdk::Error(TSR_BUG, "TSR-K020", where + ": " + expected + " (" + check + ")");
  }

  void body(const std::vector<Item>& items, int depth) {
    std::vector<uint32_t> mine;
    for (const Item& i : items) {
      if (i.is_loop) {
        if (i.id >= k_.loops.size() || loops_[i.id]++) fail(kNone, "V1", "a loop stands once in a body");
        loop(i.id, depth, mine);
        continue;
      }
      if (i.id >= k_.insts.size() || seen_[i.id]++)
        fail(i.id < k_.insts.size() ? i.id : kNone, "V1", "an instruction stands once in a body");
      inst(i.id, depth);
      if (k_.insts[i.id].op != Op::Reduce) visible_[i.id] = 1;
      mine.push_back(i.id);
    }
    if (depth == 0) return;
    for (const uint32_t i : mine) visible_[i] = 0;
  }

  void loop(uint32_t id, int depth, std::vector<uint32_t>& outer) {
    const Loop& l = k_.loops[id];
    if (l.axes.empty()) fail(kNone, "V9", "a loop has an axis");
    for (const uint32_t a : l.axes) {
      if (a >= k_.axis_names.size()) fail(kNone, "V9", "there is no such axis");
      if (std::find(axes_.begin(), axes_.end(), a) != axes_.end())
        fail(kNone, "V9", "no loop is inside another over '" + k_.axis_names[a] + "'");
      axes_.push_back(a);
    }
    body(l.body, depth + 1);
    axes_.resize(axes_.size() - l.axes.size());
    for (const Item& i : l.body) {
      const Inst& x = k_.insts[i.is_loop ? 0 : i.id];
      if (!i.is_loop && x.op == Op::Reduce) {
        visible_[i.id] = 1;
        outer.push_back(i.id);
      }
      if (!i.is_loop && x.op == Op::Store && x.args[1] == kNone) stored_.emplace_back(x.id, x.index);
    }
  }

  void need(bool holds, uint32_t i, const char* check, const std::string& expected) const {
    if (!holds) fail(i, check, expected);
  }

  void index(uint32_t i, Expr e) {
    std::vector<uint32_t> used;
    k_.pool.collect(e, AtomKind::Axis, used);
    for (const uint32_t a : used)
      need(std::find(axes_.begin(), axes_.end(), a) != axes_.end(), i, "V5", "an index mentions axes of loops around it");
    used.clear();
    k_.pool.collect(e, AtomKind::Symbol, used);
    for (const uint32_t s : used) need(s < k_.symbols.size(), i, "V5", "an index mentions known symbols");
    used.clear();
    k_.pool.collect(e, AtomKind::Value, used);
    for (const uint32_t v : used) {
      need(v < visible_.size() && visible_[v], i, "V5", "an index mentions values that are defined");
      const Type t = k_.insts[v].type;
      need(t == Type::I32 || t == Type::I64 || t == Type::U32 || t == Type::U64, i, "V5",
           "an index mentions integers of 32 or 64 bits");
    }
  }

  void access(uint32_t i, const Inst& x, bool store) {
    need(x.id < k_.buffers.size(), i, "V6", "loads and stores name a buffer");
    const Buffer& b = k_.buffers[x.id];
    const bool earlier = std::find(stored_.begin(), stored_.end(), std::make_pair(x.id, x.index)) != stored_.end();
    need(b.access == Access::InOut || (b.access == Access::Out) == store || (!store && earlier), i, "V6",
         store ? "an output is stored" : "an input is loaded, or what an earlier loop stored");
    need(b.type == (store ? k_.insts[x.args[0]].type : x.type), i, "V6", "the value has the type of the buffer");
    index(i, x.index);
    // In a loop without points nothing is accessed, and every buffer of no elements is in one.
    const bool runs =
        b.extent != kZero && std::none_of(axes_.begin(), axes_.end(), [&](uint32_t a) { return k_.pool.extent(a) == kZero; });
    if (x.args[store ? 1 : 0] == kNone && runs) {
      need(!k_.pool.nonnegative(k_.pool.sub(k_.pool.sub(kZero, x.index), kOne)) &&
               !k_.pool.nonnegative(k_.pool.sub(x.index, b.extent)),
           i, "V10", "an index lies inside its buffer");
    }
  }

  void inst(uint32_t i, int depth) {
    const Inst& x = k_.insts[i];
    for (size_t a = 0; a < 3; ++a)
      if (x.args[a] != kNone)
        need(x.args[a] < visible_.size() && visible_[x.args[a]], i, "V2", "operands are defined before and in scope");
    const auto type = [&](int a) { return k_.insts[x.args[static_cast<size_t>(a)]].type; };
    const auto count = [&](int n) {
      for (int a = 0; a < 3; ++a)
        need((x.args[static_cast<size_t>(a)] != kNone) == (a < n), i, "V3", std::to_string(n) + " operands");
    };
    if (x.op == Op::Second || x.op == Op::Check) count(1);
    const auto arithmetic = [](Type t) { return t != Type::None && t != Type::Bool && compute_type(t) == t; };
    const bool floating = x.type == Type::F32 || x.type == Type::F64;
    switch (x.op) {
      case Op::Index:
        need(x.type == Type::I64, i, "V4", "an index is an i64");
        index(i, x.index);
        break;
      case Op::Load:
        need((x.args[0] == kNone) == (x.args[1] == kNone) && x.args[2] == kNone, i, "V6",
             "a predicate comes with the value for the other case");
        if (x.args[0] != kNone)
          need(type(0) == Type::Bool && type(1) == x.type, i, "V4", "a bool predicate and a value of the loaded type");
        access(i, x, false);
        break;
      case Op::Store:
        need(x.args[0] != kNone && x.args[2] == kNone, i, "V3", "a value and maybe a predicate");
        if (x.args[1] != kNone) need(type(1) == Type::Bool, i, "V4", "a bool predicate");
        access(i, x, true);
        break;
      case Op::Reduce: {
        need(depth > 0, i, "V7", "reduce stands in a loop");
        need(x.id < kNumReduceKinds, i, "V4", "a known kind of reduction");
        const auto kind = static_cast<ReduceKind>(x.id);
        count(kind == ReduceKind::Dot ? 2 : 1);
        const bool arg = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin,
                   logic = kind == ReduceKind::Any || kind == ReduceKind::All;
        need(x.type == (arg ? Type::I64 : type(0)), i, "V4", "the type of the operand, i64 for argmax and argmin");
        if (kind == ReduceKind::Dot) need(type(1) == x.type, i, "V4", "two operands of one type");
        if (kind == ReduceKind::Welford || kind == ReduceKind::OnlineSoftmax || kind == ReduceKind::MaxNumber)
          need(floating, i, "V4", "f32 or f64");
        need(logic ? x.type == Type::Bool : arithmetic(type(0)), i, "V4", logic ? "bool" : "a compute type");
        break;
      }
      case Op::Second: {
        const Inst& r = k_.insts[x.args[0]];
        need(r.op == Op::Reduce && (r.id == static_cast<uint32_t>(ReduceKind::Welford) ||
                                    r.id == static_cast<uint32_t>(ReduceKind::OnlineSoftmax)),
             i, "V7", "the reduction has two results");
        need(x.type == r.type, i, "V4", "the reduction's type");
        break;
      }
      default:
        if (const auto m = misfit(x, operand_types(x, [&](uint32_t v) { return k_.insts[v].type; })))
          fail(i, m->rule, m->expected);
        break;
      case Op::Check:
        need(type(0) == Type::Bool && (x.id == kFaultDivision || x.id == kFaultIndex), i, "V4", "a bool and a known fault");
        break;
    }
  }

  Kernel& k_;
  std::vector<uint8_t> seen_, visible_, loops_;
  std::vector<uint32_t> axes_;
  std::vector<std::pair<uint32_t, Expr>> stored_;  // by loops that are over
};

}  // namespace

void verify(Kernel& k) { Verifier(k).run(); }

}  // namespace tessera::kit
