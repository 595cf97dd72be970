// SPDX-License-Identifier: Apache-2.0
// Policies and graph breaks: what a function has done before a break must not happen twice.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "picky.hpp"
#include "support.hpp"

using namespace tessera;
using Catch::Contains;

namespace {
// How many segments its continuations have compiled.
size_t compiled_tails(const std::string& description) {
  size_t n = 0;
  const nlohmann::json d = nlohmann::json::parse(description);
  if (d.contains("frames"))
    for (size_t i = 1; i < d["frames"].size(); ++i) n += d["frames"][i]["segments"].size();
  return n;
}
}  // namespace

TEST_CASE("suppress_errors: a part behind a break that cannot be compiled runs on the fallback") {
  const ContextScope scope(picky_context());
  int effects = 0, runs = 0;
  const auto count = disable([&](const Tensor& t) { return ++effects, t; });
  const auto fn = [&](const Tensor& x) { return ++runs, count(x + 1).relu() * 2; };  // picky has no code for relu
  CompileOptions o{.backend = "picky,eager", .context = picky_context()};
  o.options = {"backends.on_compile_error=error"};
  CHECK_THROWS_WITH(compile(fn, o)(ones({2})), Contains("ACME-001"));
  o.options.push_back("guards.suppress_errors=true");
  for (const char* backend : {"picky,eager", "picky"}) {
    o.backend = backend;
    effects = runs = 0;
    const auto f = compile(fn, o);
    for (int i = 1; i <= 3; ++i) {
      CHECK(values(f(full({2}, i))) == std::vector<float>(2, static_cast<float>(2 * (i + 1))));
      CHECK(effects == i);
    }
    CHECK(runs == 1);
    CHECK(compiled_tails(f.describe()) == 1);
  }
}

TEST_CASE("what a backend has no code for behind a break runs on the next backend, or ends the call where there is none") {
  const ContextScope scope(picky_context());
  int effects = 0, runs = 0;
  const auto count = disable([&](const Tensor& t) { return ++effects, t; });
  const auto fn = [&](const Tensor& x) { return ++runs, count(x + 1).relu() * 2; };
  CHECK_THROWS_WITH(compile(fn, {.backend = "picky", .context = picky_context()})(ones({2})), Contains("ACME-001"));
  effects = runs = 0;
  const auto f = compile(fn, {.backend = "picky,eager", .context = picky_context()});
  for (int i = 1; i <= 3; ++i) {
    CHECK(values(f(full({2}, i))) == std::vector<float>(2, static_cast<float>(2 * (i + 1))));
    CHECK(effects == i);
  }
  CHECK(runs == 1);
  CHECK(compiled_tails(f.describe()) == 1);
}

TEST_CASE("suppress_errors: a function without breaks runs as it is") {
  const ContextScope scope(picky_context());
  int runs = 0;
  const auto f = compile(
      [&](const Tensor& x) { return ++runs, x.relu(); },
      {.backend = "picky", .options = {"guards.suppress_errors=true", "guards.recompile_limit=2"}, .context = picky_context()});
  for (int i = 1; i <= 4; ++i) CHECK(values(f(full({2}, i))) == std::vector<float>(2, static_cast<float>(i)));
  CHECK(runs == 2 + 4);  // two captures that failed
}

TEST_CASE("suppress_errors: what the function throws behind a break reaches the caller") {
  int effects = 0;
  const auto count = disable([&](const Tensor& t) { return ++effects, t; });
  const auto f = compile(
      [&](const Tensor& x) {
        const Tensor y = count(x + 1);
        if (is_compiling()) throw std::runtime_error("mine");
        return y * 2;
      },
      {.options = {"guards.suppress_errors=true"}});
  CHECK_THROWS_WITH(f(ones({2})), "mine");
  CHECK(effects == 1);
}

TEST_CASE("suppress_errors: before the first break a function that has broken before may still run as it is") {
  int effects = 0;
  bool fails = false;
  const auto count = disable([&](const Tensor& t) { return ++effects, t; });
  const auto f = compile(
      [&](const Tensor& x) {
        if (is_compiling() && fails) throw std::runtime_error("mine");
        return count(x + 1) * 2;
      },
      {.dynamic = Dynamic::no, .options = {"guards.suppress_errors=true"}});
  CHECK(values(f(ones({2}))) == std::vector<float>{4, 4});
  fails = true;
  CHECK(values(f(ones({3}))) == std::vector<float>(3, 4));
  CHECK(values(f(ones({2}))) == std::vector<float>{4, 4});
  CHECK(effects == 3);
}

TEST_CASE("stances behind a break") {
  int effects = 0;
  const auto count = disable([&](const Tensor& t) { return ++effects, t; });
  const auto f = compile([&](const Tensor& x) {
    const Tensor y = count(x * 2);
    return y.sum() > 0 ? y + 1 : y - 1;
  });
  CHECK(values(f(ones({2}))) == std::vector<float>{3, 3});
  const size_t tails = compiled_tails(f.describe());
  {
    const StanceScope s(Stance::eager_on_recompile);
    CHECK(values(f(full({2}, 3))) == std::vector<float>{7, 7});
    for (int i = 0; i < 2; ++i) CHECK(values(f(full({2}, -1))) == std::vector<float>{-3, -3});  // a new way
    CHECK(compiled_tails(f.describe()) == tails);
    CHECK(effects == 4);
  }
  {
    const StanceScope s(Stance::fail_on_recompile);
    CHECK(values(f(ones({2}))) == std::vector<float>{3, 3});
    CHECK_THROWS_WITH(f(full({2}, -1)), Contains("TSR-D010") && Contains("'tessera_resume_in_fn_at_"));
    CHECK(effects == 6);
  }
  {
    const StanceScope s(Stance::force_eager);
    CHECK(values(f(full({2}, -1))) == std::vector<float>{-3, -3});
    CHECK(effects == 7);
  }
  CHECK(values(f(full({2}, -1))) == std::vector<float>{-3, -3});
  CHECK(effects == 8);
  CHECK(compiled_tails(f.describe()) > tails);
}

TEST_CASE("a call on its way ends on it, whatever is forgotten or forbidden meanwhile") {
  int effects = 0;
  std::function<void()> meanwhile;
  const auto step = disable([&](const Tensor& t) {
    ++effects;
    if (meanwhile) meanwhile();
    return t;
  });
  const auto f = compile([&](const Tensor& x) {
    const Tensor y = step(x * 2);
    return y.sum() > 0 ? y + 1 : y - 1;
  });
  CHECK(values(f(ones({2}))) == std::vector<float>{3, 3});
  meanwhile = [&] {
    f.reset();
    set_stance(Stance::force_eager);
  };
  CHECK(values(f(full({2}, -1))) == std::vector<float>{-3, -3});  // leaves the way it knows after that
  CHECK(effects == 2);
  meanwhile = nullptr;
  set_stance(Stance::standard);
  CHECK(values(f(full({2}, -1))) == std::vector<float>{-3, -3});
  CHECK(values(f(full({2}, -1))) == std::vector<float>{-3, -3});
  CHECK(effects == 4);
}

TEST_CASE("a limit on entries spares those that functions with breaks go on from") {
  int runs = 0;
  const auto f = compile(
      [&](const Tensor& x) {
        ++runs;
        const Tensor y = x * 2;
        return y.sum() > 0 ? y + 1 : y - 1;
      },
      {.dynamic = Dynamic::no, .options = {"guards.max_entries=1", "guards.recompile_limit=100"}});
  for (int repeat = 0; repeat < 2; ++repeat)
    for (const int64_t n : {2, 3, 4}) CHECK(values(f(ones({n}))) == std::vector<float>(static_cast<size_t>(n), 3));
  CHECK(runs == 3);
}
