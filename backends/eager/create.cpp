// SPDX-License-Identifier: Apache-2.0
// Ops that make tensors out of attributes and sizes.
#include <cstring>

#include "copy.hpp"
#include "shape_ops.hpp"

namespace eager {

KernelPtr make_constant(const Build& b, int) {
  const tsr_tensor& t = b.node.attr("value").as_tensor();
  const int64_t bytes = tessera::storage_bytes(t.dtype, elements(t));
  std::vector<char> data(static_cast<size_t>(bytes));
  if (bytes > 0) std::memcpy(data.data(), t.data, data.size());
  return make_kernel(b, [data = std::move(data)](const tsr_launch& l) {
    if (!data.empty()) std::memcpy(l.outputs[0].data, data.data(), data.size());
  });
}

KernelPtr make_full(const Build& b, int) {
  return make_kernel(b, [](const tsr_launch& l) {
    View out(l.outputs[0]);
    if (tessera::is_packed(out.dtype)) {  // byte-wise: every element is the same
      const int bits = tessera::dtype_bits(out.dtype);
      const uint32_t code = bits == 2 ? TSR_U2 : TSR_U4;
      const unsigned one = tessera::load_as<uint8_t>(code, l.inputs[0].data, 0);
      const int64_t bytes = tessera::storage_bytes(out.dtype, out.elements());
      if (bytes > 0) std::memset(out.data, static_cast<int>(one * (bits == 2 ? 0x55u : 0x11u)), static_cast<size_t>(bytes));
      return;
    }
    fill_view(out, l.inputs[0].data);
  });
}

KernelPtr make_iota(const Build& b, int) {
  const int axis = b.axis("axis", static_cast<int>(b.result().rank()));
  return make_kernel(b, [axis](const tsr_launch& l) {
    const View out(l.outputs[0]);
    const int64_t total = out.elements(), n = out.sizes[axis], inner = out.sizes.product(axis + 1);
    sdk::parallel((total + kTile - 1) / kTile, kGrain / kTile, [&](int64_t begin, int64_t end) {
      const int64_t stop = std::min(total, end * kTile);
      for (int64_t i = begin * kTile; i < stop; ++i) tessera::store_from(out.dtype, out.data, i, i / inner % n);
    });
  });
}

KernelPtr make_dim_value(const Build& b, int) {
  return make_kernel(
      b, [value = b.dim("value")](const tsr_launch& l) { *static_cast<int64_t*>(l.outputs[0].data) = value.get(l.dims); });
}

KernelPtr make_shape_of(const Build& b, int) {
  return make_kernel(b, [](const tsr_launch& l) {
    for (uint32_t i = 0; i < l.inputs[0].rank; ++i) static_cast<int64_t*>(l.outputs[0].data)[i] = l.inputs[0].sizes[i];
  });
}

KernelPtr make_one_hot(const Build& b, int) {
  const int axis = b.axis("axis", b.rank() + 1);
  return make_kernel(b, [axis](const tsr_launch& l) {
    const View x(l.inputs[0]), out(l.outputs[0]);
    const int64_t bytes = tessera::storage_bytes(out.dtype, out.elements());
    if (bytes <= 0) return;
    if (out.dtype == TSR_F8E8M0) {  // it has no zero: what 0 is stored as
      const float zero = 0.0f;
      unsigned char code = 0;
      tessera::store_from(out.dtype, &code, 0, zero);
      std::memset(out.data, code, static_cast<size_t>(bytes));
    } else {
      std::memset(out.data, 0, static_cast<size_t>(bytes));
    }
    const int64_t depth = out.sizes[axis], inner = out.sizes.product(axis + 1), count = x.elements();
    Nest<1> nest;
    for (int d = 0; d < x.rank(); ++d) nest.push(x.sizes[d], &x.strides[d]);
    for (int64_t i = 0; i < count; ++i) {  // serial: packed elements may share a byte
      int64_t at[1];
      nest.offsets(i, at);
      const int64_t index = tessera::load_as<int64_t>(x.dtype, x.data, at[0]);
      if (index < 0 || index >= depth) continue;
      tessera::store_from(out.dtype, out.data, (i / inner * depth + index) * inner + i % inner, 1);
    }
  });
}

}  // namespace eager
