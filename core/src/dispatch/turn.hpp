// SPDX-License-Identifier: Apache-2.0
// Whose turn it is to capture and compile for one callable.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera::core {

// A lock that its holder may take again, and step aside from while it runs code that may wait for other threads: compiled segments call
// host functions, and what those do is not ours to know. Whoever steps aside leaves everything that the turn guards in order, and looks again
// when it is back. Thread-safe.
class Turn {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    if (owner_ == std::this_thread::get_id()) {
      ++depth_;
      return;
    }
    take(lock, 1);
  }
  bool try_lock() {
    const std::lock_guard lock(mutex_);
    if (owner_ == std::this_thread::get_id()) {
      ++depth_;
      return true;
    }
    if (depth_ != 0) return false;
    owner_ = std::this_thread::get_id();
    depth_ = 1;
    return true;
  }
  void unlock() {
    const std::lock_guard lock(mutex_);
    if (--depth_ == 0) leave();
  }

  // Of the holder: while one lives, the turn is free, however often this thread has it.
  class Aside {
   public:
    explicit Aside(Turn& turn) : turn_(turn) {
      const std::lock_guard lock(turn_.mutex_);
      depth_ = std::exchange(turn_.depth_, 0);
      turn_.leave();
    }
    ~Aside() {
      std::unique_lock lock(turn_.mutex_);
      turn_.take(lock, depth_);
    }
    Aside(const Aside&) = delete;

   private:
    Turn& turn_;
    size_t depth_;
  };

 private:
  void take(std::unique_lock<std::mutex>& lock, size_t depth) {
    free_.wait(lock, [&] { return depth_ == 0; });
    owner_ = std::this_thread::get_id();
    depth_ = depth;
  }
  void leave() {
    owner_ = {};
    free_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable free_;
  std::thread::id owner_;
  size_t depth_ = 0;
};

}  // namespace tessera::core
