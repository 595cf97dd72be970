// SPDX-License-Identifier: Apache-2.0
// Captures beside other threads: host code that waits for them, modules that several of them use, and calls that never come to
// an end.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {

// A call in another thread. What it returns or throws comes with get().
template <class F>
auto beside(F f) {
  return std::async(std::launch::async, std::move(f));
}

struct Scale : nn::Module<Scale> {
  Tensor weight = full({2}, 3), count = zeros({1});
  std::function<void()> hook;  // while the module is traced
  Scale() {
    add("weight", weight);
    add_buffer("count", count);
  }
  Tensor forward(const Tensor& x) {
    count = count + 1;
    if (is_compiling() && hook) hook();
    return x * weight;
  }
};

}  // namespace

TEST_CASE("a disabled function may wait for another thread that calls the function being captured") {
  std::atomic<int> runs{0};
  std::function<Tensor(const Tensor&)> again;
  const auto step = disable([&](const Tensor& t) {
    if (runs++ > 0) return t + 1;
    // A new shape: the other thread has to capture, too.
    const Tensor other = beside([&] { return again(ones({5})); }).get();
    return t + other.sum();
  });
  const auto f = compile([&](const Tensor& x) { return step(x * 2) * 3; });
  again = f;
  CHECK(values(f(ones({2}))) == std::vector<float>(2, (2.0f + 5 * (2 + 1) * 3) * 3));
  CHECK(runs == 2);
  CHECK(values(f(ones({2}))) == std::vector<float>(2, 9));
  CHECK(runs == 3);
}

TEST_CASE("a host function of a compiled part may wait for such a thread as well") {
  std::atomic<int> runs{0};
  std::function<Tensor(const Tensor&)> again;
  const auto f = compile([&](const Tensor& x) {
    host_call(
        [&](const std::vector<Tensor>&) {
          if (runs++ == 0) beside([&] { again(ones({3})); }).get();
        },
        {x});
    return x.sum() > 100 ? x : x + 1;
  });
  again = f;
  CHECK(values(f(ones({2}))) == std::vector<float>(2, 2));
  CHECK(runs == 2);
}

TEST_CASE("a function may be forgotten while a capture of it stands aside") {
  std::atomic<int> runs{0};
  std::function<void()> forget;
  const auto step = disable([&](const Tensor& t) {
    if (runs++ == 0) beside(forget).get();
    return t + 1;
  });
  const auto f = compile([&](const Tensor& x) { return step(x) * 2; });
  forget = [&] { f.reset(); };
  for (int i = 0; i < 3; ++i) CHECK(values(f(ones({2}))) == std::vector<float>(2, 4));
}

TEST_CASE("threads that capture the same ways at once agree") {
  const auto step = disable([](const Tensor& t) {
    std::this_thread::yield();
    return t + 1;
  });
  const auto f = compile([&](const Tensor& x, int64_t k) {
    Tensor y = step(x * k);
    if (y.sum() > 10) y = step(y) * 2;
    return y - static_cast<float>(y.numel());
  });
  const auto want = [](int64_t n, int64_t k) {
    float y = static_cast<float>(k + 1);
    if (y * static_cast<float>(n) > 10) y = (y + 1) * 2;
    return std::vector<float>(static_cast<size_t>(n), y - static_cast<float>(n));
  };
  std::vector<std::future<int>> threads;
  for (int t = 0; t < 6; ++t)
    threads.push_back(beside([&, t] {
      int wrong = 0;
      for (int i = 0; i < 40; ++i) {
        const int64_t n = 2 + (i + t) % 4, k = (i * 7 + t) % 3;
        wrong += values(f(ones({n}), k)) != want(n, k);
      }
      return wrong;
    }));
  for (auto& t : threads) CHECK(t.get() == 0);
}

TEST_CASE("other threads use a module while it is traced") {
  Scale m;
  const auto f = compile([](Scale& s, const Tensor& x) { return s.forward(x); });
  const auto g = compile([](Scale& s, const Tensor& x) { return x + s.weight; });
  int traced = 0;
  m.hook = [&] {
    ++traced;
    // It has assigned `count` by now, and nobody else sees that.
    CHECK(beside([&] { return values(m.count); }).get() == std::vector<float>{0});
    CHECK(beside([&] { return values(ones({2}) * m.weight); }).get() == std::vector<float>(2, 3));
    CHECK(beside([&] { return values(g(m, ones({2}))); }).get() == std::vector<float>(2, 4));
  };
  CHECK(values(f(m, ones({2}))) == std::vector<float>(2, 3));
  CHECK(traced == 1);
  CHECK(values(m.count) == std::vector<float>{1});
  CHECK(values(f(m, ones({2}))) == std::vector<float>(2, 3));
  CHECK(values(m.count) == std::vector<float>{2});
  CHECK(values(m.weight) == std::vector<float>(2, 3));
}

TEST_CASE("host code between compiled parts sees a module's own tensors, but for those that were assigned") {
  Scale m;
  const auto look = disable([&](const Tensor& t) { return t + m.weight; });
  const auto f = compile([&](Scale& s, const Tensor& x) { return look(x * s.weight); });
  CHECK(values(f(m, ones({2}))) == std::vector<float>(2, 6));
  const auto count = disable([&](const Tensor& t) { return t + m.count; });
  const auto g = compile([&](Scale& s, const Tensor& x) { return count(s.forward(x)); });
  CHECK_THROWS_WITH(g(m, ones({2})), Catch::Contains("TSR-F046"));
  CHECK(values(m.count) == std::vector<float>{0});
}

TEST_CASE("recursion without an end is an error, one with an end is not") {
  std::function<Tensor(const Tensor&)> again;
  const auto endless = compile([&](const Tensor& x) { return again(x + 1); });
  again = endless;
  CHECK_THROWS_WITH(endless(ones({1})), Catch::Contains("TSR-F047"));

  std::function<Tensor(const Tensor&)> outer;
  const auto step = disable([&](const Tensor& t) { return outer(t); });
  const auto around = compile([&](const Tensor& x) { return step(x + 1); });
  outer = around;
  CHECK_THROWS_WITH(around(ones({1})), Catch::Contains("TSR-D013"));

  std::function<Tensor(const Tensor&)> down;
  const auto half = disable([&](const Tensor& t) { return t.numel() > 1 ? down(t.slice(0, 0, t.numel() / 2)) : t; });
  const auto recursive = compile([&](const Tensor& x) { return half(x * 2); });
  down = recursive;
  CHECK(values(recursive(ones({8}))) == std::vector<float>{16});
}

TEST_CASE("traced code may wait for another thread's first call of the same function") {
  for (const int64_t size : {5, 2}) {  // another entry, and the one that is being made
    std::atomic<int> traces{0};
    std::function<Tensor(const Tensor&)> again;
    std::vector<float> other;
    const auto f = compile(
        [&](const Tensor& x) {
          if (traces++ == 0) other = beside([&] { return values(again(ones({size}))); }).get();
          return x + 1;
        },
        {.dynamic = Dynamic::no});
    again = f;
    CHECK(values(f(ones({2}))) == std::vector<float>{2, 2});
    CHECK(other == std::vector<float>(static_cast<size_t>(size), 2));
    CHECK(traces == 2);
    CHECK(values(f(ones({size}))) == other);
    CHECK(traces == 2);
    CHECK(entries(f.describe()) == (size == 2 ? 1 : 2));
  }
}

TEST_CASE("traced code may wait for a thread that is behind a break of the same function") {
  std::atomic<int> traces{0}, steps{0};
  std::function<Tensor(const Tensor&)> again;
  std::vector<float> other;
  const auto step = disable([&](const Tensor& t) { return ++steps, t; });
  const auto f = compile(
      [&](const Tensor& x) {
        ++traces;
        const Tensor y = step(x * 2);
        if (y.sum() > 0) return y + 1;
        if (traces == 2) other = beside([&] { return values(again(full({2}, -3))); }).get();
        return y - 1;
      },
      {.dynamic = Dynamic::no});
  again = f;
  CHECK(values(f(ones({2}))) == std::vector<float>{3, 3});
  CHECK(values(f(full({2}, -1))) == std::vector<float>{-3, -3});
  CHECK(other == std::vector<float>{-7, -7});
  CHECK(traces == 3);
  CHECK(steps == 3);
  CHECK(values(f(full({2}, -2))) == std::vector<float>{-5, -5});
  CHECK(traces == 3);
}

TEST_CASE("a traced function may look at itself while another thread waits for it") {
  std::atomic<int> traces{0};
  std::function<std::string()> describe;
  std::function<Tensor(const Tensor&)> again;
  const auto f = compile(
      [&](const Tensor& x) {
        if (traces++ == 0) {
          auto other = beside([&] { return again(ones({5})); });
          describe();
          other.get();
          describe();
        }
        return x + 1;
      },
      {.dynamic = Dynamic::no});
  describe = [&] { return f.describe(); };
  again = f;
  CHECK(values(f(ones({2}))) == std::vector<float>{2, 2});
  CHECK(entries(f.describe()) == 2);
}
