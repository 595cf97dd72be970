// SPDX-License-Identifier: Apache-2.0
// A few jobs on a few threads, for as long as one caller waits for them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::core {

// Runs what is added on up to `threads` threads, in the order in which it was added; with fewer than two threads inside of
// add(). Jobs must not throw. Used by one thread; the destructor waits until all jobs are done.
class Jobs {
 public:
  explicit Jobs(size_t threads) : limit_(threads < 2 ? 0 : threads) {}
  ~Jobs() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }
  Jobs(const Jobs&) = delete;

  void add(std::function<void()> job) {
    if (limit_ == 0) return job();
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(job));
    }
    changed_.notify_one();
    if (threads_.size() < limit_) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (...) {
        if (threads_.empty()) {  // the system gives no thread: do it here
          limit_ = 0;
          for (; !waiting_.empty(); waiting_.pop_front()) waiting_.front()();
        } else {
          limit_ = threads_.size();
        }
      }
    }
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const std::function<void()> job = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  size_t limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::core
