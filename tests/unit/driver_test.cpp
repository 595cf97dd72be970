// SPDX-License-Identifier: Apache-2.0
// The stages of a compile: their order, what the log says of them, and what a hook may do.
#include "compile/driver.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "compile/services.hpp"
#include "fake_backend.hpp"
#include "log/log.hpp"

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

}  // namespace driver_test
