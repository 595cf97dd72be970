// SPDX-License-Identifier: Apache-2.0
// Constants and data movement that depends on shapes only: every result element is one operand element, bit for bit.
#include <algorithm>

#include "op.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

// ------------------------------------------------------------------------------------------------------------ creation

void constant(const Op& op) { op.out().copy_from(op.tensor("value")); }

void full(const Op& op) { op.out().copy_from(op.in(0).broadcast(op.out().sizes())); }

void iota(const Op& op) {
  const Tensor y = op.out();
  const int64_t axis = op.axis("axis", y.rank());
  for (Walk w(y.sizes()); w; w.next()) y.put<Int>(y.offset(w.index()), w.index()[axis]);
}

void dim_value(const Op& op) { op.out().put<Int>(0, op.dims("value")[0]); }

void shape_of(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  for (int64_t d = 0; d < x.rank(); ++d) y.put<Int>(y.offset({d}), x.size(d));
}

// --------------------------------------------------------------------------------------------------------------- views

// The elements of x in row-major order, under another shape.
void reshape(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  Walk from(x.sizes());
  for (Walk w(y.sizes()); w; w.next(), from.next()) y.copy_element(y.offset(w.index()), x, x.offset(from.index()));
}

void transpose(const Op& op) { op.out().copy_from(op.in(0).permute(op.axes("perm", op.in(0).rank()))); }

void broadcast_to(const Op& op) { op.out().copy_from(op.in(0).broadcast(op.out().sizes())); }

void slice(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const Index starts = op.dims("starts"), steps = op.ints("strides");
  for (Walk w(y.sizes()); w; w.next()) {
    Index i = w.index();
    for (uint32_t d = 0; d < i.rank(); ++d) i[d] = starts[d] + i[d] * steps[d];
    y.copy_element(y.offset(w.index()), x, x.offset(i));
  }
}

void as_strided(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const Index strides = op.dims("strides");
  const int64_t offset = op.dims("offset")[0], count = x.elements();
  for (Walk w(y.sizes()); w; w.next()) {
    int64_t position = offset;
    for (uint32_t d = 0; d < strides.rank(); ++d) position += w.index()[d] * strides[d];
    if (position < 0 || position >= count)
      op.fail("TSR-R011",
              "element " + std::to_string(position) + " is outside of the operand's " + std::to_string(count) + " elements",
              "shape, strides and offset must stay inside the operand");
    y.copy_element(y.offset(w.index()), x, x.offset_of(position));
  }
}

void flip(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const Index axes = op.axes("axes", x.rank());
  for (Walk w(y.sizes()); w; w.next()) {
    Index i = w.index();
    for (const int64_t a : axes) i[a] = x.size(a) - 1 - i[a];
    y.copy_element(y.offset(w.index()), x, x.offset(i));
  }
}

void diagonal(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const int64_t a1 = op.axis("axis1", x.rank()), a2 = op.axis("axis2", x.rank()), offset = op.integer("offset");
  for (Walk w(y.sizes()); w; w.next()) {
    Index i;  // the other axes in order; the diagonal is the last axis of the result
    uint32_t next = 0;
    const int64_t k = w.index()[y.rank() - 1];
    for (int64_t d = 0; d < x.rank(); ++d)
      i.push(d == a1 ? k + std::max<int64_t>(-offset, 0) : d == a2 ? k + std::max<int64_t>(offset, 0) : w.index()[next++]);
    y.copy_element(y.offset(w.index()), x, x.offset(i));
  }
}

// ------------------------------------------------------------------------------------------------- joining and splitting

void concat(const Op& op) {
  const Tensor y = op.out();
  const int64_t axis = op.axis("axis", y.rank());
  int64_t begin = 0;
  for (uint32_t k = 0; k < op.num_inputs(); ++k) {
    const Tensor x = op.in(k);
    for (Walk w(x.sizes()); w; w.next()) {
      Index i = w.index();
      i[axis] += begin;
      y.copy_element(y.offset(i), x, x.offset(w.index()));
    }
    begin += x.size(axis);
  }
}

void stack(const Op& op) {
  const Tensor y = op.out();
  const int64_t axis = op.axis("axis", y.rank());
  for (uint32_t k = 0; k < op.num_inputs(); ++k) {
    const Tensor x = op.in(k);
    for (Walk w(x.sizes()); w; w.next()) {
      Index i = w.index();
      i.insert(axis, k);
      y.copy_element(y.offset(i), x, x.offset(w.index()));
    }
  }
}

void split(const Op& op) {
  const Tensor x = op.in(0);
  const int64_t axis = op.axis("axis", x.rank());
  int64_t begin = 0;
  for (uint32_t k = 0; k < op.num_outputs(); ++k) {
    const Tensor y = op.out(k);
    for (Walk w(y.sizes()); w; w.next()) {
      Index i = w.index();
      i[axis] += begin;
      y.copy_element(y.offset(w.index()), x, x.offset(i));
    }
    begin += y.size(axis);
  }
}

// Source position on an axis of `size` elements for position `i` outside or inside of it; -1: none (the padding value).
int64_t pad_source(int64_t i, int64_t size, int64_t interior, std::string_view mode) {
  if (mode == "constant") {
    if (i < 0 || i % (interior + 1) != 0) return -1;
    i /= interior + 1;
    return i < size ? i : -1;
  }
  if (mode == "edge") return std::clamp<int64_t>(i, 0, size - 1);
  if (mode == "wrap") return ((i % size) + size) % size;
  const int64_t period = 2 * (size - 1);  // reflect: the edge element is not repeated
  if (period == 0) return 0;
  const int64_t m = ((i % period) + period) % period;
  return m < size ? m : period - m;
}

void pad(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const Index low = op.dims("low"), interior = op.ints("interior");
  const std::string_view mode = op.text("mode");
  if (mode != "constant" && x.elements() == 0 && y.elements() != 0)
    op.fail("TSR-R013", "an empty tensor has no values to pad with", "pad with mode = \"constant\"");
  for (Walk w(y.sizes()); w; w.next()) {
    Index i = w.index();
    bool inside = true;
    for (uint32_t d = 0; d < i.rank(); ++d) {
      i[d] = pad_source(i[d] - low[d], x.size(d), interior.rank() ? interior[d] : 0, mode);
      inside = inside && i[d] >= 0;
    }
    const int64_t to = y.offset(w.index());
    if (inside)
      y.copy_element(to, x, x.offset(i));
    else if (const Tensor value = op.in(1))
      y.copy_element(to, value, value.offset({}));
    else
      y.zero_element(to);
  }
}

void tile(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const uint32_t lead = y.rank() - x.rank();  // more repeats than axes add axes in front
  for (Walk w(y.sizes()); w; w.next()) {
    Index i;
    for (uint32_t d = 0; d < x.rank(); ++d) i.push(w.index()[lead + d] % x.size(d));
    y.copy_element(y.offset(w.index()), x, x.offset(i));
  }
}

void roll(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const Index shifts = op.ints("shifts"), axes = op.axes("axes", x.rank());
  const int64_t count = x.elements();
  for (Walk w(x.sizes()); w; w.next()) {
    Index i = w.index();
    if (axes.rank() == 0) {  // over the flattened x
      int64_t position = w.position();
      for (const int64_t s : shifts) position = ((position + s % count) % count + count) % count;
      i = unravel(position, x.sizes());
    }
    for (uint32_t k = 0; k < axes.rank(); ++k) {
      const int64_t n = x.size(axes[k]);
      i[axes[k]] = ((i[axes[k]] + shifts[k] % n) % n + n) % n;
    }
    y.copy_element(y.offset(i), x, x.offset(w.index()));
  }
}

void triangle(const Op& op, bool lower) {
  const Tensor x = op.in(0), y = op.out();
  const int64_t diagonal = op.integer("diagonal");
  for (Walk w(y.sizes()); w; w.next()) {
    const int64_t row = w.index()[y.rank() - 2], column = w.index()[y.rank() - 1], to = y.offset(w.index());
    if (lower ? column - row <= diagonal : column - row >= diagonal)
      y.copy_element(to, x, x.offset(w.index()));
    else
      y.zero_element(to);
  }
}
void tril(const Op& op) { triangle(op, true); }
void triu(const Op& op) { triangle(op, false); }

// ----------------------------------------------------------------------------------------------- shapes that are data

// `shape` with one -1 replaced so that the elements agree with x's; TSR-R012 when they cannot.
Index wanted_shape(const Op& op) {
  const Tensor x = op.in(0), shape = op.in(1);
  Index sizes;
  int64_t known = 1, infer = -1;
  for (int64_t d = 0; d < shape.size(0); ++d) {
    const Int s = shape.integer({d});
    if (s < -1 || (s == -1 && infer >= 0))
      op.fail("TSR-R012",
              "size " + std::to_string(static_cast<int64_t>(s)) + " at position " + std::to_string(d) + " of the shape",
              "sizes must not be negative; one of them may be -1");
    sizes.push(static_cast<int64_t>(s));
    if (s == -1)
      infer = d;
    else if (__builtin_mul_overflow(known, static_cast<int64_t>(s), &known))
      op.fail("TSR-R012", "the sizes of the shape overflow 64 bits", "use smaller sizes");
  }
  const int64_t n = x.elements();
  if (infer >= 0 && known != 0 && n % known == 0) sizes[infer] = n / known;
  if (infer >= 0 ? (known == 0 || n % known != 0) : known != n)
    op.fail("TSR-R012", "cannot shape " + std::to_string(n) + " elements as asked", "the element counts must agree");
  return sizes;
}
void dynamic_reshape_sizes(const Op& op, std::span<int64_t> symbols) {
  const Index sizes = wanted_shape(op);
  for (size_t k = 0; k < symbols.size(); ++k) symbols[k] = sizes[op.spec().symbol_axis[k]];
}
void dynamic_reshape(const Op& op) {
  wanted_shape(op);
  reshape(op);
}

// The operand and the shape broadcast against each other: a 1 in the shape keeps the operand's size.
Index wanted_broadcast(const Op& op) {
  const Tensor x = op.in(0), shape = op.in(1);
  const int64_t count = shape.size(0), rank = std::max<int64_t>(count, x.rank());
  Index sizes;
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t own_axis = d - (rank - x.rank()), wanted_axis = d - (rank - count);
    const int64_t own = own_axis < 0 ? 1 : x.size(own_axis);
    const Int wanted = wanted_axis < 0 ? 1 : shape.integer({wanted_axis});
    if (wanted < 0 || (own != 1 && wanted != 1 && wanted != own))
      op.fail("TSR-R012",
              "size " + std::to_string(own) + " of dimension " + std::to_string(d) + " and size " +
                  std::to_string(static_cast<int64_t>(wanted)) + " of the shape do not broadcast",
              "sizes must be equal, or one of them 1");
    sizes.push(own == 1 ? static_cast<int64_t>(wanted) : own);
  }
  return sizes;
}
void dynamic_broadcast_to_sizes(const Op& op, std::span<int64_t> symbols) {
  const Index sizes = wanted_broadcast(op);
  for (size_t k = 0; k < symbols.size(); ++k) symbols[k] = sizes[op.spec().symbol_axis[k]];
}
void dynamic_broadcast_to(const Op& op) {
  wanted_broadcast(op);
  broadcast_to(op);
}

}  // namespace

std::span<const Entry> shape_ops() {
  static constexpr Entry entries[] = {
      {"constant", constant},
      {"full", full},
      {"iota", iota},
      {"dim_value", dim_value},
      {"shape_of", shape_of},
      {"reshape", reshape},
      {"transpose", transpose},
      {"expand_dims", reshape},  // the row-major order stays
      {"squeeze", reshape},
      {"broadcast_to", broadcast_to},
      {"slice", slice},
      {"as_strided", as_strided},
      {"flip", flip},
      {"diagonal", diagonal},
      {"concat", concat},
      {"stack", stack},
      {"split", split},
      {"pad", pad},
      {"tile", tile},
      {"roll", roll},
      {"tril", tril},
      {"triu", triu},
      {"dynamic_reshape", dynamic_reshape, nullptr, dynamic_reshape_sizes},
      {"dynamic_broadcast_to", dynamic_broadcast_to, nullptr, dynamic_broadcast_to_sizes},
  };
  return entries;
}

}  // namespace tessera::reference
