// SPDX-License-Identifier: Apache-2.0
// Times of work on a CUDA device, by events of the driver.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace tessera::bench {

// The calls of the driver that timing needs.
struct Driver {
  int (*stream_create)(void**, unsigned);
  int (*event_create)(void**, unsigned);
  int (*event_record)(void*, void*);
  int (*event_synchronize)(void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*copy)(unsigned long long, unsigned long long, size_t, void*);
  int (*profiler_start)() = nullptr;  // what `ncu --profile-from-start off` looks at; may be missing
  int (*profiler_stop)() = nullptr;
  void *stream = nullptr, *begin = nullptr, *end = nullptr;

  Driver() {
    const char* fake = std::getenv("TESSERA_CUDA_LIBRARY");
    void* library = dlopen(fake ? fake : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto find = [&](auto& f, const char* name) {
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(library, name));
      if (!f) throw std::runtime_error(std::string("the driver lacks ") + name);
    };
    find(stream_create, "cuStreamCreate"), find(event_create, "cuEventCreate"), find(event_record, "cuEventRecord");
    find(event_synchronize, "cuEventSynchronize"), find(event_elapsed, "cuEventElapsedTime");
    find(copy, "cuMemcpyDtoDAsync_v2");
    profiler_start = reinterpret_cast<int (*)()>(dlsym(library, "cuProfilerStart"));
    profiler_stop = reinterpret_cast<int (*)()>(dlsym(library, "cuProfilerStop"));
  }
  void open_stream() {  // in the current context
    if (stream_create(&stream, 1) != 0 || event_create(&begin, 0) != 0 || event_create(&end, 0) != 0)
      throw std::runtime_error("the driver makes no stream or event");
  }
  // Median seconds of one call on the device.
  template <class F>
  double seconds(F&& f, int repeats, int calls) {
    for (int i = 0; i < 3; ++i) f(i);
    std::vector<double> times;
    for (int r = 0; r < repeats; ++r) {
      event_record(begin, stream);
      for (int i = 0; i < calls; ++i) f(r * calls + i);
      event_record(end, stream);
      event_synchronize(end);
      float ms = 0;
      event_elapsed(&ms, begin, end);
      times.push_back(static_cast<double>(ms) * 1e-3 / calls);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace tessera::bench
