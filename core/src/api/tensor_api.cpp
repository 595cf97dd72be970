// SPDX-License-Identifier: Apache-2.0
#include "api/api.hpp"
#include "memory/dlpack.hpp"
#include "memory/tensor.hpp"

namespace tessera::core::api {

namespace {

std::span<const int64_t> span_of(const int64_t* sizes, uint32_t rank) {
  if (rank > 0) required(sizes, "sizes");
  return {sizes, rank};
}

tsr_error* create(uint32_t dtype, uint32_t rank, const int64_t* sizes, tsr_device device, tsr_tensor_handle** out) noexcept {
  return guarded([&] { required(out, "the tensor to be returned") = tensor_create(dtype, span_of(sizes, rank), device); });
}
tsr_error* wrap(const tsr_tensor* desc, void (*deleter)(void*), void* ctx, tsr_tensor_handle** out) noexcept {
  return guarded(
      [&] { required(out, "the tensor to be returned") = tensor_wrap(required(desc, "the description"), deleter, ctx); });
}
tsr_error* view(tsr_tensor_handle* base, int64_t offset, uint32_t rank, const int64_t* sizes, const int64_t* strides,
                tsr_tensor_handle** out) noexcept {
  return guarded([&] {
    required(out, "the tensor to be returned") =
        tensor_view(*Tensor::from(&required(base, "the base")), offset, span_of(sizes, rank), strides);
  });
}
tsr_error* copy(tsr_tensor_handle* from, tsr_device to, tsr_tensor_handle** out) noexcept {
  return guarded(
      [&] { required(out, "the tensor to be returned") = tensor_copy(*Tensor::from(&required(from, "the tensor")), to); });
}
tsr_error* write(tsr_tensor_handle* to, tsr_tensor_handle* from) noexcept {
  return guarded([&] {
    tensor_write(*Tensor::from(&required(to, "the tensor to be written")), *Tensor::from(&required(from, "the values")));
  });
}
tsr_error* from_dlpack(void* managed, tsr_tensor_handle** out) noexcept {
  return guarded(
      [&] { required(out, "the tensor to be returned") = tensor_from_dlpack(static_cast<dl::DLManagedTensor*>(managed)); });
}
tsr_error* to_dlpack(tsr_tensor_handle* t, void** out) noexcept {
  return guarded(
      [&] { required(out, "the DLPack tensor to be returned") = tensor_to_dlpack(*Tensor::from(&required(t, "the tensor"))); });
}

}  // namespace

void tensor_functions(tsr_api& t) {
  t.tensor_create = create;
  t.tensor_wrap = wrap;
  t.tensor_view = view;
  t.tensor_copy = copy;
  t.tensor_retain = [](tsr_tensor_handle* h) noexcept {
    if (h) core::tensor_retain(h);
  };
  t.tensor_release = [](tsr_tensor_handle* h) noexcept {
    if (h) core::tensor_release(h);
  };
  t.tensor_write = write;
  t.tensor_written = [](tsr_tensor_handle* h) noexcept {
    if (h) Tensor::from(h)->buffer->note_written();
  };
  t.tensor_from_dlpack = from_dlpack;
  t.tensor_to_dlpack = to_dlpack;
  t.memory_in_use = [](tsr_device d) noexcept -> int64_t {
    const Device* device = find_device(d);
    return device ? device->in_use() : 0;
  };
  t.memory_peak = [](tsr_device d, int reset) noexcept -> int64_t {
    Device* device = find_device(d);
    return device ? device->peak(reset != 0) : 0;
  };
}

}  // namespace tessera::core::api
