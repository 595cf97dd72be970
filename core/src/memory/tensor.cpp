// SPDX-License-Identifier: Apache-2.0
#include "memory/tensor.hpp"

#include <cstring>

#include "memory/copy.hpp"
#include "memory/pool.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

static_assert(sizeof(tsr_tensor_handle) + sizeof(Tensor::type) <= 64, "what guards read is one cache line");
static_assert(sizeof(Tensor) + 2 * 6 * sizeof(int64_t) <= ThreadCache::kHandleBytes, "rank 6 fits a pooled handle");

namespace {

size_t handle_bytes(uint32_t rank) { return sizeof(Tensor) + 2 * size_t{rank} * sizeof(int64_t); }

Tensor* make_handle(Buffer* buffer, void* data, uint32_t dtype, uint32_t rank, const int64_t* sizes, const int64_t* strides,
                    tsr_device device, uint32_t flags) {
  auto* t = static_cast<Tensor*>(allocate_handle_block(handle_bytes(rank), thread_cache()));
  int64_t* dims = t->dims();
  for (uint32_t i = 0; i < rank; ++i) dims[i] = sizes[i];
  if (strides) {
    for (uint32_t i = 0; i < rank; ++i) dims[rank + i] = strides[i];
  } else {
    dense_strides({sizes, rank}, dims + rank);
  }
  t->desc = {data, dtype, rank, dims, dims + rank, device, flags};
  t->refcount = 1;
  t->requires_grad = 0;
  t->marks = 0;
  t->type = 0;
  t->buffer = buffer;
  return t;
}

void check_rank(size_t rank) {
  if (rank > kMaxRank)
    throw user_error("TSR-T002", "a tensor of rank " + std::to_string(rank) + "; expected at most " + std::to_string(kMaxRank));
}

struct Extent {               // in elements, relative to element 0; empty tensors: both 0
  int64_t low = 0, high = 0;  // inclusive
  bool ok = true;
};
Extent extent_of(std::span<const int64_t> sizes, const int64_t* strides) {
  Extent e;
  for (const int64_t s : sizes)
    if (s == 0) return e;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach)) return {0, 0, false};
    int64_t& side = reach < 0 ? e.low : e.high;
    if (__builtin_add_overflow(side, reach, &side)) return {0, 0, false};
  }
  return e;
}

void check_packed(uint32_t dtype, std::span<const int64_t> sizes, const int64_t* strides) {
  if (is_packed(dtype) && strides && !is_dense(static_cast<uint32_t>(sizes.size()), sizes.data(), strides))
    throw user_error("TSR-T004", "strides on a packed tensor " + type_text(dtype, sizes) + "; packed dtypes are contiguous",
                     "copy it, or cast it to i8 or u8 first");
}

}  // namespace

int64_t num_elements(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

void dense_strides(std::span<const int64_t> sizes, int64_t* strides) {
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
}

// The stride of a dimension of size 1 is never used, and an empty tensor has no elements: both are dense with any strides.
bool is_dense(uint32_t rank, const int64_t* sizes, const int64_t* strides) {
  int64_t expected = 1;
  bool dense = true;
  for (uint32_t i = rank; i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] == 1) continue;
    dense = dense && strides[i] == expected;
    expected *= sizes[i];
  }
  return dense;
}

int64_t checked_bytes(uint32_t dtype, std::span<const int64_t> sizes, std::string_view device) {
  if (!is_valid_dtype(dtype)) throw user_error("TSR-T001", "dtype number " + std::to_string(dtype) + " is unknown");
  check_rank(sizes.size());
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0)
      throw user_error("TSR-T002", "size " + std::to_string(sizes[i]) + " at index " + std::to_string(i) + " of " +
                                       type_text(dtype, sizes) + "; sizes are 0 or more");
    empty = empty || sizes[i] == 0;
  }
  // Checked on the non-zero sizes, so that strides of an empty tensor cannot overflow either.
  int64_t elements = 1;
  bool fits = true;
  for (const int64_t s : sizes) fits = fits && !__builtin_mul_overflow(elements, s > 0 ? s : 1, &elements);
  const int64_t bytes = fits ? storage_bytes(dtype, elements) : -1;
  if (bytes < 0)
    throw environment_error("TSR-R001",
                            "out of memory on device '" + std::string(device) + "': " + type_text(dtype, sizes) +
                                " asks for more bytes than a 64-bit size can count",
                            "use smaller sizes");
  return empty ? 0 : bytes;
}

std::string type_text(uint32_t dtype, std::span<const int64_t> sizes) {
  std::string s(dtype_name(dtype));
  s += '[';
  for (size_t i = 0; i < sizes.size(); ++i) s += (i ? ", " : "") + std::to_string(sizes[i]);
  return s + ']';
}

Tensor* tensor_create(uint32_t dtype, std::span<const int64_t> sizes, tsr_device id, Stream* stream) {
  Device& d = device(id);
  const int64_t bytes = checked_bytes(dtype, sizes, d.name());
  BufferRef buffer(allocate_buffer(d, static_cast<size_t>(bytes), stream));
  Tensor* t = make_handle(buffer.get(), buffer->data, dtype, static_cast<uint32_t>(sizes.size()), sizes.data(), nullptr, id,
                          TSR_TENSOR_CONTIGUOUS);
  buffer.take();
  return t;
}

Tensor* tensor_wrap(const tsr_tensor& desc, void (*deleter)(void*), void* ctx) {
  check_rank(desc.rank);
  if (desc.rank > 0 && !desc.sizes)
    throw user_error("TSR-T005", "tensor_wrap: rank " + std::to_string(desc.rank) + " without sizes");
  const std::span<const int64_t> sizes(desc.sizes, desc.rank);
  Device& d = device(desc.device);
  const int64_t dense_bytes = checked_bytes(desc.dtype, sizes, d.name());
  if (!desc.data && dense_bytes > 0)
    throw user_error("TSR-T005", "tensor_wrap: " + type_text(desc.dtype, sizes) + " without a data pointer");
  check_packed(desc.dtype, sizes, desc.strides);
  char* low = static_cast<char*>(desc.data);
  int64_t bytes = dense_bytes;
  if (desc.strides && !is_packed(desc.dtype) && dense_bytes > 0) {
    const Extent e = extent_of(sizes, desc.strides);
    const int64_t item = dtype_bits(desc.dtype) / 8;
    if (!e.ok || e.high - e.low > (INT64_MAX >> 5) / item)
      throw user_error("TSR-T003", "tensor_wrap: the strides of " + type_text(desc.dtype, sizes) + " overflow");
    low += e.low * item;
    bytes = (e.high - e.low + 1) * item;
  }
  const bool dense = !desc.strides || is_dense(desc.rank, desc.sizes, desc.strides);
  BufferRef buffer(wrap_buffer(d, low, static_cast<size_t>(bytes), nullptr, nullptr));
  Tensor* t = make_handle(buffer.get(), desc.data, desc.dtype, desc.rank, desc.sizes, desc.strides, desc.device,
                          dense ? TSR_TENSOR_CONTIGUOUS : 0);
  buffer->deleter = deleter;  // from here on nothing can fail
  buffer->deleter_ctx = ctx;
  buffer.take();
  return t;
}

Tensor* tensor_view(Tensor& base, int64_t offset, std::span<const int64_t> sizes, const int64_t* given_strides) {
  const uint32_t dtype = base.desc.dtype;
  Device& d = device(base.desc.device);
  const int64_t dense_bytes = checked_bytes(dtype, sizes, d.name());
  check_packed(dtype, sizes, given_strides);
  int64_t strides[kMaxRank];
  if (given_strides) {
    std::memcpy(strides, given_strides, sizes.size_bytes());
  } else {
    dense_strides(sizes, strides);
  }
  const int bits = dtype_bits(dtype);
  int64_t shift = 0;
  if (__builtin_mul_overflow(offset, int64_t{bits}, &shift))
    throw user_error("TSR-T003", "view: offset " + std::to_string(offset) + " overflows");
  if (shift % 8 != 0)
    throw user_error("TSR-T004", "view: element " + std::to_string(offset) + " of a packed " + std::string(dtype_name(dtype)) +
                                     " tensor does not begin at a byte");
  if (dense_bytes > 0) {
    const Extent e = extent_of(sizes, strides);
    const char* begin = static_cast<const char*>(base.buffer->data);
    const int64_t at = static_cast<const char*>(base.desc.data) - begin + shift / 8;  // byte offset of element 0 in the buffer
    const auto length = static_cast<int64_t>(base.buffer->bytes);
    const int64_t limit = INT64_MAX >> 6;
    bool inside = e.ok && e.low > -limit && e.high < limit && at >= 0 && at <= length;
    if (inside && bits >= 8) inside = at + e.low * (bits / 8) >= 0 && at + (e.high + 1) * (bits / 8) <= length;
    if (inside && bits < 8) inside = at + dense_bytes <= length;
    if (!inside)
      throw user_error("TSR-T003",
                       "view " + type_text(dtype, sizes) + " at offset " + std::to_string(offset) +
                           " reaches outside of its base " + type_text(dtype, {base.desc.sizes, base.desc.rank}) + " (" +
                           std::to_string(length) + " bytes)",
                       "choose offset, sizes and strides so that every element lies in the base's buffer");
  }
  const auto rank = static_cast<uint32_t>(sizes.size());
  const bool dense = is_dense(rank, sizes.data(), strides);
  Tensor* t = make_handle(base.buffer, static_cast<char*>(base.desc.data) + (dense_bytes > 0 ? shift / 8 : 0), dtype, rank,
                          sizes.data(), strides, base.desc.device, dense ? TSR_TENSOR_CONTIGUOUS : 0);
  base.buffer->retain();
  t->requires_grad = base.requires_grad != 0;
  return t;
}

Tensor* tensor_copy(const Tensor& from, tsr_device to) {
  Device& source = device(from.desc.device);
  Device& target = device(to);
  Stream* const reads = source.has_streams() ? &current_stream(source) : nullptr;
  Stream* const writes = target.has_streams() ? &current_stream(target) : nullptr;
  TensorRef out(tensor_create(from.desc.dtype, {from.desc.sizes, from.desc.rank}, to, writes));
  Buffer& b = *from.buffer;
  if (reads) order_read(b, *reads, Wait::kCopyWritten);
  if (reads && writes) order_read(b, *writes, Wait::kCopyWritten);
  struct Note {  // also when the copy fails half-way
    Buffer &from, &to;
    Stream *reads, *writes;
    ~Note() {
      if (reads) note_read(from, reads->point());
      if (reads && writes) note_read(from, writes->point());
      if (writes) note_write(to, writes->point());
    }
  };
  {
    const Note note{b, *out->buffer, reads, writes};
    copy_tensor(out->desc, from.desc, writes, reads);
  }
  if (reads && !writes) reads->raise_fault();
  out->requires_grad = from.requires_grad != 0;
  return out.take();
}

void tensor_write(Tensor& to, const Tensor& from) {
  const tsr_tensor &a = to.desc, &b = from.desc;
  if (a.dtype != b.dtype || a.rank != b.rank || !std::equal(a.sizes, a.sizes + a.rank, b.sizes))
    throw user_error("TSR-T029",
                     "a tensor of type " + type_text(a.dtype, {a.sizes, a.rank}) + " is written with values of type " +
                         type_text(b.dtype, {b.sizes, b.rank}),
                     "convert the values, or assign the tensor instead of writing it in place");
  TensorRef apart;  // of values that lie in the memory that is written
  if (to.buffer == from.buffer) apart = TensorRef(tensor_copy(from, b.device));
  copy_tensor(a, apart ? apart->desc : b);
  to.buffer->note_written();
}

Tensor* tensor_over(Buffer* buffer, void* data, uint32_t dtype, uint32_t rank, const int64_t* sizes, const int64_t* strides,
                    tsr_device device, uint32_t flags) {
  return make_handle(buffer, data, dtype, rank, sizes, strides, device, flags);
}

void tensor_release(tsr_tensor_handle* h) noexcept {
  // As for buffers: a sole owner needs no read-modify-write.
  if (__atomic_load_n(&h->refcount, __ATOMIC_ACQUIRE) != 1 && __atomic_fetch_sub(&h->refcount, 1, __ATOMIC_ACQ_REL) != 1)
    return;
  Tensor* t = Tensor::from(h);
  Buffer* buffer = t->buffer;
  ThreadCache* const cache = thread_cache();
  free_handle_block(t, handle_bytes(t->desc.rank), cache);
  if (buffer->refs.load(std::memory_order_acquire) == 1 && cache && cache->give(buffer)) [[likely]]
    return;
  buffer->release();
}

}  // namespace tessera::core
