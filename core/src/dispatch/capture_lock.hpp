// SPDX-License-Identifier: Apache-2.0
// The lock under which one thread at a time captures and compiles for a callable.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera::core {

// A lock that its holder may take again, and part with while it runs code that may wait for other threads. Whoever parts with
// it leaves everything that the lock guards in order, and looks again when it is back. Thread-safe.
//
// Compiled segments call host functions that may wait for other threads: around them the holder releases the lock (Release).
// Code that is being traced seldom waits for anybody, and a thread that wants the same entry had better wait than trace the
// function once more: there the lock may be taken after a wait of kPatience (Interruptible). No compile is interrupted.
class CaptureLock {
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

  // Of the holder: while one lives, the lock is free, however often this thread has it.
  class Release {
   public:
    explicit Release(CaptureLock& lock) : lock_(lock) {
      const std::lock_guard held(lock_.mutex_);
      depth_ = std::exchange(lock_.depth_, 0);
      lock_.leave();
    }
    ~Release() {
      std::unique_lock held(lock_.mutex_);
      lock_.take(held, depth_);
    }
    Release(const Release&) = delete;

   private:
    CaptureLock& lock_;
    size_t depth_;
  };

  // Of the holder: while one lives, who has waited long enough may take the lock.
  class Interruptible {
   public:
    explicit Interruptible(CaptureLock& lock) : lock_(lock) {
      const std::lock_guard held(lock_.mutex_);
      begin();
    }
    ~Interruptible() {
      std::unique_lock held(lock_.mutex_);
      end(held);
    }
    Interruptible(const Interruptible&) = delete;

   private:
    friend class CaptureLock;
    void begin() {
      depth_ = lock_.depth_;
      taken_ = false;
      since_ = Clock::now();
      lock_.lent_ = this;
      lock_.changed_.notify_all();  // those who wait without an end
    }
    void end(std::unique_lock<std::mutex>& held) {
      if (taken_)
        lock_.take(held, depth_);
      else
        lock_.lent_ = nullptr;
    }
    CaptureLock& lock_;
    size_t depth_ = 0;
    bool taken_ = false;
    std::chrono::system_clock::time_point since_;
  };

  // Of a thread that has lent it: while one lives, it holds the lock.
  class Reacquire {
   public:
    Reacquire(CaptureLock& lock, Interruptible* lent) : lock_(lock), lent_(lent) {
      std::unique_lock held(lock_.mutex_);
      if (lent_) lent_->end(held);
    }
    ~Reacquire() {
      const std::lock_guard held(lock_.mutex_);
      if (lent_) lent_->begin();
    }
    Reacquire(const Reacquire&) = delete;

   private:
    CaptureLock& lock_;
    Interruptible* lent_;
  };

 private:
  using Clock = std::chrono::system_clock;  // what condition variables wait by, as the thread sanitizer knows them

  void take(std::unique_lock<std::mutex>& lock, size_t depth) {
    const Clock::time_point begun = Clock::now();
    while (depth_ != 0) {
      Interruptible* const lent = lent_;
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
  Interruptible* lent_ = nullptr;  // of the holder; null: it is not to be interrupted
};

}  // namespace tessera::core
