// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "build.hpp"
#include "contract.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

Ints free_axes(int64_t rank, const Ints& batch, const Ints& contracted) {
  Ints out;
  for (int64_t i = 0; i < rank; ++i)
    if (std::find(batch.begin(), batch.end(), i) == batch.end() &&
        std::find(contracted.begin(), contracted.end(), i) == contracted.end())
      out.push_back(i);
  return out;
}

// Gradient of one side of a contraction: g has (batch, free of a, free of b). Contracting the other side's free dimensions
// gives (batch, own free, contracted); `own` says where those dimensions belong.
struct Side {
  Ints batch, contracted, free;
};
Var side_grad(const Var& g, const Var& other, const Side& own, const Side& opposite, int64_t g_opposite_free) {
  const auto nb = static_cast<int64_t>(own.batch.size());
  const Contraction c{iota_ints(0, nb), opposite.batch,
                      iota_ints(g_opposite_free, g_opposite_free + static_cast<int64_t>(opposite.free.size())), opposite.free};
  const Var d = contract(g, other.conj(), c);  // batch, own free, opposite contracted in ascending order
  // Position in d of each own dimension.
  Ints order = opposite.contracted;
  std::sort(order.begin(), order.end());
  Ints perm(static_cast<size_t>(d.rank()));
  for (size_t i = 0; i < own.batch.size(); ++i) perm[static_cast<size_t>(own.batch[i])] = static_cast<int64_t>(i);
  for (size_t i = 0; i < own.free.size(); ++i) perm[static_cast<size_t>(own.free[i])] = nb + static_cast<int64_t>(i);
  for (size_t i = 0; i < own.contracted.size(); ++i) {
    const auto at = std::find(order.begin(), order.end(), opposite.contracted[i]) - order.begin();
    perm[static_cast<size_t>(own.contracted[i])] = nb + static_cast<int64_t>(own.free.size()) + at;
  }
  return d.transpose(perm);
}

void dot_general(GradBuild& b) {
  const Var x = b.operand(0), y = b.operand(1);
  const Var g = b.grad().to(x.dtype());
  Side l{b.axes("lhs_batch", x.rank()), b.axes("lhs_contract", x.rank()), {}};
  Side r{b.axes("rhs_batch", y.rank()), b.axes("rhs_contract", y.rank()), {}};
  l.free = free_axes(x.rank(), l.batch, l.contracted);
  r.free = free_axes(y.rank(), r.batch, r.contracted);
  const auto batch = static_cast<int64_t>(l.batch.size());
  b.set(0, side_grad(g, y, l, r, batch + static_cast<int64_t>(l.free.size())));
  b.set(1, side_grad(g, x, r, l, batch));
}

Var swap_last(const Var& v) {
  Ints perm = iota_ints(0, v.rank());
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return v.transpose(perm);
}

void matmul(GradBuild& b) {
  // A vector is a matrix of one row (left) or column (right).
  const Var x = b.operand(0), y = b.operand(1);
  const bool row = x.rank() == 1, column = y.rank() == 1;
  const Var a = row ? x.expand({0}) : x, c = column ? y.expand({1}) : y;
  Var g = b.grad();
  if (column) g = g.expand({g.rank()});
  if (row) g = g.expand({g.rank() - 1});
  const Var da = g.call("matmul", swap_last(c).conj()), dc = swap_last(a).conj().call("matmul", g);
  b.set(0, da.sum_to(a.sizes()).reshape(x.sizes()));
  b.set(1, dc.sum_to(c.sizes()).reshape(y.sizes()));
}

void linear(GradBuild& b) {
  const Var x = b.operand(0), weight = b.operand(1), g = b.grad();
  const Ints rows = iota_ints(0, x.rank() - 1);
  b.set(0, contract(g, weight.conj(), {{}, {}, {g.rank() - 1}, {0}}));
  b.set(1, contract(g, x.conj(), {{}, {}, rows, rows}));
  if (b.has(2)) b.set(2, g.sum(rows, false));
}

}  // namespace

void add_grad_linalg(Table& t) {
  t.grad("dot_general", dot_general);
  t.grad("matmul", matmul);
  t.grad("linear", linear);
}

}  // namespace tessera::opset
