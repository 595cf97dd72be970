// SPDX-License-Identifier: Apache-2.0
#include "timing.hpp"

#include <algorithm>

namespace tessera::cuda {

namespace {

constexpr int kRuns = 16;  // of a batch
constexpr int kBatches = 3;
constexpr double kLong = 50e-6;  // of a run whose launch nobody notices

}  // namespace

Timing::Timing(Gpu& gpu, std::span<const size_t> bytes) : gpu_(gpu) {
  const Driver& d = gpu_.driver();
  stream_.gpu = &gpu_;
  gpu_.check(d.cuStreamCreate(&stream_.native, kStreamNonBlocking), "cuStreamCreate");
  try {
    gpu_.check(d.cuEventCreate(&begin_, 0), "cuEventCreate");
    gpu_.check(d.cuEventCreate(&end_, 0), "cuEventCreate");
    memory_.reserve(bytes.size());
    for (const size_t wanted : bytes) {
      const size_t n = std::max<size_t>(wanted, 16);
      memory_.push_back(gpu_.allocate(n, 64, &stream_));
      gpu_.check(d.cuMemsetD8Async(address_of(memory_.back()), 0x3c, n, stream_.native), "cuMemsetD8Async");
    }
  } catch (...) {
    release();
    throw;
  }
}

Timing::~Timing() { release(); }

void Timing::release() noexcept {
  for (void* p : memory_) gpu_.free(p, &stream_);
  for (const CUevent e : {begin_, end_})
    if (e) gpu_.driver().cuEventDestroy_v2(e);
  if (stream_.native) gpu_.driver().cuStreamDestroy_v2(stream_.native);
}

double Timing::batch(const std::function<void()>& queue) {
  const Driver& d = gpu_.driver();
  float ms = 0;
  gpu_.check(d.cuEventRecord(begin_, stream_.native), "cuEventRecord");
  queue();
  gpu_.check(d.cuEventRecord(end_, stream_.native), "cuEventRecord");
  gpu_.check(d.cuEventSynchronize(end_), "cuEventSynchronize");
  gpu_.check(d.cuEventElapsedTime(&ms, begin_, end_), "cuEventElapsedTime");
  return static_cast<double>(ms) * 1e-3;
}

double Timing::seconds(const std::function<void(int, CUstream)>& run) {
  const auto all = [&] {
    for (int i = 0; i < kRuns; ++i) run(i, stream_.native);
  };
  all();  // warms up
  double least = batch(all) / kRuns;
  if (least < kLong)
    if (const double graph = as_graph(run); graph >= 0) return graph;
  for (int i = 1; i < kBatches; ++i) least = std::min(least, batch(all) / kRuns);
  return least;
}

double Timing::as_graph(const std::function<void(int, CUstream)>& run) {
  const Driver& d = gpu_.driver();
  struct Made {
    const Driver& d;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    ~Made() {
      if (exec) d.cuGraphExecDestroy(exec);
      if (graph) d.cuGraphDestroy(graph);
    }
  } made{d};
  if (d.cuStreamBeginCapture_v2(stream_.native, kCaptureRelaxed) != kSuccess) return -1;
  bool queued = true;
  try {
    for (int i = 0; i < kRuns; ++i) run(i, stream_.native);
  } catch (const sdk::Error&) {
    queued = false;
  }
  if (d.cuStreamEndCapture(stream_.native, &made.graph) != kSuccess || !queued || !made.graph) return -1;
  if (d.cuGraphInstantiateWithFlags(&made.exec, made.graph, 0) != kSuccess) return -1;
  double least = -1;
  for (int i = 0; i <= kBatches; ++i) {
    const double seconds = batch([&] { gpu_.check(d.cuGraphLaunch(made.exec, stream_.native), "cuGraphLaunch"); }) / kRuns;
    if (i == 1 || (i > 1 && seconds < least)) least = seconds;  // the first warms up
  }
  return least;
}

}  // namespace tessera::cuda
