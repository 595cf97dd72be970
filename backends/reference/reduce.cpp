// SPDX-License-Identifier: Apache-2.0
// Reductions, arg-reductions, scans along an axis.
#include <cmath>
#include <limits>

#include "accumulate.hpp"
#include "op.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

// x with the reduced axes last: [kept..., reduced...]. The kept ones in order number the result's elements, with or without
// keepdims.
struct Split {
  Tensor x;
  Index kept, reduced;

  Split(const Tensor& t, const Index& axes) {
    Index perm, last;
    for (int64_t d = 0; d < t.rank(); ++d) {
      if (axes.has(d)) {
        last.push(d);
        reduced.push(t.size(d));
      } else {
        perm.push(d);
        kept.push(t.size(d));
      }
    }
    x = t.permute(perm.append(last));
  }
  int64_t offset(const Index& k, const Index& r) const {
    Index i = k;
    return x.offset(i.append(r));
  }
};

// One result per kept index: acc = start; acc = step(acc, element) over the reduced ones; finish(acc, count).
template <class T, class Step, class Finish>
void fold(const Op& op, const Index& axes, T start, Step step, Finish finish) {
  const Split s(op.in(0), axes);
  const Tensor y = op.out();
  const int64_t count = product(s.reduced);
  for (Walk k(s.kept); k; k.next()) {
    T acc = start;
    for (Walk r(s.reduced); r; r.next()) acc = step(acc, s.x.get<T>(s.offset(k.index(), r.index())));
    y.put<T>(y.offset_of(k.position()), finish(acc, count));
  }
}
template <class T, class Step>
void fold(const Op& op, T start, Step step) {
  fold<T>(op, op.axes("axes", op.in(0).rank()), start, step, [](T acc, int64_t) { return acc; });
}

// The same with an accumulator class.
template <class Accumulator, class T, class Term, class Finish>
void accumulate(const Op& op, const Index& axes, Term term, Finish finish) {
  const Split s(op.in(0), axes);
  const Tensor y = op.out();
  const int64_t count = product(s.reduced);
  for (Walk k(s.kept); k; k.next()) {
    Accumulator acc;
    for (Walk r(s.reduced); r; r.next()) acc.add(term(s.x.get<T>(s.offset(k.index(), r.index()))));
    y.put<T>(y.offset_of(k.position()), finish(acc.value(), count));
  }
}
constexpr auto itself = [](auto v) { return v; };
constexpr auto as_it_is = [](auto v, int64_t) { return v; };

void reduce_sum(const Op& op) {
  const Index axes = op.axes("axes", op.in(0).rank());
  with_domain(op.in(0).dtype(), [&]<class T>() { accumulate<Sum<T>, T>(op, axes, itself, as_it_is); });
}
void reduce_prod(const Op& op) {
  const Index axes = op.axes("axes", op.in(0).rank());
  with_domain(op.in(0).dtype(), [&]<class T>() { accumulate<Product<T>, T>(op, axes, itself, as_it_is); });
}
void reduce_any(const Op& op) {
  fold<Int>(op, 0, [](Int a, Int b) -> Int { return a || b; });
}
void reduce_all(const Op& op) {
  fold<Int>(op, 1, [](Int a, Int b) -> Int { return a && b; });
}

// The lowest or highest value of a dtype: infinite where the format has infinities.
template <class T>
T extreme(uint32_t dtype, bool lowest);
template <>
double extreme<double>(uint32_t dtype, bool lowest) {
  if (dtype == TSR_F8E8M0) return lowest ? 0x1p-127 : 0x1p127;
  unsigned char probe[16] = {};  // room for any dtype
  store_from(dtype, probe, 0, lowest ? -inf : inf);
  const double v = load_as<double>(dtype, probe, 0);
  if (!std::isnan(v)) return v;  // infinite, or saturated
  store_from(dtype, probe, 0, lowest ? -inf : inf, Overflow::Saturate);
  return load_as<double>(dtype, probe, 0);
}
template <>
Int extreme<Int>(uint32_t dtype, bool lowest) {
  if (is_bool(dtype)) return !lowest;
  const int bits = dtype_bits(dtype);
  if (is_unsigned_int(dtype)) return lowest ? Int{0} : (Int{1} << bits) - 1;
  return lowest ? -(Int{1} << (bits - 1)) : (Int{1} << (bits - 1)) - 1;
}

bool unordered(double x) { return std::isnan(x); }
bool unordered(Int) { return false; }

// NaN, once met, stays.
template <class T>
T extremum(T a, T b, bool largest) {
  if (unordered(a)) return a;
  return (largest ? a > b : a < b) ? a : b;
}
void reduce_extreme(const Op& op, bool largest) {
  const uint32_t dtype = op.in(0).dtype();
  if (domain(dtype) == Domain::Real)
    fold<double>(op, extreme<double>(dtype, largest), [=](double a, double b) { return extremum(a, b, largest); });
  else
    fold<Int>(op, extreme<Int>(dtype, largest), [=](Int a, Int b) { return extremum(a, b, largest); });
}
void reduce_max(const Op& op) { reduce_extreme(op, true); }
void reduce_min(const Op& op) { reduce_extreme(op, false); }

template <class T>
void arg_extreme(const Op& op, bool largest) {
  const Tensor x = op.in(0), y = op.out();
  Index axes;
  if (x.rank() > 0) axes.push(op.axis("axis", x.rank()));
  const Split s(x, axes);
  const int64_t n = product(s.reduced);
  if (n == 0 && product(s.kept) > 0) op.fail("TSR-R013", "the axis has no elements", "reduce over an axis of size 1 or more");
  for (Walk k(s.kept); k; k.next()) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i) {
      const auto at = [&](int64_t p) { return s.x.get<T>(s.offset(k.index(), axes.rank() ? Index{p} : Index{})); };
      const T a = at(best), b = at(i);
      if (!unordered(a) && (unordered(b) || (largest ? b > a : b < a))) best = i;
    }
    y.put<Int>(y.offset_of(k.position()), best);
  }
}
void arg_any(const Op& op, bool largest) {
  if (domain(op.in(0).dtype()) == Domain::Real)
    arg_extreme<double>(op, largest);
  else
    arg_extreme<Int>(op, largest);
}
void argmax(const Op& op) { arg_any(op, true); }
void argmin(const Op& op) { arg_any(op, false); }

// --------------------------------------------------------------------------------------------------------------- scans

// Visits each line of x along the axis; f(line start index, size).
template <class F>
void each_line(const Tensor& x, int64_t axis, F f) {
  Index lines = x.sizes();
  const int64_t n = x.rank() == 0 ? 1 : x.size(axis);
  if (x.rank() > 0 && n > 0) lines[axis] = 1;
  for (Walk w(lines); w; w.next()) f(w.index(), n);
}
void put_axis(Index& i, int64_t axis, int64_t k) {
  if (i.rank() > 0) i[axis] = k;
}

template <template <class> class Accumulator>
void running(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const int64_t axis = op.axis("axis", x.rank());
  const bool exclusive = op.flag("exclusive"), reverse = op.flag("reverse");
  with_domain(x.dtype(), [&]<class T>() {
    each_line(x, axis, [&](Index i, int64_t n) {
      Accumulator<T> acc;
      for (int64_t k = 0; k < n; ++k) {
        put_axis(i, axis, reverse ? n - 1 - k : k);
        const T before = acc.value();
        acc.add(x.get<T>(x.offset(i)));
        y.put<T>(y.offset(i), exclusive ? before : acc.value());
      }
    });
  });
}
void cumsum(const Op& op) { running<Sum>(op); }
void cumprod(const Op& op) { running<Product>(op); }

template <class T>
void running_extreme(const Op& op, bool largest) {
  const Tensor x = op.in(0), values = op.out(0), indices = op.out(1);
  const int64_t axis = op.axis("axis", x.rank());
  each_line(x, axis, [&](Index i, int64_t n) {
    T best{};
    int64_t at = 0;
    for (int64_t k = 0; k < n; ++k) {
      put_axis(i, axis, k);
      const T v = x.get<T>(x.offset(i));
      if (k == 0 || unordered(v) || (!unordered(best) && (largest ? v >= best : v <= best))) {
        best = v;
        at = k;
      }
      values.put<T>(values.offset(i), best);
      indices.put<Int>(indices.offset(i), at);
    }
  });
}
void cum_any(const Op& op, bool largest) {
  if (domain(op.in(0).dtype()) == Domain::Real)
    running_extreme<double>(op, largest);
  else
    running_extreme<Int>(op, largest);
}
void cummax(const Op& op) { cum_any(op, true); }
void cummin(const Op& op) { cum_any(op, false); }

// ---------------------------------------------------------------------------------------------------------- composites

void mean(const Op& op) {
  const Index axes = op.axes("axes", op.in(0).rank());
  with_domain(op.in(0).dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, Int>)
      accumulate<Sum<T>, T>(op, axes, itself, [](T sum, int64_t n) { return sum / static_cast<double>(n); });
  });
}

void variance(const Op& op) {
  const Split s(op.in(0), op.axes("axes", op.in(0).rank()));
  const Tensor y = op.out();
  const auto n = static_cast<double>(product(s.reduced));
  const double divisor = std::fmax(n - op.real("correction"), 0);
  for (Walk k(s.kept); k; k.next()) {
    Sum<double> sum, squares;
    for (Walk r(s.reduced); r; r.next()) sum.add(s.x.get<double>(s.offset(k.index(), r.index())));
    for (Walk r(s.reduced); r; r.next()) {
      const double d = s.x.get<double>(s.offset(k.index(), r.index())) - sum.value() / n;
      squares.add(d * d);
    }
    y.put<double>(y.offset_of(k.position()), squares.value() / divisor);
  }
}

void logsumexp(const Op& op) {
  const Split s(op.in(0), op.axes("axes", op.in(0).rank()));
  const Tensor y = op.out();
  for (Walk k(s.kept); k; k.next()) {
    double top = -inf;
    Sum<double> sum;
    for (Walk r(s.reduced); r; r.next()) top = extremum(top, s.x.get<double>(s.offset(k.index(), r.index())), true);
    if (std::isinf(top)) top = 0;
    for (Walk r(s.reduced); r; r.next()) sum.add(std::exp(s.x.get<double>(s.offset(k.index(), r.index())) - top));
    y.put<double>(y.offset_of(k.position()), top + std::log(sum.value()));
  }
}

void norm(const Op& op) {
  const Index axes = op.axes("axes", op.in(0).rank());
  const double p = op.real("p");
  if (p == inf)
    fold<double>(
        op, axes, 0.0, [](double a, double b) { return extremum(a, std::fabs(b), true); }, as_it_is);
  else if (p == -inf)
    fold<double>(
        op, axes, inf, [](double a, double b) { return extremum(a, std::fabs(b), false); }, as_it_is);
  else if (p == 0)
    accumulate<Sum<double>, double>(
        op, axes, [](double v) { return v != 0 ? 1.0 : 0.0; }, as_it_is);
  else if (p == 1)
    accumulate<Sum<double>, double>(
        op, axes, [](double v) { return std::fabs(v); }, as_it_is);
  else if (p == 2)
    accumulate<Sum<double>, double>(
        op, axes, [](double v) { return v * v; }, [](double v, int64_t) { return std::sqrt(v); });
  else
    accumulate<Sum<double>, double>(
        op, axes, [=](double v) { return std::pow(std::fabs(v), p); }, [=](double v, int64_t) { return std::pow(v, 1 / p); });
}

// Sums over what broadcasting a tensor of the result's shape to x would repeat.
void sum_to(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const int64_t lead = int64_t{x.rank()} - y.rank();
  Index axes;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d < lead || (y.size(d - lead) == 1 && x.size(d) != 1)) axes.push(d);
  with_domain(x.dtype(), [&]<class T>() { accumulate<Sum<T>, T>(op, axes, itself, as_it_is); });
}

}  // namespace

std::span<const Entry> reduce_ops() {
  static constexpr Entry entries[] = {
      {"reduce_sum", reduce_sum},
      {"reduce_prod", reduce_prod},
      {"reduce_max", reduce_max},
      {"reduce_min", reduce_min},
      {"reduce_any", reduce_any},
      {"reduce_all", reduce_all},
      {"argmax", argmax},
      {"argmin", argmin},
      {"cumsum", cumsum},
      {"cumprod", cumprod},
      {"cummax", cummax},
      {"cummin", cummin},
      {"mean", mean},
      {"variance", variance},
      {"logsumexp", logsumexp},
      {"norm", norm},
      {"sum_to", sum_to},
  };
  return entries;
}

}  // namespace tessera::reference
