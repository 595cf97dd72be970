// SPDX-License-Identifier: Apache-2.0
#include "cache/writer.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace tessera::core {

bool CacheWriter::is_copy() const { return state_ && owner_ != getpid(); }

CacheWriter::~CacheWriter() {
  if (!state_) return;
  if (is_copy()) {
    // The thread is the parent's, and what it waits for would never come: leave all of it be.
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void CacheWriter::add(std::function<void()> job) {
  const std::lock_guard start(start_);
  if (is_copy()) return;
  if (!state_) {
    owner_ = getpid();
    state_ = std::make_unique<State>();
    state_->thread = std::thread([s = state_.get()] { s->run(); });
  }
  const std::lock_guard lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_all();
}

void CacheWriter::flush() {
  State* s = nullptr;
  {
    const std::lock_guard start(start_);
    if (is_copy()) return;
    s = state_.get();
  }
  if (!s) return;
  std::unique_lock lock(s->mutex);
  s->changed.wait(lock, [&] { return s->jobs.empty() && !s->busy; });
}

void CacheWriter::State::run() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, 0, kNice);  // of this thread alone, on Linux
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stop || !jobs.empty(); });
    if (jobs.empty()) return;
    std::function<void()> job = std::move(jobs.front());
    jobs.pop_front();
    busy = true;
    lock.unlock();
    try {
      job();
    } catch (...) {
      // Out of memory: this entry is not kept. Jobs report everything else themselves.
    }
    job = nullptr;  // what it holds goes before flush() returns
    lock.lock();
    busy = false;
    changed.notify_all();
  }
}

}  // namespace tessera::core
