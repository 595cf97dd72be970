// SPDX-License-Identifier: Apache-2.0
// DLPack 1.x as its specification lays it out (https://dmlc.github.io/dlpack): tensors, versioned and not, and the table by
// which a library's tensor type exchanges them without Python calls.
#pragma once

#include <cstdint>

namespace tessera::python::dl {

struct Device {
  int32_t type, id;
};
struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: dense row-major
  uint64_t byte_offset;
};
struct Version {
  uint32_t major, minor;
};
struct Managed {
  Tensor tensor;
  void* ctx;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  Version version;
  void* ctx;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;
};
inline constexpr Version kVersion{1, 1};
inline constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kRocm = 10, kRocmHost = 11;

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;
};
struct Exchange {  // the attribute __dlpack_c_exchange_api__ of a tensor type, a capsule of this name
  static constexpr const char* kCapsule = "dlpack_exchange_api";
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, ManagedVersioned** out, void* ctx,
                  void (*error)(void* ctx, const char* kind, const char* message));
  int (*from_object)(void* object, ManagedVersioned** out);
  int (*to_object)(ManagedVersioned* tensor, void** object);  // takes the tensor over
  int (*borrow)(void* object, Tensor* out);                   // null: not offered. Valid until control goes back to the library
  int (*stream)(int32_t device_type, int32_t device_id, void** out);
};

}  // namespace tessera::python::dl
