// SPDX-License-Identifier: Apache-2.0
// How long a library's work takes on a device, where several ways are compared.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "gpu.hpp"

namespace tessera::cuda {

// Memory to run on and a stream of its own, for one thread. The device's context is current there (Gpu::Scope).
class Timing {
 public:
  // A piece of memory for each number of bytes, filled with numbers that are neither 0 nor large in any type: a product of
  // zeros takes less power, and with it less time.
  Timing(Gpu& gpu, std::span<const size_t> bytes);
  ~Timing();
  Timing(const Timing&) = delete;

  void* const* memory() const { return memory_.data(); }
  // Seconds of one run, the least of a few batches. `run` queues it on the stream; it is told the run's number, from 0 on.
  // Short runs are timed as a graph of several, so that what a launch costs the host is no part of it.
  double seconds(const std::function<void(int number, CUstream stream)>& run);

 private:
  void release() noexcept;
  double batch(const std::function<void()>& queue);  // seconds on the device
  // Negative: the work cannot be captured.
  double as_graph(const std::function<void(int, CUstream)>& run);

  Gpu& gpu_;
  tsr_stream stream_{};
  CUevent begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace tessera::cuda
