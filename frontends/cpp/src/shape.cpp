// SPDX-License-Identifier: Apache-2.0
// Shapes, indexing, joining, sorting.
#include <numeric>

#include "attrs.hpp"
#include "tessera/dtypes.hpp"
#include "trace.hpp"

namespace tessera {

using namespace detail;

namespace {

int64_t wrap(const char* op, int64_t axis, int64_t rank) {
  const int64_t a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank)
    fail("TSR-F005", std::string(op) + ": dimension " + std::to_string(axis) + " is out of range for rank " +
                         std::to_string(rank) + ": expected " + std::to_string(-rank) + ".." + std::to_string(rank - 1));
  return a;
}

std::string text(const Shape& s) {
  std::string out = "[";
  for (size_t i = 0; i < s.size(); ++i) out += (i ? ", " : "") + s[i].str();
  return out + "]";
}

bool is(const SymInt& d, int64_t v) { return !d.is_symbolic() && d.raw() == v; }

Tensor slice_op(const Tensor& x, const Shape& starts, const Shape& limits, const Axes& steps) {
  const Dims a(starts), b(limits);
  return run_op1("slice", {x}, {a.attr("starts"), b.attr("limits"), ints_attr("strides", steps)});
}

// A start or stop as Python slices it: negative counts from the end, then clamped to 0..size.
SymInt bound(const SymInt& at, const SymInt& size) {
  if (!at.is_symbolic() && !size.is_symbolic()) {
    int64_t v = at.raw();
    if (v < 0) v += size.raw();
    return v < 0 ? 0 : v > size.raw() ? size.raw() : v;
  }
  if (!at.is_symbolic() && at.raw() < 0) return size + at;
  return at;  // with symbolic sizes the op's own check (0 <= start <= limit <= size) becomes a guard
}

}  // namespace

Tensor Tensor::reshape(Shape shape) const {
  int64_t inferred = -1;
  SymInt known = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (is(shape[i], -1)) {
      if (inferred >= 0) fail("TSR-F012", "reshape to " + text(shape) + ": only one size may be -1");
      inferred = static_cast<int64_t>(i);
    } else {
      known = known * shape[i];
    }
  }
  if (inferred >= 0) {
    const SymInt total = numel();
    if (is(known, 0)) fail("TSR-F012", "reshape to " + text(shape) + ": the size for -1 is ambiguous when another is 0");
    if (!total.is_symbolic() && !known.is_symbolic() && total.raw() % known.raw() != 0)
      fail("TSR-F012", "reshape: " + std::to_string(total.raw()) + " elements do not fit " + text(shape));
    shape[static_cast<size_t>(inferred)] = total / known;
  }
  const Dims d(shape);
  return run_op1("reshape", {*this}, {d.attr("shape")});
}

Tensor Tensor::permute(Axes perm) const { return run_op1("transpose", {*this}, {ints_attr("perm", perm)}); }

Tensor Tensor::transpose(int64_t a, int64_t b) const {
  const int64_t rank = dim();
  if (rank == 0) return *this;
  Axes perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<size_t>(wrap("transpose", a, rank))], perm[static_cast<size_t>(wrap("transpose", b, rank))]);
  return permute(std::move(perm));
}

Tensor Tensor::unsqueeze(int64_t axis) const {
  const Axes axes{wrap("unsqueeze", axis, dim() + 1)};
  return run_op1("expand_dims", {*this}, {ints_attr("axes", axes)});
}
Tensor Tensor::squeeze() const {
  Axes axes;
  for (int64_t i = 0; i < dim(); ++i)
    if (size(i) == 1) axes.push_back(i);
  return axes.empty() ? *this : run_op1("squeeze", {*this}, {ints_attr("axes", axes)});
}
Tensor Tensor::squeeze(int64_t axis) const {
  const Axes axes{wrap("squeeze", axis, dim())};
  return size(axes[0]) == 1 ? run_op1("squeeze", {*this}, {ints_attr("axes", axes)}) : *this;  // as PyTorch: other sizes stay
}
Tensor Tensor::flatten(int64_t start, int64_t end) const {
  const int64_t rank = dim();
  if (rank == 0) return reshape({1});
  start = wrap("flatten", start, rank);
  end = wrap("flatten", end, rank);
  if (start > end) fail("TSR-F013", "flatten: start " + std::to_string(start) + " is after end " + std::to_string(end));
  Shape s;
  SymInt joined = 1;
  for (int64_t i = 0; i < rank; ++i) {
    if (i < start || i > end)
      s.push_back(size(i));
    else
      joined = joined * size(i);
    if (i == end) s.push_back(joined);
  }
  return reshape(std::move(s));
}
Tensor Tensor::expand(Shape shape) const {
  const int64_t extra = static_cast<int64_t>(shape.size()) - dim();
  if (extra < 0) fail("TSR-F014", "expand to " + text(shape) + ": fewer dimensions than the tensor has");
  for (size_t i = 0; i < shape.size(); ++i)
    if (is(shape[i], -1)) {
      if (static_cast<int64_t>(i) < extra) fail("TSR-F014", "expand: -1 is not allowed in a new dimension");
      shape[i] = size(static_cast<int64_t>(i) - extra);
    }
  const Dims d(shape);
  return run_op1("broadcast_to", {*this}, {d.attr("shape")});
}
Tensor Tensor::flip(Axes axes) const { return run_op1("flip", {*this}, {ints_attr("axes", axes)}); }
Tensor Tensor::roll(Axes shifts, Axes axes) const {
  return run_op1("roll", {*this}, {ints_attr("shifts", shifts), ints_attr("axes", axes)});
}
Tensor Tensor::repeat(Axes repeats) const {
  Tensor x = *this;
  while (x.dim() < static_cast<int64_t>(repeats.size())) x = x.unsqueeze(0);
  return run_op1("tile", {x}, {ints_attr("repeats", repeats)});
}
Tensor Tensor::tril(int64_t d) const { return run_op1("tril", {*this}, {int_attr("diagonal", d)}); }
Tensor Tensor::triu(int64_t d) const { return run_op1("triu", {*this}, {int_attr("diagonal", d)}); }
Tensor Tensor::diagonal(int64_t offset, int64_t axis1, int64_t axis2) const {
  return run_op1("diagonal", {*this}, {int_attr("offset", offset), int_attr("axis1", axis1), int_attr("axis2", axis2)});
}

Tensor Tensor::slice(int64_t axis, std::optional<SymInt> start, std::optional<SymInt> stop, int64_t step) const {
  const int64_t rank = dim();
  axis = wrap("slice", axis, rank);
  if (step <= 0) fail("TSR-F015", "slice: step " + std::to_string(step) + " is not positive", "use flip for a reversed order");
  Shape starts, limits = shape();
  Axes steps(static_cast<size_t>(rank), 1);
  for (int64_t i = 0; i < rank; ++i) starts.emplace_back(0);
  const size_t k = static_cast<size_t>(axis);
  const SymInt n = limits[k];
  if (start) starts[k] = bound(*start, n);
  if (stop) limits[k] = bound(*stop, n);
  if (!starts[k].is_symbolic() && !limits[k].is_symbolic() && limits[k].raw() < starts[k].raw()) limits[k] = starts[k];
  steps[k] = step;
  return slice_op(*this, starts, limits, steps);
}

Tensor Tensor::narrow(int64_t axis, SymInt start, SymInt length) const { return slice(axis, start, start + length); }

Tensor Tensor::select(int64_t axis, SymInt at) const {
  axis = wrap("select", axis, dim());
  const SymInt n = size(axis);
  if (!at.is_symbolic() && at.raw() < 0) at = n + at;
  if (!at.is_symbolic() && !n.is_symbolic() && (at.raw() < 0 || at.raw() >= n.raw()))
    fail("TSR-F016", "index " + std::to_string(at.raw()) + " is out of range for dimension " + std::to_string(axis) +
                         " of size " + n.str());
  const Axes axes{axis};
  return run_op1("squeeze", {slice(axis, at, at + 1)}, {ints_attr("axes", axes)});
}

Tensor Tensor::index(std::initializer_list<Index> items) const {
  int64_t consumed = 0;
  bool ellipsis = false;
  for (const Index& i : items) {
    consumed += i.kind == Index::kAt || i.kind == Index::kSlice || i.kind == Index::kTensor;
    if (i.kind == Index::kEllipsis && std::exchange(ellipsis, true)) fail("TSR-F017", "index: only one Ellipsis is allowed");
  }
  if (consumed > dim())
    fail("TSR-F017", "index: " + std::to_string(consumed) + " indices for a tensor of rank " + std::to_string(dim()));
  Tensor x = *this;
  int64_t axis = 0, tensors = 0;
  for (const Index& i : items) {
    switch (i.kind) {
      case Index::kAt: x = x.select(axis, i.at); break;
      case Index::kSlice: x = x.slice(axis++, i.slice.start, i.slice.stop, i.slice.step); break;
      case Index::kNone: x = x.unsqueeze(axis++); break;
      case Index::kEllipsis: axis += dim() - consumed; break;
      case Index::kTensor:
        if (++tensors > 1) fail("TSR-F017", "index: one index tensor at most", "use gather or op(\"gather_nd\")");
        if (i.tensor.dtype() == boolean) fail("TSR-F017", "index: a bool mask", "use masked_select");
        x = x.index_select(axis, i.tensor);
        axis += i.tensor.dim();
        break;
    }
  }
  return x;
}

std::vector<Tensor> Tensor::split(SymInt each, int64_t axis) const {
  axis = wrap("split", axis, dim());
  if (each <= 0) fail("TSR-F018", "split: size " + each.str() + " is not positive");
  const SymInt n = size(axis);
  // How many pieces there are is what the caller sees of the sizes, and so what an entry holds for.
  const int64_t pieces = n == 0 ? 1 : static_cast<int64_t>((n + each - 1) / each);
  Shape sizes(static_cast<size_t>(pieces - 1), each);
  sizes.push_back(n - each * (pieces - 1));
  const Dims d(sizes);
  const Tensor in[] = {*this};
  const tsr_attr attrs[] = {d.attr("sizes"), int_attr("axis", axis)};
  std::vector<Tensor> out;
  run_op("split", in, attrs, out);
  return out;
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t axis) const {
  if (chunks <= 0) fail("TSR-F018", "chunk: " + std::to_string(chunks) + " chunks");
  const SymInt n = size(axis);
  return n == 0 ? split(1, axis) : split((n + (chunks - 1)) / chunks, axis);
}

Tensor cat(const std::vector<Tensor>& xs, int64_t axis) {
  if (xs.empty()) fail("TSR-F019", "cat: no tensors");
  ResultType r;
  for (const Tensor& x : xs) r.add_tensor(static_cast<uint32_t>(x.dtype()), static_cast<uint32_t>(x.dim()));
  if (r.get() == TSR_DTYPE_INVALID) fail("TSR-F010", "cat: the tensors have no common type", "convert them with .to(dtype)");
  std::vector<Tensor> in, out;
  for (const Tensor& x : xs) in.push_back(x.to(static_cast<DType>(r.get())));
  const tsr_attr attrs[] = {int_attr("axis", wrap("cat", axis, xs[0].dim()))};
  run_op("concat", in, attrs, out);
  return out[0];
}
Tensor stack(const std::vector<Tensor>& xs, int64_t axis) {
  if (xs.empty()) fail("TSR-F019", "stack: no tensors");
  std::vector<Tensor> in;
  for (const Tensor& x : xs) in.push_back(x.unsqueeze(axis));
  return cat(in, axis);
}

// ------------------------------------------------------------------------------------------------------ gather, sorting

namespace {
// The IR's indices do not wrap; PyTorch's may be negative.
Tensor nonnegative(const Tensor& indices, const SymInt& size) {
  const Tensor i = indices.dtype() == i32 ? indices : indices.to(i64);
  if (size.is_symbolic()) {
    const Tensor n = run_op1("dim_value", {}, {dim_attr("value", size)}).to(i.dtype());
    return where(i < 0, i + n, i);
  }
  return where(i < 0, i + static_cast<int64_t>(size), i);
}
}  // namespace

Tensor Tensor::gather(int64_t axis, const Tensor& indices) const {
  axis = wrap("gather", axis, dim());
  return run_op1("take_along_axis", {*this, indices}, {int_attr("axis", axis)});
}
Tensor Tensor::index_select(int64_t axis, const Tensor& indices) const {
  axis = wrap("index_select", axis, dim());
  return run_op1("gather", {*this, nonnegative(indices, size(axis))}, {int_attr("axis", axis)});
}
Tensor Tensor::scatter(int64_t axis, const Tensor& indices, const Tensor& src) const {
  return run_op1("scatter", {*this, indices, src},
                 {int_attr("axis", wrap("scatter", axis, dim())), string_attr("reduction", "none")});
}
Tensor Tensor::scatter_add(int64_t axis, const Tensor& indices, const Tensor& src) const {
  return run_op1("scatter", {*this, indices, src},
                 {int_attr("axis", wrap("scatter_add", axis, dim())), string_attr("reduction", "add")});
}
namespace {
std::pair<Tensor, Tensor> two(const char* op, const Tensor& x, std::initializer_list<tsr_attr> attrs) {
  const Tensor in[] = {x};
  std::vector<Tensor> out;
  run_op(op, in, {attrs.begin(), attrs.size()}, out);
  return {out[0], out[1]};
}
}  // namespace
std::pair<Tensor, Tensor> Tensor::sort(int64_t axis, bool descending) const {
  return two("sort", *this, {int_attr("axis", axis), bool_attr("descending", descending)});
}
Tensor Tensor::argsort(int64_t axis, bool descending) const { return sort(axis, descending).second; }
std::pair<Tensor, Tensor> Tensor::topk(SymInt k, int64_t axis, bool largest) const {
  return two("topk", *this, {dim_attr("k", k), int_attr("axis", axis), bool_attr("largest", largest)});
}
Tensor Tensor::nonzero() const { return run_op1("nonzero", {*this}); }
Tensor Tensor::masked_select(const Tensor& mask) const { return run_op1("masked_select", {*this, mask}); }

}  // namespace tessera
