// SPDX-License-Identifier: Apache-2.0
// The process's OpenMP runtime, reached by its entry points instead of by linking it: what the process already has is used, and where that is nothing,
// GCC's is loaded with a bound on how long its threads wait busily.
//
// Why a bound: libgomp's threads spin 300,000 times at every barrier and between two loops before they sleep, which is milliseconds. On a machine
// whose cores others use too, a thread that waits for one that is not running keeps the very core that would run it: inference beside
// a compiler took 30 times its time. libgomp reads the bound (GOMP_SPINCOUNT) once, when it is loaded.
#pragma once

namespace tessera::core {

// As in libgomp's ABI, which LLVM's runtime has too.
struct OpenMp {
  void (*parallel)(void (*fn)(void*), void* data, unsigned threads, unsigned flags);
  int (*thread_num)();
  int (*num_threads)();
  int (*in_parallel)();
};

// Null where there is none, and in builds without OpenMP. The first call looks for it, or loads it; it must come before anything is loaded that
// links libgomp itself. GOMP_SPINCOUNT and OMP_WAIT_POLICY are obeyed where the user has set one of them. Thread-safe.
const OpenMp* openmp();

}  // namespace tessera::core
