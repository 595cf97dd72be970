// SPDX-License-Identifier: Apache-2.0
// Gradients of rearrangements: the inverse rearrangement, with sums where elements were repeated.
#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

Var pad_zeros(const Var& v, const DimVector& low, const DimVector& high, const Ints& interior) {
  return v.call("pad", Var(), {sdk::attr_dims("low", low), sdk::attr_dims("high", high), sdk::attr_ints("interior", interior)});
}

void to_device(GradBuild& b) {
  const char* back = sdk::host().core->device_name(b.operand(0).type().p->device);
  b.set(0, b.grad().call("to_device", {sdk::attr_string("device", back)}));
}

void transpose(GradBuild& b) {
  const Ints perm = b.axes("perm", b.operand(0).rank());
  Ints inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  b.set(0, b.grad().transpose(inverse));
}

// Zeros of the size `target` along axis, with v's slices added at `index` (one per slice, a vector).
Var scatter_along(Build& b, const Var& v, int64_t axis, const Var& index, tsr_dim target) {
  DimVector shape(static_cast<size_t>(v.rank()), 1), sizes = v.sizes();
  shape[static_cast<size_t>(axis)] = v.size(axis);
  sizes[static_cast<size_t>(axis)] = target;
  return b.op("scatter", {b.full(0, v.dtype(), sizes), index.reshape(shape).broadcast(v.sizes()), v},
              {sdk::attr_int("axis", axis), sdk::attr_string("reduction", "add")});
}

void slice(GradBuild& b) {
  const Var x = b.operand(0);
  Var g = b.grad();
  const Ints starts = b.ints("starts"), strides = b.ints("strides");
  const auto rank = static_cast<size_t>(x.rank());
  Ints backwards, interior(rank);
  DimVector low(rank), high(rank);
  bool padded = false;
  for (size_t i = 0; i < rank; ++i) {
    const auto axis = static_cast<int64_t>(i);
    const int64_t step = strides[i] < 0 ? -strides[i] : strides[i];
    const tsr_dim n = g.size(axis);
    if (step != 1 && !(Dims::known(n) && n > 0)) {
      // Gaps of padding would have to vanish where n is 0, which no size expression says.
      const Var index = b.iota({n}, 0) * b.integer_scalar(strides[i]) + b.count(starts[i], TSR_I64);
      g = scatter_along(b, g, axis, index, x.size(axis));
      continue;
    }
    // Taken elements lie at first, first + step, .., last.
    const tsr_dim span = b.dims.mul(b.dims.sub(n, 1), step);
    const tsr_dim first = strides[i] < 0 ? b.dims.sub(starts[i], span) : starts[i];
    if (strides[i] < 0) backwards.push_back(axis);
    low[i] = first;
    high[i] = b.dims.sub(b.dims.sub(x.size(axis), first), b.dims.add(span, 1));
    interior[i] = step - 1;
    padded = padded || low[i] != 0 || high[i] != 0 || interior[i] != 0;
  }
  if (!backwards.empty()) g = g.call("flip", {sdk::attr_ints("axes", backwards)});
  b.set(0, padded ? pad_zeros(g, low, high, interior) : g);
}

void concat(GradBuild& b) {
  const int64_t axis = b.axis("axis", b.operand(0).rank());
  const uint32_t n = b.node().num_operands();
  tsr_dim at = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const tsr_dim end = i + 1 == n ? b.grad().size(axis) : b.dims.add(at, b.operand(i).size(axis));
    b.set(i, b.grad().slice(axis, at, end));
    at = end;
  }
}

// The index in [0, n) that padding by `mode` reads at output positions -low .. n + high - 1.
Var padded_index(Build& b, std::string_view mode, tsr_dim low, tsr_dim n, tsr_dim length) {
  const Var size = b.count(n, TSR_I64), i = b.iota({length}, 0) - b.count(low, TSR_I64);
  if (mode == "edge") return b.op("clamp", {i, b.integer_scalar(0), size - 1});
  if (mode == "wrap") return i.call("remainder", size);
  // reflect: distance from the edges, folded back.
  const Var last = size - 1;
  return last - (last - i.call("abs")).call("abs");
}

void pad(GradBuild& b) {
  const Var x = b.operand(0);
  const Ints low = b.ints("low"), high = b.ints("high"), interior = b.ints("interior");
  const std::string_view mode = b.text("mode");
  const auto rank = static_cast<size_t>(x.rank());
  Var g = b.grad();
  if (mode != "constant") {
    // One dimension after the other: every position adds its gradient to the element that it repeats.
    for (size_t i = 0; i < rank; ++i) {
      if (low[i] == 0 && high[i] == 0) continue;
      const auto axis = static_cast<int64_t>(i);
      g = scatter_along(b, g, axis, padded_index(b, mode, low[i], x.size(axis), g.size(axis)), x.size(axis));
    }
    b.set(0, g);
    return;
  }
  // Undo low and high, then keep every (interior + 1)th element.
  DimVector less_low(rank), less_high(rank), starts(rank, 0), limits = x.sizes();
  Ints strides(rank, 1);
  bool strided = false;
  for (size_t i = 0; i < rank; ++i) {
    less_low[i] = b.dims.sub(0, low[i]);
    less_high[i] = b.dims.sub(0, high[i]);
    if (interior.empty() || interior[i] == 0) continue;
    strided = true;
    strides[i] = interior[i] + 1;
    limits[i] = b.dims.add(limits[i], b.dims.mul(b.dims.max(b.dims.sub(limits[i], 1), 0), interior[i]));
  }
  Var dx = pad_zeros(g, less_low, less_high, Ints(rank, 0));
  if (strided)
    dx = dx.call("slice",
                 {sdk::attr_dims("starts", starts), sdk::attr_dims("limits", limits), sdk::attr_ints("strides", strides)});
  b.set(0, dx);
  if (b.has(1)) {
    // What x did not receive went to the value.
    const auto total = [](const Var& v) { return v.sum(iota_ints(0, v.rank()), false); };
    b.set(1, total(g) - total(dx));
  }
}

void as_strided(GradBuild& b) {
  const Var x = b.operand(0), g = b.grad();
  const DimVector shape = g.sizes();
  const Ints strides = b.ints("strides");
  Var index = b.count(b.integer("offset"), TSR_I64);
  for (size_t i = 0; i < shape.size(); ++i) {
    DimVector along(shape.size(), 1);
    along[i] = shape[i];
    index = index + b.iota(along, static_cast<int64_t>(i)) * b.count(strides[i], TSR_I64);
  }
  const tsr_dim n = b.dims.product(shape);
  const Var flat = b.full(0, g.dtype(), {b.dims.product(x.sizes())});
  const Var sums = b.op("scatter", {flat, index.broadcast(shape).reshape({n}), g.reshape({n})},
                        {sdk::attr_int("axis", 0), sdk::attr_string("reduction", "add")});
  b.set(0, sums.reshape(x.sizes()));
}

}  // namespace

void add_grad_shape(Table& t) {
  t.grad("to_device", to_device);
  t.grad("transpose", transpose);
  t.grad("slice", slice);
  t.grad("concat", concat);
  t.grad("pad", pad);
  t.grad("as_strided", as_strided);
}

}  // namespace tessera::opset
