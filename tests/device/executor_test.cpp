// SPDX-License-Identifier: Apache-2.0
// Executors that own memory and make graphs of the device: what they are given, what they may refuse, and what must not change.
#include <catch2/catch.hpp>
#include <thread>

#include "ir/graph_api.hpp"
#include "log/log.hpp"
#include "memory/device.hpp"
#include "plugin/plugin_host.hpp"
#include "support.hpp"

namespace executor_test {

using namespace tessera::test;
namespace core = tessera::core;

namespace {

// Two branches, a transposition, and a matrix product, on one device.
const char* const kProgram = R"(graph @g(%x: f32[4, 4]@sim:0, %y: f32[4, 4]@sim:0) -> (f32[4, 4]@sim:0) {
    %a = tanh %x
    %b = matmul %a, %y
    %t = transpose %b {perm = [1, 0]}
    %c = add %t, %x
    %d = sigmoid %y
    %e = mul %c, %d
    %f = matmul %e, %d
    return %f
  })";

// Lines of the executor's log while `f` runs, without what they begin with.
template <class F>
std::vector<std::string> notes(F&& f) {
  std::vector<std::string> lines;
  const core::Artifact hints[] = {core::Artifact::kPerfHints};
  const core::LogCapture capture(
      [&](core::Artifact, std::string_view text) {
        if (text.starts_with("graphs: @")) lines.emplace_back(text.substr(9));
      },
      hints);
  f();
  return lines;
}

std::vector<e::Tensor> run(const e::Executable& g, const std::vector<e::Tensor>& in) { return g.run(in); }

e::Tensor on_sim(const e::Tensor& t) { return t.copy_to(e::device("sim:0")); }

}  // namespace

TEST_CASE("a graph of the device gives the steps' bits, and only nodes whose tensors have moved are set") {
  const auto g = compile(graphs(), kProgram);
  const auto want = compile(host(), on_host(kProgram));
  const e::Tensor x = numbers({4, 4}, 1), y = numbers({4, 4}, 2), z = numbers({4, 4}, 3);
  const e::Tensor dx = on_sim(x), dy = on_sim(y), dz = on_sim(z);
  std::vector<e::Tensor> results;
  const auto lines = notes([&] {
    results.push_back(run(g, {dx, dy})[0]);
    results.push_back(run(g, {dx, dy})[0]);  // the result lies elsewhere
    results.push_back(run(g, {dz, dy})[0]);
  });
  CHECK(same_bits(results[0], run(want, {x, y})[0]));
  CHECK(same_bits(results[1], run(want, {x, y})[0]));
  CHECK(same_bits(results[2], run(want, {z, y})[0]));
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "g: built");
  CHECK(lines[1] == "g: 1 nodes set");
  CHECK(lines[2] == "g: 3 nodes set");
}

TEST_CASE("an executor that owns memory leaves no arena to the pool") {
  const auto peak_of = [&](const e::Context& c) {
    const auto g = compile(c, kProgram);
    const e::Tensor x = on_sim(numbers({4, 4}, 1)), y = on_sim(numbers({4, 4}, 2));
    core::Device& d = core::device(e::device("sim:0"));
    const int64_t before = d.in_use();
    (void)d.peak(true);
    (void)run(g, {x, y});
    return d.peak(false) - before;
  };
  CHECK(peak_of(graphs()) == 64);  // the result
  CHECK(peak_of(sim()) > 64);
}

TEST_CASE("every layout of a plan with symbolic sizes has a graph of its own") {
  const std::string text = R"(graph @g(%x: f32[s0, 4]@sim:0) -> (f32[s0, 4]@sim:0) {
    %a = tanh %x
    %b = add %a, %x
    return %b
  })";
  const auto g = compile(graphs(), text);
  const auto want = compile(host(), on_host(text));
  const auto lines = notes([&] {
    for (const int64_t n : {3, 5, 3, 5, 0}) {
      const e::Tensor x = numbers({n, 4}, static_cast<uint64_t>(n));
      CHECK(same_bits(run(g, {on_sim(x)})[0], run(want, {x})[0]));
    }
  });
  CHECK(std::count(lines.begin(), lines.end(), "g: built") == 3);
}

TEST_CASE("one graph serves all sizes of a symbol whose largest value is known") {
  const std::string text = R"(graph @g(%x: f32[s0, 4]@sim:0) -> (f32[s0, 4]@sim:0) symbols { s0: 2..9 } {
    %a = tanh %x
    %b = matmul %a, %w
    %c = add %b, %x
    return %c
  })";
  std::string with_weight = text;
  with_weight.replace(with_weight.find("%a = tanh"), 0, "%w = constant {value = dense<f32[4, 4]: splat 0.25>}\n    ");
  const auto g = compile(graphs(), with_weight);
  const auto want = compile(host(), on_host(with_weight));
  const auto lines = notes([&] {
    for (const int64_t n : {3, 5, 9, 2, 3}) {
      const e::Tensor x = numbers({n, 4}, static_cast<uint64_t>(n));
      CHECK(same_bits(run(g, {on_sim(x)})[0], run(want, {x})[0]));
    }
  });
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "g: built");
  for (size_t i = 1; i < 5; ++i) CHECK(lines[i] == "g: 3 nodes set");
}

TEST_CASE("steps that the host has to do stay out of the graph of the device") {
  const std::string text = R"(graph @g(%x: f32[4, 4], %s: f32[4, 4]@sim:0 state "s" -> 0) -> (f32[4, 4]@sim:0, f32[4, 4]) {
    %d = to_device %x {device = "sim:0"}
    %a = tanh %d
    %b = add %a, %s
    %c = mul %b, %a
    %h = to_device %c {device = "cpu"}
    return %b, %h
  })";
  const auto g = compile(graphs(), text);
  const auto want = compile(host(), on_host(text));
  e::Tensor state = on_sim(numbers({4, 4}, 7)), host_state = numbers({4, 4}, 7);
  std::vector<std::string> lines;
  for (int i = 0; i < 3; ++i) {
    const e::Tensor x = numbers({4, 4}, static_cast<uint64_t>(10 + i));
    std::vector<e::Tensor> got;
    const auto more = notes([&] { got = run(g, {x, state}); });
    lines.insert(lines.end(), more.begin(), more.end());
    const auto expected = run(want, {x, host_state});
    CHECK(same_bits(got[1], expected[1]));
    CHECK(same_bits(state, host_state));
  }
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "g: built");
}

TEST_CASE("threads share one graph: who finds it busy runs step by step") {
  const auto g = compile(graphs(), kProgram);
  const auto want = compile(host(), on_host(kProgram));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      e::Stream stream(e::device("sim:0"));
      const e::StreamScope scope(stream);
      for (uint64_t i = 0; i < 20; ++i) {
        const e::Tensor x = numbers({4, 4}, t * 100 + i), y = numbers({4, 4}, t * 100 + i + 50);
        if (!same_bits(run(g, {on_sim(x), on_sim(y)})[0], run(want, {x, y})[0])) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("a fault of a kernel in a graph is the error of its step") {
  const std::string text = R"(graph @g(%x: f32[4, 4]@sim:0, %i: i64[2]@sim:0) -> (f32[2, 4]@sim:0) {
    %a = tanh %x
    %b = gather %a, %i {axis = 0}
    return %b
  })";
  const auto g = compile(graphs(), text);
  const e::Tensor x = on_sim(numbers({4, 4}, 1));
  e::Tensor i = e::Tensor::create(TSR_I64, std::vector<int64_t>{2});
  static_cast<int64_t*>(i.data())[0] = 1;
  static_cast<int64_t*>(i.data())[1] = 9;
  const e::Tensor wild = on_sim(i);
  for (int k = 0; k < 2; ++k) {
    (void)run(g, {x, wild});
    try {
      e::synchronize(e::device("sim:0"));
      FAIL("no fault was raised");
    } catch (const e::Error& error) {
      CHECK(error.code() == "TSR-R011");
      CHECK(error.message().find("%b = gather") != std::string::npos);
    }
  }
}

TEST_CASE("an executor that fails half-way ends that call alone, with its name, the graph, the device and a way out") {
  const e::Context failing =
      make_context("\"sim\", \"reference\"", "[executor]\nname = \"graphs\"\n[graphs]\nfail_after = 1\n");
  const std::string text = R"(graph @late(%x: f32[4]@sim:0) -> (f32[4]@sim:0, f32[4]@sim:0) {
    %a = tanh %x
    %b = sigmoid %a
    return %a, %b
  })";
  const auto g = compile(failing, text);
  const auto want = compile(host(), on_host(text));
  const e::Tensor x = numbers({4}, 1), dx = on_sim(x);
  CHECK(same_bits(run(g, {dx})[1], run(want, {x})[1]));
  core::Device& d = core::device(e::device("sim:0"));
  const int64_t before = d.in_use();
  try {
    (void)run(g, {dx});
    FAIL("the executor did not fail");
  } catch (const e::Error& error) {
    CHECK(error.code() == "TSR-X007");
    const std::string what = error.message() + error.hint();
    for (const char* part : {"executor 'graphs'", "graph 'late'", "'sim:0'", "executor.name = \"\""})
      CHECK(what.find(part) != std::string::npos);
  }
  CHECK(d.in_use() == before);
  CHECK(same_bits(run(g, {dx})[1], run(want, {x})[1]));
  e::synchronize(e::device("sim:0"));
}

TEST_CASE("a device's graph refuses another function, a second instantiation, and addresses that are not its own") {
  void* self = nullptr;
  core::Device& d = core::device(e::device("sim:0"));
  (void)sim();
  const tsr_device_table* t = d.table(&self);
  REQUIRE(t);
  const auto code = [](tsr_error* error) {
    if (!error) return std::string();
    const tsr_host_core& host = core::host_core();
    const std::string found = host.error_code(error);
    host.error_free(error);
    return found;
  };
  tsr_stream* s = nullptr;
  void *p = nullptr, *range = nullptr;
  REQUIRE(code(t->stream_create(self, 0, &s)) == "");
  REQUIRE(code(t->alloc(self, 0, 64, 64, s, &p)) == "");
  REQUIRE(code(t->reserve(self, 0, 1 << 20, &range)) == "");
  tsr_device_graph* g = nullptr;
  REQUIRE(code(t->graph_create(self, 0, &g)) == "");
  tsr_device_call fill{};
  fill.struct_size = sizeof fill;
  fill.kind = TSR_CALL_FILL;
  fill.to = p;
  fill.bytes = 64;
  fill.value = 5;
  tsr_device_call copy = fill;
  copy.kind = TSR_CALL_COPY;
  copy.from = p;
  copy.to = range;
  uint32_t first = 0, second = 0;
  REQUIRE(code(t->graph_add(self, 0, g, &fill, nullptr, 0, &first)) == "");
  REQUIRE(code(t->commit(self, 0, range, 64, s)) == "");
  REQUIRE(code(t->graph_add(self, 0, g, &copy, &first, 1, &second)) == "");
  CHECK(code(t->graph_launch(self, 0, g, s)) == "TSR-B038");
  CHECK(code(t->graph_set(self, 0, g, first, &fill)) == "TSR-B038");
  REQUIRE(code(t->graph_instantiate(self, 0, g)) == "");
  CHECK(code(t->graph_instantiate(self, 0, g)) == "TSR-B038");
  CHECK(code(t->graph_add(self, 0, g, &fill, nullptr, 0, &first)) == "TSR-B038");
  CHECK(code(t->graph_set(self, 0, g, second, &fill)) == "TSR-R044");
  CHECK(code(t->graph_set(self, 0, g, 7, &fill)) == "TSR-B038");
  fill.value = 6;
  REQUIRE(code(t->graph_launch(self, 0, g, s)) == "");
  REQUIRE(code(t->graph_set(self, 0, g, 0, &fill)) == "");
  unsigned char found[64] = {};
  REQUIRE(code(t->copy(self, 0, found, range, 64, TSR_COPY_TO_HOST, s)) == "");
  CHECK(int{found[63]} == 5);  // as it was launched
  REQUIRE(code(t->graph_launch(self, 0, g, s)) == "");
  REQUIRE(code(t->copy(self, 0, found, range, 64, TSR_COPY_TO_HOST, s)) == "");
  CHECK(int{found[63]} == 6);
  tsr_device_graph_info info{};
  info.struct_size = sizeof info;
  REQUIRE(code(t->graph_info(self, 0, g, &info)) == "");
  CHECK(info.nodes == 2);
  CHECK(info.set_nodes == 1);
  // What is behind the memory of a range is nobody's.
  CHECK(code(t->copy(self, 0, static_cast<char*>(range) + 32, p, 64, TSR_COPY_WITHIN, s)) == "");
  CHECK(code(t->stream_synchronize(self, 0, s)) == "TSR-B038");
  // A smaller commit gives bytes back, and a larger one brings fresh ones.
  REQUIRE(code(t->commit(self, 0, range, 16, s)) == "");
  REQUIRE(code(t->commit(self, 0, range, 64, s)) == "");
  REQUIRE(code(t->copy(self, 0, found, range, 64, TSR_COPY_TO_HOST, s)) == "");
  CHECK(int{found[0]} == 6);
  CHECK(int{found[63]} == 0xfd);
  t->graph_destroy(self, 0, g);
  t->unreserve(self, 0, range);
  t->free(self, 0, p, s);
  REQUIRE(code(t->stream_synchronize(self, 0, s)) == "");
  t->stream_destroy(self, 0, s);
}

}  // namespace executor_test
