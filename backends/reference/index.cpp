// SPDX-License-Identifier: Apache-2.0
// Data movement that depends on index data: gather, scatter, selection.
#include <algorithm>
#include <cmath>

#include "op.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

// -------------------------------------------------------------------------------------------------------------- gather

void gather(const Op& op) {
  const Tensor x = op.in(0), indices = op.in(1), y = op.out();
  const int64_t axis = op.axis("axis", x.rank());
  for (Walk w(y.sizes()); w; w.next()) {
    const Index& i = w.index();
    const auto a = static_cast<uint32_t>(axis);
    const int64_t k = op.checked(indices.integer(i.part(a, a + indices.rank())), x.size(axis), axis);
    Index from = i.part(0, a);
    from.push(k);
    from.append(i.part(a + indices.rank(), i.rank()));
    y.copy_element(y.offset(i), x, x.offset(from));
  }
}

void embedding(const Op& op) {
  const Tensor table = op.in(0), indices = op.in(1), y = op.out();
  for (Walk w(y.sizes()); w; w.next()) {
    const Index& i = w.index();
    const int64_t row = op.checked(indices.integer(i.part(0, indices.rank())), table.size(0), 0);
    y.copy_element(y.offset(i), table, table.offset({row, i[i.rank() - 1]}));
  }
}

void take_along_axis(const Op& op) {
  const Tensor x = op.in(0), indices = op.in(1), y = op.out();
  const int64_t axis = op.axis("axis", x.rank());
  for (Walk w(y.sizes()); w; w.next()) {
    Index from = w.index();
    from[axis] = op.checked(indices.integer(w.index()), x.size(axis), axis);
    y.copy_element(y.offset(w.index()), x, x.offset(from));
  }
}

// indices: batch sizes, more sizes, k; x: batch sizes, then k axes that are indexed, then the rest.
void gather_nd(const Op& op) {
  const Tensor x = op.in(0), indices = op.in(1), y = op.out();
  const auto batch = static_cast<uint32_t>(op.integer("batch_dims"));
  const uint32_t lead = indices.rank() - 1;
  const int64_t depth = indices.size(lead);
  for (Walk w(y.sizes()); w; w.next()) {
    const Index& i = w.index();
    Index from = i.part(0, batch), at = i.part(0, lead);
    at.push(0);
    for (int64_t k = 0; k < depth; ++k) {
      at[lead] = k;
      from.push(op.checked(indices.integer(at), x.size(batch + k), batch + k));
    }
    from.append(i.part(lead, i.rank()));
    y.copy_element(y.offset(i), x, x.offset(from));
  }
}

void one_hot(const Op& op) {
  const Tensor indices = op.in(0), y = op.out();
  const int64_t axis = op.axis("axis", y.rank());
  for (Walk w(y.sizes()); w; w.next()) {
    Index at = w.index();
    at.remove(axis);
    y.put<Int>(y.offset(w.index()), indices.integer(at) == w.index()[axis]);
  }
}

// The starts of dynamic slices, clamped so that the window lies inside.
Index clamped_starts(const Op& op, uint32_t first, const Index& sizes, const Index& window) {
  Index starts;
  for (uint32_t d = 0; d < sizes.rank(); ++d)
    starts.push(
        static_cast<int64_t>(std::clamp<Int>(op.in(first + d).integer({}), 0, std::max<int64_t>(sizes[d] - window[d], 0))));
  return starts;
}
void dynamic_slice(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const Index starts = clamped_starts(op, 1, x.sizes(), y.sizes());
  for (Walk w(y.sizes()); w; w.next()) {
    Index i = w.index();
    for (uint32_t d = 0; d < i.rank(); ++d) i[d] += starts[d];
    y.copy_element(y.offset(w.index()), x, x.offset(i));
  }
}
void dynamic_update_slice(const Op& op) {
  const Tensor x = op.in(0), update = op.in(1), y = op.out();
  const Index starts = clamped_starts(op, 2, x.sizes(), update.sizes());
  y.copy_from(x);
  for (Walk w(update.sizes()); w; w.next()) {
    Index i = w.index();
    for (uint32_t d = 0; d < i.rank(); ++d) i[d] += starts[d];
    y.copy_element(y.offset(i), update, update.offset(w.index()));
  }
}

// ------------------------------------------------------------------------------------------------------------- scatter

template <class T>
T combine(std::string_view how, T a, T b) {
  if (how == "add") return a + b;
  if constexpr (!std::is_same_v<T, Complex>) {
    if (how == "max" || how == "min") {
      if constexpr (std::is_same_v<T, double>)
        if (std::isnan(a)) return a;
      return (how == "max" ? a > b : a < b) ? a : b;  // b when b is NaN
    }
  }
  return times(a, b);
}
// Updates in row-major order, each rounded to the dtype: an update is an op of its own. `target` gives the offset in the
// result.
template <class F>
void scatter_each(const Op& op, const Tensor& updates, F target) {
  const Tensor x = op.in(0), y = op.out();
  const std::string_view how = op.text("reduction");
  y.copy_from(x);
  if (how == "none") {
    for (Walk w(updates.sizes()); w; w.next()) y.copy_element(target(w.index()), updates, updates.offset(w.index()));
    return;
  }
  with_domain(y.dtype(), [&]<class T>() {
    for (Walk w(updates.sizes()); w; w.next()) {
      const int64_t at = target(w.index());
      y.put<T>(at, combine<T>(how, y.get<T>(at), updates.get<T>(updates.offset(w.index()))));
    }
  });
}

void scatter(const Op& op) {
  const Tensor indices = op.in(1), y = op.out();
  const int64_t axis = op.axis("axis", y.rank());
  scatter_each(op, op.in(2), [&](Index i) {
    i[axis] = op.checked(indices.integer(i), y.size(axis), axis);
    return y.offset(i);
  });
}

void scatter_nd(const Op& op) {
  const Tensor indices = op.in(1), y = op.out();
  const uint32_t lead = indices.rank() - 1;
  const int64_t depth = indices.size(lead);
  scatter_each(op, op.in(2), [&](const Index& i) {
    Index to, at = i.part(0, lead);
    at.push(0);
    for (int64_t k = 0; k < depth; ++k) {
      at[lead] = k;
      to.push(op.checked(indices.integer(at), y.size(k), k));
    }
    return y.offset(to.append(i.part(lead, i.rank())));
  });
}

// ----------------------------------------------------------------------------------------------- data-dependent sizes

bool nonzero_at(const Tensor& x, const Index& i) { return x.get<Complex>(x.offset(i)) != Complex(0); }

void nonzero_sizes(const Op& op, std::span<int64_t> symbols) {
  const Tensor x = op.in(0);
  symbols[0] = 0;
  for (Walk w(x.sizes()); w; w.next()) symbols[0] += nonzero_at(x, w.index());
}
void nonzero(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  int64_t row = 0;
  for (Walk w(x.sizes()); w; w.next()) {
    if (!nonzero_at(x, w.index())) continue;
    for (int64_t d = 0; d < x.rank(); ++d) y.put<Int>(y.offset({row, d}), w.index()[d]);
    ++row;
  }
}

Index broadcast_shape(const Tensor& a, const Tensor& b) {
  const uint32_t rank = std::max(a.rank(), b.rank());
  Index sizes = Index::filled(rank, 1);
  for (const Tensor* t : {&a, &b})
    for (uint32_t d = 0; d < t->rank(); ++d)
      if (t->size(d) != 1) sizes[rank - t->rank() + d] = t->size(d);
  return sizes;
}
void masked_select_sizes(const Op& op, std::span<int64_t> symbols) {
  const Index sizes = broadcast_shape(op.in(0), op.in(1));
  const Tensor mask = op.in(1).broadcast(sizes);
  symbols[0] = 0;
  for (Walk w(sizes); w; w.next()) symbols[0] += mask.integer(w.index()) != 0;
}
void masked_select(const Op& op) {
  const Index sizes = broadcast_shape(op.in(0), op.in(1));
  const Tensor x = op.in(0).broadcast(sizes), mask = op.in(1).broadcast(sizes), y = op.out();
  int64_t n = 0;
  for (Walk w(sizes); w; w.next())
    if (mask.integer(w.index()) != 0) y.copy_element(n++, x, x.offset(w.index()));
}

}  // namespace

std::span<const Entry> index_ops() {
  static constexpr Entry entries[] = {
      {"gather", gather},
      {"embedding", embedding},
      {"take_along_axis", take_along_axis},
      {"gather_nd", gather_nd},
      {"one_hot", one_hot},
      {"dynamic_slice", dynamic_slice},
      {"dynamic_update_slice", dynamic_update_slice},
      {"scatter", scatter},
      {"scatter_nd", scatter_nd},
      {"nonzero", nonzero, nullptr, nonzero_sizes},
      {"masked_select", masked_select, nullptr, masked_select_sizes},
  };
  return entries;
}

}  // namespace tessera::reference
