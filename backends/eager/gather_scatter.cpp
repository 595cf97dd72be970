// SPDX-License-Identifier: Apache-2.0
// Reading and writing at positions that are data. All indices are checked before anything is written.
#include <algorithm>
#include <cstring>
#include <limits>

#include "copy.hpp"
#include "index_ops.hpp"

namespace eager {
namespace {

int64_t read_index(const View& indices, int64_t at) {
  return indices.dtype == TSR_I32 ? static_cast<const int32_t*>(indices.data)[at]
                                  : static_cast<const int64_t*>(indices.data)[at];
}

Nest<1> nest_of(const View& v) {
  Nest<1> n;
  for (int d = 0; d < v.rank(); ++d) n.push(v.sizes[d], &v.strides[d]);
  return n;
}

void check_indices(const std::string& op, const View& indices, int64_t size, int64_t axis) {
  const Nest<1> nest = nest_of(indices);
  for (int64_t i = 0, n = indices.elements(); i < n; ++i) {
    int64_t at[1];
    nest.offsets(i, at);
    const int64_t index = read_index(indices, at[0]);
    if (index < 0 || index >= size) fail_index(op, index, size, axis);
  }
}

// The dims of `v` from `from` up to `to` as a view at the same offset.
View dims_between(const View& v, int from, int to) {
  View out = v;
  out.sizes.rank = out.strides.rank = 0;
  for (int d = from; d < to; ++d) out.sizes.push(v.sizes[d]), out.strides.push(v.strides[d]);
  return out;
}

}  // namespace

KernelPtr make_gather(const Build& b, int embedding) {
  const int axis = embedding ? 0 : b.axis("axis", b.rank());
  return make_kernel(b, [axis, op = b.op()](const tsr_launch& l) {
    const View x(l.inputs[0]), indices(l.inputs[1]), out(l.outputs[0]);
    const Nest<1> index_nest = nest_of(indices), outer = nest_of(dims_between(x, 0, axis));
    const View inner = dims_between(x, axis + 1, x.rank());
    const int64_t count = indices.elements(), inner_count = inner.elements(), outer_count = x.sizes.product(0, axis);
    if (count * inner_count * outer_count == 0) return;  // what reads nothing reads nothing outside, as on every backend
    check_indices(op, indices, x.sizes[axis], axis);
    const int64_t size = element_bytes(x.dtype), step = x.strides[axis];
    if (size > 0 && inner.dense()) {
      const int64_t bytes = inner_count * size;
      char* to = static_cast<char*>(out.data);
      const char* from = static_cast<const char*>(x.data);
      return sdk::parallel(outer_count * count, std::max<int64_t>(1, kGrain / (inner_count + 4)),
                           [&](int64_t begin, int64_t end) {
                             for (int64_t i = begin; i < end; ++i) {
                               int64_t o[1], at[1];
                               outer.offsets(i / count, o);
                               index_nest.offsets(i % count, at);
                               const char* src = from + (o[0] + read_index(indices, at[0]) * step) * size;
                               if (size == 4 && inner_count == 1)
                                 std::memcpy(to + i * 4, src, 4);
                               else if (size == 8 && inner_count == 1)
                                 std::memcpy(to + i * 8, src, 8);
                               else
                                 std::memcpy(to + i * bytes, src, static_cast<size_t>(bytes));
                             }
                           });
    }
    View to = inner;
    to.data = out.data;
    to.strides = dense_view(nullptr, x.dtype, inner.sizes).strides;
    View from = inner;
    for (int64_t i = 0; i < outer_count * count; ++i) {
      int64_t o[1], at[1];
      outer.offsets(i / count, o);
      index_nest.offsets(i % count, at);
      from.offset = o[0] + read_index(indices, at[0]) * step;
      to.offset = i * inner_count;
      copy_view(from, to);
    }
  });
}

namespace {

// Loops over the shape of `indices`; strides of x or the output without the axis, of indices, and of the other tensor.
Nest<3> axis_nest(const View& indices, const View& indexed, int axis, const View& other) {
  Nest<3> nest;
  for (int d = 0; d < indices.rank(); ++d) {
    const int64_t s[3] = {d == axis ? 0 : indexed.strides[d], indices.strides[d], other.strides[d]};
    nest.push(indices.sizes[d], s);
  }
  return nest;
}

template <class T>
void take(const View& x, const View& indices, const View& out, const Nest<3>& nest, int64_t step) {
  const T* from = static_cast<const T*>(x.data);
  T* to = static_cast<T*>(out.data);
  sdk::parallel(indices.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t at[3];
      nest.offsets(i, at);
      to[at[2]] = from[at[0] + read_index(indices, at[1]) * step];
    }
  });
}

}  // namespace

KernelPtr make_take_along_axis(const Build& b, int) {
  const int axis = b.axis("axis", b.rank());
  return make_kernel(b, [axis, op = b.op()](const tsr_launch& l) {
    const View x(l.inputs[0]), indices(l.inputs[1]), out(l.outputs[0]);
    check_indices(op, indices, x.sizes[axis], axis);
    const View dense = dense_view(out.data, out.dtype, out.sizes);
    const Nest<3> nest = axis_nest(indices, x, axis, dense);
    const int64_t step = x.strides[axis];
    switch (element_bytes(x.dtype)) {
      case 1: return take<uint8_t>(x, indices, out, nest, step);
      case 2: return take<uint16_t>(x, indices, out, nest, step);
      case 4: return take<uint32_t>(x, indices, out, nest, step);
      case 8: return take<uint64_t>(x, indices, out, nest, step);
      case 16: return take<C128>(x, indices, out, nest, step);
      default: break;
    }
    const uint32_t code = tessera::dtype_bits(x.dtype) == 2 ? TSR_U2 : TSR_U4;
    for (int64_t i = 0, n = indices.elements(); i < n; ++i) {
      int64_t at[3];
      nest.offsets(i, at);
      const int64_t from = at[0] + read_index(indices, at[1]) * step;
      tessera::store_from(code, out.data, at[2], tessera::load_as<uint8_t>(code, x.data, from));
    }
  });
}

namespace {

enum class Combine { None, Add, Mul, Max, Min };
Combine combine_of(const std::string& s) {
  return s == "add"   ? Combine::Add
         : s == "mul" ? Combine::Mul
         : s == "max" ? Combine::Max
         : s == "min" ? Combine::Min
                      : Combine::None;
}

template <class T>
T combined(Combine c, T a, T b) {
  if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>) {
    if (c == Combine::Mul) return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    return {a.re + b.re, a.im + b.im};
  } else if constexpr (std::is_same_v<T, uint8_t>) {  // bool
    return c == Combine::Add || c == Combine::Max ? a | b : a & b;
  } else {
    using W = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;
    switch (c) {
      case Combine::Add: return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
      case Combine::Mul: return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
      case Combine::Max: return a != a ? a : (a > b ? a : b);
      default: return a != a ? a : (a < b ? a : b);
    }
  }
}

// out[to] = combine(out[to], updates[from]) for n neighbours; rounded when stored.
void combine_run(const Isa& isa, Combine c, const View& out, int64_t to, const View& updates, int64_t from, int64_t step,
                 int64_t n) {
  alignas(64) char a[kTile * 16], u[kTile * 16];
  for (int64_t i = 0; i < n; i += kTile) {
    const int64_t m = std::min(kTile, n - i);
    load_run(isa, updates.dtype, updates.data, from + i * step, step, m, u);
    if (c == Combine::None) {
      store_run(isa, out.dtype, out.data, to + i, m, u);
      continue;
    }
    load_run(isa, out.dtype, out.data, to + i, 1, m, a);
    with_comp(comp_of(out.dtype), [&](auto zero) {
      using T = decltype(zero);
      T* x = reinterpret_cast<T*>(a);
      const T* y = reinterpret_cast<const T*>(u);
      for (int64_t j = 0; j < m; ++j) x[j] = combined(c, x[j], y[j]);
    });
    store_run(isa, out.dtype, out.data, to + i, m, a);
  }
}

}  // namespace

KernelPtr make_scatter(const Build& b, int) {
  const int axis = b.axis("axis", b.rank());
  const Combine combine = combine_of(b.text("reduction"));
  return make_overwriting_kernel(b, [axis, combine, isa = b.isa, op = b.op()](const tsr_launch& l) {
    const View x(l.inputs[0]), indices(l.inputs[1]), updates(l.inputs[2]), out(l.outputs[0]);
    check_indices(op, indices, x.sizes[axis], axis);
    const View dense = dense_view(out.data, out.dtype, out.sizes);
    if (x.data != out.data) copy_view(x, dense);
    const Nest<3> nest = axis_nest(indices, dense, axis, updates);
    // Serial, in row-major order: the last of several writes wins and sums have one order.
    for (int64_t i = 0, n = indices.elements(); i < n; ++i) {
      int64_t at[3];
      nest.offsets(i, at);
      combine_run(*isa, combine, out, at[0] + read_index(indices, at[1]) * dense.strides[axis], updates, at[2], 1, 1);
    }
  });
}

namespace {

// Where each index tuple points: tuples are the last dim of `indices`; `batch` leading dims are shared with `indexed`.
struct Tuples {
  View indices;
  Nest<1> nest;  // over the tuples
  int64_t length, step, count;
  int batch;

  Tuples(const View& v, int batch) : indices(v), batch(batch) {
    const int last = v.rank() - 1;
    length = v.sizes[last];
    step = v.strides[last];
    nest = nest_of(dims_between(v, 0, last));
    count = v.sizes.product(0, last);
  }
  void check(const std::string& op, const View& indexed) const {
    for (int64_t i = 0; i < count; ++i) {
      int64_t at[1];
      nest.offsets(i, at);
      for (int64_t j = 0; j < length; ++j) {
        const int64_t index = read_index(indices, at[0] + j * step), size = indexed.sizes[batch + static_cast<int>(j)];
        if (index < 0 || index >= size) fail_index(op, index, size, batch + j);
      }
    }
  }
  int64_t offset(int64_t i, const View& indexed) const {
    int64_t at[1];
    nest.offsets(i, at);
    int64_t out = 0;
    for (int64_t j = 0; j < length; ++j)
      out += read_index(indices, at[0] + j * step) * indexed.strides[batch + static_cast<int>(j)];
    if (batch > 0) {
      int64_t rest = i / indices.sizes.product(batch, indices.rank() - 1);
      for (int d = batch - 1; d >= 0; --d) {
        out += rest % indices.sizes[d] * indexed.strides[d];
        rest /= indices.sizes[d];
      }
    }
    return out;
  }
};

}  // namespace

KernelPtr make_gather_nd(const Build& b, int) {
  const int batch = static_cast<int>(b.integer("batch_dims"));
  return make_kernel(b, [batch, op = b.op()](const tsr_launch& l) {
    const View x(l.inputs[0]), out(l.outputs[0]);
    const Tuples t(View(l.inputs[1]), batch);
    View from = dims_between(x, batch + static_cast<int>(t.length), x.rank());
    View to = dense_view(out.data, out.dtype, from.sizes);
    const int64_t n = from.elements(), size = element_bytes(x.dtype);
    if (n == 0) return;
    t.check(op, x);
    if (size > 0 && from.dense())
      return sdk::parallel(t.count, std::max<int64_t>(1, kGrain / (n + 8)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          std::memcpy(static_cast<char*>(out.data) + i * n * size, static_cast<const char*>(x.data) + t.offset(i, x) * size,
                      static_cast<size_t>(n * size));
      });
    for (int64_t i = 0; i < t.count; ++i) {
      from.offset = t.offset(i, x);
      to.offset = i * n;
      copy_view(from, to);
    }
  });
}

KernelPtr make_scatter_nd(const Build& b, int) {
  const Combine combine = combine_of(b.text("reduction"));
  return make_overwriting_kernel(b, [combine, isa = b.isa, op = b.op()](const tsr_launch& l) {
    const View x(l.inputs[0]), updates(l.inputs[2]), out(l.outputs[0]);
    const Tuples t(View(l.inputs[1]), 0);
    const int64_t n = x.sizes.product(static_cast<int>(t.length));  // elements of one slice: contiguous in the output
    if (n > 0) t.check(op, x);
    const View dense = dense_view(out.data, out.dtype, out.sizes);
    if (x.data != out.data) copy_view(x, dense);
    const int lead = t.indices.rank() - 1;
    const Nest<1> tuples = nest_of(dims_between(updates, 0, lead)),
                  slice = nest_of(dims_between(updates, lead, updates.rank()));
    const int64_t inner = slice.rank > 0 ? slice.sizes[slice.rank - 1] : 1,
                  step = slice.rank > 0 ? slice.strides[0][slice.rank - 1] : 1;
    for (int64_t i = 0; i < t.count; ++i) {
      int64_t u[1];
      tuples.offsets(i, u);
      const int64_t to = t.offset(i, dense);
      for (int64_t j = 0; j < n; j += inner) {
        int64_t s[1];
        slice.offsets(j / inner, s, slice.rank > 0 ? 1 : 0);
        combine_run(*isa, combine, out, to + j, updates, u[0] + s[0], step, inner);
      }
    }
  });
}

}  // namespace eager
