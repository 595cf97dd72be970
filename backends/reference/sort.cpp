// SPDX-License-Identifier: Apache-2.0
// Ordering: sort, topk, searchsorted, unique. NaN is greater than every number.
#include <algorithm>
#include <cmath>

#include "op.hpp"

namespace tessera::reference {

namespace {

bool less(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }
bool less(Int a, Int b) { return a < b; }
// By real, then imaginary part; a number with a NaN part comes after all without.
bool less(Complex a, Complex b) {
  const bool nan_a = std::isnan(a.real()) || std::isnan(a.imag()), nan_b = std::isnan(b.real()) || std::isnan(b.imag());
  if (nan_a || nan_b) return !nan_a;
  return a.real() != b.real() ? a.real() < b.real() : a.imag() < b.imag();
}

// The positions of the elements of `line` (1-d) in stable order.
template <class T>
void order(const Tensor& line, int64_t n, bool descending, int64_t* positions) {
  for (int64_t i = 0; i < n; ++i) positions[i] = i;
  // Equal elements keep their order because their positions decide; std::stable_sort would allocate.
  std::sort(positions, positions + n, [&](int64_t p, int64_t q) {
    const T a = line.get<T>(line.offset({p})), b = line.get<T>(line.offset({q}));
    if (descending ? less(b, a) : less(a, b)) return true;
    if (descending ? less(a, b) : less(b, a)) return false;
    return p < q;
  });
}

// The first `count` of each line along `axis` in order; workspace: one position per element of a line.
void sort_lines(const Op& op, int64_t axis, bool descending) {
  const Tensor x = op.in(0), values = op.out(0), indices = op.out(1);
  const int64_t n = x.size(axis), count = values.size(axis);
  if (count == 0) return;
  auto* positions = op.workspace<int64_t>();
  Index lines = x.sizes();
  lines[axis] = 1;
  for (Walk w(lines); w; w.next()) {
    const Tensor line = x.with({n}, {x.strides()[axis]}, x.offset(w.index()) - x.offset(Index::filled(x.rank(), 0)));
    with_domain(x.dtype(), [&]<class T>() { order<T>(line, n, descending, positions); });
    Index i = w.index();
    for (i[axis] = 0; i[axis] < count; ++i[axis]) {
      const int64_t p = positions[i[axis]];
      values.copy_element(values.offset(i), line, line.offset({p}));
      indices.put<Int>(indices.offset(i), p);
    }
  }
}
int64_t line_workspace(const Op& op) {
  const Tensor x = op.in(0);
  return x.rank() == 0 ? 8 : x.size(op.axis("axis", x.rank())) * 8;
}

// A 0-d operand is a line of one element.
bool scalar_line(const Op& op) {
  if (op.in(0).rank() != 0) return false;
  op.out(0).copy_from(op.in(0));
  op.out(1).put<Int>(0, 0);
  return true;
}
void sort(const Op& op) {
  if (!scalar_line(op)) sort_lines(op, op.axis("axis", op.in(0).rank()), op.flag("descending"));
}
void topk(const Op& op) {
  if (!scalar_line(op)) sort_lines(op, op.axis("axis", op.in(0).rank()), op.flag("largest"));
}

void searchsorted(const Op& op) {
  const Tensor sorted = op.in(0), values = op.in(1), y = op.out();
  const bool right = op.flag("right");
  const int64_t last = int64_t{sorted.rank()} - 1, n = sorted.size(last);
  with_domain(sorted.dtype(), [&]<class T>() {
    for (Walk w(y.sizes()); w; w.next()) {
      Index at = sorted.rank() == 1 ? Index{0} : w.index();
      const T v = values.get<T>(values.offset(w.index()));
      int64_t k = 0;  // counts the elements before the place; a plain scan also of what is not sorted
      for (; k < n; ++k) {
        at[last] = k;
        const T s = sorted.get<T>(sorted.offset(at));
        if (right ? less(v, s) : !less(s, v)) break;
      }
      y.put<Int>(y.offset(w.index()), k);
    }
  });
}

// -------------------------------------------------------------------------------------------------------------- unique

// Distinct values of the flattened x. positions: of all elements in stable ascending order, so that equal ones are neighbours
// and the first of them comes first. Every NaN is a value of its own.
struct Unique {
  int64_t n, *positions, *group;  // group: number of the run in `positions` that each element belongs to

  template <class T>
  int64_t run(const Tensor& x) {
    const auto at = [&](int64_t p) { return x.get<T>(x.offset_of(p)); };
    for (int64_t i = 0; i < n; ++i) positions[i] = i;
    std::sort(positions, positions + n, [&](int64_t p, int64_t q) {
      const T a = at(p), b = at(q);
      return less(a, b) || (!less(b, a) && p < q);
    });
    int64_t groups = 0;
    for (int64_t i = 0; i < n; ++i) {
      const bool same = i > 0 && at(positions[i]) == at(positions[i - 1]);
      if (!same) ++groups;
      group[positions[i]] = groups - 1;
    }
    return groups;
  }
  int64_t operator()(const Tensor& x) {
    int64_t groups = 0;
    with_domain(x.dtype(), [&]<class T>() { groups = run<T>(x); });
    return groups;
  }
};

void unique_sizes(const Op& op, std::span<int64_t> symbols) {
  const Tensor x = op.in(0);
  std::vector<int64_t> positions(static_cast<size_t>(x.elements())), group(positions.size());
  symbols[0] = Unique{x.elements(), positions.data(), group.data()}(x);
}

void unique(const Op& op) {
  const Tensor x = op.in(0), values = op.out(0), first = op.out(1), inverse = op.out(2), counts = op.out(3);
  const int64_t n = x.elements();
  auto *positions = op.workspace<int64_t>(), *group = positions + n, *number = group + n;
  const int64_t groups = Unique{n, positions, group}(x);
  // number: of each group in the result. In order of first occurrence that is the order in which walking x meets them.
  const bool sorted = op.flag("sorted");
  for (int64_t g = 0; g < groups; ++g) number[g] = sorted ? g : -1;
  for (int64_t g = 0; g < groups; ++g) counts.put<Int>(counts.offset({g}), 0);
  int64_t met = 0;
  for (int64_t g = 0; g < groups; ++g) first.put<Int>(first.offset({g}), -1);
  for (int64_t p = 0; p < n; ++p) {
    int64_t& g = number[group[p]];
    if (g < 0) g = met++;
    if (first.integer({g}) < 0) {
      first.put<Int>(first.offset({g}), p);
      values.copy_element(values.offset({g}), x, x.offset_of(p));
    }
    inverse.put<Int>(inverse.offset_of(p), g);
    counts.put<Int>(counts.offset({g}), counts.integer({g}) + 1);
  }
}
int64_t unique_workspace(const Op& op) { return op.in(0).elements() * 3 * 8; }

}  // namespace

std::span<const Entry> sort_ops() {
  static constexpr Entry entries[] = {
      {"sort", sort, line_workspace},
      {"topk", topk, line_workspace},
      {"searchsorted", searchsorted},
      {"unique", unique, unique_workspace, unique_sizes},
  };
  return entries;
}

}  // namespace tessera::reference
