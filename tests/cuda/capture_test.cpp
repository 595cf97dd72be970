// SPDX-License-Identifier: Apache-2.0
// Runs on a stream that another library captures into a graph of its own.
#include <catch2/catch.hpp>

#include "driver.hpp"
#include "graphs_support.hpp"

using namespace tessera::test;
using tessera::cuda::Driver;

namespace {

// A stream of another library, made by the driver itself.
struct Foreign {
  const Driver& driver = Driver::open(hardware() ? "" : FAKE_CUDA_LIBRARY);
  tessera::cuda::CUstream native = nullptr;
  tsr_stream_handle* stream = nullptr;
  tessera::cuda::CUgraph graph = nullptr;
  tessera::cuda::CUgraphExec exec = nullptr;

  explicit Foreign(tsr_device device) {
    tessera::cuda::CUcontext context = nullptr;
    CHECK(driver.cuDevicePrimaryCtxRetain(&context, 0) == 0);
    CHECK(driver.cuCtxSetCurrent(context) == 0);
    CHECK(driver.cuStreamCreate(&native, tessera::cuda::kStreamNonBlocking) == 0);
    e::check(e::api().stream_wrap(device, native, &stream));
  }
  ~Foreign() {
    e::api().stream_destroy(stream);
    if (exec) driver.cuGraphExecDestroy(exec);
    if (graph) driver.cuGraphDestroy(graph);
  }
  void begin() { CHECK(driver.cuStreamBeginCapture_v2(native, tessera::cuda::kCaptureRelaxed) == 0); }
  void end() {
    CHECK(driver.cuStreamEndCapture(native, &graph) == 0);
    CHECK(driver.cuGraphInstantiateWithFlags(&exec, graph, 0) == 0);
  }
  void launch() {
    CHECK(driver.cuGraphLaunch(exec, native) == 0);
    CHECK(driver.cuStreamSynchronize(native) == 0);
  }
};

// Gives out pieces of one block, which lasts as long as the graph.
struct Pieces {
  e::Tensor block;
  size_t used = 0;
  tsr_allocator table{};
  explicit Pieces(tsr_device d) : block(e::Tensor::create(TSR_U8, std::vector<int64_t>{1 << 20}, d)) {
    table.struct_size = sizeof table;
    table.ctx = this;
    table.alloc = [](void* ctx, tsr_device, size_t bytes, tsr_stream_handle*, void** out) -> tsr_error* {
      auto& self = *static_cast<Pieces*>(ctx);
      *out = static_cast<char*>(self.block.data()) + self.used;
      self.used += (bytes + 255) / 256 * 256;
      return nullptr;
    };
    table.free = [](void*, tsr_device, void*, size_t, tsr_stream_handle*) {};
  }
};

const char* const kText = R"(graph @g(%x: f32[4, 16]@gpu, %w: f32[16, 16]@gpu) -> (f32[4, 16]@gpu) {
  %a = matmul %x, %w
  %b = softmax %a {axis = -1}
  %c = add %b, %x
  return %c
})";

}  // namespace

TEST_CASE("a run on a stream under foreign capture becomes part of that graph, with and without our own") {
  const Place place("cuda");
  const e::Tensor w = place.on(numbers({16, 16}, 2)), x = place.on(numbers({4, 16}, 1)), other = place.on(numbers({4, 16}, 9));
  const e::Executable steps = compile(*place.steps, place.text(kText));
  const e::Tensor want = steps.run(std::vector<e::Tensor>{x, w})[0],
                  want_other = steps.run(std::vector<e::Tensor>{other, w})[0];
  for (const e::Context* context : {place.steps.get(), place.graphs.get()}) {
    const e::Executable p = compile(*context, place.text(kText));
    (void)p.run(std::vector<e::Tensor>{x, w});  // modules are loaded, and a graph of ours is built
    Pieces pieces(place.id());
    e::synchronize(place.id());
    {
      Foreign foreign(place.id());
      tsr_stream_handle* streams[] = {foreign.stream};
      tsr_run_options options{};
      options.struct_size = sizeof options;
      options.streams = streams;
      options.num_streams = 1;
      foreign.begin();
      const std::string refused = error_of([&] { (void)p.run(std::vector<e::Tensor>{x, w}, &options); });
      INFO(refused);
      CHECK(refused.starts_with("TSR-R045"));
      CHECK(refused.find("graph 'g'") != std::string::npos);
      options.allocator = &pieces.table;
      const e::Tensor y = p.run(std::vector<e::Tensor>{x, w}, &options)[0];
      foreign.end();
      foreign.launch();
      CHECK(same_bits(y, want));
      foreign.launch();
      CHECK(same_bits(y, want));
      CHECK(same_bits(p.run(std::vector<e::Tensor>{other, w})[0], want_other));  // others were not disturbed
    }
  }
}
