// SPDX-License-Identifier: Apache-2.0
// Numbers that a compiled function may keep symbolic: sizes and integers (SymInt), floats (SymFloat). Outside a trace they are
// plain numbers. A plain int64_t or double argument cannot be watched while the function runs, so its value is always a guard;
// these can.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>

#include "tessera/abi.h"

namespace tessera {

class Tensor;
class SymFloat;

namespace detail {
struct SymNode;  // a symbolic number of a trace
struct ScalarVisitor;
void bind_scalars(const ScalarVisitor& args);
}  // namespace detail

// A size or an integer argument: a number, or while a dynamic program is traced an expression over symbols. Arithmetic keeps it
// symbolic. Reading it as a number (int64_t(n)) or branching on a comparison specialises the program: what was seen becomes a
// guard, with the line where the size was asked for. An integer argument is guarded by value until it changes (dynamic = auto),
// a symbol afterwards; one that is negative, 0 or 1 stays a number.
class SymInt {
 public:
  SymInt(int64_t v) : d_(v) {}
  SymInt(int v) : d_(v) {}
  SymInt(unsigned v) : d_(v) {}
  SymInt(unsigned long v) : d_(static_cast<int64_t>(v)) {}
  SymInt(tsr_dim d, tsr_graph* g, std::source_location where = {}) : d_(d), g_(g), where_(where) {}
  bool is_symbolic() const {
    const tsr_dim d = raw();
    return g_ != nullptr && TSR_DIM_IS_EXPR(d);  // a plain number may be any
  }
  operator int64_t() const;
  tsr_dim raw() const {
    if (arg_) [[unlikely]]
      used();
    return d_;
  }
  // raw() for the graph, which takes the lowest 2^32 numbers for handles: such a plain number is TSR-S001.
  tsr_dim dim() const;
  tsr_graph* graph() const { return g_; }
  std::source_location where() const { return where_; }  // where it was asked for; line 0: unknown
  std::string str() const;

  friend SymInt operator+(SymInt a, SymInt b);
  friend SymInt operator-(SymInt a, SymInt b);
  friend SymInt operator*(SymInt a, SymInt b);
  friend SymInt operator/(SymInt a, SymInt b);  // floor
  friend SymInt operator%(SymInt a, SymInt b);
  // Decided by ranges where possible, else by a guard.
  friend bool operator==(SymInt a, SymInt b);
  friend bool operator<(SymInt a, SymInt b);
  friend bool operator<=(SymInt a, SymInt b);
  friend bool operator>(SymInt a, SymInt b) { return b < a; }
  friend bool operator>=(SymInt a, SymInt b) { return b <= a; }

 private:
  friend void detail::bind_scalars(const detail::ScalarVisitor&);
  void used()
      const;  // tells the trace that an argument has been looked at: its value, or the range of its symbol, becomes a guard

  tsr_dim d_;
  tsr_graph* g_ = nullptr;
  std::source_location where_;
  uint32_t arg_ = 0;  // 1 + the leaf of the argument whose value this is, while it is guarded by value

 public:
  int64_t number() const { return d_; }  // for the frontend: without telling the trace
};
// Exact matches, so that `n + 1` does not choose between SymInt and the built-in int64_t operators.
#define TESSERA_SYM_INT(result, op)              \
  template <std::integral I>                     \
  result operator op(SymInt a, I b) {            \
    return a op SymInt(static_cast<int64_t>(b)); \
  }                                              \
  template <std::integral I>                     \
  result operator op(I a, SymInt b) {            \
    return SymInt(static_cast<int64_t>(a)) op b; \
  }
TESSERA_SYM_INT(SymInt, +)
TESSERA_SYM_INT(SymInt, -)
TESSERA_SYM_INT(SymInt, *)
TESSERA_SYM_INT(SymInt, /)
TESSERA_SYM_INT(SymInt, %)
TESSERA_SYM_INT(bool, <)
TESSERA_SYM_INT(bool, <=)
TESSERA_SYM_INT(bool, >)
TESSERA_SYM_INT(bool, >=)
#undef TESSERA_SYM_INT
template <std::integral I>
bool operator==(SymInt a, I b) {
  return a == SymInt(static_cast<int64_t>(b));
}

// A float argument: f(x, SymFloat c) called as f(x, 0.5). While it is traced it is a 0-d f64 input of the graph, so that
// another value needs no new entry; guards.specialize_float = true guards it by value until its first change instead.
// Arithmetic with tensors (weak in promotion, as a number is) and with numbers is recorded. Reading it as a number or comparing
// it specialises: its value becomes a guard that names the line.
class SymFloat {
 public:
  SymFloat(double v = 0) : number_(v) {}
  template <std::integral I>
  SymFloat(I v) : number_(static_cast<double>(v)) {}
  bool is_symbolic() const { return node_ != nullptr; }
  double value(std::source_location where = std::source_location::current()) const;
  explicit operator double() const;
  explicit operator float() const { return static_cast<float>(static_cast<double>(*this)); }
  Tensor tensor(std::source_location where = std::source_location::current()) const;  // f64[]
  std::string str() const;

  // The other side of an operator, with the line where it stands.
  struct Operand;
  friend SymFloat operator+(const SymFloat& a, const Operand& b);
  friend SymFloat operator-(const SymFloat& a, const Operand& b);
  friend SymFloat operator*(const SymFloat& a, const Operand& b);
  friend SymFloat operator/(const SymFloat& a, const Operand& b);
  friend bool operator==(const SymFloat& a, const Operand& b);
  friend bool operator<(const SymFloat& a, const Operand& b);
  friend bool operator<=(const SymFloat& a, const Operand& b);
  friend bool operator>(const SymFloat& a, const Operand& b);
  friend bool operator>=(const SymFloat& a, const Operand& b);
  SymFloat operator-() const;

  // ---- for the frontend
  const std::shared_ptr<const detail::SymNode>& node() const { return node_; }
  double number() const { return number_; }  // without telling the trace

 private:
  friend void detail::bind_scalars(const detail::ScalarVisitor&);
  friend struct detail::SymNode;
  double number_;
  std::shared_ptr<const detail::SymNode> node_;  // null: a plain number
};
struct SymFloat::Operand {
  SymFloat value;
  std::source_location where;
  Operand(const SymFloat& v, std::source_location w = std::source_location::current()) : value(v), where(w) {}
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T v, std::source_location w = std::source_location::current())
      : value(static_cast<double>(v)), where(w) {}
};
#define TESSERA_SYM_FLOAT(result, op)                                                        \
  template <class T>                                                                         \
  requires std::is_arithmetic_v<T> result operator op(T a, const SymFloat& b) {              \
    return SymFloat(static_cast<double>(a)) op SymFloat::Operand(b, std::source_location()); \
  }
TESSERA_SYM_FLOAT(SymFloat, +)
TESSERA_SYM_FLOAT(SymFloat, -)
TESSERA_SYM_FLOAT(SymFloat, *)
TESSERA_SYM_FLOAT(SymFloat, /)
TESSERA_SYM_FLOAT(bool, <)
TESSERA_SYM_FLOAT(bool, <=)
TESSERA_SYM_FLOAT(bool, >)
TESSERA_SYM_FLOAT(bool, >=)
#undef TESSERA_SYM_FLOAT

}  // namespace tessera
