// SPDX-License-Identifier: Apache-2.0
// Symbolic numbers and sizes in compiled functions.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {
std::string guards(const std::string& description) {
  std::string all;
  const auto json = nlohmann::json::parse(description);
  for (const auto& e : json.at("entries"))
    for (const auto& g : e.at("guards")) all += g.get<std::string>() + "; ";
  return all;
}
const std::vector<std::string> kSpecialize = {"guards.specialize_float=true"};
}  // namespace

TEST_CASE("a float argument is an input: another value needs no new entry") {
  int traced = 0;
  auto f = compile([&](const Tensor& x, SymFloat c) { return ++traced, (x * c + c) / (c + 2) - 1 / c; });
  for (const double c : {0.5, 1.0, 3.0, -2.5})
    CHECK(values(f(full({2}, 3), c)) == values((full({2}, 3) * c + c) / (c + 2) - 1 / c));
  CHECK(traced == 1);
  CHECK(guards(f.describe()).find("arg1") == std::string::npos);
}

TEST_CASE("reading or comparing a float specialises, and only then") {
  int traced = 0;
  auto f = compile([&](const Tensor& x, SymFloat c) { return ++traced, c > 1 ? x * c : x; }, {.args = {"x", "c"}});
  CHECK(values(f(ones({2}), 0.5)) == std::vector<float>{1, 1});
  CHECK(values(f(ones({2}), 2.0)) == std::vector<float>{2, 2});
  CHECK(values(f(ones({2}), 0.5)) == std::vector<float>{1, 1});
  CHECK(traced == 2);
  CHECK(guards(f.describe()).find("c == 0.5") != std::string::npos);
  auto g = compile([&](const Tensor& x, SymFloat c) { return x * static_cast<double>(c); });
  CHECK(values(g(ones({1}), 3.0)) == std::vector<float>{3});
  CHECK(values(g(ones({1}), 4.0)) == std::vector<float>{4});
  auto derived = compile([&](const Tensor& x, SymFloat c) { return x * (c * 2 + 1).value(); });
  CHECK(values(derived(ones({1}), 3.0)) == std::vector<float>{7});
  CHECK(values(derived(ones({1}), 4.0)) == std::vector<float>{9});
}

TEST_CASE("specialize_float: by value, then an input after the first change; by value throughout without dynamic") {
  int traced = 0;
  const auto fn = [&](const Tensor& x, SymFloat c) { return ++traced, x + c; };
  auto f = compile(fn, {.options = kSpecialize});
  for (const double c : {1.0, 2.0, 3.0, 4.0}) CHECK(values(f(zeros({1}), c))[0] == static_cast<float>(c));
  CHECK(traced == 2);
  traced = 0;
  auto g = compile(fn, {.dynamic = Dynamic::no, .options = kSpecialize});
  for (const double c : {1.0, 2.0, 3.0, 4.0}) CHECK(values(g(zeros({1}), c))[0] == static_cast<float>(c));
  CHECK(traced == 4);
}

TEST_CASE("a float that nothing reads is not guarded") {
  int traced = 0;
  auto f = compile([&](const Tensor& x, SymFloat) { return ++traced, x + 1; }, {.options = kSpecialize});
  f(ones({2}), 1.0);
  f(ones({2}), 2.0);
  CHECK(traced == 1);
}

TEST_CASE("an integer argument is a symbol after its first change") {
  int traced = 0;
  auto f = compile([&](const Tensor& x, SymInt n) { return ++traced, x.slice(0, 0, n) * n; });
  const auto call = [&](int64_t n) { return values(f(arange(10).to(f32), n)); };
  CHECK(call(2) == std::vector<float>{0, 2});
  CHECK(call(3) == std::vector<float>{0, 3, 6});
  CHECK(call(4) == std::vector<float>{0, 4, 8, 12});
  CHECK(call(5) == std::vector<float>{0, 5, 10, 15, 20});
  CHECK(traced == 2);
  CHECK(call(1) == std::vector<float>{0});  // 0 and 1 are numbers
  CHECK(call(0).empty());
  CHECK(call(6).size() == 6);
  CHECK(traced == 4);
  auto g = compile([&](const Tensor& x, SymInt n) { return n < 4 ? x : -x; });
  CHECK(values(g(ones({1}), 2)) == std::vector<float>{1});
  CHECK(values(g(ones({1}), 3)) == std::vector<float>{1});
  CHECK(values(g(ones({1}), 5)) == std::vector<float>{-1});
  CHECK(values(g(ones({1}), -5)) == std::vector<float>{1});
}

TEST_CASE("sizes that change become symbols, sizes that stay do not") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) { return ++traced, x.sum({0}); }, {.args = {"x"}});
  for (const int64_t n : {3, 4, 5, 6}) CHECK(values(f(ones({n, 2}))) == std::vector<float>(2, static_cast<float>(n)));
  CHECK(traced == 2);
  CHECK(guards(f.describe()).find("tensor 'x': f32[s0, 2]") != std::string::npos);
  f(ones({7, 3}));
  f(ones({8, 4}));
  CHECK(traced == 3);
}

TEST_CASE("a layout that changes becomes any layout") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) { return ++traced, x * 2 + (x.is_contiguous() ? 1 : 0); });
  std::vector<float> data(64);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const auto strided = [&](int64_t s) { return from_blob(data.data(), {2, 2}, f32, {s, 1}); };
  CHECK(values(f(strided(4))) == std::vector<float>{0, 2, 8, 10});
  CHECK(values(f(strided(5))) == std::vector<float>{0, 2, 10, 12});
  CHECK(values(f(strided(6))) == std::vector<float>{0, 2, 12, 14});
  CHECK(values(f(strided(7))) == std::vector<float>{0, 2, 14, 16});
  CHECK(traced == 2);
  CHECK(values(f(strided(2))) == std::vector<float>{1, 3, 5, 7});  // row-major
  CHECK(values(f(from_blob(data.data(), {2, 2}, f32, {1, 3}))) == std::vector<float>{0, 6, 2, 8});
  CHECK(traced == 3);
}

TEST_CASE("marked dimensions") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) { return ++traced, x + 1; }, {.dynamic = Dynamic::no});
  Tensor a = ones({4});
  mark_dynamic(a, 0, 2, 8);
  f(a);
  f(ones({5}));
  f(ones({8}));
  CHECK(traced == 1);
  CHECK(values(f(ones({9}))).size() == 9);  // outside the range
  CHECK(traced == 2);
  Tensor b = ones({9});
  mark_dynamic(b, 0, 2, 100);
  f(b);  // the entry for 9 is not what was asked for
  f(ones({50}));
  CHECK(traced == 3);

  auto reads = compile([](const Tensor& x) { return x * static_cast<int64_t>(x.size(0)); }, {.args = {"x"}});
  Tensor c = ones({4});
  mark_dynamic(c, 0);
  CHECK_THROWS_WITH(
      reads(c), Catch::Contains("TSR-D001") && Catch::Contains("dimension 0 of 'x'") && Catch::Contains("dynamic_test.cpp"));
  CHECK(values(reads(ones({4}))) == std::vector<float>(4, 4));

  traced = 0;
  auto g = compile([&](const Tensor& x) { return ++traced, x + 1; }, {.dynamic = Dynamic::yes});
  Tensor d = ones({4}), e = ones({5});
  mark_static(d, 0);
  mark_static(e, 0);
  g(d);
  g(e);
  CHECK(traced == 2);
}

TEST_CASE("unbacked dimensions are not guarded, not even on 0 and 1") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) { return ++traced, x.sum({1}) * 2; });
  for (const int64_t n : {0, 1, 2, 7}) {
    Tensor x = ones({2, n});
    mark_unbacked(x, 1);
    CHECK(values(f(x)) == std::vector<float>(2, 2.0f * static_cast<float>(n)));
  }
  CHECK(traced == 1);
  auto reads = compile([](const Tensor& x) { return x * static_cast<int64_t>(x.size(0)); });
  Tensor x = ones({3});
  mark_unbacked(x, 0);
  CHECK_THROWS_WITH(reads(x), Catch::Contains("TSR-G002"));
}

TEST_CASE("specialize_one = false: one entry for 1 and more, where nothing broadcasts") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) { return ++traced, x * 3; },
                   {.dynamic = Dynamic::yes, .options = {"guards.specialize_one=false"}});
  for (const int64_t n : {1, 2, 5}) CHECK(values(f(ones({n}))) == std::vector<float>(static_cast<size_t>(n), 3));
  CHECK(traced == 1);
  // What broadcasts is compiled for the number, and the other sizes for themselves.
  auto g = compile([&](const Tensor& x, const Tensor& y) { return x + y; },
                   {.dynamic = Dynamic::yes, .options = {"guards.specialize_one=false", "guards.specialize_zero=false"}});
  for (int round = 0; round < 2; ++round)
    for (const auto& [n, m] : std::vector<std::pair<int64_t, int64_t>>{{5, 5}, {1, 5}, {4, 4}, {1, 1}, {6, 1}, {1, 0}, {0, 0}})
      CHECK(g(ones({n}), ones({m})).sizes() == std::vector<int64_t>{n == 1 ? m : n});
}

TEST_CASE("duck shaping: equal sizes must stay equal, unless it is off") {
  int traced = 0;
  const auto fn = [&](const Tensor& x, const Tensor& y) { return ++traced, x.sum() + y.sum(); };
  auto f = compile(fn, {.dynamic = Dynamic::yes});
  f(ones({3}), ones({3}));
  f(ones({4}), ones({4}));
  CHECK(traced == 1);
  f(ones({4}), ones({5}));
  CHECK(traced == 2);
  traced = 0;
  auto g = compile(fn, {.dynamic = Dynamic::yes, .options = {"guards.duck_shaping=false"}});
  g(ones({3}), ones({3}));
  g(ones({4}), ones({5}));
  CHECK(traced == 1);
}

TEST_CASE("relations with an integer that host code reads as well are guards") {
  auto f = compile([](const Tensor& x, SymInt n) {
    const Tensor y = x.slice(0, 0, n);
    return n == 3 ? y + 1 : y;
  });
  const auto want = [](int64_t size, int64_t n) {
    return std::vector<float>(static_cast<size_t>(std::min(size, n)), n == 3 ? 2.0f : 1.0f);
  };
  for (const auto& [size, n] : std::vector<std::pair<int64_t, int64_t>>{{5, 2}, {6, 3}, {2, 3}, {7, 3}, {3, 4}, {2, 2}})
    CHECK(values(f(ones({size}), n)) == want(size, n));
}

TEST_CASE("a symbolic integer is not negative") {
  int traced = 0;
  auto f = compile([&](const Tensor& x, SymInt n) { return ++traced, x * n; },
                   {.dynamic = Dynamic::yes, .options = {"guards.specialize_one=false", "guards.specialize_zero=false"}});
  for (const int64_t n : {0, 1, 5, -1, -1, 7, -2}) CHECK(values(f(ones({1}), n)) == std::vector<float>{static_cast<float>(n)});
  CHECK(traced == 3);
}

TEST_CASE("host code that reads a stride makes it a guard") {
  auto f = compile([](const Tensor& x) { return x * x.strides()[0]; });
  std::vector<float> data(64, 1);
  for (const int64_t s : {4, 5, 6, 7, 6, 9})
    CHECK(values(f(from_blob(data.data(), {2, 2}, f32, {s, 1}))) == std::vector<float>(4, static_cast<float>(s)));
}

TEST_CASE("what becomes unbacked by itself never makes a call fail that ran before") {
  int traced = 0;
  auto f = compile([&](const Tensor& x, const Tensor& y) { return ++traced, x + y; },
                   {.options = {"guards.automatic_dynamic_as=unbacked"}});
  for (const auto& [n, m] : std::vector<std::pair<int64_t, int64_t>>{{3, 3}, {4, 4}, {5, 5}, {4, 1}, {1, 4}, {6, 6}})
    CHECK(f(ones({n}), ones({m})).sizes() == std::vector<int64_t>{std::max(n, m)});
  CHECK_THROWS(f(ones({4}), ones({5})));
  CHECK(f(ones({8}), ones({8})).sizes() == std::vector<int64_t>{8});
  auto decides = compile([](const Tensor& x) { return x.size(0) % 2 == 0 ? x * 2 : x; },
                         {.options = {"guards.automatic_dynamic_as=unbacked"}});
  for (const int64_t n : {3, 4, 5, 6, 7})
    CHECK(values(decides(ones({n}))) == std::vector<float>(static_cast<size_t>(n), n % 2 == 0 ? 2.0f : 1.0f));

  // A mark forbids guards: the same is an error of the call there, and a tensor without the mark does not hit that entry.
  auto g = compile([](const Tensor& x, const Tensor& y) { return x + y; }, {.dynamic = Dynamic::yes});
  const auto marked = [](int64_t n) {
    Tensor t = ones({n});
    mark_unbacked(t, 0);
    return t;
  };
  CHECK(g(marked(4), ones({4})).sizes() == std::vector<int64_t>{4});
  CHECK_THROWS_WITH(g(marked(1), ones({5})), Catch::Contains("TSR-T026"));
  CHECK(g(ones({1}), ones({5})).sizes() == std::vector<int64_t>{5});
}

TEST_CASE("gradient mode is a guard") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) { return ++traced, x + 1; });
  f(ones({2}));
  {
    const NoGradGuard off;
    CHECK_FALSE(is_grad_enabled());
    f(ones({2}));
    f(ones({2}));
  }
  f(ones({2}));
  CHECK(traced == 2);
}

TEST_CASE("results may be symbolic numbers: they become guards") {
  auto f = compile([](const Tensor& x, SymFloat c) { return std::make_pair(x + c, c * 2); });
  CHECK(f(ones({1}), 2.0).second.value() == 4);
  CHECK(f(ones({1}), 3.0).second.value() == 6);
  std::vector<SymFloat> v = {1.0};
  CHECK_THROWS_WITH(compile([](std::vector<SymFloat>& v) { v[0] = v[0] * 2; }, {.args = {"v"}})(v),
                    Catch::Contains("TSR-F041") && Catch::Contains("v[0]"));
}

TEST_CASE("the pieces of a split vary with the size, and an entry holds for all sizes that have as many") {
  int traced = 0;
  auto chunks = compile([&](const Tensor& x) {
    ++traced;
    Tensor sum = zeros({1});
    for (const Tensor& part : (x * 2).chunk(4)) sum = sum + part.sum() * static_cast<double>(traced > 0);
    return std::vector<Tensor>{sum, (x * 2).chunk(4).back()};
  });
  for (const int64_t n : {8, 12, 15, 16, 20, 24, 31, 7, 100}) {
    const Tensor x = arange(n, f32);
    INFO(n);
    const std::vector<Tensor> have = chunks(x);
    CHECK(values(have[0]) == values((x * 2).sum().reshape({1})));
    CHECK(values(have[1]) == values((x * 2).chunk(4).back()));
  }
  CHECK(traced == 2);  // the first size alone, then all
  auto three = compile([&](const Tensor& x) { return ++traced, x.chunk(4); });
  for (const int64_t n : {9, 6, 5}) CHECK(three(arange(n, f32)).size() == arange(n, f32).chunk(4).size());
  traced = 0;
  auto fixed = compile([&](const Tensor& x) { return ++traced, x.split(4); });
  for (const int64_t n : {9, 10, 11, 12, 13, 14, 17}) {
    INFO(n);
    const std::vector<Tensor> have = fixed(arange(n, f32)), want = arange(n, f32).split(4);
    REQUIRE(have.size() == want.size());
    for (size_t i = 0; i < have.size(); ++i) CHECK(values(have[i]) == values(want[i]));
  }
  CHECK(traced == 4);  // 9 alone, three pieces, four, five
}

TEST_CASE("random splits of varying sizes give the pieces that they give without a compile") {
  std::mt19937_64 random(21);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 12; ++round) {
    const int64_t dim = below(2), pieces = 1 + below(5), length = 1 + below(6);
    const bool chunks = round % 2 == 0;
    INFO((chunks ? "chunk " : "split ") << (chunks ? pieces : length) << " along " << dim);
    const auto parts = [=](const Tensor& x) {
      std::vector<Tensor> out = chunks ? (x + 1).chunk(pieces, dim) : (x + 1).split(length, dim);
      for (Tensor& part : out) part = part * 2;
      return out;
    };
    auto f = compile(parts);
    for (int call = 0; call < 8; ++call) {
      const int64_t rows = 1 + below(12), columns = 1 + below(12);
      const Tensor x = arange(rows * columns, f32).reshape({rows, columns});
      const std::vector<Tensor> have = f(x), want = parts(x);
      REQUIRE(have.size() == want.size());
      for (size_t i = 0; i < have.size(); ++i) {
        CHECK(have[i].sizes() == want[i].sizes());
        CHECK(values(have[i]) == values(want[i]));
      }
    }
  }
}

TEST_CASE("integers near the lowest number are numbers") {
  auto f = compile([](const Tensor& x, SymInt n) { return n < 0 ? x + 1 : x - 1; });
  for (const int64_t n : {INT64_MIN, INT64_MIN + 7, INT64_MIN + (int64_t{1} << 32) - 1, int64_t{-3}, int64_t{-1}, int64_t{5}}) {
    INFO(n);
    CHECK(values(f(ones({1}), n)) == std::vector<float>{n < 0 ? 2.0f : 0.0f});
  }
  auto added = compile([](const Tensor& x, SymInt n) { return x.to(i64) + n; });
  for (const int64_t n : {int64_t{4}, int64_t{-9}, INT64_MIN + 7, INT64_MIN + 9, INT64_MIN}) {
    INFO(n);
    CHECK(static_cast<int64_t>(added(ones({1}), n).item<int64_t>()) == n + 1);
  }
  auto sized = compile([](const Tensor& x, SymInt n) { return x.reshape({x.size(0) + n - n, 1}); });
  CHECK(values(sized(ones({2}), int64_t{3})) == std::vector<float>{1, 1});
  CHECK(values(sized(ones({3}), INT64_MIN + 7)) == std::vector<float>{1, 1, 1});
}
