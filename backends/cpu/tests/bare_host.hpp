// SPDX-License-Identifier: Apache-2.0
// The part of a host that kernels use, for tests and benchmarks without a compiler around them: loops over OpenMP's threads
// where the file is compiled with it, else over three std::threads; no logs.
#pragma once

#include <algorithm>
#include <thread>
#include <vector>

#include "tessera/plugin.hpp"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace bare {

inline int& threads() {
#ifdef _OPENMP
  static int n = omp_get_max_threads();
#else
  static int n = 3;
#endif
  return n;
}

inline void set_host() {
  static tsr_host_core core{};
  core.struct_size = sizeof core;
  core.log_enabled = [](const char*, int) { return 0; };
  core.num_threads = [] { return threads(); };
  core.parallel = [](int64_t n, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* ctx) {
    const int64_t wanted = std::min<int64_t>(threads(), (n + grain - 1) / std::max<int64_t>(1, grain));
    if (n <= 0) return;
    if (wanted <= 1) return fn(ctx, 0, n);
    const int64_t chunk = std::max(grain, (n - 1) / wanted + 1);
    const int parts = static_cast<int>((n - 1) / chunk + 1);
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1)
    for (int t = 0; t < parts; ++t) fn(ctx, t * chunk, std::min(n, (t + 1) * chunk));
#else
    std::vector<std::thread> pool;
    for (int t = 0; t < parts; ++t) pool.emplace_back([=] { fn(ctx, t * chunk, std::min(n, (t + 1) * chunk)); });
    for (std::thread& t : pool) t.join();
#endif
  };
  static tsr_host host{};
  host.struct_size = sizeof host;
  host.core = &core;
  tessera::sdk::host_slot() = &host;
}

}  // namespace bare
