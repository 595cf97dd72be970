// SPDX-License-Identifier: Apache-2.0
// The executor cudagraphs, on sim and on the fake driver (on a GPU with TESSERA_TEST_CUDA=hardware): plans as graphs of the
// device.
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "graphs_support.hpp"

using namespace tessera::test;

namespace {

const char* const kMlp =
    R"(graph @mlp(%x: f32[5, 16]@gpu, %w: f32[16, 8]@gpu, %b: f32[8]@gpu) -> (f32[5, 8]@gpu, f32[5, 8]@gpu) {
    %h = matmul %x, %w
    %a = add %h, %b
    %r = relu %a
    %p = softmax %r {axis = -1}
    return %p, %a
  })";

void check_same(const std::vector<e::Tensor>& got, const std::vector<e::Tensor>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], want[i]));
}

}  // namespace

TEST_CASE("a plan as a graph gives the steps' bits, also when its inputs move, and its outputs stay") {
  for (const std::string& name : places()) {
    const Place place(name);
    const std::string text = place.text(kMlp);
    const e::Executable graph = compile(*place.graphs, text), steps = compile(*place.steps, text);
    std::vector<std::vector<e::Tensor>> got, want;
    for (uint64_t i = 0; i < 6; ++i) {
      const std::vector<e::Tensor> in = {place.on(numbers({5, 16}, i)), place.on(numbers({16, 8}, 10 + i / 2)),
                                         place.on(numbers({8}, 20))};
      got.push_back(graph.run(in));
      want.push_back(steps.run(in));
    }
    for (size_t i = 0; i < got.size(); ++i) check_same(got[i], want[i]);  // none was overwritten by a later call
  }
}

TEST_CASE("symbolic sizes share one graph, whose sizes and grids are set") {
  for (const std::string& name : places()) {
    const Place place(name, "min_steps = 1\n");
    const std::string text = place.text(R"(graph @g(%x: f32[s0, 40]@gpu, %b: f32[40]@gpu) -> (f32[s0, 40]@gpu) {
      %a = add %x, %b
      %p = softmax %a {axis = -1}
      %q = log_softmax %a {axis = -1}
      %t = mul %p, %q
      return %t
    })");
    const e::Executable graph = compile(*place.graphs, text), steps = compile(*place.steps, text);
    const e::Tensor b = place.on(numbers({40}, 3));
    if (name == "cuda" && !hardware()) calls(nullptr);
    for (const int64_t rows : {3, 130, 3, 7, 130, 0, 4, 1}) {
      const e::Tensor x = place.on(numbers({rows, 40}, static_cast<uint64_t>(rows)));
      check_same(graph.run(std::vector<e::Tensor>{x, b}), steps.run(std::vector<e::Tensor>{x, b}));
    }
    // The empty one has other calls.
    if (name == "cuda" && !hardware()) CHECK(calls("cuGraphInstantiate") == 2);
  }
}

TEST_CASE("a plan that runs again with the same tensors sets no node") {
  if (hardware()) return;
  const Place place("cuda");
  const e::Executable graph = compile(*place.graphs, place.text(kMlp));
  const std::vector<e::Tensor> in = {place.on(numbers({5, 16}, 1)), place.on(numbers({16, 8}, 2)), place.on(numbers({8}, 3))};
  for (int i = 0; i < 3; ++i) (void)graph.run(in);
  calls(nullptr);
  (void)graph.run(in);
  CHECK(calls("cuGraphLaunch") == 1);
  CHECK(calls("cuLaunchKernel") == 0);
  CHECK(calls("cuGraphExecKernelNodeSetParams") <= 2);  // outputs lie elsewhere while others are held
  CHECK(calls("cuGraphInstantiate") == 0);
}

TEST_CASE("two threads on streams of their own share the memory of graphs") {
  for (const std::string& name : places()) {
    const Place place(name);
    const std::string text = place.text(kMlp);
    const e::Executable graph = compile(*place.graphs, text), other = compile(*place.graphs, text),
                        steps = compile(*place.steps, text);
    std::atomic<int> wrong{0};
    std::string thrown[2];
    const auto work = [&](uint64_t seed, const e::Executable& mine, std::string& error) {
      try {
        const e::Stream stream(place.id());
        const e::StreamScope scope(stream);
        for (uint64_t i = 0; i < 12; ++i) {
          const std::vector<e::Tensor> in = {place.on(numbers({5, 16}, seed * 100 + i)), place.on(numbers({16, 8}, seed)),
                                             place.on(numbers({8}, 20))};
          const auto got = mine.run(in), want = steps.run(in);
          for (size_t k = 0; k < got.size(); ++k)
            if (!same_bits(got[k], want[k])) ++wrong;
        }
      } catch (const std::exception& e) {
        error = e.what();
      }
    };
    std::thread one([&] { work(1, graph, thrown[0]); }), two([&] { work(2, other, thrown[1]); });
    one.join();
    two.join();
    CHECK(thrown[0] == "");
    CHECK(thrown[1] == "");
    CHECK(wrong == 0);
  }
}

TEST_CASE("graphs are given up in the order of their last run when they take too much") {
  for (const std::string& name : places()) {
    const Place place(name, "max_mb = 1\n");  // room for a hundred nodes
    std::string body;
    for (int i = 0; i < 40; ++i)
      body += "    %v" + std::to_string(i + 1) + " = softmax %w" + std::to_string(i) + " {axis = -1}\n    %w" +
              std::to_string(i + 1) + " = matmul %v" + std::to_string(i + 1) + ", %x\n";
    const std::string text =
        place.text("graph @long(%x: f32[8, 8]@gpu) -> (f32[8, 8]@gpu) {\n    %w0 = neg %x\n" + body + "    return %w40\n  }");
    std::vector<e::Executable> graphs;
    const e::Executable steps = compile(*place.steps, text);
    for (int i = 0; i < 3; ++i) graphs.push_back(compile(*place.graphs, text));
    const e::Tensor x = place.on(numbers({8, 8}, 5));
    const auto want = steps.run(std::vector<e::Tensor>{x});
    if (name == "cuda" && !hardware()) calls(nullptr);
    for (const int k : {0, 1, 1, 0, 0}) check_same(graphs[static_cast<size_t>(k)].run(std::vector<e::Tensor>{x}), want);
    if (name == "cuda" && !hardware()) {
      CHECK(calls("cuGraphInstantiate") == 3);
      CHECK(calls("cuGraphExecDestroy") == 2);
    }
  }
}

TEST_CASE("a fault of data in a graph reaches the host") {
  for (const std::string& name : places()) {
    const Place place(name);
    const e::Executable graph =
        compile(*place.graphs, place.text(R"(graph @g(%x: f32[4, 3]@gpu, %i: i64[2]@gpu) -> (f32[2, 3]@gpu) {
      %a = softmax %x {axis = 0}
      %y = gather %a, %i {axis = 0}
      return %y
    })"));
    e::Tensor i = e::Tensor::create(TSR_I64, std::vector<int64_t>{2});
    static_cast<int64_t*>(i.data())[0] = 1, static_cast<int64_t*>(i.data())[1] = 9;
    for (int k = 0; k < 2; ++k) {
      const std::string error = error_of([&] {
        const auto y = graph.run(std::vector<e::Tensor>{place.on(numbers({4, 3}, 1)), place.on(i)});
        e::check(e::api().synchronize(place.id(), nullptr));
      });
      INFO(error);
      CHECK((error.starts_with("TSR-R042") || error.starts_with("TSR-R011")));
    }
  }
}

TEST_CASE("steps of the host stay out of the graph") {
  for (const std::string& name : places()) {
    const Place place(name);
    const std::string text =
        place.text(R"(graph @g(%x: f32[4, 4], %s: f32[4, 4]@gpu state "s" -> 0) -> (f32[4, 4]@gpu, f32[4, 4]) {
      %d = to_device %x {device = "DEVICE"}
      %a = softmax %d {axis = -1}
      %b = add %a, %s
      %m = reduce_sum %b {axes = [0]}
      %c = mul %b, %m
      %h = to_device %c {device = "cpu"}
      return %b, %h
    })");
    std::string placed = text;
    placed.replace(placed.find("DEVICE"), 6, place.device);
    const e::Executable graph = compile(*place.graphs, placed), steps = compile(*place.steps, placed);
    e::Tensor state = place.on(numbers({4, 4}, 7)), other = place.on(numbers({4, 4}, 7));
    for (uint64_t i = 0; i < 4; ++i) {
      const e::Tensor x = numbers({4, 4}, 10 + i);
      check_same(graph.run(std::vector<e::Tensor>{x, state}), steps.run(std::vector<e::Tensor>{x, other}));
      CHECK(same_bits(state, other));
    }
  }
}

TEST_CASE("memory that runs out while a graph's arena grows is asked for once more, then told with who holds what") {
  if (hardware()) return;  // what others take would change the numbers
  const Place place("cuda");
  const std::string text = place.text(R"(graph @g(%x: f32[s0, 1024]@gpu) -> (f32[s0, 1024]@gpu) {
    %a = softmax %x {axis = -1}
    %b = softmax %a {axis = 0}
    %c = softmax %b {axis = -1}
    return %c
  })");
  const e::Executable graph = compile(*place.graphs, text), steps = compile(*place.steps, text);
  const auto check = [&](int64_t rows) {
    const e::Tensor x = place.on(numbers({rows, 1024}, 1));
    check_same(graph.run(std::vector<e::Tensor>{x}), steps.run(std::vector<e::Tensor>{x}));
  };
  check(16);
  fail("cuMemCreate", 2);  // trims and tries again
  calls(nullptr);
  check(1024);
  CHECK(calls("cuMemPoolTrimTo") == 1);
  CHECK(calls("cuMemCreate") == 2);
  const std::string error = error_of([&] {
    (void)e::Tensor::create(TSR_F32, std::vector<int64_t>{1 << 14, 1 << 14}, place.id());
  });
  INFO(error);
  CHECK(error.starts_with("TSR-R001"));
  CHECK(error.find("tensors and plans hold") != std::string::npos);
  CHECK(error.find(", arenas of device graphs hold ") != std::string::npos);
  CHECK(error.find(", others hold 0.0 MiB") != std::string::npos);
  check(16);
}
