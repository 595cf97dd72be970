// SPDX-License-Identifier: Apache-2.0
// dot_general, matmul, linear. Operands are widened into the workspace first, so that the sums run over plain arrays.
#include "op.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

// y[batch, m, n] = sum over k of a[batch, m, k] * b[batch, n, k] + bias[n]. Each of batch, m, n, k stands for any number of
// axes; a and b are views with their axes in that order, y is dense.
struct Contraction {
  Tensor a, b, bias, y;
  Index batch, m, n, k;

  // Integers that give a float are summed as floats.
  uint32_t compute_dtype() const { return domain(y.dtype()) == Domain::Real ? y.dtype() : a.dtype(); }
  int64_t workspace() const {
    int64_t bytes = 0;
    with_domain(compute_dtype(),
                [&]<class T>() { bytes = (product(m) + product(n)) * product(k) * static_cast<int64_t>(sizeof(T)); });
    return bytes;
  }
  void run(const Op& op) const {
    with_domain(compute_dtype(), [&]<class T>() { run_as<T>(op.workspace<T>()); });
  }

 private:
  // The rows [first, last) of one batch item, k contiguous.
  template <class T>
  static void widen(const Tensor& from, const Index& at, const Index& rows, const Index& k, T* to) {
    const int64_t count = product(k);
    sdk::parallel(product(rows), 1 + 4096 / (count + 1), [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        Index row = at;
        row.append(unravel(r, rows));
        for (Walk w(k); w; w.next()) {
          Index i = row;
          to[r * count + w.position()] = from.get<T>(from.offset(i.append(w.index())));
        }
      }
    });
  }
  template <class T>
  void run_as(T* work) const {
    const int64_t rows = product(m), columns = product(n), depth = product(k), items = rows * columns;
    T *wide_a = work, *wide_b = work + rows * depth;
    // Elements narrower than a byte share one: then a single thread writes.
    const int64_t grain = is_packed(y.dtype()) ? items : 1 + 65536 / (depth + 1);
    for (Walk w(batch); w; w.next()) {
      widen(a, w.index(), m, k, wide_a);
      widen(b, w.index(), n, k, wide_b);
      sdk::parallel(items, grain, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          const T *row = wide_a + i / columns * depth, *column = wide_b + i % columns * depth;
          T sum{};
          for (int64_t j = 0; j < depth; ++j) sum += times(row[j], column[j]);
          if (bias) sum += bias.get<T>(bias.offset_of(i % columns));
          y.put<T>(w.position() * items + i, sum);
        }
      });
    }
  }
};

// Sizes and a permutation of the axes: batch, then the free ones in order, then the contracted ones.
Tensor arrange(const Tensor& x, const Index& batch, const Index& contract, Index& free) {
  Index perm = batch;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (!batch.has(d) && !contract.has(d)) {
      perm.push(d);
      free.push(x.size(d));
    }
  return x.permute(perm.append(contract));
}

Contraction plan_dot_general(const Op& op) {
  const Tensor a = op.in(0), b = op.in(1);
  const Index batch_a = op.axes("lhs_batch", a.rank()), over_a = op.axes("lhs_contract", a.rank());
  Contraction c;
  for (const int64_t d : batch_a) c.batch.push(a.size(d));
  for (const int64_t d : over_a) c.k.push(a.size(d));
  c.a = arrange(a, batch_a, over_a, c.m);
  c.b = arrange(b, op.axes("rhs_batch", b.rank()), op.axes("rhs_contract", b.rank()), c.n);
  c.y = op.out();
  return c;
}

Contraction plan_matmul(const Op& op) {
  const Tensor a = op.in(0), b = op.in(1);
  const uint32_t batch_a = a.rank() > 2 ? a.rank() - 2 : 0, batch_b = b.rank() > 2 ? b.rank() - 2 : 0;
  Contraction c;
  c.y = op.out();
  c.batch = c.y.sizes().part(0, std::max(batch_a, batch_b));
  // a is [..., m, k] or [k].
  c.k = {a.size(int64_t{a.rank()} - 1)};
  if (a.rank() > 1) c.m = {a.size(int64_t{a.rank()} - 2)};
  Index shape = c.batch;
  c.a = a.broadcast(shape.append(c.m).append(c.k));
  // b is [..., k, n] or [k]; as [..., n, k].
  Index last = {int64_t{b.rank()} - 1};
  Tensor columns = b;
  if (b.rank() > 1) {
    c.n = {b.size(last[0])};
    Index perm;
    for (int64_t d = 0; d < batch_b; ++d) perm.push(d);
    columns = b.permute(perm.append({last[0], last[0] - 1}));
  }
  shape = c.batch;
  c.b = columns.broadcast(shape.append(c.n).append(c.k));
  return c;
}

Contraction plan_linear(const Op& op) {
  Contraction c;
  c.a = op.in(0);
  c.b = op.in(1);
  c.bias = op.in(2);
  c.y = op.out();
  c.m = c.a.sizes().part(0, c.a.rank() - 1);
  c.n = {c.b.size(0)};
  c.k = {c.b.size(1)};
  return c;
}

void dot_general(const Op& op) { plan_dot_general(op).run(op); }
int64_t dot_general_workspace(const Op& op) { return plan_dot_general(op).workspace(); }
void matmul(const Op& op) { plan_matmul(op).run(op); }
int64_t matmul_workspace(const Op& op) { return plan_matmul(op).workspace(); }
void linear(const Op& op) { plan_linear(op).run(op); }
int64_t linear_workspace(const Op& op) { return plan_linear(op).workspace(); }

}  // namespace

std::span<const Entry> contraction_ops() {
  static constexpr Entry entries[] = {
      {"dot_general", dot_general, dot_general_workspace},
      {"matmul", matmul, matmul_workspace},
      {"linear", linear, linear_workspace},
  };
  return entries;
}

}  // namespace tessera::reference
