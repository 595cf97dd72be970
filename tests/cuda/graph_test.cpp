// SPDX-License-Identifier: Apache-2.0
// Device graphs, white-box: nodes of described calls and of captured work, moved inputs and patched sizes; reserved addresses.
#include <catch2/catch.hpp>

#include "compiler.hpp"
#include "device.hpp"
#include "graph.hpp"
#include "support.hpp"

using namespace tessera;
using namespace tessera::cuda;

namespace {

const char* const kText = R"(
extern "C" __global__ void __launch_bounds__(64) scale(const float* x, float* y, long long n) {
  const long long i = (long long)blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = x[i] * 2.0f;
}
extern "C" __global__ void __launch_bounds__(64) add_one(const float* x, float* y, long long n) {
  const long long i = (long long)blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;
}
)";

// One launch of a kernel of the text, as data.
struct Call {
  tsr_device_call call{};
  const void* bytes[3];
  tsr_argument layout[3];
  Call(const Function& f, const float* x, float* y, int64_t n) {
    bytes[0] = x, bytes[1] = y, bytes[2] = reinterpret_cast<const void*>(n);
    for (uint32_t i = 0; i < 3; ++i) layout[i] = {TSR_ARGUMENT_FIXED, 0, i * 8, 8, 0};
    call.struct_size = sizeof call;
    call.kind = TSR_CALL_KERNEL;
    call.function = f.handle;
    call.grid[0] = static_cast<uint32_t>((n + 63) / 64), call.block[0] = 64;
    call.grid[1] = call.grid[2] = call.block[1] = call.block[2] = 1;
    call.arguments = bytes;
    call.argument_bytes = sizeof bytes;
    call.layout = layout;
    call.num_arguments = 3;
    call.argument_stride = sizeof(tsr_argument);
  }
};
tsr_device_call copy_call(float* to, const float* from, int64_t n) {
  tsr_device_call c{};
  c.struct_size = sizeof c;
  c.kind = TSR_CALL_COPY;
  c.to = to, c.from = from, c.bytes = static_cast<size_t>(n) * 4;
  return c;
}

struct Fixture {
  const Driver& driver = Driver::open(test::hardware() ? "" : FAKE_CUDA_LIBRARY);
  std::shared_ptr<Compiler> compiler = std::make_shared<Compiler>(test::hardware() ? "" : FAKE_CUDA_LIBRARY);
  CudaDevice device{driver, {}, compiler};
  Gpu& gpu = device.gpu(0);
  tsr_stream* stream = device.stream_create(0);
  Function scale, add_one;
  Fixture() {
    const auto cubin = compiler->kept(kText, gpu.architecture());
    scale = load_function(gpu, cubin, "scale");
    add_one = load_function(gpu, cubin, "add_one");
  }
  ~Fixture() { device.stream_destroy(0, stream); }

  float* floats(size_t n) { return static_cast<float*>(device.alloc(0, n * 4, 64, stream)); }
  void write(float* to, const std::vector<float>& values) {
    device.copy(0, to, values.data(), values.size() * 4, TSR_COPY_TO_DEVICE, stream);
  }
  std::vector<float> read(const float* from, size_t n) {
    std::vector<float> out(n);
    device.copy(0, out.data(), from, n * 4, TSR_COPY_TO_HOST, stream);
    return out;
  }
};

std::vector<float> values(size_t n, float first) {
  std::vector<float> out;
  for (size_t i = 0; i < n; ++i) out.push_back(first + static_cast<float>(i));
  return out;
}
std::vector<float> expected(const std::vector<float>& x) {
  std::vector<float> out;
  for (const float v : x) out.push_back(v * 2 + 1);
  return out;
}
template <class F>
std::string code_of(F&& f) {
  try {
    f();
  } catch (const sdk::Error& e) {
    return e.code;
  }
  return "";
}

// Work that is captured: what a library would queue.
template <class F>
void add_captured(CudaDevice& d, tsr_device_graph* g, F f, uint32_t* node, bool set) {
  sdk::QueueWork work{[](void* ctx, tsr_stream* s) -> tsr_error* { return (*static_cast<F*>(ctx))(s), nullptr; }, &f};
  if (set)
    d.graph_set_captured(0, g, *node, work);
  else
    *node = d.graph_add_captured(0, g, work, {});
}

}  // namespace

TEST_CASE("a graph of kernels and copies takes moved inputs and patched sizes") {
  Fixture f;
  constexpr size_t kMost = 1000;
  float *x = f.floats(kMost), *other = f.floats(kMost), *middle = f.floats(kMost), *y = f.floats(kMost), *z = f.floats(kMost);
  tsr_device_graph* g = f.device.graph_create(0);
  const uint32_t a = f.device.graph_add(0, g, Call(f.scale, x, middle, 1000).call, {});
  const uint32_t b = f.device.graph_add(0, g, Call(f.add_one, middle, y, 1000).call, std::vector<uint32_t>{a});
  tsr_device_call none{};
  none.struct_size = sizeof none;
  none.kind = TSR_CALL_EMPTY;
  const uint32_t e = f.device.graph_add(0, g, none, std::vector<uint32_t>{a, b});
  const uint32_t c = f.device.graph_add(0, g, copy_call(z, y, 1000), std::vector<uint32_t>{e});
  CHECK(code_of([&] { f.device.graph_launch(0, g, f.stream); }) == "TSR-B045");
  f.device.graph_instantiate(0, g);
  f.write(x, values(1000, 1));
  f.device.graph_launch(0, g, f.stream);
  CHECK(f.read(z, 1000) == expected(values(1000, 1)));

  f.write(other, values(1000, -7));  // a moved input changes the one kernel that reads it
  f.device.graph_set(0, g, a, Call(f.scale, other, middle, 1000).call);
  f.device.graph_launch(0, g, f.stream);
  CHECK(f.read(z, 1000) == expected(values(1000, -7)));

  f.write(z, values(1000, 5));  // another size changes arguments, grids and bytes
  f.device.graph_set(0, g, a, Call(f.scale, x, middle, 130).call);
  f.device.graph_set(0, g, b, Call(f.add_one, middle, y, 130).call);
  f.device.graph_set(0, g, c, copy_call(z, y, 130));
  f.device.graph_launch(0, g, f.stream);
  std::vector<float> want = expected(values(130, 1));
  const std::vector<float> rest = values(1000, 5);
  want.insert(want.end(), rest.begin() + 130, rest.end());
  CHECK(f.read(z, 1000) == want);

  CHECK(code_of([&] { f.device.graph_set(0, g, a, Call(f.add_one, x, middle, 130).call); }) == "TSR-R044");
  CHECK(code_of([&] { f.device.graph_set(0, g, a, copy_call(z, y, 130)); }) == "TSR-R044");
  CHECK(code_of([&] { f.device.graph_set(0, g, 9, copy_call(z, y, 130)); }) == "TSR-B045");
  CHECK(code_of([&] { f.device.graph_add(0, g, none, {}); }) == "TSR-B045");
  tsr_device_graph_info info{};
  info.struct_size = sizeof info;
  f.device.graph_info(0, g, info);
  CHECK(info.nodes == 4);
  CHECK(info.set_nodes == 4);
  f.device.stream_synchronize(0, f.stream);
  f.device.graph_destroy(0, g);
  for (float* p : {x, other, middle, y, z}) f.device.free(0, p, f.stream);
}

TEST_CASE("captured work is a node of its own, and exchanged as a whole") {
  Fixture f;
  float *x = f.floats(64), *other = f.floats(64), *y = f.floats(64);
  f.write(x, values(64, 3));
  f.write(other, values(64, 30));
  tsr_device_graph* g = f.device.graph_create(0);
  uint32_t node = 0;
  const auto queue = [&](const float* from, tsr_stream* s) {
    int64_t n = 64;
    void* const arguments[] = {&from, &y, &n};
    launch(f.gpu, f.scale.handle, "scale", 1, 64, 0, s, arguments);
    CHECK(f.device.stream_capturing(0, s));
  };
  add_captured(
      f.device, g, [&](tsr_stream* s) { queue(x, s); }, &node, false);
  f.device.graph_instantiate(0, g);
  f.device.graph_launch(0, g, f.stream);
  CHECK(f.read(y, 64)[5] == 16);
  add_captured(
      f.device, g, [&](tsr_stream* s) { queue(other, s); }, &node, true);
  f.device.graph_launch(0, g, f.stream);
  CHECK(f.read(y, 64)[5] == 70);
  // Two launches are no longer the same work.
  CHECK(code_of([&] {
          add_captured(
              f.device, g,
              [&](tsr_stream* s) {
                queue(x, s);
                queue(x, s);
              },
              &node, true);
        }) == "TSR-R044");
  float host = 0;
  CHECK(code_of([&] {
          add_captured(
              f.device, g, [&](tsr_stream* s) { f.device.copy(0, &host, x, 4, TSR_COPY_TO_HOST, s); }, &node, true);
        }) == "TSR-B045");
  f.device.graph_launch(0, g, f.stream);
  CHECK(f.read(y, 64)[5] == 70);
  f.device.graph_destroy(0, g);
  for (float* p : {x, other, y}) f.device.free(0, p, f.stream);
}

TEST_CASE("reserved addresses grow in place and keep what is there") {
  Fixture f;
  REQUIRE(f.device.reserves());
  constexpr size_t kMiB = size_t{1} << 20;
  char* range = static_cast<char*>(f.device.reserve(0, 64 * kMiB));
  f.device.commit(0, range, 100, f.stream);
  f.write(reinterpret_cast<float*>(range), values(25, 1));
  f.device.commit(0, range, 5 * kMiB, f.stream);
  CHECK(f.read(reinterpret_cast<float*>(range), 25) == values(25, 1));
  float* const behind = reinterpret_cast<float*>(range + 5 * kMiB - 100);
  f.write(behind, values(25, 7));
  CHECK(f.read(behind, 25) == values(25, 7));
  f.device.commit(0, range, 1, f.stream);
  CHECK(f.read(reinterpret_cast<float*>(range), 25) == values(25, 1));
  CHECK(code_of([&] { f.device.commit(0, range, 65 * kMiB, f.stream); }) == "TSR-B045");
  f.device.unreserve(0, range);
}
