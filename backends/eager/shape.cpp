// SPDX-License-Identifier: Apache-2.0
// Ops that only move elements: each is one or several copies between views. The host runs most of them as views; these kernels
// are for the instances that need memory of their own.
#include <algorithm>
#include <cstring>

#include "copy.hpp"
#include "shape_ops.hpp"

namespace eager {

KernelPtr make_reshape(const Build& b, int) {
  return make_kernel(b, [](const tsr_launch& l) {
    const View x(l.inputs[0]);
    copy_view(x, dense_view(l.outputs[0].data, x.dtype, x.sizes));
  });
}

KernelPtr make_transpose(const Build& b, int) {
  const auto perm = b.axes("perm", b.rank());
  return make_kernel(b, [perm](const tsr_launch& l) {
    const View x(l.inputs[0]);
    View v = x;
    for (int i = 0; i < x.rank(); ++i) {
      v.sizes[i] = x.sizes[perm[i]];
      v.strides[i] = x.strides[perm[i]];
    }
    copy_view(v, View(l.outputs[0]));
  });
}

KernelPtr make_broadcast_to(const Build& b, int) {
  return make_kernel(b, [](const tsr_launch& l) {
    const View out(l.outputs[0]);
    View v(l.inputs[0]);
    Dims strides;
    strides.rank = out.rank();
    broadcast_strides(v, out.sizes, strides.v);
    v.sizes = out.sizes;
    v.strides = strides;
    copy_view(v, out);
  });
}

KernelPtr make_as_strided(const Build& b, int) {
  return make_kernel(b, [strides = b.dims("strides"), offset = b.dim("offset")](const tsr_launch& l) {
    const View out(l.outputs[0]), x(l.inputs[0]);
    const Dims step = strides.get(l.dims);
    const int64_t start = offset.get(l.dims);
    if (x.dense()) {
      View v = out;
      v.data = x.data;
      v.offset = start;
      v.strides = step;
      return copy_view(v, out);
    }
    // The strides count dense elements: find each of them in x.
    const View dense = dense_view(out.data, out.dtype, out.sizes);
    Nest<1> target, source;
    for (int d = 0; d < out.rank(); ++d) target.push(out.sizes[d], &step[d]);
    for (int d = 0; d < x.rank(); ++d) source.push(x.sizes[d], &x.strides[d]);
    View from = x, to = dense;
    from.sizes.rank = from.strides.rank = to.sizes.rank = to.strides.rank = 0;
    for (int64_t i = 0, n = out.elements(); i < n; ++i) {
      int64_t flat[1], at[1];
      target.offsets(i, flat);
      source.offsets(start + flat[0], at);
      from.offset = at[0];
      to.offset = i;
      copy_view(from, to);
    }
  });
}

KernelPtr make_flip(const Build& b, int) {
  return make_kernel(b, [axes = b.axes("axes", b.rank())](const tsr_launch& l) {
    View v(l.inputs[0]);
    for (int a : axes) {
      if (v.sizes[a] > 0) v.offset += (v.sizes[a] - 1) * v.strides[a];
      v.strides[a] = -v.strides[a];
    }
    copy_view(v, View(l.outputs[0]));
  });
}

KernelPtr make_diagonal(const Build& b, int) {
  const int a1 = b.axis("axis1", b.rank()), a2 = b.axis("axis2", b.rank());
  return make_kernel(b, [a1, a2, offset = b.integer("offset")](const tsr_launch& l) {
    const View x(l.inputs[0]), out(l.outputs[0]);
    View v = x;
    v.sizes = out.sizes;
    v.strides.rank = 0;
    for (int d = 0; d < x.rank(); ++d)
      if (d != a1 && d != a2) v.strides.push(x.strides[d]);
    v.strides.push(x.strides[a1] + x.strides[a2]);
    v.offset += offset >= 0 ? offset * x.strides[a2] : -offset * x.strides[a1];
    copy_view(v, out);
  });
}

KernelPtr make_concat(const Build& b, int) {
  return make_kernel(b, [axis = b.axis("axis", b.rank())](const tsr_launch& l) {
    const View out(l.outputs[0]);
    int64_t start = 0;
    for (uint32_t i = 0; i < l.num_inputs; ++i) {
      const View x(l.inputs[i]);
      copy_view(x, narrow(out, axis, start, x.sizes[axis]));
      start += x.sizes[axis];
    }
  });
}

KernelPtr make_stack(const Build& b, int) {
  return make_kernel(b, [axis = b.axis("axis", b.rank() + 1)](const tsr_launch& l) {
    const View out(l.outputs[0]);
    for (uint32_t i = 0; i < l.num_inputs; ++i) {
      View v = narrow(out, axis, i, 1);
      for (int d = axis; d + 1 < v.rank(); ++d) {
        v.sizes[d] = v.sizes[d + 1];
        v.strides[d] = v.strides[d + 1];
      }
      --v.sizes.rank;
      --v.strides.rank;
      copy_view(View(l.inputs[i]), v);
    }
  });
}

KernelPtr make_split(const Build& b, int) {
  return make_kernel(b, [axis = b.axis("axis", b.rank())](const tsr_launch& l) {
    const View x(l.inputs[0]);
    int64_t start = 0;
    for (uint32_t i = 0; i < l.num_outputs; ++i) {
      const View out(l.outputs[i]);
      copy_view(narrow(x, axis, start, out.sizes[axis]), out);
      start += out.sizes[axis];
    }
  });
}

KernelPtr make_tile(const Build& b, int) {
  return make_kernel(b, [repeats = b.integers("repeats")](const tsr_launch& l) {
    // Every dim as (repeat, size), the repeat with stride 0.
    const View x(l.inputs[0]);
    const int extra = static_cast<int>(repeats.size()) - x.rank();  // leading repeats without a dim of x
    View v = x;
    v.sizes.rank = v.strides.rank = 0;
    for (int i = 0; i < static_cast<int>(repeats.size()); ++i) {
      const int d = i - extra;
      v.sizes.push(repeats[static_cast<size_t>(i)]);
      v.strides.push(0);
      if (d < 0) continue;
      v.sizes.push(x.sizes[d]);
      v.strides.push(x.strides[d]);
    }
    for (int d = 0; d < -extra; ++d) {  // dims of x without a repeat
      v.sizes.push(0), v.strides.push(0);
      for (int k = v.rank() - 1; k > d; --k) v.sizes[k] = v.sizes[k - 1], v.strides[k] = v.strides[k - 1];
      v.sizes[d] = x.sizes[d], v.strides[d] = x.strides[d];
      v.strides.rank = v.sizes.rank;
    }
    copy_view(v, dense_view(l.outputs[0].data, x.dtype, v.sizes));
  });
}

namespace {

// Copies with every axis from `d` on rolled: along each, the last `shift` elements go first.
void roll_from(const View& src, const View& dst, const Dims& shift, int d) {
  while (d < src.rank() && shift[d] == 0) ++d;
  if (d >= src.rank()) return copy_view(src, dst);
  const int64_t n = src.sizes[d], s = shift[d];
  roll_from(narrow(src, d, n - s, s), narrow(dst, d, 0, s), shift, d + 1);
  roll_from(narrow(src, d, 0, n - s), narrow(dst, d, s, n - s), shift, d + 1);
}

// Rolled over the row-major order of all elements: copied first, then turned in place by three reversals, which needs no
// memory.
void roll_flat(const View& x, const View& out, int64_t by) {
  const int64_t n = out.elements();
  if (n == 0) return;
  copy_view(x, out);
  const int64_t shift = (by % n + n) % n;
  if (shift == 0) return;
  const auto turn = [&](auto* p) {
    std::reverse(p, p + n);
    std::reverse(p, p + shift);
    std::reverse(p + shift, p + n);
  };
  struct B16 {
    uint64_t a, b;
  };
  switch (element_bytes(out.dtype)) {
    case 1: return turn(static_cast<uint8_t*>(out.data));
    case 2: return turn(static_cast<uint16_t*>(out.data));
    case 4: return turn(static_cast<uint32_t*>(out.data));
    case 8: return turn(static_cast<uint64_t*>(out.data));
    case 16: return turn(static_cast<B16*>(out.data));
    default: break;
  }
  // Packed: read again from x at the shifted place.
  Nest<1> nest;
  for (int d = 0; d < x.rank(); ++d) nest.push(x.sizes[d], &x.strides[d]);
  const uint32_t code = tessera::dtype_bits(x.dtype) == 2 ? TSR_U2 : TSR_U4;
  for (int64_t i = 0; i < n; ++i) {
    int64_t at[1];
    nest.offsets((i - shift + n) % n, at);
    tessera::store_from(code, out.data, i, tessera::load_as<uint8_t>(code, x.data, x.offset + at[0]));
  }
}

}  // namespace

KernelPtr make_roll(const Build& b, int) {
  return make_kernel(b, [shifts = b.integers("shifts"), axes = b.axes("axes", b.rank())](const tsr_launch& l) {
    const View x(l.inputs[0]), out(l.outputs[0]);
    if (axes.empty()) return roll_flat(x, out, shifts.empty() ? 0 : shifts[0]);
    Dims shift;
    shift.rank = x.rank();
    for (int d = 0; d < x.rank(); ++d) shift[d] = 0;
    for (size_t i = 0; i < axes.size(); ++i)
      if (const int64_t n = x.sizes[axes[i]]; n > 0) shift[axes[i]] = ((shift[axes[i]] + shifts[i]) % n + n) % n;
    roll_from(x, out, shift, 0);
  });
}

KernelPtr make_triangle(const Build& b, int upper) {
  return make_kernel(b, [upper, diagonal = b.integer("diagonal")](const tsr_launch& l) {
    const View x(l.inputs[0]), out(l.outputs[0]);
    const int rank = x.rank();
    const int64_t bytes = tessera::storage_bytes(out.dtype, out.elements());
    if (bytes <= 0) return;
    unsigned char zero = 0;
    if (out.dtype == TSR_F8E8M0) tessera::store_from(out.dtype, &zero, 0, 0.0f);
    std::memset(out.data, zero, static_cast<size_t>(bytes));
    const int64_t rows = x.sizes[rank - 2], cols = x.sizes[rank - 1];
    const auto row = [&](int64_t r) {
      const int64_t edge = std::clamp<int64_t>(upper ? r + diagonal : r + diagonal + 1, 0, cols);
      const int64_t from = upper ? edge : 0, count = upper ? cols - edge : edge;
      if (count == 0) return;
      copy_view(narrow(narrow(x, rank - 2, r, 1), rank - 1, from, count),
                narrow(narrow(out, rank - 2, r, 1), rank - 1, from, count));
    };
    if (tessera::is_packed(out.dtype)) {
      for (int64_t r = 0; r < rows; ++r) row(r);
      return;
    }
    sdk::parallel(rows, std::max<int64_t>(1, kGrain / (1 + out.elements() / rows)), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(r);
    });
  });
}

}  // namespace eager
