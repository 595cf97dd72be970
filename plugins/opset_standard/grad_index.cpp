// SPDX-License-Identifier: Apache-2.0
// Gradients of indexing by data. Reading an element several times sums its gradients: scatter with reduction "add".
#include "build.hpp"
#include "table.hpp"
#include "tessera/dtypes.hpp"

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

// Gradients of scatter and scatter_nd alike: `into` scatters by the op's own positions, `taken` reads what stands there.
template <class Into, class Taken>
void scattered(GradBuild& b, Into into, Taken taken) {
  const Var x = b.operand(0), updates = b.operand(2), g = b.grad(), r = b.result();
  const std::string_view reduction = b.text("reduction");
  if (reduction == "add") {
    b.set(0, g);
    b.set(2, taken(g));
  } else if (reduction == "none") {
    // As PyTorch: of several writes to one place all receive its gradient.
    b.set(0, into(g, b.zeros_like(updates), "none"));
    b.set(2, taken(g));
  } else if (is_complex(x.dtype())) {
    b.undefined("reduction is '" + std::string(reduction) + "' of complex numbers");
  } else if (reduction == "mul") {
    // The product of the other factors. Where one factor is 0, it is computed without that one; of two the gradient is 0.
    const Var x_is_zero = x == 0.0, other_x = select(x_is_zero, 1.0, x);
    b.set(0, g * into(other_x, updates, "mul") / other_x);
    const Var is_zero = updates == 0.0;
    const Var zeros = taken(into(b.zeros_like(x), is_zero.to(x.dtype()), "add"));
    const Var alone = both(is_zero, zeros == 1.0);
    const Var without = into(x, select(alone, 1.0, updates), "mul");
    b.set(2, select(alone, taken(g * without), taken(g * r) / select(is_zero, 1.0, updates)));
  } else {  // max, min: all that are equal to the result share its gradient
    const Var of_x = x == r, of_updates = updates == taken(r);
    const Var share = g / into(of_x.to(g.dtype()), of_updates.to(g.dtype()), "add");
    b.set(0, select(of_x, share, 0.0));
    b.set(2, select(of_updates, taken(share), 0.0));
  }
}

void scatter(GradBuild& b) {
  const Var indices = b.operand(1);
  const tsr_attr axis = sdk::attr_int("axis", b.integer("axis"));
  scattered(
      b,
      [&](const Var& x, const Var& updates, const char* how) {
        return b.op("scatter", {x, indices, updates}, {axis, sdk::attr_string("reduction", how)});
      },
      [&](const Var& v) { return v.call("take_along_axis", indices, {axis}); });
}

void scatter_nd(GradBuild& b) {
  const Var indices = b.operand(1);
  scattered(
      b,
      [&](const Var& x, const Var& updates, const char* how) {
        return b.op("scatter_nd", {x, indices, updates}, {sdk::attr_string("reduction", how)});
      },
      [&](const Var& v) { return v.call("gather_nd", indices); });
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
