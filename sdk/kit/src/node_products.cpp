// SPDX-License-Identifier: Apache-2.0
// Products and convolutions as reductions: views bring both operands to one shape [batch, rows, columns, contracted], and a
// `dot` runs over the last dimensions of it. The order of the sum is that of the contracted dimensions, row-major
// (docs/kernel_kit.md).
#include <algorithm>

#include "node_table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::kit {
namespace {

// The dtype that a product accumulates in.
uint32_t accumulator(uint32_t operand, uint32_t result) {
  const bool floats = is_float(type_of(operand)), to_float = is_float(type_of(result));
  if (!floats && !to_float) return result;
  return operand == TSR_F64 || result == TSR_F64 ? static_cast<uint32_t>(TSR_F64) : static_cast<uint32_t>(TSR_F32);
}

std::vector<int64_t> axes_in_range(sdk::Node n, std::string_view name, size_t rank) {
  std::vector<int64_t> out;
  for (const int64_t a : n.attr(name).as_ints()) out.push_back(a < 0 ? a + static_cast<int64_t>(rank) : a);
  return out;
}

bool has(const std::vector<int64_t>& all, int64_t x) { return std::find(all.begin(), all.end(), x) != all.end(); }

}  // namespace

int TensorTable::transposed(int x, std::vector<int64_t> perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  std::vector<Expr> to;
  for (const int64_t p : perm) to.push_back(at(x).shape[static_cast<size_t>(p)]);
  const int r = view(ViewKind::Transpose, x, std::move(to));
  tensors_.back().perm = std::move(perm);
  return r;
}
int TensorTable::reshaped(int x, std::vector<Expr> to) {
  return at(x).shape == to ? x : view(ViewKind::Reshape, x, std::move(to));
}
int TensorTable::expanded(int x, const std::vector<Expr>& to) {
  return at(x).shape == to ? x : view(ViewKind::Broadcast, x, to);
}

int TensorTable::dot(int a, int b, const std::vector<Expr>& full, size_t contracted, uint32_t wide) {
  Tensor t;
  t.kind = Kind::Reduce;
  t.reduce = ReduceKind::Dot;
  t.dtype = wide;
  t.operands = {expanded(cast(a, wide), full), expanded(cast(b, wide), full)};
  t.shape = full;
  for (size_t d = full.size() - contracted; d < full.size(); ++d) {
    t.axes.push_back(static_cast<uint32_t>(d));
    t.shape[d] = kOne;
  }
  return push(std::move(t));
}

int TensorTable::product(sdk::Node n, std::string_view op, bool alone) {
  int a = operand(n, 0, alone), b = operand(n, 1, alone);
  const sdk::Type type = n.result().type();
  const uint32_t in = at(a).dtype, out = type.dtype(), wide = accumulator(in, out);
  std::vector<Expr> full = shape(type);
  size_t contracted = 1;
  if (op == "linear") {
    const std::vector<Expr> x = at(a).shape, w = at(b).shape;
    std::vector<Expr> left(x.begin(), x.end() - 1), right(x.size() - 1, kOne);
    left.insert(left.end(), {kOne, x.back()});
    right.insert(right.end(), w.begin(), w.end());
    a = reshaped(a, left), b = reshaped(b, right);
    full.push_back(x.back());
  } else if (op == "matmul") {
    const std::vector<Expr> x = at(a).shape, y = at(b).shape;
    const size_t batch_a = x.size() > 2 ? x.size() - 2 : 0, batch_b = y.size() > 2 ? y.size() - 2 : 0;
    const size_t batch = std::max(batch_a, batch_b);
    // A batch dimension that is neither 1 nor certainly as long as the result's is known at run time alone.
    for (const auto& [from, count, i] : {std::tuple{&x, batch_a, 0u}, std::tuple{&y, batch_b, 1u}})
      for (size_t d = 0; d < count; ++d) {
        const Expr size = (*from)[d];
        if (size == kOne || size == full[batch - count + d]) continue;
        if (g_.compare(TSR_EQ, n.operand(i).type().sizes()[d], type.sizes()[batch - count + d]) != TSR_TRUE)
          unfit("only the run tells whether a batch is repeated");
      }
    std::vector<Expr> left(batch - batch_a, kOne), right(batch - batch_b, kOne);
    left.insert(left.end(), x.begin(), x.end() - 1);
    if (y.size() > 1) left.push_back(kOne);
    left.push_back(x.back());
    a = reshaped(a, left);
    if (y.size() > 1) {
      std::vector<int64_t> perm;
      for (size_t d = 0; d < y.size(); ++d) perm.push_back(static_cast<int64_t>(d));
      std::swap(perm[y.size() - 1], perm[y.size() - 2]);
      b = transposed(b, perm);
    }
    right.insert(right.end(), y.begin(), y.begin() + static_cast<std::ptrdiff_t>(batch_b));
    if (x.size() > 1) right.push_back(kOne);
    if (y.size() > 1) right.push_back(y.back());
    right.push_back(x.back());
    b = reshaped(b, right);
    full.push_back(x.back());
  } else {
    const std::vector<int64_t> batch_a = axes_in_range(n, "lhs_batch", at(a).shape.size()),
                               batch_b = axes_in_range(n, "rhs_batch", at(b).shape.size()),
                               over_a = axes_in_range(n, "lhs_contract", at(a).shape.size()),
                               over_b = axes_in_range(n, "rhs_contract", at(b).shape.size());
    const auto free = [&](int x, const std::vector<int64_t>& batch, const std::vector<int64_t>& over) {
      std::vector<int64_t> all;
      for (size_t d = 0; d < at(x).shape.size(); ++d)
        if (!has(batch, static_cast<int64_t>(d)) && !has(over, static_cast<int64_t>(d))) all.push_back(static_cast<int64_t>(d));
      return all;
    };
    const std::vector<int64_t> rows = free(a, batch_a, over_a), columns = free(b, batch_b, over_b);
    const auto arranged = [&](int x, const std::vector<int64_t>& batch, const std::vector<int64_t>& kept,
                              const std::vector<int64_t>& over, size_t before, size_t behind) {
      std::vector<int64_t> perm = batch;
      perm.insert(perm.end(), kept.begin(), kept.end());
      perm.insert(perm.end(), over.begin(), over.end());
      x = transposed(x, perm);
      std::vector<Expr> to = at(x).shape;
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(batch.size()), before, kOne);
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(batch.size() + before + kept.size()), behind, kOne);
      return reshaped(x, to);
    };
    for (const int64_t d : over_a) full.push_back(at(a).shape[static_cast<size_t>(d)]);
    a = arranged(a, batch_a, rows, over_a, 0, columns.size());
    b = arranged(b, batch_b, columns, over_b, rows.size(), 0);
    contracted = over_a.size();
  }
  const int y = cast(reshaped(dot(a, b, full, contracted, wide), shape(type)), out);
  return op == "linear" && n.has_operand(2) ? elementwise("add", out, {y, operand(n, 2, alone)}) : y;
}

// conv, or conv_transpose (`backwards`). The shape of the reduction: [N, groups, outputs of a group, spatial, channels of a
// group, taps].
int TensorTable::convolution(sdk::Node n, bool backwards, bool alone) {
  const int x = operand(n, 0, alone), w = operand(n, 1, alone);
  const std::vector<Expr> in = at(x).shape, weight = at(w).shape, out = shape(n.result().type());
  const size_t spatial = in.size() - 2;
  const uint32_t dtype = at(x).dtype, wide = accumulator(dtype, dtype);
  const Expr groups = pool_.number(n.attr("groups").as_int());
  const auto channels = pool_.divide_exactly(in[1], groups), outputs = pool_.divide_exactly(out[1], groups);
  if (!channels || !outputs) unfit("only the run tells how many channels a group has");
  std::vector<Expr> full = {out[0], groups, *outputs};
  full.insert(full.end(), out.begin() + 2, out.end());
  full.push_back(*channels);
  full.insert(full.end(), weight.begin() + 2, weight.end());

  std::vector<int64_t> stride, low, dilation;
  for (const int64_t i : n.attr("strides").as_ints()) stride.push_back(i);
  for (const int64_t i : n.attr("pad_low").as_ints()) low.push_back(i);
  for (const int64_t i : n.attr("dilations").as_ints()) dilation.push_back(i);
  std::vector<Expr> read_shape = full;
  read_shape[2] = kOne;
  const Expr per_group = *channels;
  const int taps = window(cast(x, wide), literal(0.0, wide), read_shape,
                          [spatial, stride, low, dilation, per_group, backwards](IndexPool& p, const Position& at_full) {
                            Reading r;
                            const size_t channel = 3 + spatial;
                            r.at = {at_full[0], p.add(p.mul(at_full[1], per_group), at_full[channel])};
                            for (size_t d = 0; d < spatial; ++d) {
                              const Expr tap = p.mul(at_full[channel + 1 + d], p.number(dilation[d])), o = at_full[3 + d];
                              if (!backwards) {
                                r.at.push_back(p.sub(p.add(p.mul(o, p.number(stride[d])), tap), p.number(low[d])));
                                continue;
                              }
                              const Expr from = p.sub(p.add(o, p.number(low[d])), tap), step = p.number(stride[d]);
                              r.at.push_back(p.floordiv(from, step));
                              r.zeros.push_back(p.mod(from, step));
                            }
                            return r;
                          });
  std::vector<Expr> weight_shape = {kOne, groups, *outputs};
  weight_shape.insert(weight_shape.end(), spatial, kOne);
  weight_shape.push_back(*channels);
  weight_shape.insert(weight_shape.end(), weight.begin() + 2, weight.end());
  int filter = w;
  if (backwards) {  // [groups, channels, outputs, taps]
    std::vector<Expr> apart = {groups, *channels, *outputs};
    apart.insert(apart.end(), weight.begin() + 2, weight.end());
    std::vector<int64_t> perm = {0, 2, 1};
    for (size_t d = 0; d < spatial; ++d) perm.push_back(static_cast<int64_t>(3 + d));
    filter = transposed(reshaped(w, apart), perm);
  }
  filter = reshaped(filter, weight_shape);
  int y = reshaped(dot(taps, filter, full, 1 + spatial, wide), out);
  if (n.has_operand(2)) {
    std::vector<Expr> bias(in.size() - 1, kOne);
    bias[0] = out[1];
    y = elementwise("add", wide, {y, reshaped(cast(operand(n, 2, alone), wide), bias)});
  }
  return cast(y, dtype);
}

}  // namespace tessera::kit
