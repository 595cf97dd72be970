// SPDX-License-Identifier: Apache-2.0
#include "shares.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace {

using cpu::Shares;

using Runs = std::vector<std::pair<int64_t, int64_t>>;

TEST_CASE("every unit is taken once, whoever takes", "[cpu]") {
  for (const int64_t units : {0, 1, 7, 96, 1000})
    for (const int slots : {1, 2, 3, 5})
      for (const int64_t most : {1, 8, 48})
        for (const int64_t whole : {1, 4, 8}) {
          CAPTURE(units, slots, most, whole);
          Shares shares(units, slots);
          std::vector<Runs> taken(static_cast<size_t>(slots));
          std::vector<std::thread> threads;
          for (int s = 0; s < slots; ++s)
            threads.emplace_back([&, s] {
              for (int64_t from, to; shares.take(s, most, whole, &from, &to);)
                taken[static_cast<size_t>(s)].emplace_back(from, to);
            });
          for (std::thread& t : threads) t.join();
          std::vector<int> times(static_cast<size_t>(units));
          bool in_size = true, aligned = true;
          for (const Runs& runs : taken)
            for (const auto& [from, to] : runs) {
              in_size = in_size && from < to && to - from <= most;
              aligned = aligned && (to - from <= whole || to % whole == 0);
              for (int64_t u = from; u < to; ++u) ++times[static_cast<size_t>(u)];
            }
          CHECK(in_size);
          CHECK(aligned);
          CHECK(times == std::vector<int>(static_cast<size_t>(units), 1));
        }
}

TEST_CASE("a slot begins with its own share and takes less towards the end", "[cpu]") {
  Shares shares(64, 2);
  int64_t from = 0, to = 0;
  REQUIRE(shares.take(1, 16, 4, &from, &to));
  CHECK(from == 32);
  CHECK(to == 48);
  REQUIRE(shares.take(1, 16, 4, &from, &to));
  CHECK(to - from == 8);  // half of the 16 that are left
  REQUIRE(shares.take(1, 16, 4, &from, &to));
  CHECK(to - from == 4);
  REQUIRE(shares.take(1, 16, 4, &from, &to));
  CHECK(to - from == 2);
  while (from >= 32) REQUIRE(shares.take(1, 16, 4, &from, &to));
  CHECK(from == 0);  // then it helps the other
  CHECK(to == 16);
}

}  // namespace
