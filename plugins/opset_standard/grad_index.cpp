// SPDX-License-Identifier: Apache-2.0
// Gradients of indexing by data. Reading an element several times sums its gradients: scatter with reduction "add".
#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

Var scatter_nd_add(Build& b, const Var& into, const Var& indices, const Var& updates) {
  return b.op("scatter_nd", {into, indices, updates}, {sdk::attr_string("reduction", "add")});
}

void gather(GradBuild& b) {
  const Var x = b.operand(0), indices = b.operand(1), g = b.grad();
  const int64_t axis = b.axis("axis", x.rank()), n = indices.rank();
  // The gathered axis to the front on both sides; x[:axis] + indices + x[axis+1:] -> indices + x[:axis] + x[axis+1:].
  Ints to_front = iota_ints(axis, axis + n), x_perm = {axis};
  for (int64_t i = 0; i < g.rank(); ++i)
    if (i < axis || i >= axis + n) to_front.push_back(i);
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) x_perm.push_back(i);
  DimVector shape;
  Ints back(x_perm.size());
  for (size_t i = 0; i < x_perm.size(); ++i) {
    shape.push_back(x.size(x_perm[i]));
    back[static_cast<size_t>(x_perm[i])] = static_cast<int64_t>(i);
  }
  const Var sums = scatter_nd_add(b, b.full(0, x.dtype(), shape), indices.expand({n}), g.transpose(to_front));
  b.set(0, sums.transpose(back));
}

void gather_nd(GradBuild& b) {
  const Var x = b.operand(0), g = b.grad();
  Var indices = b.operand(1);
  const int64_t batch = b.integer("batch_dims");
  if (batch > 0) {
    // Shared dimensions become part of the tuples.
    std::vector<Var> parts;
    DimVector one = indices.sizes();
    one.back() = 1;
    for (int64_t i = 0; i < batch; ++i) parts.push_back(b.iota(one, i, indices.dtype()));
    parts.push_back(indices);
    indices = b.concat(parts, indices.rank() - 1);
  }
  b.set(0, scatter_nd_add(b, b.zeros_like(x), indices, g));
}

void scatter(GradBuild& b) {
  const Var indices = b.operand(1), updates = b.operand(2), g = b.grad();
  const int64_t axis = b.integer("axis");
  const std::string_view reduction = b.text("reduction");
  const Var taken = g.call("take_along_axis", indices, {sdk::attr_int("axis", axis)});
  if (reduction == "add") {
    b.set(0, g);
    b.set(2, taken);
  } else if (reduction == "none") {
    // As PyTorch: of several writes to one place all receive its gradient.
    b.set(0, b.op("scatter", {g, indices, b.zeros_like(updates)}, {sdk::attr_int("axis", axis)}));
    b.set(2, taken);
  } else {
    b.undefined("reduction is '" + std::string(reduction) + "', gradients exist for 'none' and 'add'");
  }
}

void scatter_nd(GradBuild& b) {
  const Var indices = b.operand(1), updates = b.operand(2), g = b.grad();
  const std::string_view reduction = b.text("reduction");
  if (reduction != "add" && reduction != "none")
    b.undefined("reduction is '" + std::string(reduction) + "', gradients exist for 'none' and 'add'");
  b.set(0, reduction == "add" ? g : b.op("scatter_nd", {g, indices, b.zeros_like(updates)}));
  b.set(2, g.call("gather_nd", indices));
}

void masked_select(GradBuild& b) {
  const Var x = b.operand(0), g = b.grad();
  // The shape that x and the mask broadcast to: that of any elementwise op on both.
  const Var mask = select(b.operand(1), b.operand(1), b.full(0, TSR_BOOL, x.sizes()));
  const tsr_dim n = b.dims.product(mask.sizes()), taken = g.size(0);
  // Selected places read their gradient in order, all others the 0 that is appended.
  const Var flat = mask.reshape({n});
  const Var order = flat.to(TSR_I64).call("cumsum", {sdk::attr_int("axis", 0)}) - 1;
  const Var extended[] = {g, b.full(0, g.dtype(), {1})};
  const Var read = b.concat(extended, 0).gather(select(flat, order, b.count(taken, TSR_I64)), 0);
  b.set_summed(0, read.reshape(mask.sizes()));
}

}  // namespace

void add_grad_index(Table& t) {
  t.grad("gather", gather);
  t.grad("gather_nd", gather_nd);
  t.grad("scatter", scatter);
  t.grad("scatter_nd", scatter_nd);
  t.grad("masked_select", masked_select);
}

}  // namespace tessera::opset
