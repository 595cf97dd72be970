// SPDX-License-Identifier: Apache-2.0
// Effects of host code happen once per call, however often its function has to be captured for it.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <thread>

#include "support.hpp"

using namespace tessera;

namespace {

// With symbols that may be 1, `a + y` takes their sizes to be equal. For a call whose x has one element and whose y has more
// that is wrong, which comes to light behind the breaks: then the function is captured again, with numbers.
const std::vector<std::string> kMayBeOne = {"guards.specialize_one=false", "guards.duck_shaping=false"};

struct Counts {
  std::atomic<int> steps{0}, calls{0}, traces{0};
};

auto counted(Counts& c) {
  auto step = disable([&c](const Tensor& x) {
    ++c.steps;
    return x * 3;
  });
  return compile(
      [&c, step](const Tensor& x, const Tensor& y) {
        ++c.traces;
        const Tensor a = x * 2;
        host_call([&c](const std::vector<Tensor>&) { ++c.calls; }, {a});
        const Tensor b = step(a);                     // a break with a host step
        const float first = b[0].item<float>();       // one that reads
        const Tensor s = step(b.sum().reshape({1}));  // and another step
        return a + y + s * first;
      },
      {.dynamic = Dynamic::yes, .options = kMayBeOne, .args = {"x", "y"}});
}

}  // namespace

TEST_CASE("a capture that starts over behind a break repeats no effect") {
  Counts c;
  auto f = counted(c);
  const int before = c.traces;
  CHECK(values(f(ones({1}), ones({5}))) == std::vector<float>(5, 2 + 1 + 18 * 6));
  CHECK(c.traces - before >= 2);  // else nothing started over, and this test says nothing
  CHECK(c.steps == 2);
  CHECK(c.calls == 1);
}

TEST_CASE("effects are counted once on every call, whichever way it takes") {
  Counts c;
  auto f = counted(c);
  int calls = 0;
  for (int round = 0; round < 3; ++round)
    for (const auto& [n, m] : {std::pair<int64_t, int64_t>{4, 4}, {1, 5}, {1, 1}, {3, 3}, {1, 7}, {5, 5}, {6, 1}}) {
      const float sum = 6.f * static_cast<float>(n);
      INFO("round " << round << ", sizes " << n << " and " << m);
      CHECK(values(f(ones({n}), ones({m}))) == std::vector<float>(static_cast<size_t>(std::max(n, m)), 3 + 3 * sum * 6));
      ++calls;
      CHECK(c.calls == calls);
      CHECK(c.steps == 2 * calls);
    }
}

TEST_CASE("host code that fails is not tried again") {
  int runs = 0;
  auto step = disable([&runs](const Tensor& x) -> Tensor {
    ++runs;
    if (x.size(0) == 1) return x.reshape({7});  // an error of the kind that symbols may cause
    return x;
  });
  auto f = compile([step](const Tensor& x) { return step(x * 2) + 1; }, {.dynamic = Dynamic::yes, .options = kMayBeOne});
  CHECK_THROWS(f(ones({1})));
  CHECK(runs == 1);
  CHECK(values(f(ones({3}))) == std::vector<float>(3, 3));
  CHECK(runs == 2);
}

TEST_CASE("eight threads count their effects") {
  Counts c;
  auto f = counted(c);
  std::atomic<int> wrong{0}, calls{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 12; ++k) {
        const int64_t n = (k + t) % 3 == 0 ? 1 : 2 + (k + t) % 4, m = n == 1 ? 2 + k % 3 : n;
        const float sum = 6.f * static_cast<float>(n);
        wrong += values(f(ones({n}), ones({m}))) != std::vector<float>(static_cast<size_t>(m), 3 + 3 * sum * 6);
        ++calls;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(c.calls == calls);
  CHECK(c.steps == 2 * calls);
}
