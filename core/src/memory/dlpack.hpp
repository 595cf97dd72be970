// SPDX-License-Identifier: Apache-2.0
// Exchange with other libraries through DLPack. The structs are those of dlpack.h 0.8 (the unversioned DLManagedTensor),
// written out here because they are an ABI, not a dependency. Type codes from 7 on are those that DLPack 1.1 added for 8-bit
// and 4-bit floats.
#pragma once

#include <cstdint>

#include "memory/tensor.hpp"

namespace tessera::core::dl {

enum DeviceType : int32_t { kCpu = 1, kCuda = 2, kRocm = 10 };

enum TypeCode : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kOpaque = 3,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E4M3FNUZ = 11,
  kFloat8E5M2 = 12,
  kFloat8E5M2FNUZ = 13,
  kFloat8E8M0FNU = 14,
  kFloat4E2M1FN = 17,
};

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: dense row-major
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

}  // namespace tessera::core::dl

namespace tessera::core {

// Shares the memory. Consumed on success: the deleter runs with the last reference. On failure (TSR-T010 dtype, TSR-T011
// device, and the errors of tensor_wrap) it still belongs to the caller.
Tensor* tensor_from_dlpack(dl::DLManagedTensor* managed);
// Shares the memory, retains `t` until the consumer calls the deleter. TSR-T011: DLPack has no number for the device.
dl::DLManagedTensor* tensor_to_dlpack(Tensor& t);

}  // namespace tessera::core
