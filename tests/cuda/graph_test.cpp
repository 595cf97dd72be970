// SPDX-License-Identifier: Apache-2.0
// Device graphs made of what a stream records, white-box: moved inputs and patched sizes, against the same launches by themselves.
#include <catch2/catch.hpp>

#include "compiler.hpp"
#include "device.hpp"
#include "recording.hpp"
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
  void launch(const Function& f, const float* x, float* y, int64_t n, tsr_stream* s) {
    void* const arguments[] = {&x, &y, &n};
    constexpr uint32_t sizes[] = {8, 8, 8};
    cuda::launch(f, static_cast<unsigned>((n + 63) / 64), 64, 0, s, arguments, sizes);
  }
  // y = 2 x + 1 through `middle`, then z = y.
  std::vector<RecordedNode> record(const float* x, float* middle, float* y, float* z, int64_t n) {
    Recording r(gpu);
    device.fill(0, z, 0, static_cast<size_t>(n) * 4, r.stream());
    launch(scale, x, middle, n, r.stream());
    launch(add_one, middle, y, n, r.stream());
    device.copy(0, z, y, static_cast<size_t>(n) * 4, TSR_COPY_WITHIN, r.stream());
    return r.take();
  }
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

}  // namespace

TEST_CASE("a graph of kernels and copies runs, takes moved inputs and patched sizes") {
  Fixture f;
  constexpr size_t kMost = 1000;
  float *x = f.floats(kMost), *other = f.floats(kMost), *middle = f.floats(kMost), *y = f.floats(kMost), *z = f.floats(kMost);
  DeviceGraph graph(f.gpu, f.record(x, middle, y, z, 1000));
  CHECK(graph.size() == 4);
  f.write(x, values(1000, 1));
  graph.launch(f.stream);
  CHECK(f.read(z, 1000) == expected(values(1000, 1)));

  // The same parameters: no call of the driver.
  CHECK(graph.update(0, f.record(x, middle, y, z, 1000)) == 0);

  // A moved input changes the one kernel that reads it.
  f.write(other, values(1000, -7));
  CHECK(graph.update(0, f.record(other, middle, y, z, 1000)) == 1);
  graph.launch(f.stream);
  CHECK(f.read(z, 1000) == expected(values(1000, -7)));

  // Another size changes every node: arguments, grids and bytes.
  f.write(z, values(1000, 5));
  CHECK(graph.update(0, f.record(x, middle, y, z, 130)) == 4);
  graph.launch(f.stream);
  std::vector<float> want = expected(values(130, 1)), rest = values(1000, 5);
  want.insert(want.end(), rest.begin() + 130, rest.end());
  CHECK(f.read(z, 1000) == want);

  // A part of the graph.
  std::vector<RecordedNode> nodes = f.record(other, middle, y, z, 130);
  CHECK(graph.update(1, {nodes[1]}) == 1);
  graph.launch(f.stream);
  CHECK(f.read(z, 130) == expected(values(130, -7)));

  // Other kernels: the graph is to be made anew.
  std::swap(nodes[1].function, nodes[2].function);
  CHECK(graph.update(0, nodes) == -1);
  for (float* p : {x, other, middle, y, z}) f.device.free(0, p, f.stream);
}

TEST_CASE("a call of a library is captured into a node of its own, and exchanged as a whole") {
  Fixture f;
  float *x = f.floats(64), *y = f.floats(64);
  // Stands for a library: it queues on a stream of the driver's.
  const auto record = [&](const Function& function) {
    Recording r(f.gpu);
    r.library("library", [&](CUstream native) {
      tsr_stream s;
      s.gpu = &f.gpu, s.native = native, s.owned = false;
      f.launch(function, x, y, 64, &s);
    });
    return r.take();
  };
  f.write(x, values(64, 3));
  DeviceGraph graph(f.gpu, record(f.scale));
  graph.launch(f.stream);
  CHECK(f.read(y, 64)[5] == 16);
  CHECK(graph.update(0, record(f.scale)) == 1);
  graph.launch(f.stream);
  CHECK(f.read(y, 64)[5] == 16);
  for (float* p : {x, y}) f.device.free(0, p, f.stream);
}

TEST_CASE("what a graph cannot hold is refused") {
  Fixture f;
  Recording r(f.gpu);
  float* x = f.floats(4);
  float host[4] = {};
  CHECK_THROWS_AS(f.device.copy(0, host, x, 16, TSR_COPY_TO_HOST, r.stream()), sdk::Error);
  CHECK_THROWS_AS(f.device.copy_peer(0, x, 0, x, 16, r.stream()), sdk::Error);
  CHECK(r.nodes().empty());
  f.device.free(0, x, f.stream);
}
