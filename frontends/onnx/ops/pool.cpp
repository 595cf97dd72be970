// SPDX-License-Identifier: Apache-2.0
// Pooling.
#include <algorithm>

#include "../window.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_bool;
using sdk::attr_int;
using sdk::attr_ints;

std::vector<V> pooled(Op& op, const char* name, const V& x, const Window& w, std::initializer_list<tsr_attr> more) {
  std::vector<tsr_attr> attrs = {attr_ints("kernel", w.kernel),       attr_ints("strides", w.strides),
                                 attr_ints("pad_low", w.low),         attr_ints("pad_high", w.high),
                                 attr_ints("dilations", w.dilations), attr_bool("ceil_mode", op.flag("ceil_mode"))};
  attrs.insert(attrs.end(), more.begin(), more.end());
  const V operands[] = {x};
  return op.b.ops(name, operands, attrs);
}

void max_pool(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const auto r = pooled(op, "max_pool", x, window(op, x, op.ints("kernel_shape")), {});
  op.out(r[0], 0);
  if (!op.wants(1)) return;
  // ONNX counts over the whole tensor, maybe in column order within a plane.
  V at = r[1];
  const auto spatial = std::span(x.sizes()).subspan(2);
  if (op.i("storage_order", 0) == 1) {
    V rest = at, column;
    tsr_dim below = 1;
    std::vector<V> index(spatial.size());
    for (size_t d = spatial.size(); d-- > 0;) {
      index[d] = rest.call("remainder", b.dim(spatial[d]));
      rest = rest.call("floor_div", b.dim(spatial[d]));
    }
    for (size_t d = 0; d < spatial.size(); ++d) {
      const V part = index[d] * b.dim(below);
      column = column ? column + part : part;
      below = b.mul(below, spatial[d]);
    }
    at = column;
  }
  const tsr_dim plane = b.product(spatial);
  Dims rows(x.sizes().size(), 1), columns(x.sizes().size(), 1);
  rows[0] = x.size(0);
  columns[1] = x.size(1);
  op.out(at + (b.iota(rows, 0) * b.dim(x.size(1)) + b.iota(columns, 1)) * b.dim(plane), 1);
}

void average_pool(Op& op) {
  const V x = op.in();
  op.out(pooled(op, "avg_pool", x, window(op, x, op.ints("kernel_shape")),
                {attr_bool("count_include_pad", op.flag("count_include_pad"))})[0]);
}

void lp_pool(Op& op) {
  const V x = op.in();
  const double p = op.version < 2 ? op.f("p", 2.0) : static_cast<double>(op.i("p", 2));
  const V powers = x.call("abs").call("pow", op.b.scalar(p, x.dtype()));
  const V sums = pooled(op, "avg_pool", powers, window(op, x, op.ints("kernel_shape")), {attr_int("divisor", 1)})[0];
  op.out(sums.call("pow", op.b.scalar(1 / p, x.dtype())));
}

Ints spatial_axes(Op& op, const V& x) {
  op.expect(x.rank() >= 3, "an input of rank " + std::to_string(x.rank()));
  return axes_from(2, x.rank());
}

void global_average_pool(Op& op) { op.out(op.b.reduce("mean", op.in(), spatial_axes(op, op.in()), true)); }
void global_max_pool(Op& op) { op.out(op.b.reduce("reduce_max", op.in(), spatial_axes(op, op.in()), true)); }
void global_lp_pool(Op& op) {
  const Ints axes = spatial_axes(op, op.in());
  const double p = op.version < 2 ? op.f("p", 2.0) : static_cast<double>(op.i("p", 2));
  op.out(op.in().call("norm", {sdk::attr_float("p", p), attr_ints("axes", axes), attr_bool("keepdims", true)}));
}

void max_unpool(Op& op) {
  Build& b = op.b;
  const V x = op.in(0), index = op.in(1);
  const Ints kernel = op.small_ints("kernel_shape");
  const size_t n = kernel.size();
  op.expect(static_cast<int64_t>(n) == x.rank() - 2, "the kernel does not fit the input");
  const Ints strides = op.small_ints("strides", Ints(n, 1)), pads = op.small_ints("pads", Ints(2 * n, 0));
  op.expect(strides.size() == n && pads.size() == 2 * n, "strides or pads do not fit the input");
  Dims shape = {x.size(0), x.size(1)};
  for (size_t i = 0; i < n; ++i)
    shape.push_back(b.add(b.mul(b.sub(x.size(static_cast<int64_t>(i) + 2), 1), strides[i]), kernel[i] - pads[i] - pads[n + i]));
  const tsr_dim all = b.product(shape);
  const V flat =
      b.op("scatter", {b.full(0, x.dtype(), {all}), b.reshape(index, {b.elements(index)}), b.reshape(x, {b.elements(x)})},
           {attr_int("axis", 0)});
  V y = b.reshape(flat, shape);
  if (op.has(2)) {  // the indices count in the inferred shape, which is then padded behind
    const Ints to = op.numbers(2);
    op.expect(to.size() == shape.size(), "input 2 'output_shape' has another rank");
    Dims low(to.size(), 0), high;
    for (size_t i = 0; i < to.size(); ++i) high.push_back(b.sub(to[i], shape[i]));
    y = b.pad(y, low, high);
  }
  op.out(y);
}

}  // namespace

std::span<const Record> pool_records() {
  static constexpr Record records[] = {
      {"", "MaxPool", max_pool},
      {"", "AveragePool", average_pool},
      {"", "LpPool", lp_pool},
      {"", "GlobalAveragePool", global_average_pool},
      {"", "GlobalMaxPool", global_max_pool},
      {"", "GlobalLpPool", global_lp_pool},
      {"", "MaxUnpool", max_unpool},
  };
  return records;
}

}  // namespace tessera::onnx
