// SPDX-License-Identifier: Apache-2.0
// Writes large entries beside the program's work: on a disk, half a gigabyte takes longer than the compile that made it.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace tessera::core {

// One thread of low priority, started by the first job; jobs run in order. Thread-safe.
class CacheWriter {
 public:
  CacheWriter() = default;
  ~CacheWriter();  // after the last job
  CacheWriter(const CacheWriter&) = delete;

  void add(std::function<void()> job);  // reports its own errors
  void flush();                         // returns once every job added before has run

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool stop = false, busy = false;
    std::thread thread;
    void run();
  };
  bool is_copy() const;  // in a forked child, which has no thread and loses the jobs
  std::mutex start_;
  std::unique_ptr<State> state_;  // null before the first job
  pid_t owner_ = 0;
};

}  // namespace tessera::core
