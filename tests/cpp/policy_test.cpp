// SPDX-License-Identifier: Apache-2.0
// Calls that no compiled code serves: past a limit, by stance, after errors, while another thread compiles; forced recompiles.
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;
using Catch::Contains;

namespace {
struct Counted {  // x + 1, counting how often the host runs it
  std::shared_ptr<std::atomic<int>> runs = std::make_shared<std::atomic<int>>(0);
  Tensor operator()(const Tensor& x) const { return ++*runs, x + 1; }
};
auto counted(const Counted& c, CompileOptions o = {}) {
  o.args = {"x"};
  return compile([c](const Tensor& x) { return c(x); }, std::move(o));
}
}  // namespace

TEST_CASE("past the limit a function runs as it is, and what it calls compiles nothing new") {
  Counted inner;
  int outer = 0;
  auto g = counted(inner, {.dynamic = Dynamic::no});
  auto f = compile([&](const Tensor& x) { return ++outer, g(x) * 2; },
                   {.dynamic = Dynamic::no, .options = {"guards.recompile_limit=2"}});
  g(ones({3}));
  for (const int64_t n : {1, 2, 3, 4}) CHECK(values(f(ones({n}))) == std::vector<float>(static_cast<size_t>(n), 4));
  CHECK(outer == 4);
  CHECK(entries(f.describe()) == 2);
  CHECK(entries(g.describe()) == 1);
  CHECK(values(f(ones({1}))) == std::vector<float>{4});  // what is there still serves
  CHECK(outer == 4);
  g(ones({5}));
  CHECK(entries(g.describe()) == 2);
}

TEST_CASE("suppress_errors: what cannot be compiled runs as it is, and is not tried forever") {
  int captures = 0, runs = 0;
  const auto fn = [&](const Tensor& x) {
    if (is_compiling()) {
      ++captures;
      throw std::runtime_error("not here");
    }
    return ++runs, x * 2;
  };
  auto f = compile(fn, {.options = {"guards.suppress_errors=true", "guards.recompile_limit=3"}});
  for (int64_t n = 1; n <= 6; ++n) CHECK(values(f(ones({n}))) == std::vector<float>(static_cast<size_t>(n), 2));
  CHECK(captures == 3);
  CHECK(runs == 6);
  CHECK(entries(f.describe()) == 0);
  CHECK_THROWS_WITH(compile(fn)(ones({1})), "not here");
  CHECK_THROWS_WITH(compile(fn, {.fullgraph = true, .options = {"guards.suppress_errors=true"}})(ones({1})), "not here");
}

TEST_CASE("stances") {
  Counted c;
  auto f = counted(c, {.dynamic = Dynamic::no});
  CHECK(stance() == Stance::standard);
  {
    const StanceScope s(Stance::force_eager);
    CHECK(stance() == Stance::force_eager);
    f(ones({2}));
    f(ones({2}));
    CHECK(*c.runs == 2);
    CHECK(entries(f.describe()) == 0);
  }
  f(ones({2}));
  CHECK(*c.runs == 3);
  {
    const StanceScope s(Stance::eager_on_recompile);
    CHECK(values(f(ones({2}))) == std::vector<float>{2, 2});
    CHECK(*c.runs == 3);
    CHECK(values(f(ones({3}))).size() == 3);
    CHECK(values(f(ones({3}))).size() == 3);
    CHECK(*c.runs == 5);
    CHECK(entries(f.describe()) == 1);
  }
  {
    const StanceScope s(Stance::fail_on_recompile);
    f(ones({2}));
    CHECK_THROWS_WITH(f(ones({3})), Contains("TSR-D010") && Contains("fail_on_recompile") && Contains("expected 2, actual 3"));
  }
  for (const Stance s : {Stance::eager_then_compile, Stance::aot_eager_then_compile}) {
    const StanceScope scope(s);
    auto g = counted(c);
    CHECK(values(g(ones({3}))) == std::vector<float>(3, 2));
    CHECK(entries(g.describe()) == 0);
    g(ones({4}));  // both sizes have been seen: compiled once, for all
    g(ones({5}));
    CHECK(values(g(ones({6}))) == std::vector<float>(6, 2));
    CHECK(entries(g.describe()) == 1);
  }
  CHECK(stance() == Stance::standard);
}

TEST_CASE("a forced recompile retires what there is") {
  Counted c;
  auto f = counted(c);
  f(ones({2}));
  f(ones({2}));
  CHECK(*c.runs == 1);
  f.recompile();
  CHECK(entries(f.describe()) == 0);
  CHECK(values(f(ones({2}))) == std::vector<float>(2, 2));
  f(ones({2}));
  CHECK(*c.runs == 2);
  CHECK(entries(f.describe()) == 1);
  reset();
  f(ones({2}));
  CHECK(*c.runs == 3);
}

TEST_CASE("on_busy = fallback: a miss does not wait for another thread's compile") {
  std::atomic<bool> compiling{false}, served{false};
  auto f = compile(
      [&](const Tensor& x) {
        if (is_compiling()) {
          compiling = true;
          while (!served) std::this_thread::yield();
        }
        return x + 1;
      },
      {.dynamic = Dynamic::no, .options = {"guards.on_busy=fallback"}});
  std::vector<float> other;
  std::thread compiler([&] { other = values(f(ones({2}))); });
  while (!compiling) std::this_thread::yield();
  CHECK(values(f(ones({3}))) == std::vector<float>(3, 2));  // would wait forever
  CHECK(values(f(ones({2}))) == std::vector<float>(2, 2));
  served = true;
  compiler.join();
  CHECK(other == std::vector<float>(2, 2));
  CHECK(entries(f.describe()) == 1);
}

TEST_CASE("eviction: the least recently used entry goes") {
  Counted c;
  auto f = counted(c, {.dynamic = Dynamic::no, .options = {"guards.max_entries=2", "guards.recompile_limit=1000"}});
  const auto call = [&](int64_t n) {
    CHECK(values(f(ones({n}))) == std::vector<float>(static_cast<size_t>(n), 2));
    return c.runs->load();
  };
  CHECK(call(1) == 1);
  CHECK(call(2) == 2);
  CHECK(call(1) == 2);
  CHECK(call(3) == 3);  // 2 goes
  CHECK(call(1) == 3);
  CHECK(call(2) == 4);  // 3 goes
  CHECK(call(1) == 4);
  const nlohmann::json d = nlohmann::json::parse(f.describe());
  CHECK(d["entries"].size() == 2);
  CHECK(d["evicted"] == 2);
  auto g = counted(c, {.dynamic = Dynamic::no, .options = {"guards.max_bytes=1"}});
  g(ones({1}));
  g(ones({2}));
  CHECK(entries(g.describe()) == 1);  // the one that was made last stays
}

TEST_CASE("eviction: entries of every kind of guard, looked up again in any order") {
  auto f = compile([](const Tensor& x, double s) { return x * s; },
                   {.options = {"guards.max_entries=3", "guards.recompile_limit=100000", "guards.automatic_dynamic=false"}});
  for (int i = 0; i < 60; ++i) {
    const int64_t n = 1 + (i * 5) % 7, m = 1 + (i * 3) % 4;
    const Tensor x = i % 3 == 0 ? full({n, m}, 2) : full({n}, 2);
    const double s = i % 5;
    CHECK(values(f(x, s)) == std::vector<float>(static_cast<size_t>(x.numel()), static_cast<float>(2 * s)));
    CHECK(entries(f.describe()) <= 3);
  }
}

TEST_CASE("eviction while other threads call") {
  auto f = compile(
      [](const Tensor& x) { return x * 3 + 1; },
      {.dynamic = Dynamic::no,
       .options = {"guards.max_entries=3", "guards.recompile_limit=100000", "guards.accumulated_recompile_limit=100000"}});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        const int64_t n = 1 + (i / 4 + t % 3) % 6;
        try {
          if (values(f(full({n}, i))) != std::vector<float>(static_cast<size_t>(n), static_cast<float>(3 * i + 1))) ++wrong;
        } catch (const std::exception&) {
          ++wrong;
        }
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(entries(f.describe()) <= 3);
}

TEST_CASE("a guard filter drops what it is told to, and memory stays safe") {
  int runs = 0;
  auto f = compile([&](const Tensor& x, int64_t n, const std::string& mode) { return ++runs, mode == "plus" ? x + n : x * n; },
                   {.args = {"x", "n", "mode"}, .guard_filter_unsafe = skip_guards_under_unsafe({"n", "mode"})});
  CHECK(values(f(ones({1}), 2, "times")) == std::vector<float>{2});
  CHECK(values(f(ones({1}), 3, "plus")) == std::vector<float>{2});  // what was asked for
  CHECK(runs == 1);
  CHECK(values(f(ones({2}), 3, "plus")) == std::vector<float>{4, 4});
  auto g = compile([](const Tensor& x) { return x * 2; }, {.guard_filter_unsafe = skip_all_guards_unsafe});
  g(ones({4}));
  Tensor wants = ones({4});
  wants.requires_grad_(true);
  CHECK(values(g(wants)).size() == 4);
  CHECK_THROWS_AS(g(ones({3})), UserError);
  CHECK_THROWS_AS(g(ones({4, 1})), UserError);
  CHECK_THROWS_AS(g(ones({4}, f64)), UserError);
  CHECK(entries(g.describe()) == 1);
  auto h = compile([](const Tensor& x) { return x + 1; }, {.guard_filter_unsafe = [](const GuardInfo&) -> bool { throw 1; }});
  CHECK_THROWS_AS(h(ones({1})), int);
}

TEST_CASE("a guard filter and marked captures, dynamic sizes, and parts behind a break") {
  int64_t scale = 2;
  int runs = 0;
  auto f = compile([&](const Tensor& x) { return ++runs, x * guarded(scale, "scale"); },
                   {.guard_filter_unsafe = skip_guards_on_globals_unsafe});
  CHECK(values(f(ones({1}))) == std::vector<float>{2});
  scale = 3;
  CHECK(values(f(ones({1}))) == std::vector<float>{2});
  CHECK(runs == 1);
  std::vector<std::string> asked;
  auto g = compile(
      [](const Tensor& x, int64_t n) {
        const Tensor y = x + 1;
        graph_break();
        return y * n;
      },
      {.dynamic = Dynamic::yes, .args = {"x", "n"}, .guard_filter_unsafe = [&](const GuardInfo& i) {
         asked.emplace_back(i.text);
         return false;
       }});
  CHECK(values(g(ones({2}), 2)) == std::vector<float>(2, 4));
  CHECK(values(g(ones({3}), 5)) == std::vector<float>(3, 4));  // n is dropped, the symbol is not
  CHECK(asked == std::vector<std::string>{"n == 2"});
}
