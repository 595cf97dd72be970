// SPDX-License-Identifier: Apache-2.0
#include "planes.hpp"

#include <algorithm>

namespace eager {

namespace {
int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
}  // namespace

int64_t planes_workspace(const Dims& x, int64_t out_plane, uint32_t dtype) {
  const int64_t planes = x[0] * x[1], size = comp_size(comp_of(dtype));
  return std::min(planes, kPlaneSlots) * (padded(x.product(2) * size) + padded(out_plane * size));
}

void for_planes(const Isa& isa, const View& x, const tsr_tensor& out, int64_t out_plane, void* workspace,
                FunctionRef<void(int64_t, const void*, void*)> f) {
  const int64_t channels = x.sizes[1], planes = x.sizes[0] * channels, in_plane = x.sizes.product(2);
  if (planes == 0 || out_plane == 0) return;
  Nest<1> nest;
  for (int d = 2; d < x.rank(); ++d) nest.push(x.sizes[d], &x.strides[d]);
  const int64_t size = comp_size(comp_of(x.dtype));
  const bool native = is_native(x.dtype), direct = native && (nest.rank == 0 || (nest.rank == 1 && nest.strides[0][0] == 1));
  const int64_t slots = std::min(planes, kPlaneSlots), x_slot = padded(in_plane * size),
                slot = x_slot + padded(out_plane * size);
  const int64_t work = (in_plane + 4 * out_plane) * ((planes + slots - 1) / slots);
  const int64_t grain = tessera::is_packed(out.dtype) ? slots : std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work));
  sdk::parallel(slots, grain, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      char* buffer = static_cast<char*>(workspace) + s * slot;
      for (int64_t p = planes * s / slots; p < planes * (s + 1) / slots; ++p) {
        const int64_t base = x.offset + p / channels * x.strides[0] + p % channels * x.strides[1];
        const void* in = buffer;
        if (direct) {
          in = static_cast<const char*>(x.data) + base * size;
        } else {
          const int64_t inner = nest.rank > 0 ? nest.sizes[nest.rank - 1] : 1,
                        step = nest.rank > 0 ? nest.strides[0][nest.rank - 1] : 1;
          for (int64_t i = 0; i < in_plane; i += inner) {
            int64_t at[1];
            nest.offsets(i / inner, at, nest.rank > 0 ? 1 : 0);
            load_run(isa, x.dtype, x.data, base + at[0], step, inner, buffer + i * size);
          }
        }
        void* y = native ? static_cast<void*>(static_cast<char*>(out.data) + p * out_plane * size) : buffer + x_slot;
        f(p, in, y);
        if (!native) store_run(isa, out.dtype, out.data, p * out_plane, out_plane, y);
      }
    }
  });
}

}  // namespace eager
