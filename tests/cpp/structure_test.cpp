// SPDX-License-Identifier: Apache-2.0
// Nested arguments and results.
#include <catch2/catch.hpp>

#include <tessera/tessera.hpp>

#include "support.hpp"

namespace app {
enum class Kind { plus, minus };
struct State {
  tessera::Tensor h;
  std::map<std::string, std::vector<tessera::Tensor>> groups;
  std::optional<double> scale;
  Kind kind = Kind::plus;
};
TESSERA_FIELDS(State, h, groups, scale, kind)
}  // namespace app

using namespace tessera;
using app::State;

namespace {
State make() {
  State s;
  s.h = tensor({1.f, 2.f});
  s.groups["a"] = {ones({2}), full({2}, 3)};
  s.groups["b"] = {};
  return s;
}
}  // namespace

TEST_CASE("structs, maps, vectors and optionals go in and come out") {
  int traced = 0;
  auto f = compile([&](const State& s) {
    ++traced;
    State r = s;
    r.h = s.kind == app::Kind::plus ? s.h + s.groups.at("a")[1] : s.h - s.groups.at("a")[1];
    if (s.scale) r.h = r.h * *s.scale;
    r.groups["b"].push_back(s.h);
    return r;
  });
  State s = make();
  State r = f(s);
  CHECK(values(r.h) == std::vector<float>{4, 5});
  REQUIRE(r.groups.at("b").size() == 1);
  CHECK(values(r.groups.at("b")[0]) == std::vector<float>{1, 2});
  CHECK(traced == 1);
  CHECK(values(f(s).h) == std::vector<float>{4, 5});
  CHECK(traced == 1);

  s.kind = app::Kind::minus;  // an enum
  CHECK(values(f(s).h) == std::vector<float>{-2, -1});
  s.scale = 2.0;  // presence of an optional
  CHECK(values(f(s).h) == std::vector<float>{-4, -2});
  s.groups["b"].push_back(ones({1}));  // the length of a container
  f(s);
  s.groups["c"] = {};  // the keys of a map
  f(s);
  CHECK(traced == 5);
}

TEST_CASE("tuples and several results") {
  auto f = compile([](const Tensor& x, std::pair<Tensor, int> y) {
    return std::make_tuple(x + y.first, y.second, std::vector<Tensor>{x, x * 2});
  });
  auto [sum, n, list] = f(ones({2}), {full({2}, 4), 7});
  CHECK(values(sum) == std::vector<float>{5, 5});
  CHECK(n == 7);
  CHECK(values(list[1]) == std::vector<float>{2, 2});
}

TEST_CASE("tensors of a mutable argument are updated, also on a hit") {
  int traced = 0;
  auto step = compile([&](State& s, const Tensor& g) {
    ++traced;
    s.h = s.h - g * 0.5;
    s.groups["a"][0] = s.groups["a"][0] + 1;
  });
  State s = make();
  for (int i = 1; i <= 3; ++i) {
    step(s, ones({2}));
    CHECK(values(s.h) == std::vector<float>{1 - 0.5f * static_cast<float>(i), 2 - 0.5f * static_cast<float>(i)});
    CHECK(values(s.groups["a"][0]) == std::vector<float>(2, 1 + static_cast<float>(i)));
    CHECK(values(s.groups["a"][1]) == std::vector<float>{3, 3});
  }
  CHECK(traced == 1);
}

TEST_CASE("a host value that the function changes is an error that names it") {
  auto f = compile([](State& s) { s.scale = s.scale.value_or(0) + 1; }, {.args = {"state"}});
  State s = make();
  s.scale = 1.0;
  CHECK_THROWS_WITH(f(s), Catch::Contains("TSR-F041") && Catch::Contains("state.scale"));
}

TEST_CASE("guard names show the path") {
  auto f = compile([](const State& s) { return s.groups.at("a")[1] + 1; }, {.args = {"state"}});
  f(make());
  CHECK(f.describe().find("state.groups['a'][1]") != std::string::npos);
}

TEST_CASE("a mutable argument can become another argument") {
  auto f = compile([](Tensor& state, const Tensor& x) { state = x; });
  Tensor state = zeros({2});
  for (int i = 1; i < 3; ++i) {
    f(state, full({2}, i));
    CHECK(state.to_vector<float>() == std::vector<float>(2, static_cast<float>(i)));
  }
}
