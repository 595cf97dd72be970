// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstddef>
#include <vector>

#include "memory/dlpack.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace dlpack_test {

using namespace tessera::core;

namespace {

template <class F>
std::string error_code(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return "";
}

struct Foreign {  // a tensor of another library
  std::vector<int64_t> shape, strides;
  float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  int deleted = 0;
  dl::DLManagedTensor managed{};
  Foreign(std::vector<int64_t> s, std::vector<int64_t> st, dl::DLDataType dtype = {dl::kFloat, 32, 1})
      : shape(std::move(s)), strides(std::move(st)) {
    managed.dl_tensor = {data,  {dl::kCpu, 0}, static_cast<int32_t>(shape.size()),
                         dtype, shape.data(),  strides.empty() ? nullptr : strides.data(),
                         0};
    managed.manager_ctx = this;
    managed.deleter = [](dl::DLManagedTensor* m) { ++static_cast<Foreign*>(m->manager_ctx)->deleted; };
  }
};

}  // namespace

TEST_CASE("the structs have DLPack's layout") {
  // Offsets of dlpack.h 0.8 on a 64-bit platform.
  STATIC_REQUIRE(sizeof(dl::DLTensor) == 48);
  STATIC_REQUIRE(offsetof(dl::DLTensor, device) == 8);
  STATIC_REQUIRE(offsetof(dl::DLTensor, ndim) == 16);
  STATIC_REQUIRE(offsetof(dl::DLTensor, dtype) == 20);
  STATIC_REQUIRE(offsetof(dl::DLTensor, shape) == 24);
  STATIC_REQUIRE(offsetof(dl::DLTensor, byte_offset) == 40);
  STATIC_REQUIRE(sizeof(dl::DLManagedTensor) == 64);
}

TEST_CASE("every dtype survives the round trip") {
  for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d) {
    const int64_t sizes[] = {2, 6};
    TensorRef t(tensor_create(d, sizes, kCpu));
    dl::DLManagedTensor* m = tensor_to_dlpack(*t);
    REQUIRE(t->refcount == 2);
    REQUIRE(m->dl_tensor.dtype.bits == tessera::dtype_bits(d));
    TensorRef back(tensor_from_dlpack(m));
    REQUIRE(back->desc.dtype == d);
    REQUIRE(back->desc.data == t->desc.data);
    REQUIRE(back->desc.sizes[1] == 6);
    back = TensorRef();
    REQUIRE(t->refcount == 1);
  }
}

TEST_CASE("imported memory is shared, strides and offset included") {
  Foreign f({2, 3}, {1, 4});
  f.managed.dl_tensor.byte_offset = 4;
  {
    TensorRef t(tensor_from_dlpack(&f.managed));
    REQUIRE(t->desc.data == f.data + 1);
    REQUIRE(t->desc.strides[0] == 1);
    REQUIRE(t->desc.flags == 0);
    TensorRef copy(tensor_copy(*t, kCpu));
    const auto* p = static_cast<const float*>(copy->desc.data);
    REQUIRE(std::vector<float>(p, p + 6) == std::vector<float>{1, 5, 9, 2, 6, 10});
    REQUIRE(f.deleted == 0);
  }
  REQUIRE(f.deleted == 1);
  Foreign dense({3, 4}, {});
  TensorRef t(tensor_from_dlpack(&dense.managed));
  REQUIRE(t->desc.strides[0] == 4);
  REQUIRE(t->desc.flags == TSR_TENSOR_CONTIGUOUS);
}

TEST_CASE("what has no counterpart is refused and stays the caller's") {
  const auto refused = [](Foreign& f) {
    const std::string code = error_code([&] { TensorRef(tensor_from_dlpack(&f.managed)); });
    REQUIRE(f.deleted == 0);
    return code;
  };
  Foreign lanes({2}, {}, {dl::kFloat, 32, 4}), opaque({2}, {}, {dl::kOpaque, 64, 1}), f6({2}, {}, {15, 6, 1}),
      odd({2}, {}, {dl::kInt, 24, 1});
  for (Foreign* f : {&lanes, &opaque, &f6, &odd}) REQUIRE(refused(*f) == "TSR-T010");
  Foreign metal({2}, {});
  metal.managed.dl_tensor.device = {8, 0};
  REQUIRE(refused(metal) == "TSR-T011");
  Foreign negative({-2}, {}), overflow({INT64_MAX, 8}, {}), null({2}, {}), shapeless({2}, {}),
      packed({2, 2}, {4, 1}, {dl::kInt, 4, 1}), rank({2}, {});
  REQUIRE(refused(negative) == "TSR-T002");
  REQUIRE(refused(overflow) == "TSR-R001");
  null.managed.dl_tensor.data = nullptr;
  REQUIRE(refused(null) == "TSR-T005");
  shapeless.managed.dl_tensor.shape = nullptr;
  REQUIRE(refused(shapeless) == "TSR-T005");
  REQUIRE(refused(packed) == "TSR-T004");
  rank.managed.dl_tensor.ndim = -1;
  REQUIRE(refused(rank) == "TSR-T002");
  REQUIRE(error_code([] { TensorRef(tensor_from_dlpack(nullptr)); }) == "TSR-T005");
}

TEST_CASE("a device that DLPack does not number is not exported") {
  float x = 0;
  const tsr_tensor desc{&x, TSR_F32, 0, nullptr, nullptr, device_intern("imaginary:3"), 0};
  TensorRef t(tensor_wrap(desc, nullptr, nullptr));
  REQUIRE(error_code([&] { tensor_to_dlpack(*t); }) == "TSR-T011");
  REQUIRE(t->refcount == 1);
}

}  // namespace dlpack_test
