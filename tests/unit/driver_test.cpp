// SPDX-License-Identifier: Apache-2.0
// The stages of a compile: their order, what the log says of them, and what a hook may do.
#include "compile/driver.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "autograd/expand.hpp"
#include "compile/services.hpp"
#include "fake_backend.hpp"
#include "ir/body.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"
#include "memory/device.hpp"

namespace driver_test {

using namespace tessera::core;
using namespace tessera::test;

namespace {

using Names = std::vector<std::string>;

struct StagesLogged {
  std::string text;
  LogSink before = set_log_sink([this](std::string_view lines) { text += lines; });
  StagesLogged() { configure_logs("stages"); }
  ~StagesLogged() {
    configure_logs("-all");
    set_log_sink(std::move(before));
  }
  // "[stages] @g  plan         0.012 ms" -> "plan"
  Names names() const {
    Names out;
    for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::string line = text.substr(at, end - at);
      REQUIRE(line.find("[stages] @g  ") != std::string::npos);
      REQUIRE((line.ends_with(" ms") || line.ends_with("is there already")));
      std::string name = line.substr(line.find("@g  ") + 4, 13);
      name.erase(name.find_last_not_of(' ') + 1);
      out.push_back(name);
    }
    return out;
  }
};

struct Recorder final : StageHook {
  Names began, ended;
  Stage skipped = Stage::kExecutable;
  bool skips = false;
  bool before(Stage stage, Compilation& c) override {
    began.push_back(stage_name(stage));
    if (skips && stage == skipped) {
      // What the stage would have made: the assignment of a graph of constants and outputs alone is its inputs'.
      c.assignment.resize(16);
      return false;
    }
    return true;
  }
  void after(Stage stage, Compilation&) override { ended.push_back(stage_name(stage)); }
};

const char* const kSquare = "graph @g(%x: f32[4]) -> (f32[4]) { %y = mul %x, %x  return %y }";

}  // namespace

TEST_CASE("a compile runs its stages in order and logs each with its time") {
  FakeBackend fake;
  const StagesLogged log;
  const auto e = compile_text(kSquare, fake);
  CHECK(log.names() == Names{"passes", "place", "assign", "order", "plan", "kernels", "executable"});
  CHECK(e->times.total() > 0);
}

TEST_CASE("what every backend refuses is decomposed in a stage of its own, and assigned again") {
  FakeBackend fake;
  fake.claims = {"reduce_max", "sub", "exp", "reduce_sum", "div", "broadcast_to", "expand_dims"};
  const StagesLogged log;
  Recorder hook;
  StageHook* const hooks[] = {&hook};
  const auto e = compile_graph(graph_of("graph @g(%x: f32[4]) -> (f32[4]) { %y = softmax %x {axis = 0}  return %y }"), {},
                               fake.options(), hooks);
  CHECK(log.names() == Names{"passes", "place", "assign", "decompose", "order", "plan", "kernels", "executable"});
  CHECK(e->graph().num_live_nodes() > 1);
}

TEST_CASE("gradients are expanded between the passes and those of the joint graph") {
  FakeBackend fake;
  const StagesLogged log;
  const auto e = compile_text(R"(graph @g(%x: f32[]) -> (f32[]) {
    %y = mul %x, %x
    %d = grad %y, %x : f32[]
    return %d
  })",
                              fake);
  CHECK(log.names() ==
        Names{"passes", "autograd", "joint passes", "place", "assign", "order", "plan", "kernels", "executable"});
}

TEST_CASE("the autograd stage marks where backward begins, and what depends on it") {
  const auto g = graph_of(R"(graph @g(%x: f32[4], %w: f32[4]) -> (f32[4], f32[4]) {
    %p = mul %x, %w
    %e = exp %p
    %y = reduce_sum %e {axes = [0]}
    %d = grad %y, %w : f32[4]
    %u = sub %w, %d
    %v = neg %x
    return %u, %v
  })");
  expand_gradients(*g);
  for (const tsr_id n : nodes_of(*g, 0)) {
    const std::string name = g->value(g->node(n).results[0]).name;
    const bool forward = name == "p" || name == "e" || name == "y" || name == "v";
    INFO(g->describe(n));
    CHECK(g->node(n).marks == (forward ? 0u : TSR_MARK_BACKWARD));
  }
  CHECK(std::string(print_graph(*g)).find("%u = sub %w, %d : f32[4] mark(backward)") != std::string::npos);
}

// Those that results of the graph depend on: rules make nodes that nothing reads.
std::vector<tsr_id> nodes_that_results_need(const Graph& g) {
  std::set<tsr_id> needed;
  std::vector<tsr_id> next(g.region(0).outputs, g.region(0).outputs + g.region(0).num_outputs);
  while (!next.empty()) {
    const tsr_id v = next.back();
    next.pop_back();
    const tsr_id n = v == TSR_NONE ? TSR_NONE : g.value(v).def_node;
    if (n == TSR_NONE || !needed.insert(n).second) continue;
    next.insert(next.end(), g.node(n).operands, g.node(n).operands + g.node(n).num_operands);
  }
  return {needed.begin(), needed.end()};
}

// Of the backward half.
size_t count_in_backward(const char* text, const char* op) {
  const auto g = graph_of(text);
  expand_gradients(*g);
  const std::vector<tsr_id> used = nodes_that_results_need(*g);
  return static_cast<size_t>(std::count_if(used.begin(), used.end(), [&](tsr_id n) {
    return (g->node(n).marks & TSR_MARK_BACKWARD) != 0 && std::strcmp(g->node(n).op, op) == 0;
  }));
}

TEST_CASE("gradients of slices that cover a value are put side by side, others are added") {
  // Thirds, in another order than they lie.
  const char* const thirds = R"(graph @g(%x: f32[s0, 9]) -> (f32[s0, 9]) {
    %a = slice %x {starts = [0, 3], limits = [s0, 6], strides = [1, 1]}
    %b = slice %x {starts = [0, 0], limits = [s0, 3], strides = [1, 1]}
    %c = slice %x {starts = [0, 6], limits = [s0, 9], strides = [1, 1]}
    %p = mul %a, %b
    %q = mul %p, %c
    %y = reduce_sum %q {axes = [0, 1]}
    %d = grad %y, %x : f32[s0, 9]
    return %d
  })";
  CHECK(count_in_backward(thirds, "concat") == 1);
  CHECK(count_in_backward(thirds, "add") == 0);
  CHECK(count_in_backward(thirds, "pad") == 0);
  // What the value itself contributes is added to all of them.
  const char* const read_whole = R"(graph @g(%x: f32[s0, 6]) -> (f32[s0, 6]) {
    %a = slice %x {starts = [0, 0], limits = [s0, 3], strides = [1, 1]}
    %b = slice %x {starts = [0, 3], limits = [s0, 6], strides = [1, 1]}
    %p = mul %a, %b
    %s = mul %x, %x
    %y = reduce_sum %p {axes = [0, 1]}
    %z = reduce_sum %s {axes = [0, 1]}
    %w = add %y, %z
    %d = grad %w, %x : f32[s0, 6]
    return %d
  })";
  CHECK(count_in_backward(read_whole, "concat") == 1);
  CHECK(count_in_backward(read_whole, "pad") == 0);
  // A gap, and an overlap as long as another gap.
  const char* const gap = R"(graph @g(%x: f32[9]) -> (f32[9]) {
    %a = slice %x {starts = [0], limits = [3], strides = [1]}
    %b = slice %x {starts = [6], limits = [9], strides = [1]}
    %p = mul %a, %b
    %y = reduce_sum %p {axes = [0]}
    %d = grad %y, %x : f32[9]
    return %d
  })";
  const char* const overlap = R"(graph @g(%x: f32[9]) -> (f32[9]) {
    %a = slice %x {starts = [0], limits = [3], strides = [1]}
    %b = slice %x {starts = [2], limits = [5], strides = [1]}
    %c = slice %x {starts = [6], limits = [9], strides = [1]}
    %p = mul %a, %b
    %q = mul %p, %c
    %y = reduce_sum %q {axes = [0]}
    %d = grad %y, %x : f32[9]
    return %d
  })";
  for (const char* text : {gap, overlap}) CHECK(count_in_backward(text, "concat") == 0);
  CHECK(count_in_backward(gap, "pad") == 2);
  CHECK(count_in_backward(overlap, "pad") == 3);
  // Halves of rows and halves of columns.
  const char* const crossed = R"(graph @g(%x: f32[4, 4]) -> (f32[4, 4]) {
    %a = slice %x {starts = [0, 0], limits = [2, 4], strides = [1, 1]}
    %b = slice %x {starts = [0, 0], limits = [4, 2], strides = [1, 1]}
    %t = transpose %b {perm = [1, 0]}
    %p = mul %a, %t
    %y = reduce_sum %p {axes = [0, 1]}
    %d = grad %y, %x : f32[4, 4]
    return %d
  })";
  CHECK(count_in_backward(crossed, "concat") == 0);
  CHECK(count_in_backward(crossed, "pad") == 2);
}

TEST_CASE("what a decomposition makes has the marks of its op") {
  const auto g = graph_of(R"(graph @g(%x: f32[4]) -> (f32[4]) {
    %y = softmax %x {axis = 0} : f32[4] mark(checkpoint)
    return %y
  })");
  g->begin("test");
  const auto made_from = static_cast<tsr_id>(g->num_values());
  const tsr_id softmax = g->region(0).first;
  const std::vector<tsr_id> made = build_decomposition(*g, softmax);
  g->replace_node(softmax, made, made_from);
  g->commit();
  CHECK(g->num_live_nodes() > 1);
  for (const tsr_id n : nodes_of(*g, 0)) CHECK(g->node(n).marks == TSR_MARK_CHECKPOINT);
}

TEST_CASE("an estimate is the same stages up to the plan, without kernels") {
  FakeBackend fake;
  const CompileOptions options = fake.options();
  const ServiceScope scope(options);
  const StagesLogged log;
  const auto g = graph_of(kSquare);
  CHECK(estimate(*g).seconds > 0);
  CHECK(log.names() == Names{"passes", "place", "assign", "order", "plan"});
  CHECK(fake.launches.empty());
}

TEST_CASE("a hook sees every stage, and may put its own result in the place of one") {
  FakeBackend fake;
  Recorder hook;
  StageHook* const hooks[] = {&hook};
  (void)compile_graph(graph_of(kSquare), {}, fake.options(), hooks);
  const Names all = {"passes", "place", "assign", "order", "plan", "kernels", "executable"};
  CHECK(hook.began == all);
  CHECK(hook.ended == all);
  hook = {};
  hook.skips = true;
  hook.skipped = Stage::kAssign;
  const StagesLogged log;
  const auto e = compile_graph(graph_of("graph @g(%x: f32[4]) -> (f32[4]) { return %x }"), {}, fake.options(), hooks);
  CHECK(hook.began == all);
  CHECK(hook.ended == Names{"passes", "place", "order", "plan", "kernels", "executable"});
  CHECK(log.text.find("assign       is there already") != std::string::npos);
}

TEST_CASE("an error in a stage ends the compile, and no later stage begins") {
  FakeBackend fake;
  fake.fails_to_compile = {"mul"};
  Recorder hook;
  StageHook* const hooks[] = {&hook};
  CHECK_THROWS_AS(compile_graph(graph_of(kSquare), {}, fake.options(), hooks), Error);
  CHECK(hook.began.back() == "kernels");
  CHECK(hook.ended.back() == "plan");
}

TEST_CASE("what a backend fails to compile runs on the next one, with a warning that names it") {
  FakeBackend first, last;
  first.name = "first";
  last.name = "last";
  first.fails_to_compile = {"mul"};
  CompileOptions options = first.options();
  options.backends.push_back(last.options().backends[0]);
  std::string said;
  const LogSink before = set_log_sink([&](std::string_view lines) { said += lines; });
  const auto e = compile_graph(graph_of(R"(graph @g(%x: f32[2]) -> (f32[2]) {
    %a = neg %x
    %b = mul %a, %a
    return %b
  })"),
                               options);
  set_log_sink(before);
  CHECK(said ==
        "tessera: warning: [TSR-X001] backend 'first' cannot compile %b = mul: plugin 'acme.fake' (Acme): the fake was "
        "told to fail; it runs on other backends\n");
  TensorRef x = vector_of({3, -4});
  CHECK(values_of(*run(*e, {x.get()})[0]) == std::vector<double>{9, 16});
  CHECK(first.launches.size() == 1);
  CHECK(last.launches.size() == 1);
}

TEST_CASE("under strict_backends what a backend fails to compile ends the compile") {
  FakeBackend first, last;
  first.name = "first";
  last.name = "last";
  first.fails_to_compile = {"mul"};
  CompileOptions options = first.options();
  options.backends.push_back(last.options().backends[0]);
  options.strict_backends = true;
  CHECK_THROWS_WITH(compile_graph(graph_of(kSquare), options), Catch::Contains("backend 'first' cannot compile %y = mul"));
  CHECK(last.compiled == 0);
}

TEST_CASE("a form of a constant crosses to the device of its kernels once") {
  // A device whose memory is the host's.
  static tsr_device_table table{};
  table.struct_size = sizeof table;
  table.name = "mirror";
  table.count = 1;
  table.alloc = [](void*, uint32_t, size_t bytes, size_t align, tsr_stream*, void** out) noexcept -> tsr_error* {
    *out = std::aligned_alloc(align, (bytes + align - 1) / align * align);
    return nullptr;
  };
  table.free = [](void*, uint32_t, void* p, tsr_stream*) noexcept { std::free(p); };
  table.copy = [](void*, uint32_t, void* to, const void* from, size_t bytes, uint32_t, tsr_stream*) noexcept -> tsr_error* {
    std::memcpy(to, from, bytes);
    return nullptr;
  };
  table.stream_create = [](void*, uint32_t, tsr_stream** out) noexcept -> tsr_error* {
    *out = reinterpret_cast<tsr_stream*>(&table);
    return nullptr;
  };
  table.stream_synchronize = [](void*, uint32_t, tsr_stream*) noexcept -> tsr_error* { return nullptr; };
  register_devices(table, nullptr, "driver_test", "tests", nullptr);
  Device& d = device(device_intern("mirror:0"));

  FakeBackend fake;
  fake.device = "mirror";
  std::vector<const float*> forms;
  int filled = 0;
  fake.compiling = [&](const tsr_compile& c) {
    const void* data = nullptr;
    const auto fill = [](void* count, void* to) noexcept -> tsr_error* {
      ++*static_cast<int*>(count);
      std::fill_n(static_cast<float*>(to), 64, 2.5f);
      return nullptr;
    };
    REQUIRE(c.rearranged(c.ctx, Graph::from(c.graph).node(c.node).operands[1], "twos", 256, fill, &filled, &data) == nullptr);
    forms.push_back(static_cast<const float*>(data));
  };
  const int64_t before = d.in_use();
  {
    const char* text = R"(graph @g(%x: f32[64]@mirror:0) -> (f32[64]@mirror:0) {
      %c = constant {value = dense<f32[64]: splat 5.0>}
      %y = mul %x, %c
      return %y
    })";
    const auto a = compile_text(text, fake);
    const int64_t one = d.in_use();
    const auto b = compile_text(text, fake);
    CHECK(d.in_use() == one);
    REQUIRE(forms.size() == 2);
    CHECK(forms[0] == forms[1]);
    CHECK(forms[0][63] == 2.5f);
  }
  CHECK(d.in_use() == before);
}

TEST_CASE("a backend that cannot prepare a graph is left out of it") {
  FakeBackend first, last;
  first.name = "first";
  first.fails_to_prepare = true;
  CompileOptions options = first.options();
  options.backends.push_back(last.options().backends[0]);
  std::string said;
  const LogSink before = set_log_sink([&](std::string_view lines) { said += lines; });
  const auto e = compile_graph(graph_of(kSquare), options);
  set_log_sink(before);
  CHECK(said ==
        "tessera: warning: [TSR-X002] backend 'first' cannot compile graph 'g': plugin 'acme.fake' (Acme): the fake was told "
        "to fail; "
        "graph 'g' runs on other backends\n");
  TensorRef x = vector_of({1, 2, 3, 4});
  CHECK(values_of(*run(*e, {x.get()})[0]) == std::vector<double>{1, 4, 9, 16});
  CHECK(first.launches.empty());
}

TEST_CASE("when nobody is left, the error of the backend that failed is the compile's") {
  FakeBackend first, last;
  first.name = "first";
  first.fails_to_compile = {"mul"};
  last.refuses = {"mul"};
  CompileOptions options = first.options();
  options.backends.push_back(last.options().backends[0]);
  CHECK_THROWS_WITH(compile_graph(graph_of(kSquare), options), Catch::Contains("backend 'first' cannot compile %y = mul"));
}

}  // namespace driver_test
