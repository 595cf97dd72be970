// SPDX-License-Identifier: Apache-2.0
// Symbolic numbers.
#include "sym.hpp"

#include <algorithm>

#include "runtime.hpp"
#include "tessera/compile.hpp"
#include "tessera/size_hints.hpp"
#include "trace.hpp"

namespace tessera {

namespace {

using sdk::hint_of;

std::string why(std::source_location where, const char* otherwise) {
  return where.line() ? detail::text(where) + " in size" : otherwise;
}

SymInt combine(tsr_dim_op op, SymInt a, SymInt b) {
  tsr_graph* g = a.graph() ? a.graph() : b.graph();
  if (!g || (!a.is_symbolic() && !b.is_symbolic())) {
    const int64_t x = a.raw(), y = b.raw();
    int64_t r = 0;
    bool overflow = false;
    switch (op) {
      case TSR_DIM_ADD: overflow = __builtin_add_overflow(x, y, &r); break;
      case TSR_DIM_SUB: overflow = __builtin_sub_overflow(x, y, &r); break;
      case TSR_DIM_MUL: overflow = __builtin_mul_overflow(x, y, &r); break;
      default:
        if (y == 0) detail::fail("TSR-S003", "a size is divided by zero");
        r = x / y - (x % y != 0 && ((x < 0) != (y < 0)));
        if (op == TSR_DIM_MOD) r = x - r * y;
    }
    if (overflow) detail::fail("TSR-S001", "size arithmetic overflows 64 bits", "use smaller sizes");
    return SymInt(r);
  }
  tsr_dim out = 0;
  detail::check(detail::graph_api().dim(g, op, a.dim(), b.dim(), &out));
  return TSR_DIM_IS_EXPR(out) ? SymInt(out, g, a.where().line() ? a.where() : b.where()) : SymInt(static_cast<int64_t>(out));
}

}  // namespace

void SymInt::used() const {
  if (const detail::Trace* trace = detail::current_trace())
    detail::api().host->capture->scalar_used(trace->recorder, arg_ - 1, 0, nullptr);
}

tsr_dim SymInt::dim() const {
  const tsr_dim d = raw();
  if (g_ == nullptr && TSR_DIM_IS_EXPR(d))
    detail::fail("TSR-S001", "the number " + std::to_string(d) + " is too small to be computed with sizes",
                 "use numbers of at least " + std::to_string(INT64_MIN + (int64_t{1} << 32)));
  return d;
}

SymInt::operator int64_t() const {
  if (!is_symbolic()) return d_;
  auto hint = hint_of(*detail::graph_api().tables(g_), d_);
  if (!hint && detail::break_for_size(g_, where_)) hint = hint_of(*detail::graph_api().tables(g_), d_);
  if (!hint)
    detail::fail("TSR-G002", "the size " + str() + " depends on data, or is marked unbacked, but host code asks for its value",
                 "keep it symbolic (do not convert it to int64_t), or compute it outside the compiled function");
  detail::check(
      detail::graph_api().dim_require(g_, TSR_EQ, d_, *hint, why(where_, "host code read this size as a number").c_str()));
  return *hint;
}

std::string SymInt::str() const {
  if (g_ == nullptr || !TSR_DIM_IS_EXPR(d_)) return std::to_string(d_);
  return sdk::size_text(*detail::graph_api().tables(g_), d_);
}

SymInt operator+(SymInt a, SymInt b) { return combine(TSR_DIM_ADD, a, b); }
SymInt operator-(SymInt a, SymInt b) { return combine(TSR_DIM_SUB, a, b); }
SymInt operator*(SymInt a, SymInt b) { return combine(TSR_DIM_MUL, a, b); }
SymInt operator/(SymInt a, SymInt b) { return combine(TSR_DIM_FLOORDIV, a, b); }
SymInt operator%(SymInt a, SymInt b) { return combine(TSR_DIM_MOD, a, b); }

namespace {

// The answer for the traced call holds, and becomes a guard where it is not always the same.
bool decide(tsr_relation relation, tsr_relation negated, const char* sign, SymInt a, SymInt b) {
  tsr_graph* g = a.graph() ? a.graph() : b.graph();
  const tsr_truth known = detail::graph_api().dim_compare(g, relation, a.dim(), b.dim());
  if (known != TSR_UNKNOWN) return known == TSR_TRUE;
  const tsr_tables& t = *detail::graph_api().tables(g);
  auto x = hint_of(t, a.raw()), y = hint_of(t, b.raw());
  if ((!x || !y) && detail::break_for_size(g, a.where().line() ? a.where() : b.where())) {
    const tsr_tables& now = *detail::graph_api().tables(g);
    x = hint_of(now, a.raw());
    y = hint_of(now, b.raw());
  }
  if (!x || !y)
    detail::fail(
        "TSR-G002",
        "whether " + a.str() + sign + b.str() + " depends on data or on a size marked unbacked, but host code branches on it",
        "use tessera::cond, or compute it outside the compiled function");
  const bool holds = relation == TSR_EQ ? *x == *y : relation == TSR_LT ? *x < *y : *x <= *y;
  const std::source_location where = a.where().line() ? a.where() : b.where();
  detail::check(detail::graph_api().dim_require(g, holds ? relation : negated, a.raw(), b.raw(),
                                                why(where, "host code compared these sizes").c_str()));
  return holds;
}

}  // namespace

bool operator==(SymInt a, SymInt b) {
  if (a.raw() == b.raw() && a.is_symbolic() == b.is_symbolic()) return true;
  if (!a.is_symbolic() && !b.is_symbolic()) return false;
  return decide(TSR_EQ, TSR_NE, " == ", a, b);
}
bool operator<(SymInt a, SymInt b) {
  if (!a.is_symbolic() && !b.is_symbolic()) return a.raw() < b.raw();
  return decide(TSR_LT, TSR_GE, " < ", a, b);
}
bool operator<=(SymInt a, SymInt b) {
  if (!a.is_symbolic() && !b.is_symbolic()) return a.raw() <= b.raw();
  return decide(TSR_LE, TSR_GT, " <= ", a, b);
}

// --------------------------------------------------------------------------------------------------------------- floats

namespace detail {

std::string text(std::source_location where) {
  return where.line() ? std::string(where.file_name()) + ":" + std::to_string(where.line()) : std::string();
}

SymFloat SymNode::wrap(std::shared_ptr<const SymNode> node) {
  SymFloat f(node->number);
  f.node_ = std::move(node);
  return f;
}

namespace {
void need_alive(const SymNode& n) {
  if (!n.trace->alive)
    fail("TSR-F001", "a symbolic number of a traced function is used after the trace ended",
         "return its tensor() from the compiled function instead of storing it outside");
}
void tell(const SymNode& n, bool as_number, std::source_location where) {
  const std::string place = text(where);
  for (const uint32_t arg : n.args)
    api().host->capture->scalar_used(n.trace->recorder, arg, as_number, place.empty() ? nullptr : place.c_str());
}
}  // namespace

double read_number(const SymNode& n, std::source_location where) {
  need_alive(n);
  if (n.size.is_symbolic()) return static_cast<double>(static_cast<int64_t>(n.size));
  tell(n, true, where);
  return n.number;
}

Tensor traced_value(const SymNode& n, std::source_location where) {
  need_alive(n);
  tell(n, false, where);
  return n.value;
}

void bind_scalars(const ScalarVisitor& args) {
  const std::shared_ptr<Trace>& trace = current_trace_shared();
  const tsr_capture_api& capture = *api().host->capture;
  const auto ask = [&](uint32_t arg) {
    tsr_scalar s{};
    s.struct_size = sizeof s;
    check(capture.scalar(trace->recorder, arg, &s));
    return s;
  };
  for (const auto& [arg, n] : args.ints) {
    const tsr_scalar s = ask(arg);
    if (s.kind == TSR_SCALAR_DIM) *n = SymInt(s.dim, trace->graph);
    n->arg_ = arg + 1;
  }
  for (const auto& [arg, f] : args.floats) {
    const tsr_scalar s = ask(arg);
    auto node = std::make_shared<SymNode>();
    node->number = f->number_;
    node->args = {arg};
    node->trace = trace;
    if (s.kind == TSR_SCALAR_INPUT) node->value = make_traced(trace, s.value);
    f->node_ = std::move(node);
  }
}

bool scalars_unchanged(const ScalarVisitor& before, const ScalarVisitor& after, size_t* leaf) {
  // `before` holds what was bound, by value: the function may have moved its arguments.
  for (size_t i = 0; i < before.floats.size() && i < after.floats.size(); ++i)
    if (before.bound_floats[i].node() != after.floats[i].second->node()) return *leaf = after.floats[i].first, false;
  for (size_t i = 0; i < before.ints.size() && i < after.ints.size(); ++i)
    if (before.bound_ints[i].number() != after.ints[i].second->number()) return *leaf = after.ints[i].first, false;
  return true;
}

void settle_scalars(const ScalarVisitor& results) {
  for (const auto& [leaf, n] : results.ints) *n = SymInt(static_cast<int64_t>(*n));
  for (const auto& [leaf, f] : results.floats) *f = SymFloat(static_cast<double>(*f));
}

}  // namespace detail

double SymFloat::value(std::source_location where) const { return node_ ? detail::read_number(*node_, where) : number_; }
SymFloat::operator double() const { return value(std::source_location()); }
std::string SymFloat::str() const { return std::to_string(number_) + (node_ ? " (symbolic)" : ""); }

Tensor SymFloat::tensor(std::source_location where) const {
  if (node_)
    if (Tensor t = detail::traced_value(*node_, where); t.defined()) return t;
  return scalar(number_, f64);
}

double Scalar::read() const { return detail::read_number(*sym_, where_); }

Scalar::Scalar(const SymInt& v, std::source_location where) : kind_(kInt), where_(where) {
  if (!v.is_symbolic()) {
    i_ = v.number();
    return;
  }
  tsr_attr value{};
  value.name = "value";
  value.kind = TSR_ATTR_DIM;
  value.i = v.dim();
  auto node = std::make_shared<detail::SymNode>();
  node->value = detail::run_op1("dim_value", {}, {value});
  node->trace = detail::current_trace_shared();
  node->size = v;
  sym_ = std::move(node);
}

namespace {

// f64 arithmetic on tensors rounds as the host's does, so a symbolic number and a plain one give the same bits.
SymFloat arithmetic(const char* op, const SymFloat& a, const SymFloat::Operand& b, double number) {
  const auto &x = a.node(), &y = b.value.node();
  const Tensor s = x ? detail::traced_value(*x, b.where) : Tensor(), t = y ? detail::traced_value(*y, b.where) : Tensor();
  if (!s.defined() && !t.defined()) return SymFloat(number);  // both are guarded by value, or plain
  auto node = std::make_shared<detail::SymNode>();
  node->number = number;
  node->trace = (s.defined() ? x : y)->trace;
  for (const auto* side : {&x, &y})
    if (*side)
      for (const uint32_t arg : (*side)->args)
        if (std::find(node->args.begin(), node->args.end(), arg) == node->args.end()) node->args.push_back(arg);
  node->value =
      detail::run_op1(op, {s.defined() ? s : scalar(a.number(), f64), t.defined() ? t : scalar(b.value.number(), f64)});
  return detail::SymNode::wrap(std::move(node));
}

}  // namespace

SymFloat operator+(const SymFloat& a, const SymFloat::Operand& b) {
  return arithmetic("add", a, b, a.number_ + b.value.number_);
}
SymFloat operator-(const SymFloat& a, const SymFloat::Operand& b) {
  return arithmetic("sub", a, b, a.number_ - b.value.number_);
}
SymFloat operator*(const SymFloat& a, const SymFloat::Operand& b) {
  return arithmetic("mul", a, b, a.number_ * b.value.number_);
}
SymFloat operator/(const SymFloat& a, const SymFloat::Operand& b) {
  return arithmetic("div", a, b, a.number_ / b.value.number_);
}
SymFloat SymFloat::operator-() const { return *this * -1.0; }

#define TESSERA_COMPARE(op) \
  bool operator op(const SymFloat& a, const SymFloat::Operand& b) { return a.value(b.where) op b.value.value(b.where); }
TESSERA_COMPARE(==)
TESSERA_COMPARE(<)
TESSERA_COMPARE(<=)
TESSERA_COMPARE(>)
TESSERA_COMPARE(>=)
#undef TESSERA_COMPARE

}  // namespace tessera
