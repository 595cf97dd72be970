// SPDX-License-Identifier: Apache-2.0
// Runs on a stream that somebody else is capturing into a graph: what they may not do, and that a refusal harms nobody.
#include <catch2/catch.hpp>

#include "support.hpp"
#include "support/error.hpp"

namespace capture_test {

using namespace tessera::test;
namespace core = tessera::core;

namespace {

// A stream of sim:0, and somebody who captures what is queued on it.
class Capture {
 public:
  Capture() : table_(*(static_cast<void>(sim()), core::device(e::device("sim:0")).table(&self_))) {}
  ~Capture() {
    if (capturing_) end();
    if (graph_) table_.graph_destroy(self_, 0, graph_);
  }
  const e::Stream& stream() const { return stream_; }
  void begin() {
    done(table_.capture_begin(self_, 0, raw()));
    capturing_ = true;
  }
  void end() {
    capturing_ = false;
    done(table_.capture_end(self_, 0, raw(), &graph_));
  }
  void launch() { done(table_.graph_launch(self_, 0, graph_, raw())); }

 private:
  tsr_stream* raw() const { return core::Stream::from(stream_.handle())->raw(); }
  static void done(tsr_error* error) {
    if (error) core::host_core().error_free(error);
    CHECK(error == nullptr);
  }
  void* self_ = nullptr;
  const tsr_device_table& table_;
  const e::Stream stream_{e::device("sim:0")};
  tsr_device_graph* graph_ = nullptr;
  bool capturing_ = false;
};

struct Options {
  tsr_stream_handle* streams[1];
  tsr_run_options table{};
  explicit Options(const e::Stream& s, tsr_allocator* allocator) : streams{s.handle()} {
    table.struct_size = sizeof table;
    table.streams = streams;
    table.num_streams = 1;
    table.allocator = allocator;
  }
};

const char* const kProgram = R"(graph @g(%x: f32[64]@sim:0) -> (f32[64]@sim:0) {
    %a = exp %x
    %b = neg %a
    %c = add %b, %x
    return %c
  })";

}  // namespace

TEST_CASE("a run on a captured stream becomes part of the graph, and runs as often as that is launched") {
  for (const e::Context* context : {&sim(), &graphs()}) {
    const e::Executable p = compile(*context, kProgram), reference = compile(host(), on_host(kProgram));
    const e::Stream pool(e::device("sim:0"));
    Allocator allocator;
    allocator.lasting = core::Stream::from(pool.handle())->raw();
    {
      Capture capture;
      const Options options(capture.stream(), &allocator.table);
      const e::StreamScope scope(capture.stream());
      const e::Tensor x = numbers({64}, 1), on_device = x.copy_to(e::device("sim:0"));
      capture.stream().synchronize();
      capture.begin();
      const e::Tensor y = p.run(std::vector<e::Tensor>{on_device}, &options.table)[0];
      capture.end();
      CHECK(!same_bits(y, reference.run(std::vector<e::Tensor>{x})[0]));  // nothing has run
      capture.launch();
      CHECK(same_bits(y, reference.run(std::vector<e::Tensor>{x})[0]));
      capture.launch();
      CHECK(same_bits(y, reference.run(std::vector<e::Tensor>{x})[0]));
    }
    CHECK(allocator.live.empty());
  }
}

TEST_CASE("a run on a captured stream takes no memory of the pool") {
  const e::Executable p = compile(sim(), kProgram), reference = compile(host(), on_host(kProgram));
  Capture capture;
  const Options options(capture.stream(), nullptr);
  const e::StreamScope scope(capture.stream());
  const e::Tensor x = numbers({64}, 1), on_device = x.copy_to(e::device("sim:0"));
  capture.stream().synchronize();
  capture.begin();
  CHECK(code_of([&] { (void)p.run(std::vector<e::Tensor>{on_device}, &options.table); }) == "TSR-R045");
  capture.end();
  CHECK(same_bits(p.run(std::vector<e::Tensor>{on_device}, &options.table)[0], reference.run(std::vector<e::Tensor>{x})[0]));
}

TEST_CASE("a captured stream waits for nobody, and nobody for it") {
  const e::Executable p = compile(sim(), kProgram), reference = compile(host(), on_host(kProgram));
  const e::Executable to_host = compile(sim(), R"(graph @reads(%x: f32[64]@sim:0) -> (f32[64]) {
    %a = neg %x
    %b = to_device %a {device = "cpu"}
    return %b
  })");
  const e::Executable state = compile(sim(), R"(graph @keeps(%s: f32[64]@sim:0 state "s" -> 0) -> (f32[64]@sim:0) {
    %a = neg %s
    return %a
  })");
  const e::Stream pool(e::device("sim:0"));
  Allocator allocator;
  allocator.lasting = core::Stream::from(pool.handle())->raw();
  Capture capture;
  const Options options(capture.stream(), &allocator.table);
  const e::Tensor x = numbers({64}, 1);
  const e::Tensor elsewhere = x.copy_to(e::device("sim:0"));  // on the stream that all threads share
  e::Tensor here;
  {
    const e::StreamScope scope(capture.stream());
    here = x.copy_to(e::device("sim:0"));
    capture.stream().synchronize();
  }
  capture.begin();
  try {
    (void)p.run(std::vector<e::Tensor>{elsewhere}, &options.table);
    FAIL("no error");
  } catch (const e::Error& error) {
    CHECK(error.code() == "TSR-R046");
    CHECK(error.message().find("input 'x' (number 0 of graph 'g')") != std::string::npos);
    CHECK(error.message().find("sim:0") != std::string::npos);
  }
  CHECK(code_of([&] { (void)to_host.run(std::vector<e::Tensor>{here}, &options.table); }) == "TSR-R046");
  CHECK(code_of([&] { (void)state.run(std::vector<e::Tensor>{here}, &options.table); }) == "TSR-R046");
  CHECK(code_of([&] { capture.stream().synchronize(); }) == "TSR-R046");
  CHECK(allocator.live.empty());
  // Other streams go on.
  CHECK(same_bits(p.run(std::vector<e::Tensor>{elsewhere})[0], reference.run(std::vector<e::Tensor>{x})[0]));
  capture.end();
  CHECK(same_bits(p.run(std::vector<e::Tensor>{here})[0], reference.run(std::vector<e::Tensor>{x})[0]));
}

}  // namespace capture_test
