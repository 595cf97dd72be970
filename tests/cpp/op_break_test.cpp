// SPDX-License-Identifier: Apache-2.0
// Operations that no backend of the function takes: a graph break, or an error under fullgraph.
#include <catch2/catch.hpp>
#include <cmath>

#include "picky.hpp"
#include "support.hpp"

using namespace tessera;
using Catch::Contains;

namespace {
CompileOptions picky(CompileOptions o = {}) {
  o.backend = "picky";
  o.context = picky_context();
  return o;
}
}  // namespace

TEST_CASE("an operation that no backend takes runs between two compiled parts") {
  const ContextScope scope(picky_context());
  int runs = 0;
  const auto f = compile([&](const Tensor& x) { return ++runs, (x * 2).sin() + 1; }, picky({.name = "fn", .args = {"x"}}));
  for (const float v : {1.f, 2.f, 3.f}) CHECK(values(f(full({2}, v)))[1] == std::sin(2 * v) + 1);
  CHECK(runs == 1);  // on a known way no host code runs
  CHECK(values(f(full({3}, 4)))[2] == std::sin(8.f) + 1);
  const Explanation e = explain(f);
  REQUIRE(e.break_count() == 1);
  CHECK(e.breaks[0].code == "TSR-G014");
  CHECK_THAT(e.str(), Contains("An operation that no backend takes: sin") && Contains("op_break_test.cpp:"));
}

TEST_CASE("fullgraph refuses such an operation with its code") {
  const ContextScope scope(picky_context());
  const auto f = compile([](const Tensor& x) { return x.sin() + 1; }, picky({.fullgraph = true, .name = "fn"}));
  CHECK_THROWS_WITH(f(ones({2})), Contains("TSR-G014") && Contains("a graph break in 'fn', where fullgraph forbids them") &&
                                      Contains("An operation that no backend takes: sin"));
}

TEST_CASE("several results, omitted operands, attributes and sizes of such operations") {
  const ContextScope scope(picky_context());
  int runs = 0;
  const auto f = compile(
      [&](const Tensor& x) {
        ++runs;
        const auto [top, at] = x.topk(2);
        const Tensor ramp = arange(0, x.size(0), 1, f32);  // a size that is a symbol is a number here
        return std::make_pair(top + 1, (x + ramp).cumsum(0));
      },
      picky({.dynamic = Dynamic::yes}));
  for (const int64_t n : {3, 4, 3}) {
    const Tensor x = arange(0, n, 1, f32);
    const auto [top, sums] = f(x);
    CHECK(values(top) == std::vector<float>{static_cast<float>(n), static_cast<float>(n - 1)});
    CHECK(values(sums) == values((x + x).cumsum(0)));
  }
  CHECK(runs == 2);
}

TEST_CASE("in a region such an operation is an error that names it") {
  const ContextScope scope(picky_context());
  const auto f = compile(
      [](const Tensor& x) {
        return cond(
            x.sum() > 0, [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0].sin()}; },
            [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] + 1}; }, {x})[0];
      },
      picky());
  CHECK_THROWS_WITH(f(ones({2})), Contains("TSR-R020") && Contains("sin"));
}
