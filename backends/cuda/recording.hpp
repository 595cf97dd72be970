// SPDX-License-Identifier: Apache-2.0
// What was queued on a stream that records: the nodes of a device graph as data, and the graph that is made of them.
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include "gpu.hpp"

namespace tessera::cuda {

// One piece of work. Two that differ in addresses, sizes or grids alone are the same node of an instantiated graph with other parameters.
struct RecordedNode {
  enum class Kind : uint8_t { Kernel, Copy, Fill, Library };
  Kind kind = Kind::Kernel;
  CUfunction function = nullptr;  // Kernel
  unsigned blocks = 0, threads = 0, shared_bytes = 0;
  std::vector<char> arguments;    // Kernel: the bytes of all of them, each at its offset
  std::vector<uint32_t> offsets;  // of each argument
  CUdeviceptr to = 0, from = 0;   // Copy, Fill
  size_t bytes = 0;               // Copy, Fill
  uint8_t value = 0;              // Fill
  CUgraph child = nullptr;        // Library: what its call queued, captured; owned by the recording
  const char* name = nullptr;

  bool same_parameters(const RecordedNode& o) const {
    return kind == o.kind && kind != Kind::Library && function == o.function && blocks == o.blocks && threads == o.threads &&
           shared_bytes == o.shared_bytes && arguments == o.arguments && to == o.to && from == o.from && bytes == o.bytes &&
           value == o.value;
  }
  // Can an instantiated node take the other's parameters?
  bool same_shape(const RecordedNode& o) const { return kind == o.kind && (kind != Kind::Kernel || function == o.function); }
};

// Work in the order in which it was queued. One thread at a time.
class Recording {
 public:
  explicit Recording(Gpu& gpu) : gpu_(gpu) { stream_.gpu = &gpu, stream_.recording = this; }
  ~Recording();
  Recording(const Recording&) = delete;

  Gpu& gpu() { return gpu_; }
  tsr_stream* stream() { return &stream_; }  // work that is queued on it is recorded
  const std::vector<RecordedNode>& nodes() const { return nodes_; }
  std::vector<RecordedNode> take();  // the nodes so far, whose children the caller owns now

  void add(RecordedNode node) { nodes_.push_back(std::move(node)); }
  // A call of a library that queues on a stream of the driver's: captured into a graph of its own.
  void library(const char* name, const std::function<void(CUstream)>& call);

 private:
  Gpu& gpu_;
  tsr_stream stream_;
  std::vector<RecordedNode> nodes_;
};

// An instantiated graph: nodes in a chain. Not thread-safe: an update must not meet a launch of another thread.
class DeviceGraph {
 public:
  DeviceGraph(Gpu& gpu, std::vector<RecordedNode> nodes);  // throws when the driver cannot
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;

  size_t size() const { return nodes_.size(); }
  // Gives nodes `first`.. the parameters of `nodes`, which were recorded by the same steps. Only those that differ cost a call. Returns how many
  // did; -1: they have another shape, and the graph must be made anew.
  int update(size_t first, std::vector<RecordedNode> nodes);
  void launch(tsr_stream* stream);

 private:
  void instantiate();
  Gpu& gpu_;
  std::vector<RecordedNode> nodes_;
  std::vector<CUgraphNode> handles_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

}  // namespace tessera::cuda
