// SPDX-License-Identifier: Apache-2.0
// The process's OpenMP runtime, reached by its entry points instead of by linking it: what the process already has is used, and
// where that is nothing, GCC's is loaded.
#pragma once

namespace tessera::core {

// As in libgomp's ABI, which LLVM's runtime has too.
struct OpenMp {
  void (*parallel)(void (*fn)(void*), void* data, unsigned threads, unsigned flags);
  int (*thread_num)();
  int (*num_threads)();
  int (*in_parallel)();
};

// Null where there is none, and in builds without OpenMP. The first call looks for it, or loads it. Thread-safe.
const OpenMp* openmp();

}  // namespace tessera::core
