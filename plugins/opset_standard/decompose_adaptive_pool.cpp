// SPDX-License-Identifier: Apache-2.0
// Adaptive pooling: ordinary pooling where the windows are all alike, else windows gathered and masked. Window i of o over n
// elements reaches from floor(i*n/o) to ceil((i + 1)*n/o), as in PyTorch.
#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

struct Windows {
  Var values;        // [N, C, o1, k1, o2, k2, ..]: windows padded to their greatest length
  Var inside;        // bool, broadcasts to values
  Var flat;          // i64, broadcasts to values: index in the flattened spatial dimensions of x
  Ints kernel_axes;  // of k1, k2, ..
  DimVector kernel;  // k1, k2, ..
  Var count;         // i64 [o1, o2, ..]: elements inside
};

// Every n divisible by its o: a pooling window of n/o. False where that is open.
bool uniform(const Var& x, const Ints& output, Ints& kernel) {
  for (size_t i = 0; i < output.size(); ++i) {
    const tsr_dim n = x.size(2 + static_cast<int64_t>(i));
    if (!Dims::known(n) || !Dims::known(output[i]) || output[i] == 0 || n % output[i] != 0) return false;
    kernel.push_back(n / output[i]);
  }
  return true;
}

Windows gather_windows(Build& b, const Var& x, const Ints& output) {
  const size_t n = output.size();
  const size_t rank = 2 + 2 * n;
  Windows w{x, {}, {}, {}, {}, {}};
  for (size_t i = 0; i < n; ++i) {
    const int64_t axis = 2 + 2 * static_cast<int64_t>(i);
    const tsr_dim size = x.size(2 + static_cast<int64_t>(i)), out = output[i];
    // ceil((i + 1)*n/o) - floor(i*n/o) is at most ceil(n/o) + 1.
    const tsr_dim longest = out == 0 ? 1 : b.dims.min(size, b.dims.add(b.dims.ceildiv(size, out), 1));
    const Var number = b.iota({out, 1}, 0), total = b.count(size, TSR_I64), parts = b.count(out == 0 ? 1 : out, TSR_I64);
    const Var start = (number * total).call("floor_div", parts);
    const Var stop = ((number + 1) * total + (parts - 1)).call("floor_div", parts);
    const Var position = start + b.iota({1, longest}, 1);  // [o, k]
    const Var valid = position < stop;
    const Var index = minimum(position, total - 1);
    w.values = w.values.gather(index, axis);
    DimVector place(rank, 1);
    place[static_cast<size_t>(axis)] = out;
    place[static_cast<size_t>(axis) + 1] = longest;
    const Var here = valid.reshape(place);
    w.inside = w.inside ? both(w.inside, here) : here;
    const Var along = index.reshape(place);
    w.flat = w.flat ? w.flat * total + along : along;
    DimVector length(n, 1);
    length[i] = out;
    const Var c = (stop - start).reshape(length);
    w.count = w.count ? w.count * c : c;
    w.kernel_axes.push_back(axis + 1);
    w.kernel.push_back(longest);
  }
  return w;
}

void adaptive_avg_pool(Build& b) {
  const Var x = b.operand(0);
  const Ints output = b.ints("output");
  Ints kernel;
  if (uniform(x, output, kernel)) {
    const Ints zero(kernel.size(), 0), one(kernel.size(), 1);
    b.replace(0, x.call("avg_pool",
                        {sdk::attr_ints("kernel", kernel), sdk::attr_ints("strides", kernel), sdk::attr_ints("pad_low", zero),
                         sdk::attr_ints("pad_high", zero), sdk::attr_ints("dilations", one)}));
    return;
  }
  const Windows w = gather_windows(b, b.wide(x), output);
  const Var sum = select(w.inside, w.values, 0).sum(w.kernel_axes, false);
  b.replace(0, (sum / w.count.to(sum.dtype())).to(x.dtype()));
}

void adaptive_max_pool(Build& b) {
  const Var x = b.operand(0);
  const Ints output = b.ints("output");
  Ints kernel;
  if (uniform(x, output, kernel)) {
    const Ints zero(kernel.size(), 0), one(kernel.size(), 1);
    const tsr_attr attrs[] = {sdk::attr_ints("kernel", kernel), sdk::attr_ints("strides", kernel),
                              sdk::attr_ints("pad_low", zero), sdk::attr_ints("pad_high", zero),
                              sdk::attr_ints("dilations", one)};
    const std::vector<Var> r = b.ops("max_pool", {&x, 1}, attrs);
    b.replace(0, r[0]);
    b.replace(1, r[1]);
    return;
  }
  const Windows w = gather_windows(b, x, output);
  // Kernel axes last and flattened.
  Ints perm = {0, 1};
  DimVector shape = b.result().sizes();
  for (size_t i = 0; i < output.size(); ++i) perm.push_back(2 + 2 * static_cast<int64_t>(i));
  perm.insert(perm.end(), w.kernel_axes.begin(), w.kernel_axes.end());
  DimVector all = w.values.sizes(), flat_shape = shape;
  flat_shape.push_back(b.dims.product(w.kernel));
  const auto windows_last = [&](const Var& v) { return v.broadcast(all).transpose(perm).reshape(flat_shape); };
  const Var values = windows_last(w.values), inside = windows_last(w.inside), flat = windows_last(w.flat);
  // Place 0 of a window is always inside: what lies outside takes its value, so it changes neither the maximum nor, coming
  // later, the first index of it.
  const int64_t last = static_cast<int64_t>(flat_shape.size()) - 1;
  const Var masked = select(inside, values, values.slice(last, 0, 1));
  const Var best = masked.call("argmax", {sdk::attr_int("axis", last), sdk::attr_bool("keepdims", true)});
  const auto pick = [&](const Var& v) { return v.call("take_along_axis", best, {sdk::attr_int("axis", last)}).reshape(shape); };
  b.replace(0, pick(masked));
  b.replace(1, pick(flat));
}

}  // namespace

void add_decompose_adaptive_pool(Table& t) {
  t.decompose("adaptive_avg_pool", adaptive_avg_pool);
  t.decompose("adaptive_max_pool", adaptive_max_pool);
}

}  // namespace tessera::opset
