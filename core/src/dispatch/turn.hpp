// SPDX-License-Identifier: Apache-2.0
// Whose turn it is to capture and compile for one callable.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera::core {

// A lock that its holder may take again, and part with while it runs code that may wait for other threads. Whoever parts with it leaves
// everything that the turn guards in order, and looks again when it is back. Thread-safe.
//
// Compiled segments call host functions, and what those do is not ours to know: there the holder steps aside (Aside). Code that is being traced
// seldom waits for anybody, and a thread that wants the same entry had better wait than trace the function once more: there the holder lends
// the turn (Lent), and only who has waited for kPatience takes it. Nobody who compiles is interrupted.
class Turn {
 public:
  static constexpr std::chrono::seconds kPatience{1};

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
    own(1);
    return true;
  }
  void unlock() {
    const std::lock_guard lock(mutex_);
    if (--depth_ == 0)
      leave();
    else if (lent_ && depth_ == lent_->depth_)
      changed_.notify_all();  // it may be taken again
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

  // Of the holder: while one lives, who has waited long enough may take the turn.
  class Lent {
   public:
    explicit Lent(Turn& turn) : turn_(turn) {
      const std::lock_guard lock(turn_.mutex_);
      begin();
    }
    ~Lent() {
      std::unique_lock lock(turn_.mutex_);
      end(lock);
    }
    Lent(const Lent&) = delete;

   private:
    friend class Turn;
    void begin() {
      depth_ = turn_.depth_;
      taken_ = false;
      since_ = Clock::now();
      turn_.lent_ = this;
      turn_.changed_.notify_all();  // those who wait without an end
    }
    void end(std::unique_lock<std::mutex>& lock) {
      if (taken_)
        turn_.take(lock, depth_);
      else
        turn_.lent_ = nullptr;
    }
    Turn& turn_;
    size_t depth_ = 0;
    bool taken_ = false;
    std::chrono::system_clock::time_point since_;
  };

  // Of a thread that has lent it: while one lives, it has the turn.
  class Back {
   public:
    Back(Turn& turn, Lent* lent) : turn_(turn), lent_(lent) {
      std::unique_lock lock(turn_.mutex_);
      if (lent_) lent_->end(lock);
    }
    ~Back() {
      const std::lock_guard lock(turn_.mutex_);
      if (lent_) lent_->begin();
    }
    Back(const Back&) = delete;

   private:
    Turn& turn_;
    Lent* lent_;
  };

 private:
  using Clock = std::chrono::system_clock;  // what condition variables wait by, as the thread sanitizer knows them

  void take(std::unique_lock<std::mutex>& lock, size_t depth) {
    const Clock::time_point begun = Clock::now();
    while (depth_ != 0) {
      Lent* const lent = lent_;
      if (!lent || depth_ != lent->depth_) {  // or the holder has it once more, from inside of what is traced
        changed_.wait(lock);
        continue;
      }
      const Clock::time_point enough = std::max(begun, lent->since_) + kPatience;
      if (Clock::now() < enough) {
        changed_.wait_until(lock, enough);
        continue;
      }
      lent->taken_ = true;
      lent_ = nullptr;
      break;
    }
    own(depth);
  }
  void own(size_t depth) {
    owner_ = std::this_thread::get_id();
    depth_ = depth;
  }
  void leave() {
    owner_ = {};
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread::id owner_;
  size_t depth_ = 0;
  Lent* lent_ = nullptr;  // of the holder; null: it is not to be interrupted
};

}  // namespace tessera::core
