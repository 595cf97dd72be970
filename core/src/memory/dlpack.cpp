// SPDX-License-Identifier: Apache-2.0
#include "memory/dlpack.hpp"

#include <cstring>
#include <memory>

#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

using namespace dl;

// Sub-byte types are packed with element 0 in the low bits on both sides (dlpack.h: "lanes = 1 (packed in memory)").
DLDataType to_dl_dtype(uint32_t dtype) {
  const auto bits = static_cast<uint8_t>(dtype_bits(dtype));
  switch (dtype) {
    case TSR_F64:
    case TSR_F32:
    case TSR_F16: return {kFloat, bits, 1};
    case TSR_BF16: return {kBfloat, bits, 1};
    case TSR_F8E4M3FN: return {kFloat8E4M3FN, bits, 1};
    case TSR_F8E4M3FNUZ: return {kFloat8E4M3FNUZ, bits, 1};
    case TSR_F8E5M2: return {kFloat8E5M2, bits, 1};
    case TSR_F8E5M2FNUZ: return {kFloat8E5M2FNUZ, bits, 1};
    case TSR_F8E8M0: return {kFloat8E8M0FNU, bits, 1};
    case TSR_F4E2M1: return {kFloat4E2M1FN, bits, 1};
    case TSR_BOOL: return {kBool, bits, 1};
    case TSR_C64:
    case TSR_C128: return {kComplex, bits, 1};
    default: return {is_signed_int(dtype) ? kInt : kUInt, bits, 1};
  }
}

uint32_t from_dl_dtype(DLDataType t) {
  if (t.lanes == 1)
    for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d) {
      const DLDataType mine = to_dl_dtype(d);
      if (mine.code == t.code && mine.bits == t.bits) return d;
    }
  throw user_error("TSR-T010",
                   "DLPack: dtype with code " + std::to_string(t.code) + ", " + std::to_string(t.bits) + " bits, " +
                       std::to_string(t.lanes) + " lanes has no counterpart",
                   "convert the tensor before handing it over");
}

tsr_device from_dl_device(DLDevice d) {
  switch (d.device_type) {
    case dl::kCpu: return core::kCpu;
    case kCuda: return device_intern("cuda:" + std::to_string(d.device_id));
    case kRocm: return device_intern("hip:" + std::to_string(d.device_id));
    default:
      throw user_error("TSR-T011", "DLPack: device type " + std::to_string(d.device_type) + " is unknown here",
                       "copy the tensor to the CPU first");
  }
}

DLDevice to_dl_device(tsr_device id) {
  const Device& d = device(id);
  const auto index = static_cast<int32_t>(d.index());
  if (d.kind() == "cpu") return {dl::kCpu, 0};
  if (d.kind() == "cuda") return {kCuda, index};
  if (d.kind() == "hip") return {kRocm, index};
  throw user_error("TSR-T011", "DLPack has no number for device '" + d.name() + "'", "copy the tensor to 'cpu' first");
}

struct Export {
  DLManagedTensor managed{};
  Tensor* tensor = nullptr;
};

}  // namespace

Tensor* tensor_from_dlpack(DLManagedTensor* managed) {
  if (!managed) throw user_error("TSR-T005", "tensor_from_dlpack: null pointer");
  const DLTensor& t = managed->dl_tensor;
  if (t.ndim < 0) throw user_error("TSR-T002", "DLPack: rank " + std::to_string(t.ndim));
  const uint32_t dtype = from_dl_dtype(t.dtype);
  if (t.ndim > 0 && !t.shape)
    throw user_error("TSR-T005", "DLPack: a tensor of rank " + std::to_string(t.ndim) + " without a shape");
  const tsr_tensor desc{t.data ? static_cast<char*>(t.data) + t.byte_offset : nullptr,
                        dtype,
                        static_cast<uint32_t>(t.ndim),
                        t.shape,
                        t.strides,
                        from_dl_device(t.device),
                        0};
  return tensor_wrap(
      desc,
      [](void* p) {
        auto* m = static_cast<DLManagedTensor*>(p);
        if (m->deleter) m->deleter(m);
      },
      managed);
}

DLManagedTensor* tensor_to_dlpack(Tensor& t) {
  auto e = std::make_unique<Export>();
  e->managed.dl_tensor = {t.desc.data,
                          to_dl_device(t.desc.device),
                          static_cast<int32_t>(t.desc.rank),
                          to_dl_dtype(t.desc.dtype),
                          const_cast<int64_t*>(t.desc.sizes),
                          const_cast<int64_t*>(t.desc.strides),
                          0};
  tensor_retain(&t);
  e->tensor = &t;
  e->managed.manager_ctx = e.get();
  e->managed.deleter = [](DLManagedTensor* m) {
    const std::unique_ptr<Export> owner(static_cast<Export*>(m->manager_ctx));
    tensor_release(owner->tensor);
  };
  return &e.release()->managed;
}

}  // namespace tessera::core
