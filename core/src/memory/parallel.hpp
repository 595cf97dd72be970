// SPDX-License-Identifier: Apache-2.0
// Parallel loops: OpenMP where the build has it, otherwise a pool of std::threads (TSan), or serial on request.
#pragma once

#include <cstdint>

namespace tessera::core {

// Runs fn(ctx, begin, end) over disjoint ranges that cover [0, n), each of at least `grain` items but the last; returns when
// all are done. The ranges depend on n, grain and the number of threads only. Nested calls, and calls while another thread
// occupies the pool, run serially on the caller. fn must not throw. Thread-safe.
void parallel(int64_t n, int64_t grain, void (*fn)(void* ctx, int64_t begin, int64_t end), void* ctx);

// Threads that a parallel loop of the calling thread may use: the scope's limit, else OMP_NUM_THREADS, else the CPUs that this
// process may run on. 1 inside a parallel loop.
int num_threads();

// Limits the parallel loops that the current thread starts. 0: no limit of its own; 1: serial.
class ThreadLimit {
 public:
  explicit ThreadLimit(int limit) noexcept;
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;

 private:
  int previous_;
};

}  // namespace tessera::core
