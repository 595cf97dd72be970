// SPDX-License-Identifier: Apache-2.0
// Shape arithmetic. Exporters compute shapes in the graph: Shape, Gather, Concat, Mul ... up to a Reshape. Where the elements
// are sizes that are known, maybe as symbols, such nodes are computed here and leave no trace.
#include <algorithm>

#include "dynamic.hpp"
#include "importer.hpp"

namespace tessera::onnx {
namespace {

constexpr size_t kMost = 4096;

bool index_dtype(tsr_dtype d) { return d == TSR_I64 || d == TSR_I32; }

class Arithmetic {
 public:
  explicit Arithmetic(Op& op) : op_(op), b_(op.b) {}

  bool run() {
    const std::string_view name = op_.node.op_type;
    if (name == "Shape") return shape();
    if (name == "Size") return set({b_.elements(op_.in(0))}, 0, TSR_I64);
    for (const auto& [n, f] : kUnary)
      if (name == n) return op_.num_inputs() >= 1 && (this->*f)();
    for (const auto& [n, f] : kBinary)
      if (name == n) return binary(f);
    return false;
  }

 private:
  using Unary = bool (Arithmetic::*)();
  using Binary = bool (Arithmetic::*)(tsr_dim, tsr_dim, tsr_dim*);

  // Elements of input i, when they are known and few.
  bool elements(size_t i, Dims* out) {
    if (!op_.has(i)) return false;
    const V v = op_.in(i);
    if (!index_dtype(v.dtype()) && v.dtype() != TSR_BOOL) return false;
    auto d = b_.peek(v);
    if (!d || d->size() > kMost) return false;
    *out = std::move(*d);
    return true;
  }
  bool set(Dims d, int64_t rank, tsr_dtype dtype) {
    if (dtype == TSR_I32)
      for (const tsr_dim x : d)
        if (Build::is_number(x) && (x < INT32_MIN || x > INT32_MAX)) return false;
    op_.out(b_.known(std::move(d), rank, dtype));
    return true;
  }
  bool set_like(Dims d, const V& like) { return set(std::move(d), like.rank(), like.dtype()); }

  bool shape() {
    const V x = op_.in(0);
    const int64_t r = x.rank();
    const auto clip = [r](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + r : v, 0, r); };
    const int64_t start = clip(op_.i("start", 0)), end = clip(op_.i("end", r));
    const Dims& s = x.sizes();
    return set(start < end ? Dims(s.begin() + start, s.begin() + end) : Dims{}, 1, TSR_I64);
  }

  bool identity() {
    Dims d;
    return elements(0, &d) && set_like(d, op_.in(0));
  }
  bool cast() {
    Dims d;
    const tsr_dtype to = dtype_of(static_cast<DataType>(op_.version >= 6 ? op_.i("to", 0) : 0));
    if (!index_dtype(to) || !elements(0, &d)) return false;
    return set(std::move(d), op_.in(0).rank(), to);
  }
  bool neg() {
    Dims d;
    if (!elements(0, &d) || op_.in(0).dtype() == TSR_BOOL) return false;
    for (tsr_dim& x : d) x = b_.sub(0, x);
    return set_like(std::move(d), op_.in(0));
  }
  bool logical_not() {
    Dims d;
    if (!elements(0, &d)) return false;
    for (tsr_dim& x : d) x = x == 0;
    return set_like(std::move(d), op_.in(0));
  }
  bool unsqueeze() {
    Dims d;
    return elements(0, &d) && op_.in(0).rank() == 0 && count_axes(1) && set(std::move(d), 1, op_.in(0).dtype());
  }
  bool squeeze() {
    Dims d;
    return elements(0, &d) && op_.in(0).rank() == 1 && d.size() == 1 && set(std::move(d), 0, op_.in(0).dtype());
  }
  // Do the axes, an attribute before version 13 and an input since, have n entries?
  bool count_axes(size_t n) {
    if (op_.version < 13) return op_.ints("axes", Ints{}).size() == n;
    Dims a;
    return elements(1, &a) && a.size() == n;
  }
  bool reshape() {
    Dims d, to;
    if (!elements(0, &d)) return false;
    if (op_.version < 5)
      to = op_.ints("shape", Ints{});
    else if (!elements(1, &to))
      return false;
    const auto n = static_cast<int64_t>(d.size());
    if (to.empty() && n == 1) return set(std::move(d), 0, op_.in(0).dtype());
    return to.size() == 1 && (to[0] == -1 || to[0] == n) && set(std::move(d), 1, op_.in(0).dtype());
  }
  bool concat() {
    Dims all;
    const auto inputs = op_.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      Dims d;
      if (!elements(i, &d) || op_.in(i).rank() != 1) return false;
      all.insert(all.end(), d.begin(), d.end());
    }
    return all.size() <= kMost && set(std::move(all), 1, op_.in(0).dtype());
  }
  bool gather() {
    Dims d, index, out;
    if (!elements(0, &d) || !elements(1, &index) || op_.in(0).rank() != 1) return false;
    const auto n = static_cast<int64_t>(d.size());
    for (const tsr_dim i : index) {
      if (!Build::is_number(i) || i < -n || i >= n) return false;
      out.push_back(d[static_cast<size_t>(i < 0 ? i + n : i)]);
    }
    return set(std::move(out), op_.in(1).rank(), op_.in(0).dtype());
  }
  bool slice() {
    Dims d, starts, ends, steps = {1}, axes = {0};
    if (!elements(0, &d) || op_.in(0).rank() != 1) return false;
    if (op_.version < 10) {
      starts = bounds(op_, "starts");
      ends = bounds(op_, "ends");
    } else {
      const auto read = [&](size_t i, Dims* out) {
        const auto k = op_.has(i) ? bounds(op_, i) : std::nullopt;
        if (k) *out = *k;
        return k.has_value();
      };
      if (!read(1, &starts) || !read(2, &ends) || (op_.has(3) && !elements(3, &axes)) || (op_.has(4) && !read(4, &steps)))
        return false;
    }
    if (starts.size() != 1 || ends.size() != 1 || steps.size() != 1 || axes.size() != 1 || !Build::are_numbers(starts) ||
        !Build::are_numbers(ends) || !Build::are_numbers(steps) || steps[0] == 0)
      return false;
    const auto n = static_cast<int64_t>(d.size());
    const int64_t step = steps[0];
    const auto wrap = [n](int64_t v) { return v < 0 ? v + n : v; };
    const int64_t start = std::min(std::max<int64_t>(wrap(starts[0]), 0), step < 0 ? n - 1 : n);
    const int64_t end = std::clamp<int64_t>(wrap(ends[0]), step < 0 ? -1 : 0, n);
    Dims out;
    for (int64_t i = start; step > 0 ? i < end : i > end; i += step) {
      out.push_back(d[static_cast<size_t>(i)]);
      if (step > n || step < -n) break;
    }
    return set(std::move(out), 1, op_.in(0).dtype());
  }
  bool range() {
    Dims a, e, s;
    if (!elements(0, &a) || !elements(1, &e) || !elements(2, &s) || a.size() != 1 || e.size() != 1 || s.size() != 1)
      return false;
    if (!Build::is_number(a[0]) || !Build::is_number(e[0]) || !Build::is_number(s[0]) || s[0] == 0) return false;
    if (std::abs(static_cast<double>(e[0]) - static_cast<double>(a[0])) / std::abs(static_cast<double>(s[0])) > kMost)
      return false;
    Dims out;
    for (int64_t v = a[0]; s[0] > 0 ? v < e[0] : v > e[0];) {
      out.push_back(v);
      if (__builtin_add_overflow(v, s[0], &v)) break;
    }
    return set(std::move(out), 1, op_.in(0).dtype());
  }
  bool constant_of_shape() {
    Dims shape, value = {0};
    if (!elements(0, &shape) || shape.size() > 1 || !Build::are_numbers(shape)) return false;
    tsr_dtype dtype = TSR_F32;
    if (op_.has_attr("value")) {
      const V v = op_.tensor("value");
      dtype = v.dtype();
      const auto k = index_dtype(dtype) ? b_.peek(v) : std::nullopt;
      if (!k || k->size() != 1) return false;
      value = *k;
    }
    const int64_t n = shape.empty() ? 1 : shape[0];
    if (!index_dtype(dtype) || n < 0 || n > static_cast<int64_t>(kMost)) return false;
    return set(Dims(static_cast<size_t>(n), value[0]), shape.empty() ? 0 : 1, dtype);
  }
  bool where() {
    Dims c, x, y;
    if (!elements(0, &c) || !elements(1, &x) || !elements(2, &y)) return false;
    const size_t n = std::max({c.size(), x.size(), y.size()});
    const int64_t rank = std::max({op_.in(0).rank(), op_.in(1).rank(), op_.in(2).rank()});
    const auto fits = [n](const Dims& d) { return d.size() == n || d.size() == 1; };
    if (!fits(c) || !fits(x) || !fits(y) || !Build::are_numbers(c)) return false;
    Dims out(n);
    for (size_t i = 0; i < n; ++i) out[i] = c[c.size() == 1 ? 0 : i] ? x[x.size() == 1 ? 0 : i] : y[y.size() == 1 ? 0 : i];
    return set(std::move(out), rank, op_.in(1).dtype());
  }
  bool reduce(tsr_dim_op f, tsr_dim empty) {
    Dims d;
    if (!elements(0, &d) || op_.in(0).rank() != 1 || op_.in(0).dtype() == TSR_BOOL) return false;
    if (op_.num_inputs() > 1 && op_.flag("noop_with_empty_axes")) return false;
    if ((f == TSR_DIM_MIN || f == TSR_DIM_MAX) && d.empty()) return false;
    tsr_dim r = f == TSR_DIM_MIN || f == TSR_DIM_MAX ? d[0] : empty;
    for (const tsr_dim x : d) r = b_.graph().dim(f, r, x);
    return set({r}, op_.flag("keepdims", true) ? 1 : 0, op_.in(0).dtype());
  }
  bool reduce_prod() { return reduce(TSR_DIM_MUL, 1); }
  bool reduce_sum() { return reduce(TSR_DIM_ADD, 0); }
  bool reduce_max() { return reduce(TSR_DIM_MAX, 0); }
  bool reduce_min() { return reduce(TSR_DIM_MIN, 0); }

  bool binary(Binary f) {
    Dims x, y;
    if (op_.num_inputs() != 2 || op_.version < 7 || !elements(0, &x) || !elements(1, &y)) return false;
    if (x.size() != y.size() && x.size() != 1 && y.size() != 1) return false;
    const size_t n = x.size() == 1 ? y.size() : x.size();
    Dims out(n);
    for (size_t i = 0; i < n; ++i)
      if (!(this->*f)(x[x.size() == 1 ? 0 : i], y[y.size() == 1 ? 0 : i], &out[i])) return false;
    const std::string_view name = op_.node.op_type;
    const bool compares =
        name == "Equal" || name == "Less" || name == "LessOrEqual" || name == "Greater" || name == "GreaterOrEqual";
    return set(std::move(out), std::max(op_.in(0).rank(), op_.in(1).rank()), compares ? TSR_BOOL : op_.in(0).dtype());
  }
  bool numeric() const { return op_.in(0).dtype() != TSR_BOOL; }
  bool add(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && (*r = b_.add(a, c), true); }
  bool sub(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && (*r = b_.sub(a, c), true); }
  bool mul(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && (*r = b_.mul(a, c), true); }
  bool min(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && (*r = b_.min(a, c), true); }
  bool max(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && (*r = b_.max(a, c), true); }
  // Truncation is rounding down where nothing is negative.
  bool natural(tsr_dim a, tsr_dim c) const { return numeric() && b_.proven(TSR_GE, a, 0) && b_.proven(TSR_GT, c, 0); }
  bool div(tsr_dim a, tsr_dim c, tsr_dim* r) {
    if (Build::is_number(a) && Build::is_number(c) && c != 0 && c != -1 && numeric()) return *r = a / c, true;
    return natural(a, c) && (*r = b_.floordiv(a, c), true);
  }
  bool mod(tsr_dim a, tsr_dim c, tsr_dim* r) { return natural(a, c) && (*r = b_.graph().dim(TSR_DIM_MOD, a, c), true); }
  bool relation(tsr_relation rel, tsr_dim a, tsr_dim c, tsr_dim* r) {
    tsr_truth t = b_.graph().compare(rel, a, c);
    if (t == TSR_UNKNOWN) t = decided_by_call(rel, a, c);
    return t != TSR_UNKNOWN && (*r = t == TSR_TRUE, true);
  }
  // A branch depends on these sizes, so what the call says of them becomes an assumption of the graph.
  tsr_truth decided_by_call(tsr_relation rel, tsr_dim a, tsr_dim c) {
    const auto x = op_.importer.size_in_call(a), y = op_.importer.size_in_call(c);
    if (!x || !y) return TSR_UNKNOWN;
    struct Decision {
      bool holds;
      tsr_relation negation;
    };
    const auto decide = [&]() -> Decision {
      switch (rel) {
        case TSR_EQ: return {*x == *y, TSR_NE};
        case TSR_LT: return {*x < *y, TSR_GE};
        case TSR_LE: return {*x <= *y, TSR_GT};
        case TSR_GT: return {*x > *y, TSR_LE};
        default: return {*x >= *y, TSR_LT};
      }
    };
    const Decision d = decide();
    b_.graph().require(d.holds ? rel : d.negation, a, c, "a branch of the model depends on it");
    return d.holds ? TSR_TRUE : TSR_FALSE;
  }
  bool eq(tsr_dim a, tsr_dim c, tsr_dim* r) { return relation(TSR_EQ, a, c, r); }
  bool lt(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && relation(TSR_LT, a, c, r); }
  bool le(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && relation(TSR_LE, a, c, r); }
  bool gt(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && relation(TSR_GT, a, c, r); }
  bool ge(tsr_dim a, tsr_dim c, tsr_dim* r) { return numeric() && relation(TSR_GE, a, c, r); }
  bool both(tsr_dim a, tsr_dim c, tsr_dim* r) { return *r = a != 0 && c != 0, true; }
  bool either(tsr_dim a, tsr_dim c, tsr_dim* r) { return *r = a != 0 || c != 0, true; }

  static constexpr std::pair<const char*, Unary> kUnary[] = {{"Identity", &Arithmetic::identity},
                                                             {"Cast", &Arithmetic::cast},
                                                             {"Neg", &Arithmetic::neg},
                                                             {"Not", &Arithmetic::logical_not},
                                                             {"Unsqueeze", &Arithmetic::unsqueeze},
                                                             {"Squeeze", &Arithmetic::squeeze},
                                                             {"Reshape", &Arithmetic::reshape},
                                                             {"Concat", &Arithmetic::concat},
                                                             {"Gather", &Arithmetic::gather},
                                                             {"Slice", &Arithmetic::slice},
                                                             {"Range", &Arithmetic::range},
                                                             {"ConstantOfShape", &Arithmetic::constant_of_shape},
                                                             {"Where", &Arithmetic::where},
                                                             {"ReduceProd", &Arithmetic::reduce_prod},
                                                             {"ReduceSum", &Arithmetic::reduce_sum},
                                                             {"ReduceMax", &Arithmetic::reduce_max},
                                                             {"ReduceMin", &Arithmetic::reduce_min}};
  static constexpr std::pair<const char*, Binary> kBinary[] = {
      {"Add", &Arithmetic::add},    {"Sub", &Arithmetic::sub},        {"Mul", &Arithmetic::mul},
      {"Div", &Arithmetic::div},    {"Mod", &Arithmetic::mod},        {"Min", &Arithmetic::min},
      {"Max", &Arithmetic::max},    {"Equal", &Arithmetic::eq},       {"Less", &Arithmetic::lt},
      {"Greater", &Arithmetic::gt}, {"LessOrEqual", &Arithmetic::le}, {"GreaterOrEqual", &Arithmetic::ge},
      {"And", &Arithmetic::both},   {"Or", &Arithmetic::either}};

  Op& op_;
  Build& b_;
};

}  // namespace

bool translate_known(Op& op) {
  if (!op.node.domain.empty() && op.node.domain != "ai.onnx") return false;
  if (op.node.outputs.size() != 1) return false;
  try {
    return Arithmetic(op).run();
  } catch (const sdk::Error& e) {
    if (e.code.starts_with("TSR-S")) return false;  // overflow, division by zero: left to run time
    throw;
  }
}

}  // namespace tessera::onnx
