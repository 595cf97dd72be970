// SPDX-License-Identifier: Apache-2.0
// How far two cores are apart.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace tessera::bench {

// Nanoseconds until a line of memory that one thread wrote is seen by another, by two threads that answer each other for some
// milliseconds: 30 to 70 where their cores share a cache, 150 and more where they do not (Zen 4). On a virtual machine that
// changes with where its processors run.
inline double handover_ns() {
  using Clock = std::chrono::steady_clock;
  constexpr int kMost = 20000;
  constexpr auto kLongest = std::chrono::milliseconds(20);  // also where both threads have one processor
  struct alignas(128) Line {
    std::atomic<int> turn{0};
    std::atomic<bool> over{false};
  } line;
  std::thread other([&] {
    for (int i = 1; !line.over.load(std::memory_order_relaxed); i += 2) {
      while (line.turn.load(std::memory_order_acquire) != i)
        if (line.over.load(std::memory_order_relaxed)) return;
      line.turn.store(i + 1, std::memory_order_release);
    }
  });
  const auto begin = Clock::now();
  int i = 0;
  auto now = begin;
  for (; i < kMost && now - begin < kLongest; now = i % 256 == 0 ? Clock::now() : now) {
    line.turn.store(i + 1, std::memory_order_release);
    i += 2;
    for (int spins = 0; line.turn.load(std::memory_order_acquire) != i; ++spins)
      if (spins % 4096 == 4095 && Clock::now() - begin > kLongest) break;
    if (line.turn.load(std::memory_order_acquire) != i) break;
  }
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
  line.over.store(true);
  other.join();
  return ns / i;
}

}  // namespace tessera::bench
