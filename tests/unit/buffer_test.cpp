// SPDX-License-Identifier: Apache-2.0
// Buffers and tensors: ownership, pooling, counters, views, strided copies, and everything that must be refused.
#include <atomic>
#include <catch2/catch.hpp>

#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "memory/copy.hpp"
#include "memory/pool.hpp"
#include "memory/tensor.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace buffer_test {

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

TensorRef make(uint32_t dtype, std::vector<int64_t> sizes) { return TensorRef(tensor_create(dtype, sizes, kCpu)); }

TensorRef iota(std::vector<int64_t> sizes) {
  TensorRef t = make(TSR_I32, sizes);
  auto* p = static_cast<int32_t*>(t->desc.data);
  std::iota(p, p + num_elements(sizes), 0);
  return t;
}

std::vector<int32_t> values(const Tensor& t) {
  TensorRef dense(tensor_copy(t, kCpu));
  const auto* p = static_cast<const int32_t*>(dense->desc.data);
  return {p, p + num_elements({t.desc.sizes, t.desc.rank})};
}

}  // namespace

TEST_CASE("size classes hold what they are asked for and waste at most a fifth") {
  size_t previous = 0;
  for (uint32_t c = 0; c < kSizeClasses; ++c) {
    const size_t bytes = size_class_bytes(c);
    REQUIRE(bytes > previous);
    REQUIRE(size_class_of(bytes) == c);
    REQUIRE(size_class_of(previous + 1) == c);
    if (bytes > 256) REQUIRE((bytes - previous) * 5 <= bytes);
    previous = bytes;
  }
  REQUIRE(size_class_of(0) == 0);
  REQUIRE(previous >= size_t{1} << 47);
}

TEST_CASE("tensors are dense, aligned and counted") {
  Device& cpu = device(kCpu);
  const int64_t before = cpu.in_use();
  cpu.peak(true);
  {
    TensorRef a = make(TSR_F32, {3, 5});
    REQUIRE(reinterpret_cast<uintptr_t>(a->desc.data) % 64 == 0);
    REQUIRE(a->desc.rank == 2);
    REQUIRE(a->desc.strides[0] == 5);
    REQUIRE(a->desc.strides[1] == 1);
    REQUIRE(a->desc.flags == TSR_TENSOR_CONTIGUOUS);
    REQUIRE(cpu.in_use() == before + 64);  // 60 bytes, counted in units of the alignment
    TensorRef b = make(TSR_F64, {1000});
    REQUIRE(cpu.in_use() == before + 64 + 8000);
  }
  REQUIRE(cpu.in_use() == before);
  REQUIRE(cpu.peak(false) == before + 64 + 8000);
  REQUIRE(cpu.peak(true) == before + 64 + 8000);
  REQUIRE(cpu.peak(false) == before);
}

TEST_CASE("bytes in use are exact whichever thread frees, the maximum is where one thread allocates") {
  Device& cpu = device(kCpu);
  const int64_t before = cpu.in_use();
  TensorRef a = make(TSR_F32, {16}), b = make(TSR_F32, {32});
  std::atomic<int> step{0};
  std::thread other([&] {
    a = TensorRef();  // noted by a thread that goes on
    step = 1;
    while (step != 2) std::this_thread::yield();
    b = TensorRef();
  });
  while (step != 1) std::this_thread::yield();
  CHECK(cpu.in_use() == before + 128);
  step = 2;
  other.join();
  CHECK(cpu.in_use() == before);
  cpu.peak(true);
  for (int i = 0; i < 3; ++i) {
    TensorRef small = make(TSR_F32, {16});
    small = TensorRef();
    TensorRef large = make(TSR_F32, {64 << 10});  // more than a thread notes
    TensorRef more = make(TSR_F32, {16});
  }
  CHECK(cpu.in_use() == before);
  CHECK(cpu.peak(true) == before + (256 << 10) + 64);
  TensorRef last = make(TSR_F32, {16});
  CHECK(cpu.peak(false) == before + 64);
}

TEST_CASE("a released block is used again") {
  void* p = nullptr;
  {
    TensorRef a = make(TSR_F32, {100});
    p = a->desc.data;
  }
  TensorRef b = make(TSR_I32, {98});
  REQUIRE(b->desc.data == p);
}

TEST_CASE("every dtype has its bytes, packed ones included") {
  for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d) {
    TensorRef t = make(d, {3, 3});
    REQUIRE(t->buffer->bytes == static_cast<size_t>((9 * tessera::dtype_bits(d) + 7) / 8));
  }
  TensorRef scalar = make(TSR_F32, {});
  REQUIRE(scalar->desc.rank == 0);
  REQUIRE(scalar->buffer->bytes == 4);
  TensorRef empty = make(TSR_F32, {4, 0, 3});
  REQUIRE(empty->buffer->bytes == 0);
  REQUIRE(empty->desc.strides[0] == 3);
  TensorRef deep = make(TSR_F32, std::vector<int64_t>(12, 1));  // beyond the pooled handle size
  REQUIRE(deep->desc.sizes[11] == 1);
}

TEST_CASE("sizes that cannot be had are refused") {
  REQUIRE(error_code([] { make(TSR_DTYPE_COUNT, {1}); }) == "TSR-T001");
  REQUIRE(error_code([] { make(0, {1}); }) == "TSR-T001");
  REQUIRE(error_code([] { make(TSR_F32, {2, -1}); }) == "TSR-T002");
  REQUIRE(error_code([] { make(TSR_F32, std::vector<int64_t>(65, 1)); }) == "TSR-T002");
  REQUIRE(error_code([] { make(TSR_F64, {INT64_MAX}); }) == "TSR-R001");
  REQUIRE(error_code([] { make(TSR_F64, {int64_t{1} << 32, int64_t{1} << 32}); }) == "TSR-R001");
  REQUIRE(error_code([] { make(TSR_F64, {0, int64_t{1} << 62, 4}); }) == "TSR-R001");  // its strides would overflow
  REQUIRE(error_code([] { make(TSR_U8, {int64_t{1} << 50}); }) == "TSR-R001");
  REQUIRE(error_code([] { make(TSR_U8, {int64_t{1} << 44}); }) == "TSR-R001");
  REQUIRE(error_code([] { TensorRef(tensor_create(TSR_F32, {}, 200)); }) == "TSR-T031");
  try {
    make(TSR_U8, {int64_t{1} << 44});
  } catch (const Error& e) {
    REQUIRE(e.family() == TSR_ENVIRONMENT);
    REQUIRE(e.message().find("asked for 17592186044416 bytes") != std::string::npos);
  }
}

TEST_CASE("devices are interned by kind and number") {
  REQUIRE(device_intern("cpu") == kCpu);
  REQUIRE(device_intern("cpu:0") == kCpu);
  const tsr_device a = device_intern("imaginary");
  REQUIRE(device_intern("imaginary:0") == a);
  REQUIRE(device_intern("imaginary:1") != a);
  REQUIRE(device(a).name() == "imaginary:0");
  for (const char* bad : {"", "CPU", "cpu:1", "null:", "null:x", "a:b:c", ":0", "1x", "null:12345"})
    REQUIRE(error_code([&] { device_intern(bad); }) == "TSR-T030");
  REQUIRE(error_code([&] { TensorRef(tensor_create(TSR_F32, {}, a)); }) == "TSR-R002");
}

TEST_CASE("views share the buffer and stay inside it") {
  TensorRef base = iota({4, 6});
  const int64_t sizes[] = {2, 3}, strides[] = {12, 2};
  TensorRef v(tensor_view(*base, 1, sizes, strides));
  REQUIRE(v->desc.flags == 0);
  REQUIRE(values(*v) == std::vector<int32_t>{1, 3, 5, 13, 15, 17});
  const int64_t back[] = {-6, -1};
  const int64_t all[] = {4, 6};
  TensorRef reversed(tensor_view(*base, 23, all, back));
  REQUIRE(values(*reversed).front() == 23);
  REQUIRE(values(*reversed).back() == 0);
  const int64_t still[] = {0, 0};
  TensorRef broadcast(tensor_view(*base, 5, all, still));
  REQUIRE(values(*broadcast) == std::vector<int32_t>(24, 5));
  // A view of a view is measured against the buffer, not against the first view.
  const int64_t whole[] = {24};
  TensorRef again(tensor_view(*v, -1, whole, nullptr));
  REQUIRE(values(*again)[23] == 23);
  base = TensorRef();  // views keep the memory
  REQUIRE(values(*v)[0] == 1);

  TensorRef other = iota({4, 6});
  const auto refused = [&](int64_t offset, std::vector<int64_t> s, std::vector<int64_t> st) {
    return error_code([&] { TensorRef(tensor_view(*other, offset, s, st.data())); });
  };
  REQUIRE(refused(1, {24}, {1}) == "TSR-T003");
  REQUIRE(refused(-1, {1}, {1}) == "TSR-T003");
  REQUIRE(refused(0, {2}, {-1}) == "TSR-T003");
  REQUIRE(refused(0, {3}, {INT64_MAX}) == "TSR-T003");
  REQUIRE(refused(INT64_MAX, {1}, {1}) == "TSR-T003");
  REQUIRE(refused(0, {2, 2}, {INT64_MAX / 2, INT64_MAX / 2 + 2}) == "TSR-T003");
  REQUIRE(refused(0, {-3}, {1}) == "TSR-T002");
  REQUIRE(refused(100, {0, 3}, {1, 1}).empty());  // an empty view touches nothing
}

TEST_CASE("packed tensors have no strides and begin at a byte") {
  TensorRef t = make(TSR_I4, {4, 4});
  const int64_t sizes[] = {2, 4}, skipping[] = {8, 1}, column[] = {4};
  REQUIRE(error_code([&] { TensorRef(tensor_view(*t, 0, sizes, skipping)); }) == "TSR-T004");
  REQUIRE(error_code([&] { TensorRef(tensor_view(*t, 1, column, nullptr)); }) == "TSR-T004");
  TensorRef v(tensor_view(*t, 8, sizes, nullptr));
  REQUIRE(static_cast<char*>(v->desc.data) == static_cast<char*>(t->desc.data) + 4);
  REQUIRE(error_code([&] { TensorRef(tensor_view(*t, 10, sizes, nullptr)); }) == "TSR-T003");
}

TEST_CASE("wrapped memory calls its deleter once, with the last reference") {
  struct Owner {
    float data[6] = {0, 1, 2, 3, 4, 5};
    int deleted = 0;
  } owner;
  const int64_t sizes[] = {2, 3}, strides[] = {1, 2};
  const tsr_tensor desc{owner.data, TSR_F32, 2, sizes, strides, kCpu, 0};
  const int64_t before = device(kCpu).in_use();
  TensorRef t(tensor_wrap(
      desc, [](void* p) { ++static_cast<Owner*>(p)->deleted; }, &owner));
  REQUIRE(device(kCpu).in_use() == before);  // not ours
  REQUIRE(t->desc.flags == 0);
  TensorRef other = TensorRef::share(t.get());
  const int64_t one[] = {1};
  TensorRef view(tensor_view(*t, 5, one, nullptr));
  t = TensorRef();
  other = TensorRef();
  REQUIRE(owner.deleted == 0);
  REQUIRE(*static_cast<float*>(view->desc.data) == 5);
  view = TensorRef();
  REQUIRE(owner.deleted == 1);

  const auto refused = [&](const tsr_tensor& d) {
    return error_code([&] {
      TensorRef(tensor_wrap(
          d, [](void* p) { ++static_cast<Owner*>(p)->deleted; }, &owner));
    });
  };
  REQUIRE(refused({nullptr, TSR_F32, 2, sizes, nullptr, kCpu, 0}) == "TSR-T005");
  REQUIRE(refused({owner.data, TSR_F32, 2, nullptr, nullptr, kCpu, 0}) == "TSR-T005");
  REQUIRE(refused({owner.data, TSR_U4, 2, sizes, strides, kCpu, 0}) == "TSR-T004");
  REQUIRE(refused({owner.data, 99, 2, sizes, nullptr, kCpu, 0}) == "TSR-T001");
  const int64_t far[] = {INT64_MAX / 2, 1};
  REQUIRE(refused({owner.data, TSR_F64, 2, sizes, far, kCpu, 0}) == "TSR-T003");
  REQUIRE(owner.deleted == 1);
}

TEST_CASE("copies change any layout into any other") {
  TensorRef base = iota({3, 4, 5});
  struct Layout {
    std::vector<int64_t> sizes, strides;
    int64_t offset;
  };
  const std::vector<Layout> layouts = {
      {{3, 4, 5}, {20, 5, 1}, 0},
      {{5, 4, 3}, {1, 5, 20}, 0},
      {{4, 3, 5}, {5, 20, 1}, 0},
      {{3, 5}, {20, -1}, 4},
      {{2, 2, 2}, {20, 10, 2}, 7},
      {{3, 4}, {0, 0}, 9},
      {{60}, {1}, 0},
      {{}, {}, 11},
      {{4, 1, 5}, {5, 77, 1}, 20},
      {{0, 5}, {5, 1}, 0},
  };
  for (const Layout& l : layouts) {
    TensorRef v(tensor_view(*base, l.offset, l.sizes, l.strides.data()));
    std::vector<int32_t> expected;
    std::vector<int64_t> index(l.sizes.size(), 0);
    for (int64_t k = 0, n = num_elements(l.sizes); k < n; ++k) {
      int64_t at = l.offset, rest = k;
      for (size_t i = l.sizes.size(); i-- > 0; rest /= l.sizes[i]) at += rest % l.sizes[i] * l.strides[i];
      expected.push_back(static_cast<int32_t>(at));
    }
    REQUIRE(values(*v) == expected);
  }
}

TEST_CASE("large transposed copies are exact for every element size") {
  const int64_t n = 517, m = 389;  // odd sizes: tiles end in the middle
  for (const uint32_t dtype : {TSR_U8, TSR_I16, TSR_F32, TSR_F64, TSR_C128}) {
    TensorRef a = make(dtype, {n, m});
    auto* bytes = static_cast<unsigned char*>(a->desc.data);
    uint32_t x = 12345;
    for (size_t i = 0; i < a->buffer->bytes; ++i) bytes[i] = static_cast<unsigned char>((x = x * 1664525 + 1013904223) >> 24);
    const int64_t sizes[] = {m, n}, strides[] = {1, m};
    TensorRef t(tensor_view(*a, 0, sizes, strides));
    TensorRef out(tensor_copy(*t, kCpu));
    const size_t item = static_cast<size_t>(tessera::dtype_bits(dtype)) / 8;
    size_t wrong = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        wrong += std::memcmp(static_cast<char*>(out->desc.data) + static_cast<size_t>(i * n + j) * item,
                             bytes + static_cast<size_t>(j * m + i) * item, item) != 0;
    REQUIRE(wrong == 0);
    // And into a strided destination.
    TensorRef target = make(dtype, {n, m});
    TensorRef hole(tensor_view(*target, 0, sizes, strides));
    copy_tensor(hole->desc, out->desc);
    REQUIRE(std::memcmp(target->desc.data, bytes, a->buffer->bytes) == 0);
  }
}

TEST_CASE("blocks and handles travel between threads") {
  const int64_t before = device(kCpu).in_use();
  std::vector<tsr_tensor_handle*> handles(400);
  std::thread maker([&] {
    for (size_t i = 0; i < handles.size(); ++i) {
      const int64_t sizes[] = {static_cast<int64_t>(i * 37 % 3000)};
      handles[i] = tensor_create(TSR_F32, sizes, kCpu);
    }
  });
  maker.join();
  // One reference per thread: the last to let go gives the block back, whichever thread that is.
  for (tsr_tensor_handle* h : handles)
    for (int t = 0; t < 3; ++t) tensor_retain(h);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < handles.size(); ++i) {
        tensor_release(handles[i]);
        TensorRef mine = make(TSR_U8, {static_cast<int64_t>(i)});
        std::memset(mine->desc.data, t, i);
      }
    });
  for (std::thread& t : threads) t.join();
  REQUIRE(device(kCpu).in_use() == before);
  trim_pool(device(kCpu));
}

TEST_CASE("sizes that nobody asks for any more make room in the pool") {
  // A device of its own, which hands out addresses without memory and counts.
  struct Counts {
    int allocated = 0, freed = 0;
    char* next = reinterpret_cast<char*>(uintptr_t{1} << 40);
  };
  static Counts counts;
  static tsr_device_table table{};
  table.struct_size = sizeof table;
  table.name = "counting";
  table.count = 1;
  table.alloc = [](void*, uint32_t, size_t bytes, size_t, tsr_stream*, void** out) -> tsr_error* {
    ++counts.allocated;
    *out = counts.next;
    counts.next += (bytes + 63) / 64 * 64;
    return nullptr;
  };
  table.free = [](void*, uint32_t, void*, tsr_stream*) { ++counts.freed; };
  table.stream_create = [](void*, uint32_t, tsr_stream** out) -> tsr_error* {
    *out = reinterpret_cast<tsr_stream*>(&counts);
    return nullptr;
  };
  register_devices(table, nullptr, "buffer_test", "tests", nullptr);
  Device& d = device(device_intern("counting:0"));
  const auto cycle = [&](size_t bytes, int blocks) {
    std::vector<BufferRef> held;
    for (int i = 0; i < blocks; ++i) held.emplace_back(allocate_buffer(d, bytes));
  };
  constexpr size_t kMiB = size_t{1} << 20;

  cycle(64 * kMiB, 4);  // what the pool holds at most
  REQUIRE(counts.allocated == 4);
  cycle(64 * kMiB, 4);
  REQUIRE(counts.allocated == 4);
  REQUIRE(counts.freed == 0);

  // A program with other sizes comes: at first it finds no room, then what the first one left goes.
  for (int i = 0; i < 40; ++i) cycle(32 * kMiB, 3);
  CHECK(counts.freed > 0);
  const int settled = counts.allocated;
  for (int i = 0; i < 100; ++i) cycle(32 * kMiB, 3);
  CHECK(counts.allocated == settled);

  // Sizes that take turns and do not all fit: those inside stay.
  trim_pool(d);
  REQUIRE(counts.allocated == counts.freed);
  counts = {};
  for (int i = 0; i < 100; ++i) {
    cycle(160 * kMiB, 1);
    cycle(128 * kMiB, 1);
  }
  CHECK(counts.allocated == 101);

  // Larger than the whole pool: nothing else leaves for it.
  counts.allocated = 0;
  for (int i = 0; i < 100; ++i) cycle(320 * kMiB, 1);
  CHECK(counts.allocated == 100);
  cycle(160 * kMiB, 1);
  CHECK(counts.allocated == 100);
  trim_pool(d);
}

}  // namespace buffer_test
