// SPDX-License-Identifier: Apache-2.0
#include "memory/copy.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "memory/parallel.hpp"
#include "memory/stream.hpp"
#include "memory/tensor.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

struct Dim {
  int64_t size, dst, src;  // strides in bytes
};

// Dimensions of size 1 dropped, the rest ordered by the destination's stride (outermost first) and merged where both sides
// run on: a dense copy becomes one dimension.
uint32_t collapse(const tsr_tensor& dst, const tsr_tensor& src, int64_t item, Dim* out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < dst.rank; ++i)
    if (dst.sizes[i] != 1) out[n++] = {dst.sizes[i], dst.strides[i] * item, src.strides[i] * item};
  std::stable_sort(out, out + n, [](const Dim& a, const Dim& b) { return std::abs(a.dst) > std::abs(b.dst); });
  uint32_t m = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (m > 0 && out[m - 1].dst == out[i].dst * out[i].size && out[m - 1].src == out[i].src * out[i].size)
      out[m - 1] = {out[m - 1].size * out[i].size, out[i].dst, out[i].src};
    else
      out[m++] = out[i];
  }
  return m;
}

template <class T>
void copy_row(char* d, int64_t ds, const char* s, int64_t ss, int64_t n) {
  for (int64_t i = 0; i < n; ++i, d += ds, s += ss) std::memcpy(d, s, sizeof(T));
}
struct Wide {
  uint64_t a, b;
};

void copy_inner(char* d, int64_t ds, const char* s, int64_t ss, int64_t n, int64_t item) {
  if (ds == item && ss == item) {
    std::memcpy(d, s, static_cast<size_t>(n * item));
    return;
  }
  switch (item) {
    case 1: return copy_row<uint8_t>(d, ds, s, ss, n);
    case 2: return copy_row<uint16_t>(d, ds, s, ss, n);
    case 4: return copy_row<uint32_t>(d, ds, s, ss, n);
    case 8: return copy_row<uint64_t>(d, ds, s, ss, n);
    default: return copy_row<Wide>(d, ds, s, ss, n);
  }
}

// The two innermost dimensions in tiles, so that a transposition uses whole cache lines on both sides.
void copy_plane(char* d, const char* s, const Dim& row, const Dim& col, int64_t item) {
  constexpr int64_t kTile = 32;
  const bool transposed = std::abs(row.src) < std::abs(col.src) && row.size > 1;
  if (!transposed) {
    for (int64_t i = 0; i < row.size; ++i) copy_inner(d + i * row.dst, col.dst, s + i * row.src, col.src, col.size, item);
    return;
  }
  for (int64_t i0 = 0; i0 < row.size; i0 += kTile)
    for (int64_t j0 = 0; j0 < col.size; j0 += kTile)
      for (int64_t i = i0, end = std::min(i0 + kTile, row.size); i < end; ++i)
        copy_inner(d + i * row.dst + j0 * col.dst, col.dst, s + i * row.src + j0 * col.src, col.src,
                   std::min(kTile, col.size - j0), item);
}

void copy_nested(char* d, const char* s, const Dim* dims, uint32_t n, int64_t item) {
  if (n == 0) {
    std::memcpy(d, s, static_cast<size_t>(item));
  } else if (n == 1) {
    copy_inner(d, dims[0].dst, s, dims[0].src, dims[0].size, item);
  } else if (n == 2) {
    copy_plane(d, s, dims[0], dims[1], item);
  } else {
    for (int64_t i = 0; i < dims[0].size; ++i) copy_nested(d + i * dims[0].dst, s + i * dims[0].src, dims + 1, n - 1, item);
  }
}

void copy_host(const tsr_tensor& dst, const tsr_tensor& src) {
  const int64_t elements = num_elements({dst.sizes, dst.rank});
  if (elements == 0) return;
  const int bits = dtype_bits(dst.dtype);
  if (bits < 8) {  // packed tensors are dense
    std::memcpy(dst.data, src.data, static_cast<size_t>(storage_bytes(dst.dtype, elements)));
    return;
  }
  const int64_t item = bits / 8;
  Dim dims[kMaxRank];
  uint32_t n = collapse(dst, src, item, dims);
  struct Job {
    char* d;
    const char* s;
    Dim dims[kMaxRank + 1];
    uint32_t n;
    int64_t item;
  } job{static_cast<char*>(dst.data), static_cast<const char*>(src.data), {}, n, item};
  std::copy(dims, dims + n, job.dims);
  const int64_t outer = n > 0 ? dims[0].size : 1;
  const int64_t grain = std::max<int64_t>(1, (int64_t{64} << 10) / std::max<int64_t>(1, elements / outer * item));
  parallel(
      outer, grain,
      [](void* ctx, int64_t begin, int64_t end) {
        const Job& j = *static_cast<const Job*>(ctx);
        if (j.n == 0) return copy_nested(j.d, j.s, j.dims, 0, j.item);
        Dim part[kMaxRank + 1];
        std::copy(j.dims, j.dims + j.n, part);
        part[0].size = end - begin;
        copy_nested(j.d + begin * part[0].dst, j.s + begin * part[0].src, part, j.n, j.item);
      },
      &job);
}

// Bytes from the lowest to the highest element, and where element 0 stands among them.
struct Span {
  int64_t low, bytes;
};
Span span_of(const tsr_tensor& t) {
  if (t.flags & TSR_TENSOR_CONTIGUOUS || dtype_bits(t.dtype) < 8)
    return {0, storage_bytes(t.dtype, num_elements({t.sizes, t.rank}))};
  const int64_t item = dtype_bits(t.dtype) / 8;
  int64_t low = 0, high = 0;
  for (uint32_t i = 0; i < t.rank; ++i) {
    if (t.sizes[i] == 0) return {0, 0};
    ((t.strides[i] < 0) ? low : high) += (t.sizes[i] - 1) * t.strides[i];
  }
  return {low * item, (high - low + 1) * item};
}

bool both_dense(const tsr_tensor& a, const tsr_tensor& b) {
  return (a.flags & b.flags & TSR_TENSOR_CONTIGUOUS) != 0;  // gaps between elements are not ours to copy
}

// The tensor's bytes in host memory, gaps included.
tsr_tensor to_host(const tsr_tensor& t, std::vector<char>& storage, const Stream& stream) {
  const Span s = span_of(t);
  stream.require_not_captured("a copy to the host");
  storage.resize(static_cast<size_t>(s.bytes));
  device(t.device).copy(storage.data(), static_cast<const char*>(t.data) + s.low, storage.size(), TSR_COPY_TO_HOST,
                        stream.raw());
  tsr_tensor out = t;
  out.data = storage.data() - s.low;
  out.device = kCpu;
  return out;
}

}  // namespace

void copy_tensor(const tsr_tensor& dst, const tsr_tensor& src, Stream* to_stream, Stream* from_stream) {
  if (num_elements({dst.sizes, dst.rank}) == 0) return;
  Device& to = device(dst.device);
  Device& from = device(src.device);
  if (&to != &device(kCpu) && !to_stream) to_stream = &current_stream(to);
  if (&from != &device(kCpu) && !from_stream) from_stream = &current_stream(from);
  const bool host_to = to.host_accessible(), host_from = from.host_accessible();
  if (host_to && host_from) {
    // Work queued on either device must be done before the host touches its memory.
    if (from_stream) from_stream->synchronize(Wait::kNone);
    if (to_stream && to_stream != from_stream) to_stream->synchronize(Wait::kNone);
    return copy_host(dst, src);
  }
  const bool plain = both_dense(dst, src);
  const auto bytes = static_cast<size_t>(span_of(src).bytes);
  if (&to == &from) {
    if (plain) return to.copy(dst.data, src.data, bytes, TSR_COPY_WITHIN, to_stream->raw());
    if (to.copy_strided(dst, src, to_stream->raw())) return;
  } else if (plain && to_stream && from_stream) {
    if (to.copy_peer(dst.data, from, src.data, bytes, to_stream->raw())) return;
  }
  if (plain && !from_stream) return to.copy(dst.data, src.data, bytes, TSR_COPY_TO_DEVICE, to_stream->raw());
  if (plain && !to_stream) from_stream->require_not_captured("a copy to the host");
  if (plain && !to_stream) return from.copy(dst.data, src.data, bytes, TSR_COPY_TO_HOST, from_stream->raw());
  // Through host memory, where layouts are changed.
  std::vector<char> staging, target;
  const tsr_tensor host_src = from_stream ? to_host(src, staging, *from_stream) : src;
  if (!to_stream) return copy_host(dst, host_src);
  if (both_dense(dst, host_src)) return to.copy(dst.data, host_src.data, bytes, TSR_COPY_TO_DEVICE, to_stream->raw());
  const tsr_tensor host_dst = to_host(dst, target, *to_stream);  // the gaps of a strided destination keep their bytes
  copy_host(host_dst, host_src);
  const Span s = span_of(dst);
  to.copy(static_cast<char*>(dst.data) + s.low, target.data(), target.size(), TSR_COPY_TO_DEVICE, to_stream->raw());
}

}  // namespace tessera::core
