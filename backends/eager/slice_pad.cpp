// SPDX-License-Identifier: Apache-2.0
// Slices with static and with run-time starts, and padding.
#include <algorithm>
#include <cstring>

#include "copy.hpp"
#include "shape_ops.hpp"

namespace eager {

KernelPtr make_slice(const Build& b, int) {
  return make_kernel(b, [starts = b.dims("starts"), strides = b.integers("strides")](const tsr_launch& l) {
    View v(l.inputs[0]);
    const View out(l.outputs[0]);
    const Dims start = starts.get(l.dims);
    for (int d = 0; d < v.rank(); ++d) {
      v.offset += start[d] * v.strides[d];
      v.strides[d] *= strides[static_cast<size_t>(d)];
      v.sizes[d] = out.sizes[d];
    }
    copy_view(v, out);
  });
}

namespace {

// Starts of a dynamic slice of `part` in `whole`: read and clamped so that it stays inside.
Dims read_starts(const tsr_launch& l, uint32_t first, const Dims& whole, const Dims& part) {
  Dims d;
  for (int i = 0; i < whole.rank; ++i) {
    const tsr_tensor& t = l.inputs[first + static_cast<uint32_t>(i)];
    d.push(std::clamp<int64_t>(tessera::load_as<int64_t>(t.dtype, t.data, 0), 0, whole[i] - part[i]));
  }
  return d;
}

View window(View v, const Dims& start, const Dims& size) {
  for (int d = 0; d < v.rank(); ++d) v = narrow(v, d, start[d], size[d]);
  return v;
}

}  // namespace

KernelPtr make_dynamic_slice(const Build& b, int) {
  return make_kernel(b, [](const tsr_launch& l) {
    const View x(l.inputs[0]), out(l.outputs[0]);
    copy_view(window(x, read_starts(l, 1, x.sizes, out.sizes), out.sizes), out);
  });
}

KernelPtr make_dynamic_update_slice(const Build& b, int) {
  return make_overwriting_kernel(b, [](const tsr_launch& l) {
    const View x(l.inputs[0]), update(l.inputs[1]), out(l.outputs[0]);
    if (x.data != out.data) copy_view(x, out);
    copy_view(update, window(out, read_starts(l, 2, x.sizes, update.sizes), update.sizes));
  });
}

namespace {

enum class PadMode { Reflect, Edge, Wrap };

// Position p of the padded axis, counted from x's first element, as a position inside x.
int64_t source(PadMode mode, int64_t p, int64_t n) {
  if (p >= 0 && p < n) return p;
  switch (mode) {
    case PadMode::Edge: return p < 0 ? 0 : n - 1;
    case PadMode::Wrap: return (p % n + n) % n;
    case PadMode::Reflect: break;
  }
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);
  const int64_t q = (p % period + period) % period;
  return q < n ? q : period - q;
}

// Each axis in turn is cut into stretches that copy runs of x (the middle), or single positions.
void pad_axis(View src, View dst, const Dims& low, PadMode mode, int d) {
  if (d == src.rank()) return copy_view(src, dst);
  const int64_t n = src.sizes[d], m = dst.sizes[d];
  for (int64_t j = 0; j < m;) {
    const int64_t at = source(mode, j - low[d], n);
    int64_t run = 1;
    if (at == j - low[d]) run = std::min(n - at, m - j);
    pad_axis(narrow(src, d, at, run), narrow(dst, d, j, run), low, mode, d + 1);
    j += run;
  }
}

void pad_constant(const View& x, const View& out, const void* value, const Dims& low, const std::vector<int64_t>& interior) {
  alignas(16) unsigned char zero[16] = {};
  if (!value) {
    if (out.dtype == TSR_F8E8M0) tessera::store_from(out.dtype, zero, 0, 0.0f);
    value = zero;
  }
  fill_view(out, value);
  View from = x, to = out;
  for (int d = 0; d < x.rank(); ++d) {
    // Element i lands at low + i * step: keep those inside the output.
    const int64_t step = 1 + (interior.empty() ? 0 : interior[static_cast<size_t>(d)]);
    const int64_t first = low[d] >= 0 ? 0 : (-low[d] + step - 1) / step;
    const int64_t space = out.sizes[d] - (low[d] + first * step);
    const int64_t count = std::min(x.sizes[d] - first, space <= 0 ? 0 : (space - 1) / step + 1);
    if (count <= 0) return;
    from = narrow(from, d, first, count);
    to = narrow(to, d, low[d] + first * step, count);
    to.strides[d] *= step;
  }
  copy_view(from, to);
}

}  // namespace

KernelPtr make_pad(const Build& b, int) {
  const std::string mode = b.text("mode");
  const LaunchDims low = b.dims("low");
  if (mode == "constant")
    return make_kernel(b, [low, interior = b.integers("interior"), value = b.has(1)](const tsr_launch& l) {
      pad_constant(View(l.inputs[0]), View(l.outputs[0]), value ? l.inputs[1].data : nullptr, low.get(l.dims), interior);
    });
  const PadMode m = mode == "reflect" ? PadMode::Reflect : mode == "edge" ? PadMode::Edge : PadMode::Wrap;
  return make_kernel(b, [low, m, op = b.op()](const tsr_launch& l) {
    const View x(l.inputs[0]), out(l.outputs[0]);
    if (out.elements() == 0) return;
    if (x.elements() == 0)
      fail("TSR-R013", "op '" + op + "': an empty tensor has no values to pad with", "pad with mode = \"constant\"");
    pad_axis(x, out, low.get(l.dims), m, 0);
  });
}

}  // namespace eager
