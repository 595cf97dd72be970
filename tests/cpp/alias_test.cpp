// SPDX-License-Identifier: Apache-2.0
// One object that a call passes twice, to functions that replace tensors of their arguments.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <tessera/tessera.hpp>

#include "support.hpp"

namespace app {
struct Pair {
  tessera::Tensor a, b;
};
TESSERA_FIELDS(Pair, a, b)
}  // namespace app

using namespace tessera;

TEST_CASE("one tensor passed twice is one tensor in the compiled function") {
  int traced = 0;
  const auto f = compile(
      [&](Tensor& a, Tensor& b) {
        ++traced;
        a = a + 1;
        b = b * 2;
      },
      {.name = "fn", .args = {"a", "b"}});
  Tensor x = ones({1}), y = full({1}, 5);
  f(x, y);
  CHECK(values(x) == std::vector<float>{2});
  CHECK(values(y) == std::vector<float>{10});
  f(x, x);
  CHECK(values(x) == std::vector<float>{6});  // (2 + 1) * 2
  CHECK(traced == 2);
  f(x, x);
  CHECK(values(x) == std::vector<float>{14});
  f(x, y);
  CHECK(values(x) == std::vector<float>{15});
  CHECK(values(y) == std::vector<float>{20});
  CHECK(traced == 2);
  const std::string d = f.describe();
  CHECK(d.find("aliasing is None") != std::string::npos);
  CHECK(d.find("aliasing == 'b is a'") != std::string::npos);
}

TEST_CASE("a tensor that the function replaces through one argument and reads through another") {
  const auto fn = [](const Tensor& a, Tensor& b, const Tensor& c) {
    b = a + 1;
    return a * 10 + c;
  };
  const auto f = compile(fn);
  for (int i = 0; i < 2; ++i) {
    // Every way in which three arguments can be the same.
    for (int same = 0; same < 27; ++same) {
      std::vector<Tensor> mine = {full({1}, 1), full({1}, 2), full({1}, 3)}, theirs = mine;
      const int a = same % 3, b = same / 3 % 3, c = same / 9;
      const Tensor got = f(mine[a], mine[b], mine[c]), expected = fn(theirs[a], theirs[b], theirs[c]);
      CHECK(values(got) == values(expected));
      for (int k = 0; k < 3; ++k) CHECK(values(mine[k]) == values(theirs[k]));
    }
  }
  CHECK(entries(f.describe()) == 4);  // none, a is b, b is c, all
}

TEST_CASE("tensors that only some members share are left to the function as it is") {
  int runs = 0;
  const auto fn = [&](app::Pair& p, Tensor& t) {
    ++runs;
    p.a = p.a + t;
    t = t * 2;
    return p.a + p.b;
  };
  const auto f = compile(fn);
  for (int i = 0; i < 2; ++i) {
    app::Pair p{full({1}, 1), full({1}, 2)};
    Tensor t = full({1}, 3);
    CHECK(values(f(p, t)) == std::vector<float>{6});
    CHECK(values(t) == std::vector<float>{6});
    CHECK(values(f(p, p.a)) == std::vector<float>{18});  // a: (4 + 4) * 2
    CHECK(values(p.a) == std::vector<float>{16});
    CHECK(values(f(p, p.b)) == std::vector<float>{22});  // a: 18, b: 4
  }
  CHECK(runs == 1 + 4);
  CHECK(entries(f.describe()) == 1);
}

TEST_CASE("containers beside each other share nothing") {
  const auto f = compile([](std::vector<Tensor>& v, const std::map<std::string, Tensor>& m, Tensor& t) {
    for (Tensor& x : v) x = x + m.at("k");
    t = t + v[0];
  });
  std::vector<Tensor> v;
  std::map<std::string, Tensor> m;
  for (int i = 0; i < 4; ++i) {
    v.push_back(full({1}, i));
    m["k" + std::to_string(i)] = ones({1});
  }
  m["k"] = ones({1});
  Tensor t = zeros({1});
  for (int i = 0; i < 3; ++i) f(v, m, t);
  CHECK(values(v[3]) == std::vector<float>{6});
  CHECK(values(t) == std::vector<float>{1 + 2 + 3});
  CHECK(entries(f.describe()) == 1);
  f(v, m, v[1]);  // an element of the vector
  CHECK(values(v[1]) == std::vector<float>{5 + 4});
  CHECK(values(v[0]) == std::vector<float>{4});
}
