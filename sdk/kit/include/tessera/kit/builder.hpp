// SPDX-License-Identifier: Apache-2.0
// Builds instructions. Equal pure instructions become one, and an instruction stands in the outermost scope in which its
// operands exist, so what does not change inside a loop is computed before it. In a kernel, what the ranges of values decide is
// left out: a comparison that always holds, a limit that is kept already, a check that cannot fail.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "tessera/kit/ir.hpp"
#include "tessera/kit/ranges.hpp"

namespace tessera::kit {

class Builder {
 public:
  // Into the body of a function; there is one scope and no index.
  explicit Builder(Function& f) : insts_(&f.insts), pool_(nullptr) { open(nullptr, {}); }
  // Into the body of a kernel: the scope of its parallel points.
  explicit Builder(Kernel& k) : insts_(&k.insts), pool_(&k.pool), kernel_(&k) { open(&k.body, {}); }

  // Opens a loop; instructions that depend on its axes, and those that ask for it (reduce, store, check) go into its body. One
  // at a time.
  void begin_loop(std::vector<uint32_t> axes, bool across = false);
  void end_loop();  // the loop stands after everything that was emitted before it or hoisted out of it
  bool in_loop() const { return scopes_.size() > 1; }

  uint32_t emit(Inst inst);  // returns the value
  Type type_of(uint32_t v) const { return (*insts_)[v].type; }
  const Inst& inst(uint32_t v) const { return (*insts_)[v]; }
  void set_origin(uint32_t origin) { origin_ = origin; }

  // ---- values. Operands must have the types that the op wants; see verify.hpp.
  uint32_t constant(Type t, double x);
  uint32_t constant(Type t, int64_t x);
  uint32_t constant_of_bits(Type t, uint64_t bits);
  uint32_t boolean(bool b) { return constant_of_bits(Type::Bool, b ? 1 : 0); }
  uint32_t index(Expr e);
  uint32_t load(uint32_t buffer, Type t, Expr at, uint32_t predicate = kNone, uint32_t otherwise = kNone);
  uint32_t unary(Op op, uint32_t a);
  uint32_t binary(Op op, uint32_t a, uint32_t b);
  uint32_t select(uint32_t c, uint32_t a, uint32_t b);
  uint32_t fma(uint32_t a, uint32_t b, uint32_t c);
  uint32_t convert(uint32_t a, Type to, bool exact = false);
  uint32_t bitcast(uint32_t a, Type to);
  uint32_t lookup(std::string_view table, uint32_t index);
  uint32_t call(std::string_view function, std::initializer_list<uint32_t> args);
  uint32_t reduce(ReduceKind kind, uint32_t a, uint32_t b = kNone);
  uint32_t second(uint32_t reduction);
  void store(uint32_t buffer, Expr at, uint32_t value, uint32_t predicate = kNone);
  void check(uint32_t holds, uint32_t fault);
  // Scope of a value: 0 outside loops.
  uint32_t depth(uint32_t v) const { return depth_[v]; }

 private:
  using Key = std::tuple<uint8_t, uint8_t, bool, uint32_t, uint32_t, uint32_t, uint64_t, Expr, uint32_t>;
  struct Scope {
    std::vector<Item>* body;
    std::vector<uint32_t> axes;
    std::map<Key, uint32_t> known;
  };
  void open(std::vector<Item>* body, std::vector<uint32_t> axes) { scopes_.push_back({body, std::move(axes), {}}); }
  uint32_t place(const Inst& inst) const;
  // A constant of bool that says so.
  bool is_known(uint32_t v, bool value) const {
    return inst(v).op == Op::Const && inst(v).type == Type::Bool && (inst(v).bits != 0) == value;
  }

  std::vector<Inst>* insts_;
  IndexPool* pool_;
  Kernel* kernel_ = nullptr;
  std::vector<Scope> scopes_;
  std::vector<Item> loop_body_;
  bool across_ = false;  // of the open loop
  std::vector<uint32_t> depth_;
  std::vector<Range> ranges_;  // of every value, in a kernel
  uint32_t origin_ = kNone;
};

// A value with operators, for formulas: Ex y = x * x + 1.0.
struct Ex {
  Builder* b;
  uint32_t v;
  Type type() const { return b->type_of(v); }
  Ex lit(double x) const { return {b, b->constant(type(), x)}; }
  Ex lit(int64_t x) const { return {b, b->constant(type(), x)}; }
  Ex to(Type t) const { return {b, b->convert(v, t)}; }
  Ex as(Type t) const { return {b, b->bitcast(v, t)}; }
};
inline Ex operator+(Ex x, Ex y) { return {x.b, x.b->binary(Op::Add, x.v, y.v)}; }
inline Ex operator-(Ex x, Ex y) { return {x.b, x.b->binary(Op::Sub, x.v, y.v)}; }
inline Ex operator*(Ex x, Ex y) { return {x.b, x.b->binary(Op::Mul, x.v, y.v)}; }
inline Ex operator/(Ex x, Ex y) { return {x.b, x.b->binary(Op::Div, x.v, y.v)}; }
inline Ex operator&(Ex x, Ex y) { return {x.b, x.b->binary(Op::And, x.v, y.v)}; }
inline Ex operator|(Ex x, Ex y) { return {x.b, x.b->binary(Op::Or, x.v, y.v)}; }
inline Ex operator^(Ex x, Ex y) { return {x.b, x.b->binary(Op::Xor, x.v, y.v)}; }
inline Ex operator<<(Ex x, int64_t n) { return {x.b, x.b->binary(Op::Shl, x.v, x.lit(n).v)}; }
inline Ex operator>>(Ex x, int64_t n) { return {x.b, x.b->binary(Op::Shr, x.v, x.lit(n).v)}; }
inline Ex operator-(Ex x) { return {x.b, x.b->unary(Op::Neg, x.v)}; }
inline Ex operator!(Ex x) { return {x.b, x.b->unary(Op::Not, x.v)}; }
inline Ex operator+(Ex x, double y) { return x + x.lit(y); }
inline Ex operator-(Ex x, double y) { return x - x.lit(y); }
inline Ex operator*(Ex x, double y) { return x * x.lit(y); }
inline Ex operator/(Ex x, double y) { return x / x.lit(y); }
inline Ex operator+(double x, Ex y) { return y.lit(x) + y; }
inline Ex operator-(double x, Ex y) { return y.lit(x) - y; }
inline Ex operator*(double x, Ex y) { return y.lit(x) * y; }
inline Ex operator/(double x, Ex y) { return y.lit(x) / y; }
inline Ex eq(Ex x, Ex y) { return {x.b, x.b->binary(Op::Eq, x.v, y.v)}; }
inline Ex ne(Ex x, Ex y) { return {x.b, x.b->binary(Op::Ne, x.v, y.v)}; }
inline Ex operator<(Ex x, Ex y) { return {x.b, x.b->binary(Op::Lt, x.v, y.v)}; }
inline Ex operator<=(Ex x, Ex y) { return {x.b, x.b->binary(Op::Le, x.v, y.v)}; }
inline Ex operator>(Ex x, Ex y) { return {x.b, x.b->binary(Op::Gt, x.v, y.v)}; }
inline Ex operator>=(Ex x, Ex y) { return {x.b, x.b->binary(Op::Ge, x.v, y.v)}; }
inline Ex eq(Ex x, double y) { return eq(x, x.lit(y)); }
inline Ex ne(Ex x, double y) { return ne(x, x.lit(y)); }
inline Ex operator<(Ex x, double y) { return x < x.lit(y); }
inline Ex operator<=(Ex x, double y) { return x <= x.lit(y); }
inline Ex operator>(Ex x, double y) { return x > x.lit(y); }
inline Ex operator>=(Ex x, double y) { return x >= x.lit(y); }
inline Ex select(Ex c, Ex a, Ex b) { return {a.b, a.b->select(c.v, a.v, b.v)}; }
inline Ex select(Ex c, Ex a, double b) { return select(c, a, a.lit(b)); }
inline Ex select(Ex c, double a, Ex b) { return select(c, b.lit(a), b); }
inline Ex fma(Ex a, Ex x, Ex y) { return {a.b, a.b->fma(a.v, x.v, y.v)}; }
inline Ex abs(Ex x) { return {x.b, x.b->unary(Op::Abs, x.v)}; }
inline Ex sqrt(Ex x) { return {x.b, x.b->unary(Op::Sqrt, x.v)}; }
inline Ex call(std::string_view f, Ex x) { return {x.b, x.b->call(f, {x.v})}; }
inline Ex call(std::string_view f, Ex x, Ex y) { return {x.b, x.b->call(f, {x.v, y.v})}; }

}  // namespace tessera::kit
