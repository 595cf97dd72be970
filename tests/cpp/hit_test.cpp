// SPDX-License-Identifier: Apache-2.0
// Calls that hit: they allocate nothing, keep each other's results apart, and run in many threads while others compile.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <thread>

#include <tessera/tessera.hpp>

#include "support.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef COUNTS_ALLOCATIONS
#define COUNTS_ALLOCATIONS 1
#endif

#if COUNTS_ALLOCATIONS
// libtessera's allocations come here too: a program's operator new replaces that of every library.
// Inlined, a delete shows GCC `free` on what `new` gave, which is right for these two.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
namespace {
std::atomic<int64_t> g_allocations{0};
void* counted(std::size_t n, std::size_t alignment) {
  ++g_allocations;
  if (void* p = std::aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment)) return p;
  throw std::bad_alloc();
}
}  // namespace
void* operator new(std::size_t n) { return counted(n ? n : 1, 16); }
void* operator new[](std::size_t n) { return counted(n ? n : 1, 16); }
void* operator new(std::size_t n, std::align_val_t a) { return counted(n ? n : 1, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
#endif

using namespace tessera;

namespace {

#if COUNTS_ALLOCATIONS
template <class F>
int64_t allocations_of(F&& call) {
  for (int i = 0; i < 3; ++i) call();
  const int64_t before = g_allocations;
  for (int i = 0; i < 20; ++i) call();
  return g_allocations - before;
}
#endif

}  // namespace

#if COUNTS_ALLOCATIONS
TEST_CASE("the count of allocations counts") {
  const int64_t before = g_allocations;
  const Tensor held = ones({3});
  const std::vector<int> heap(100);
  CHECK(g_allocations > before);
}

TEST_CASE("a hit allocates nothing") {
  const Tensor x = ones({16}), y = ones({16});
  SECTION("a few tensors") {
    auto f = compile([](const Tensor& a, const Tensor& b) { return (a + b).relu(); });
    CHECK(allocations_of([&] { f(x, y); }) == 0);
  }
  SECTION("another entry each time") {
    auto f = compile([](const Tensor& a) { return a + 1; }, {.dynamic = Dynamic::no});
    const Tensor z = ones({5});
    CHECK(allocations_of([&] { f(x), f(z); }) == 0);
  }
  SECTION("more arguments than stand on the stack, and a text") {
    auto f = compile([](const std::vector<Tensor>& xs, const std::string& s) { return cat(xs) + static_cast<int>(s.size()); });
    const std::vector<Tensor> xs(150, x);
    CHECK(allocations_of([&] { f(xs, "add"); }) == 0);
  }
  SECTION("two results") {
    auto f = compile([](const Tensor& a) { return std::pair(a + 1, a * 2); });
    CHECK(allocations_of([&] { f(x); }) == 0);
  }
  SECTION("an argument that is replaced") {
    auto f = compile([](Tensor& state, const Tensor& a) { state = state + a; });
    Tensor state = zeros({16});
    CHECK(allocations_of([&] { f(state, x); }) == 0);
    CHECK(values(state)[0] == 23);
  }
}
#endif

TEST_CASE("a long text before the tensors") {
  auto f =
      compile([](const std::string& s, const Tensor& a, const Tensor& b) { return a + b * static_cast<int>(s.size() % 7); },
              {.dynamic = Dynamic::no, .options = {"guards.recompile_limit=100"}});
  const Tensor x = ones({3}), y = ones({3}), z = ones({1});
  for (int round = 0; round < 2; ++round)  // then they hit
    for (const size_t n : {1, 5000, 9000}) {
      const std::string s(n, 'a');
      const std::vector<float> expected(3, 1 + static_cast<float>(n % 7));
      CHECK(values(f(s, x, y)) == expected);
      CHECK(values(f(s, x, z)) == expected);
      CHECK(values(f(s, z, x)) == expected);
      CHECK(values(f(s, z, z)) == std::vector<float>(1, expected[0]));
    }
}

TEST_CASE("numbers, flags and tensors that are not read stand between the tensors") {
  auto f = compile(
      [](int k, const Tensor& a, bool twice, const Tensor&, const Tensor& b, double c) {
        const Tensor y = a * k + b + c;
        return twice ? y * 2 : y;
      },
      {.dynamic = Dynamic::no, .options = {"guards.recompile_limit=1000"}});
  for (int round = 0; round < 2; ++round)  // then they hit
    for (int k = 0; k < 3; ++k)
      for (const bool twice : {false, true})
        for (int64_t n = 1; n < 4; ++n)
          for (const double c : {0.5, 1.0, 2.0, -1.0}) {
            const double one = 3.0 * k + 5 + c;
            const Tensor unread = round == 0 ? zeros({n}) : zeros({2, 2});
            CHECK(values(f(k, full({n}, 3), twice, unread, full({1}, 5), c)) ==
                  std::vector<float>(static_cast<size_t>(n), static_cast<float>(twice ? 2 * one : one)));
          }
}

TEST_CASE("data that is not aligned") {
  auto f = compile([](const Tensor& a, const Tensor& b) { return a * 2 + b; });
  std::vector<float> storage(64, 4.0f);
  for (int round = 0; round < 3; ++round)
    for (int64_t shift = 0; shift < 5; ++shift) {
      const Tensor there = from_blob(storage.data() + shift, {7}, f32), here = full({7}, round);
      CHECK(values(f(there, here)) == std::vector<float>(7, static_cast<float>(8 + round)));
      CHECK(values(f(here, there)) == std::vector<float>(7, static_cast<float>(2 * round + 4)));
    }
}

TEST_CASE("many arguments: each finds its place") {
  auto f = compile([](const std::vector<Tensor>& xs, const Tensor& last) {
    Tensor sum = last * 1000;
    for (size_t i = 0; i < xs.size(); ++i) sum = sum + xs[i] * static_cast<int>(i % 7);
    return sum;
  });
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> xs;
    float expected = 3000;
    for (int i = 0; i < 130; ++i) {
      xs.push_back(full({2}, i + round));
      expected += static_cast<float>((i + round) * (i % 7));
    }
    CHECK(values(f(xs, full({2}, 3))) == std::vector<float>(2, expected));
  }
}

TEST_CASE("a compiled function that another one's host code calls leaves the outer results alone") {
  auto inner = compile([](const Tensor& x) { return std::pair(x * 10, x * 20); });
  Tensor seen;
  auto outer = compile([&](const Tensor& x) {
    const Tensor y = x + 1;
    host_call([&](const std::vector<Tensor>& in) { seen = inner(in[0]).second; }, {y});
    return std::pair(y * 2, y * 3);
  });
  for (int i = 0; i < 3; ++i) {
    const auto [a, b] = outer(full({2}, i));
    CHECK(values(a) == std::vector<float>(2, static_cast<float>(2 * (i + 1))));
    CHECK(values(b) == std::vector<float>(2, static_cast<float>(3 * (i + 1))));
    CHECK(values(seen) == std::vector<float>(2, static_cast<float>(20 * (i + 1))));
  }
}

TEST_CASE("threads hit while others compile") {
  auto f = compile([](const Tensor& x, const Tensor& y) { return x * 2 + y; },
                   {.dynamic = Dynamic::no, .options = {"guards.recompile_limit=1000"}});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 150; ++i) {
        const int64_t n = 1 + (i * (t + 1)) % 12;
        try {
          if (values(f(full({n}, t), full({n}, i))) !=
              std::vector<float>(static_cast<size_t>(n), static_cast<float>(2 * t + i)))
            ++wrong;
        } catch (const std::exception&) {
          ++wrong;
        }
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}
