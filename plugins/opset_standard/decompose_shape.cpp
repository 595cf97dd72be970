// SPDX-License-Identifier: Apache-2.0
// tile, roll, diagonal, stack, split and one_hot as views, concat and select.
#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

void tile(Build& b) {
  Var x = b.operand(0);
  const Ints repeats = b.ints("repeats");
  const size_t lead = repeats.size() - static_cast<size_t>(x.rank());
  // [a, b] -> [1, a, 1, b] -> [r0, a, r1, b] -> [r0*a, r1*b]
  DimVector apart, repeated, joined;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const tsr_dim size = i < lead ? 1 : x.size(static_cast<int64_t>(i - lead));
    apart.insert(apart.end(), {1, size});
    repeated.insert(repeated.end(), {repeats[i], size});
    joined.push_back(b.dims.mul(size, repeats[i]));
  }
  b.replace(0, x.reshape(apart).broadcast(repeated).reshape(joined));
}

Var roll_axis(Build& b, const Var& x, int64_t axis, int64_t shift) {
  const tsr_dim size = x.size(axis);
  if (shift == 0 || size == 0 || size == 1) return x;
  // The first element of the result is x[-shift mod size], where there is one.
  const tsr_dim cut = b.dims.make(TSR_DIM_MOD, -shift, b.dims.max(size, 1));
  if (cut == 0) return x;
  const Var parts[] = {x.slice(axis, cut, size), x.slice(axis, 0, cut)};
  return b.concat(parts, axis);
}

void roll(Build& b) {
  const Var x = b.operand(0);
  const Ints shifts = b.ints("shifts"), axes = b.axes("axes", x.rank());
  if (axes.empty()) {
    const Var flat = x.reshape({b.dims.product(x.sizes())});
    b.replace(0, roll_axis(b, flat, 0, shifts[0]).reshape(x.sizes()));
    return;
  }
  Var y = x;
  for (size_t i = 0; i < axes.size(); ++i) y = roll_axis(b, y, axes[i], shifts[i]);
  b.replace(0, y);
}

void diagonal(Build& b) {
  const Var x = b.operand(0);
  const int64_t offset = b.integer("offset"), a1 = b.axis("axis1", x.rank()), a2 = b.axis("axis2", x.rank());
  Ints perm;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != a1 && i != a2) perm.push_back(i);
  perm.insert(perm.end(), {a1, a2});
  const Var y = x.transpose(perm);
  const tsr_dim rows = x.size(a1), columns = x.size(a2), n = b.result().size(-1);
  DimVector shape = y.sizes(), strides;
  shape.pop_back();
  shape.back() = n;
  // Of row-major [.., rows, columns] the diagonal has the strides [.., columns + 1].
  tsr_dim stride = b.dims.mul(rows, columns);
  strides.resize(shape.size());
  strides.back() = b.dims.add(columns, 1);
  for (size_t i = shape.size() - 1; i-- > 0;) {
    strides[i] = stride;
    stride = b.dims.mul(stride, shape[i]);
  }
  const tsr_dim first = n == 0 ? 0 : offset >= 0 ? tsr_dim{offset} : b.dims.mul(-offset, columns);
  b.replace(0, y.call("as_strided",
                      {sdk::attr_dims("shape", shape), sdk::attr_dims("strides", strides), sdk::attr_dim("offset", first)}));
}

void stack(Build& b) {
  std::vector<Var> parts;
  const int64_t axis = b.axis("axis", b.operand(0).rank() + 1);
  for (uint32_t i = 0; i < b.node().num_operands(); ++i) parts.push_back(b.operand(i).expand({axis}));
  b.replace(0, b.concat(parts, axis));
}

void split(Build& b) {
  const Var x = b.operand(0);
  const int64_t axis = b.axis("axis", x.rank());
  const Ints pieces = b.ints("sizes");
  tsr_dim at = 0;
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    // The last piece ends where x does: the two forms of that size may differ.
    const tsr_dim end = i + 1 == pieces.size() ? x.size(axis) : b.dims.add(at, pieces[i]);
    b.replace(i, x.slice(axis, at, end));
    at = end;
  }
}

void one_hot(Build& b) {
  const Var indices = b.operand(0);
  const sdk::Type out = b.result().type();
  const int64_t axis = b.axis("axis", indices.rank() + 1);
  const DimVector shape(out.sizes().begin(), out.sizes().end());
  b.replace(0, (indices.expand({axis}) == b.iota(shape, axis, indices.dtype())).to(out.dtype()));
}

}  // namespace

void add_decompose_shape(Table& t) {
  t.decompose("tile", tile);
  t.decompose("roll", roll);
  t.decompose("diagonal", diagonal);
  t.decompose("stack", stack);
  t.decompose("split", split);
  t.decompose("one_hot", one_hot);
}

}  // namespace tessera::opset
