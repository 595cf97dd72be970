// SPDX-License-Identifier: Apache-2.0
// Tensors: the handles of embed.h over refcounted buffers.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "memory/buffer.hpp"
#include "support/limits.hpp"
#include "tessera/abi.h"
#include "tessera/embed.h"

namespace tessera::core {

// What a tsr_tensor_handle* really points at. One allocation: sizes, then strides, follow the struct. Thread-safe as far as the
// reference count goes; the description is never written after construction.
struct Tensor : tsr_tensor_handle {
  // The number that dispatch gives to its description (dispatch/type_ids.hpp); 0: none yet. Through known_type_of() only. It
  // stands in the handle's first cache line, and guards read nothing behind that.
  uint32_t type;
  Buffer* buffer;  // one reference

  int64_t* dims() { return reinterpret_cast<int64_t*>(this + 1); }
  static Tensor* from(tsr_tensor_handle* h) { return static_cast<Tensor*>(h); }
  static const Tensor* from(const tsr_tensor_handle* h) { return static_cast<const Tensor*>(h); }
};

// All of them return a handle with one reference. Errors: TSR-T001 dtype, TSR-T002 rank or negative size, TSR-R001 sizes whose
// bytes cannot be had, TSR-T003 a view outside of its base, TSR-T004 a strided packed tensor, TSR-T005 a missing pointer.
// Uninitialised, dense; for work on this stream from now on, null: the thread's current one of the device.
Tensor* tensor_create(uint32_t dtype, std::span<const int64_t> sizes, tsr_device device, Stream* stream = nullptr);
// Over memory of the caller, which must stay valid until `deleter` runs. On failure the deleter is not called.
Tensor* tensor_wrap(const tsr_tensor& desc, void (*deleter)(void*), void* ctx);
// `offset` and strides are in elements; negative and zero strides are allowed while every element lies in base's buffer.
Tensor* tensor_view(Tensor& base, int64_t offset, std::span<const int64_t> sizes, const int64_t* strides);
// Dense. Queued on the thread's current streams, behind the work that wrote `from`; a copy to the host is there when it
// returns, and what kernels on that stream have found wrong with their data is thrown.
Tensor* tensor_copy(const Tensor& from, tsr_device to);
// Copies the elements of `from` into the memory of `to`, whose version rises. TSR-T029 for another dtype or other sizes.
void tensor_write(Tensor& to, const Tensor& from);
// A dense tensor over `buffer`, which must be large enough; takes over one reference. No checks: the planner made them.
Tensor* tensor_over(Buffer* buffer, void* data, uint32_t dtype, uint32_t rank, const int64_t* sizes, const int64_t* strides,
                    tsr_device device, uint32_t flags);
inline void tensor_retain(tsr_tensor_handle* h) noexcept { __atomic_fetch_add(&h->refcount, 1, __ATOMIC_RELAXED); }
void tensor_release(tsr_tensor_handle* h) noexcept;

// Nobody but who passes the tensor can read its memory afterwards: the caller holds the one reference to it, it holds the only
// one to its buffer, and that is not somebody else's memory. Then a result may be written there, which wants it aligned.
inline bool may_write_over(const Tensor& t) {
  return __atomic_load_n(&t.refcount, __ATOMIC_ACQUIRE) == 1 && t.buffer->refs.load(std::memory_order_acquire) == 1 &&
         t.buffer->size_class != Buffer::kWrapped && reinterpret_cast<uintptr_t>(t.desc.data) % kAlignment == 0;
}

class TensorRef {  // an owning pointer
 public:
  TensorRef() = default;
  explicit TensorRef(tsr_tensor_handle* t) : t_(Tensor::from(t)) {}  // takes over one reference
  TensorRef(TensorRef&& o) noexcept : t_(o.t_) { o.t_ = nullptr; }
  TensorRef& operator=(TensorRef&& o) noexcept {
    if (this != &o) {
      if (t_) tensor_release(t_);
      t_ = o.t_;
      o.t_ = nullptr;
    }
    return *this;
  }
  ~TensorRef() {
    if (t_) tensor_release(t_);
  }
  static TensorRef share(tsr_tensor_handle* t) {
    tensor_retain(t);
    return TensorRef(t);
  }
  Tensor* get() const { return t_; }
  Tensor* operator->() const { return t_; }
  Tensor& operator*() const { return *t_; }
  explicit operator bool() const { return t_ != nullptr; }
  Tensor* take() noexcept {
    Tensor* t = t_;
    t_ = nullptr;
    return t;
  }

 private:
  Tensor* t_ = nullptr;
};

// ---- arithmetic on descriptions

int64_t num_elements(std::span<const int64_t> sizes);  // unchecked: for sizes that have been checked
void dense_strides(std::span<const int64_t> sizes, int64_t* strides);
bool is_dense(uint32_t rank, const int64_t* sizes, const int64_t* strides);
// Bytes of a dense tensor. Throws TSR-T001, TSR-T002, and TSR-R001 when they do not fit an address.
int64_t checked_bytes(uint32_t dtype, std::span<const int64_t> sizes, std::string_view device);
// Byte distance of element `offset`; for a packed dtype it must be a whole number of bytes.
inline int64_t element_offset_bytes(int bits, int64_t offset) { return bits >= 8 ? offset * (bits / 8) : offset * bits / 8; }
std::string type_text(uint32_t dtype, std::span<const int64_t> sizes);  // "f32[2, 3]"

}  // namespace tessera::core
