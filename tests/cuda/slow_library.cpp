// SPDX-License-Identifier: Apache-2.0
// A library that takes its time to open, and whose end must not come before that.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

std::atomic<bool> ended{false};

const bool opened = [] {
  std::atexit([] { ended = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  if (ended) std::abort();
  return true;
}();

}  // namespace
