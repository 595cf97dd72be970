// SPDX-License-Identifier: Apache-2.0
// compile_ahead: entries for calls that have not come yet.
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "support.hpp"

using namespace tessera;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

struct Scale : nn::Module<Scale> {
  Tensor weight = full({2}, 3);
  Scale() { add("weight", weight); }
  Tensor forward(const Tensor& x) { return x * weight; }
};

}  // namespace

TEST_CASE("shapes that were compiled ahead are served without tracing anything") {
  int traces = 0;
  const std::thread::id here = std::this_thread::get_id();
  auto f = compile(
      [&](const Tensor& x, double c) {
        CHECK(std::this_thread::get_id() == here);  // whatever the number of threads that compile
        return ++traces, (x * c).relu() + x.sum();
      },
      {.args = {"x", "c"}});
  CHECK(f.compile_ahead({{zeros({2}), 0.5}, {zeros({3}), 0.5}, {zeros({4, 5}), 2.0}}, 3) == 3);
  CHECK(traces == 3);
  CHECK(entries(f.describe()) == 3);
  for (const int64_t n : {2, 3})
    CHECK(values(f(ones({n}), 0.5)) == std::vector<float>(static_cast<size_t>(n), 0.5f + float(n)));
  CHECK(values(f(ones({4, 5}), 2.0)) == std::vector<float>(20, 22));
  CHECK(traces == 3);
  CHECK(entries(f.describe()) == 3);
  // What is there already is not made again.
  CHECK(f.compile_ahead({{zeros({3}), 0.5}, {zeros({3}), 0.25}}) == 1);
  CHECK(traces == 4);
  // What varied among the examples is a symbol in what comes afterwards.
  f(ones({7}), 0.5);
  f(ones({9}), 0.5);
  CHECK(traces == 5);
}

TEST_CASE("entries made ahead are numbered as their examples are, whichever is ready first") {
  auto f = compile([](const Tensor& x) { return x + 1; }, {.dynamic = Dynamic::no, .args = {"x"}});
  CHECK(f.compile_ahead({{zeros({8})}, {zeros({2})}, {zeros({8})}, {zeros({5})}, {zeros({3})}, {zeros({2})}}, 4) == 4);
  const Json d = Json::parse(f.describe());
  std::vector<std::string> guards;
  for (const Json& e : d["entries"]) guards.push_back(e["guards"].dump());
  REQUIRE(guards.size() == 4);
  const int64_t sizes[] = {8, 2, 5, 3};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(d["entries"][i]["id"].get<std::string>().ends_with("/" + std::to_string(i)));
    CHECK_THAT(guards[i], Contains(std::to_string(sizes[i])));
  }
}

TEST_CASE("one entry for examples that differ in symbols only") {
  int traces = 0;
  auto f = compile([&](const Tensor& x) { return ++traces, x * 2; }, {.dynamic = Dynamic::yes, .args = {"x"}});
  CHECK(f.compile_ahead({{zeros({2})}, {zeros({3})}, {zeros({1})}, {zeros({4})}}, 4) == 2);  // 1 is a number
  const int traced = traces;
  for (const int64_t n : {1, 2, 3, 4, 50}) CHECK(values(f(ones({n}))) == std::vector<float>(static_cast<size_t>(n), 2));
  CHECK(traces == traced);
  Tensor marked = zeros({6});
  mark_dynamic(marked, 0, 2, 64);
  auto g = compile([](const Tensor& x) { return x * 3; }, {.args = {"x"}});
  CHECK(g.compile_ahead({{marked}}) == 1);
  g(ones({7}));
  g(ones({64}));
  CHECK(entries(g.describe()) == 1);
}

TEST_CASE("modules are examples by reference, and arguments that are replaced stay as they are") {
  Scale model;
  auto f = compile(model);
  CHECK(f.compile_ahead({{model, zeros({2})}, {std::ref(model), zeros({3, 2})}}) == 2);
  CHECK(values(model(ones({2}))) == std::vector<float>{3, 3});
  CHECK(entries(f.describe()) == 2);
  auto step = compile([](Tensor& state, const Tensor& x) { state = state + x; }, {.args = {"state", "x"}});
  Tensor state = ones({3});
  CHECK(step.compile_ahead({{state, ones({3})}}) == 1);
  CHECK(values(state) == std::vector<float>{1, 1, 1});
  step(state, ones({3}));
  CHECK(values(state) == std::vector<float>{2, 2, 2});
  CHECK(entries(step.describe()) == 1);
}

TEST_CASE("what cannot be compiled ahead is said, and the rest is compiled") {
  int host = 0;
  auto f = compile(
      [&](const Tensor& x) {
        if (x.size(0) == 3) throw std::runtime_error("not three");
        return x + 1;
      },
      {.dynamic = Dynamic::no, .args = {"x"}});
  CHECK_THROWS_WITH(f.compile_ahead({{zeros({2})}, {zeros({3})}, {zeros({4})}}, 2), "not three");
  CHECK(entries(f.describe()) == 2);

  auto broken = compile(
      [&](const Tensor& x) {
        const Tensor y = x * 2;
        const float first = y[0].item<float>();
        ++host;
        return y + first;
      },
      {.name = "broken", .args = {"x"}});
  CHECK_THROWS_WITH(broken.compile_ahead({{ones({2})}}),
                    Contains("TSR-D014") && Contains("'broken'") && Contains("ahead_test.cpp"));
  CHECK(host == 0);
  CHECK(values(broken(ones({2}))) == std::vector<float>{4, 4});
  CHECK(host == 1);
  CHECK_THROWS_WITH(broken.compile_ahead({{ones({5})}}), Contains("TSR-D014") && Contains("has graph breaks"));

  auto limited = compile([](const Tensor& x) { return x + 1; },
                         {.dynamic = Dynamic::no, .options = {"guards.recompile_limit=2"}, .args = {"x"}});
  CHECK_THROWS_WITH(limited.compile_ahead({{zeros({2})}, {zeros({3})}, {zeros({4})}, {zeros({2})}}),
                    Contains("TSR-D012") && Contains("example 2") && Contains("guards.recompile_limit (2)"));
  CHECK(entries(limited.describe()) == 2);

  auto inner = compile([](const Tensor& x) { return x + 1; });
  auto outer = compile([&](const Tensor& x) { return inner.compile_ahead({{zeros({2})}}), inner(x); }, {.fullgraph = true});
  CHECK_THROWS_WITH(outer(ones({2})), Contains("TSR-F048"));
  CHECK(compile([](const Tensor& x) { return x; }, {.disable = true}).compile_ahead({{ones({2})}}) == 0);
}

TEST_CASE("a size that cannot be a symbol is captured again, alone") {
  auto f = compile(
      [](const Tensor& x) {
        const int64_t n = x.size(0);  // the function wants the number
        return x + static_cast<double>(n);
      },
      {.dynamic = Dynamic::yes, .args = {"x"}});
  CHECK(f.compile_ahead({{zeros({2})}, {zeros({3})}}, 2) == 2);
  CHECK(values(f(zeros({2}))) == std::vector<float>{2, 2});
  CHECK(values(f(zeros({3}))) == std::vector<float>{3, 3, 3});
  CHECK(entries(f.describe()) == 2);
}

TEST_CASE("other threads call the function while it is compiled ahead") {
  auto f = compile([](const Tensor& x) { return (x * 2 + 1).relu(); },
                   {.dynamic = Dynamic::no, .options = {"guards.recompile_limit=100"}, .args = {"x"}});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t n = 1; n <= 12; ++n) {
        const int64_t size = (n * 5 + t) % 12 + 1;
        wrong += values(f(ones({size}))) != std::vector<float>(static_cast<size_t>(size), 3);
      }
    });
  std::vector<std::tuple<Tensor>> examples;
  for (int64_t n = 1; n <= 12; ++n) examples.emplace_back(zeros({n}));
  f.compile_ahead(examples, 4);
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(entries(f.describe()) == 12);
}

// ------------------------------------------------------------------------------------------------------------ processes

namespace {

// The same function in every process: three shapes, compiled ahead or called.
void program(const std::string& role) {
  auto f = compile([](const Tensor& x, const Tensor& w) { return F::softmax(x.matmul(w) * 2 + 1, -1); },
                   {.dynamic = Dynamic::no, .name = "net", .args = {"x", "w"}});
  const Tensor w = ones({4, 4});
  if (role == "fill") REQUIRE(f.compile_ahead({{zeros({2, 4}), w}, {zeros({3, 4}), w}, {zeros({8, 4}), w}}, 3) == 3);
  if (role == "serve")
    for (const int64_t n : {2, 3, 8})
      CHECK(values(f(ones({n, 4}), w)) == std::vector<float>(static_cast<size_t>(4 * n), 0.25f));
}

// How often each event of a trace comes: "pass", "cache hit", "cache miss", "kernel".
std::map<std::string, int> counts(const std::filesystem::path& dir) {
  std::map<std::string, int> out;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) {
      const Json e = Json::parse(line);
      std::string event = e["event"].get<std::string>();
      if (event == "cache") {
        if (e["kind"] != "graph") continue;
        event += " " + e["what"].get<std::string>();
      }
      ++out[event];
    }
  }
  return out;
}

}  // namespace

TEST_CASE("a process of its own for the test below", "[.][ahead-child]") {
  const char* role = std::getenv("AHEAD_ROLE");
  REQUIRE(role);
  program(role);
}

TEST_CASE("after a process has compiled ahead, another one compiles nothing") {
  char folder[] = "/tmp/tessera-ahead-XXXXXX";
  REQUIRE(mkdtemp(folder));
  const std::filesystem::path root(folder);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::map<std::string, std::map<std::string, int>> ran;
  for (const std::string role : {"fill", "serve"}) {
    const std::filesystem::path trace = root / role;
    const std::string command = "AHEAD_ROLE=" + role + " TESSERA_CACHE_DIR='" + (root / "cache").string() +
                                "' TESSERA_TRACE='" + trace.string() + "' '" + self + "' '[ahead-child]' > '" +
                                (root / "out").string() + "' 2>&1";
    INFO(command);
    REQUIRE(std::system(command.c_str()) == 0);
    ran[role] = counts(trace);
  }
  std::filesystem::remove_all(root);
  CHECK(ran["fill"]["cache store"] == 3);
  CHECK(ran["fill"]["pass"] > 0);
  CHECK(ran["serve"]["cache hit"] == 3);
  CHECK(ran["serve"]["cache miss"] == 0);
  CHECK(ran["serve"]["cache store"] == 0);
  CHECK(ran["serve"]["pass"] == 0);
}
