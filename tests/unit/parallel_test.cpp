// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "memory/parallel.hpp"

namespace parallel_test {

using namespace tessera::core;

namespace {

struct Record {
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::vector<std::atomic<int>> hits;
  explicit Record(int64_t n) : hits(static_cast<size_t>(n)) {}
  static void visit(void* ctx, int64_t begin, int64_t end) {
    auto* r = static_cast<Record*>(ctx);
    for (int64_t i = begin; i < end; ++i) ++r->hits[static_cast<size_t>(i)];
    std::lock_guard lock(r->mutex);
    r->ranges.emplace_back(begin, end);
  }
  bool each_once() const {
    for (const auto& h : hits)
      if (h != 1) return false;
    return true;
  }
};

}  // namespace

TEST_CASE("every item is visited once, in ranges of at least the grain") {
  for (const int limit : {1, 2, 3, 7, 16})
    for (const int64_t n : {1, 2, 5, 64, 100, 1001})
      for (const int64_t grain : {1, 3, 50, 5000}) {
        ThreadLimit threads(limit);
        Record r(n);
        parallel(n, grain, Record::visit, &r);
        REQUIRE(r.each_once());
        REQUIRE(static_cast<int>(r.ranges.size()) <= limit);
        for (const auto& [begin, end] : r.ranges) REQUIRE((end - begin >= grain || end == n));
      }
}

TEST_CASE("nothing to do, and a grain of nonsense") {
  Record r(4);
  parallel(0, 1, Record::visit, &r);
  parallel(-3, 1, Record::visit, &r);
  REQUIRE(r.ranges.empty());
  parallel(4, -7, Record::visit, &r);
  REQUIRE(r.each_once());
}

TEST_CASE("nested loops run serially and still cover everything") {
  ThreadLimit threads(4);
  struct Outer {
    std::atomic<int64_t> total{0};
    std::atomic<int> wide{0};
  } outer;
  parallel(
      8, 1,
      [](void* ctx, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          auto* o = static_cast<Outer*>(ctx);
          if (num_threads() != 1) ++o->wide;
          parallel(
              100, 1, [](void* c, int64_t b, int64_t e) { static_cast<Outer*>(c)->total += e - b; }, ctx);
        }
      },
      &outer);
  REQUIRE(outer.total == 800);
  REQUIRE(outer.wide == 0);
  REQUIRE(num_threads() == 4);
}

TEST_CASE("several threads may start loops at once") {
  std::vector<std::thread> callers;
  std::atomic<int> failures{0};
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      ThreadLimit threads(3);
      for (int k = 0; k < 50; ++k) {
        Record r(97);
        parallel(97, 1, Record::visit, &r);
        if (!r.each_once()) ++failures;
      }
    });
  for (std::thread& t : callers) t.join();
  REQUIRE(failures == 0);
}

TEST_CASE("loops of fewer parts keep the threads of larger ones") {
  ThreadLimit threads(4);
  struct Seen {
    std::mutex mutex;
    std::set<std::thread::id> ids;
  } seen;
  for (int k = 0; k < 50; ++k)
    for (const int64_t n : {4, 2})
      parallel(
          n, 1,
          [](void* ctx, int64_t, int64_t) {
            auto* s = static_cast<Seen*>(ctx);
            std::lock_guard lock(s->mutex);
            s->ids.insert(std::this_thread::get_id());
          },
          &seen);
  REQUIRE(seen.ids.size() <= 4);
}

TEST_CASE("a limit ends with its scope") {
  const int before = num_threads();
  {
    ThreadLimit one(1);
    REQUIRE(num_threads() == 1);
    ThreadLimit many(9);
    REQUIRE(num_threads() == 9);
  }
  REQUIRE(num_threads() == before);
}

}  // namespace parallel_test
