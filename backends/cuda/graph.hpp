// SPDX-License-Identifier: Apache-2.0
// Graphs of the driver, built from calls as data and from captured work.
#pragma once

#include <span>
#include <vector>

#include "gpu.hpp"

// Used by one thread at a time.
struct tsr_device_graph {
  explicit tsr_device_graph(tessera::cuda::Gpu& gpu);
  ~tsr_device_graph();
  tsr_device_graph(const tsr_device_graph&) = delete;

  uint32_t add(const tsr_device_call& call, std::span<const uint32_t> after);
  uint32_t add_captured(const tessera::sdk::QueueWork& work, std::span<const uint32_t> after);
  void instantiate();
  void set(uint32_t node, const tsr_device_call& call);  // throws TSR-R044 for a call of another kind or function
  void set_captured(uint32_t node, const tessera::sdk::QueueWork& work);
  void launch(tsr_stream* stream);
  void info(tsr_device_graph_info& out) const;

 private:
  struct Node {
    tessera::cuda::CUgraphNode handle = nullptr;
    uint32_t kind = TSR_CALL_EMPTY;
    bool captured = false;
    const void* function = nullptr;
    size_t nodes = 1;  // those within
  };
  uint32_t append(Node node);
  std::vector<tessera::cuda::CUgraphNode> handles(std::span<const uint32_t> nodes) const;
  const Node& at(uint32_t node) const;  // of an instantiated graph
  tessera::cuda::CUgraph capture(const tessera::sdk::QueueWork& work);

  tessera::cuda::Gpu& gpu_;
  tessera::cuda::CUgraph graph_ = nullptr;
  tessera::cuda::CUgraphExec exec_ = nullptr;
  std::vector<Node> nodes_;
  double seconds_ = 0;
  uint64_t set_nodes_ = 0;
};
