// SPDX-License-Identifier: Apache-2.0
#include "memory/parallel.hpp"

#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "support/openmp.hpp"

namespace tessera::core {

namespace {

thread_local int t_limit = 0;
thread_local bool t_inside = false;  // of a parallel loop

int default_threads() {
  static const int count = [] {
    // As OpenMP reads it: a list holds one number per nesting level, of which the first is ours.
    if (const char* text = std::getenv("OMP_NUM_THREADS")) {
      char* end = nullptr;
      const long n = std::strtol(text, &end, 10);
      if (end != text && n > 0 && n <= 4096) return static_cast<int>(n);
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return 1;
  }();
  return count;
}

struct Loop {
  int64_t n, chunk;
  int parts;
  void (*fn)(void*, int64_t, int64_t);
  void* ctx;
  void run(int part) const {
    const int64_t begin = part * chunk;
    t_inside = true;
    fn(ctx, begin, std::min(n, begin + chunk));
    t_inside = false;
  }
};

// Threads of the standard library, where there is no OpenMP.
class ThreadPool {
 public:
  static ThreadPool& get() {
    static ThreadPool* pool = new ThreadPool;  // never joined: worker threads may still wait when static destructors run
    return *pool;
  }
  void run(const Loop& loop) {
    std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy) {
      for (int part = 0; part < loop.parts; ++part) loop.run(part);
      return;
    }
    std::unique_lock lock(mutex_);
    while (static_cast<int>(workers_) < loop.parts - 1) {
      std::thread([this, index = ++workers_, seen = generation_] { work(static_cast<int>(index), seen); }).detach();
    }
    loop_ = &loop;
    pending_ = loop.parts - 1;
    ++generation_;
    start_.notify_all();
    lock.unlock();
    loop.run(0);
    lock.lock();
    done_.wait(lock, [this] { return pending_ == 0; });
    loop_ = nullptr;
  }

 private:
  void work(int index, uint64_t seen) {
    std::unique_lock lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return generation_ != seen; });
      seen = generation_;
      if (!loop_ || index >= loop_->parts) continue;
      const Loop& loop = *loop_;
      lock.unlock();
      loop.run(index);
      lock.lock();
      if (--pending_ == 0) done_.notify_one();
    }
  }

  std::mutex busy_, mutex_;
  std::condition_variable start_, done_;
  size_t workers_ = 0;
  uint64_t generation_ = 0;
  int pending_ = 0;
  const Loop* loop_ = nullptr;
};

// The team is always that of `threads`, also where there are fewer parts: libgomp ends the threads that a smaller team does not
// need, and makes them anew for the next larger one.
void run_parts(const Loop& loop, int threads) {
  const OpenMp* omp = openmp();
  if (!omp) return ThreadPool::get().run(loop);
  struct Region {
    const Loop& loop;
    const OpenMp& omp;
  } region{loop, *omp};
  omp->parallel(
      [](void* p) {
        const Region& r = *static_cast<Region*>(p);
        // The runtime may give fewer threads than asked; the parts stay the same.
        for (int part = r.omp.thread_num(); part < r.loop.parts; part += r.omp.num_threads()) r.loop.run(part);
      },
      &region, static_cast<unsigned>(threads), 0);
}

bool inside_parallel() {
  if (t_inside) return true;
  const OpenMp* omp = openmp();
  return omp && omp->in_parallel();
}

}  // namespace

int num_threads() {
  if (inside_parallel()) return 1;
  return t_limit > 0 ? t_limit : default_threads();
}

void parallel(int64_t n, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* ctx) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t wanted = (n - 1) / grain + 1;
  const int team = wanted > 1 ? num_threads() : 1;
  const int64_t threads = std::min<int64_t>(wanted, team);
  if (threads <= 1) return fn(ctx, 0, n);
  const int64_t chunk = std::max(grain, (n - 1) / threads + 1);
  run_parts({n, chunk, static_cast<int>((n - 1) / chunk + 1), fn, ctx}, team);
}

ThreadLimit::ThreadLimit(int limit) noexcept : previous_(t_limit) { t_limit = limit; }
ThreadLimit::~ThreadLimit() { t_limit = previous_; }

}  // namespace tessera::core
