// SPDX-License-Identifier: Apache-2.0
#include "recording.hpp"

#include <algorithm>
#include <exception>

namespace tessera::cuda {

namespace {

// A stream of the driver's on which calls of libraries are captured; one per thread and device.
CUstream capture_stream(Gpu& gpu) {
  thread_local std::vector<std::pair<Gpu*, CUstream>> streams;
  for (const auto& [g, s] : streams)
    if (g == &gpu) return s;
  CUstream s = nullptr;
  gpu.check(gpu.driver().cuStreamCreate(&s, kStreamNonBlocking), "cuStreamCreate");
  streams.emplace_back(&gpu, s);
  return s;
}

std::vector<void*> pointers(const RecordedNode& n) {
  std::vector<void*> out;
  for (const uint32_t offset : n.offsets) out.push_back(const_cast<char*>(n.arguments.data()) + offset);
  return out;
}

KernelNode kernel_node(const RecordedNode& n, std::vector<void*>& parameters) {
  parameters = pointers(n);
  KernelNode k{};
  k.function = n.function;
  k.grid_x = n.blocks, k.grid_y = k.grid_z = 1;
  k.block_x = n.threads, k.block_y = k.block_z = 1;
  k.shared_bytes = n.shared_bytes;
  k.parameters = parameters.data();
  return k;
}

CopyNode copy_node(const RecordedNode& n) {
  CopyNode c{};
  c.source_type = c.target_type = kMemoryDevice;
  c.source_device = n.from, c.target_device = n.to;
  c.width = n.bytes, c.height = c.depth = 1;
  return c;
}

FillNode fill_node(const RecordedNode& n) {
  FillNode f{};
  f.target = n.to;
  f.value = n.value;
  f.element_bytes = 1;
  f.width = n.bytes, f.height = 1;
  return f;
}

void drop_children(Gpu& gpu, std::vector<RecordedNode>& nodes) {
  for (RecordedNode& n : nodes)
    if (n.child) gpu.driver().cuGraphDestroy(n.child), n.child = nullptr;
}

}  // namespace

Recording::~Recording() { drop_children(gpu_, nodes_); }

std::vector<RecordedNode> Recording::take() { return std::exchange(nodes_, {}); }

void Recording::library(const char* name, const std::function<void(CUstream)>& call) {
  const Gpu::Scope scope(gpu_);
  const Driver& d = gpu_.driver();
  const CUstream s = capture_stream(gpu_);
  gpu_.check(d.cuStreamBeginCapture_v2(s, kCaptureThreadLocal), "cuStreamBeginCapture");
  std::exception_ptr thrown;
  try {
    call(s);
  } catch (...) {
    thrown = std::current_exception();
  }
  RecordedNode n;
  n.kind = RecordedNode::Kind::Library;
  n.name = name;
  const CUresult r = d.cuStreamEndCapture(s, &n.child);
  if (thrown) {
    if (n.child) d.cuGraphDestroy(n.child);
    std::rethrow_exception(thrown);
  }
  gpu_.check(r, "cuStreamEndCapture");
  nodes_.push_back(std::move(n));
}

DeviceGraph::DeviceGraph(Gpu& gpu, std::vector<RecordedNode> nodes) : gpu_(gpu), nodes_(std::move(nodes)) { instantiate(); }

DeviceGraph::~DeviceGraph() {
  const Driver& d = gpu_.driver();
  if (exec_) d.cuGraphExecDestroy(exec_);
  if (graph_) d.cuGraphDestroy(graph_);
  drop_children(gpu_, nodes_);
}

void DeviceGraph::instantiate() {
  const Gpu::Scope scope(gpu_);
  const Driver& d = gpu_.driver();
  gpu_.check(d.cuGraphCreate(&graph_, 0), "cuGraphCreate");
  CUgraphNode last = nullptr;
  std::vector<void*> parameters;
  for (const RecordedNode& n : nodes_) {
    CUgraphNode node = nullptr;
    const size_t after = last ? 1 : 0;
    switch (n.kind) {
      case RecordedNode::Kind::Kernel: {
        const KernelNode k = kernel_node(n, parameters);
        gpu_.check(d.cuGraphAddKernelNode_v2(&node, graph_, &last, after, &k), "cuGraphAddKernelNode");
        break;
      }
      case RecordedNode::Kind::Copy: {
        const CopyNode c = copy_node(n);
        gpu_.check(d.cuGraphAddMemcpyNode(&node, graph_, &last, after, &c, gpu_.context()), "cuGraphAddMemcpyNode");
        break;
      }
      case RecordedNode::Kind::Fill: {
        const FillNode f = fill_node(n);
        gpu_.check(d.cuGraphAddMemsetNode(&node, graph_, &last, after, &f, gpu_.context()), "cuGraphAddMemsetNode");
        break;
      }
      case RecordedNode::Kind::Library:
        gpu_.check(d.cuGraphAddChildGraphNode(&node, graph_, &last, after, n.child), "cuGraphAddChildGraphNode");
        break;
    }
    handles_.push_back(node);
    last = node;
  }
  gpu_.check(d.cuGraphInstantiateWithFlags(&exec_, graph_, 0), "cuGraphInstantiate");
}

int DeviceGraph::update(size_t first, std::vector<RecordedNode> nodes) {
  const Gpu::Scope scope(gpu_);
  const Driver& d = gpu_.driver();
  const auto fits = [&] {
    if (first + nodes.size() > nodes_.size()) return false;
    for (size_t i = 0; i < nodes.size(); ++i)
      if (!nodes[i].same_shape(nodes_[first + i])) return false;
    return true;
  };
  if (!fits()) {
    drop_children(gpu_, nodes);
    return -1;
  }
  int changed = 0;
  std::vector<void*> parameters;
  for (size_t i = 0; i < nodes.size(); ++i) {
    RecordedNode& n = nodes[i];
    RecordedNode& old = nodes_[first + i];
    if (n.same_parameters(old)) continue;
    const CUgraphNode node = handles_[first + i];
    CUresult r = kSuccess;
    switch (n.kind) {
      case RecordedNode::Kind::Kernel: {
        const KernelNode k = kernel_node(n, parameters);
        r = d.cuGraphExecKernelNodeSetParams_v2(exec_, node, &k);
        break;
      }
      case RecordedNode::Kind::Copy: {
        const CopyNode c = copy_node(n);
        r = d.cuGraphExecMemcpyNodeSetParams(exec_, node, &c, gpu_.context());
        break;
      }
      case RecordedNode::Kind::Fill: {
        const FillNode f = fill_node(n);
        r = d.cuGraphExecMemsetNodeSetParams(exec_, node, &f, gpu_.context());
        break;
      }
      case RecordedNode::Kind::Library: r = d.cuGraphExecChildGraphNodeSetParams(exec_, node, n.child); break;
    }
    if (r != kSuccess) {
      if (is_sticky(r) || r == kOutOfMemory) gpu_.check(r, "cuGraphExecKernelNodeSetParams");
      drop_children(gpu_, nodes);
      return -1;  // the driver takes no such change: a new graph
    }
    std::swap(old, n);
    ++changed;
  }
  drop_children(gpu_, nodes);
  return changed;
}

void DeviceGraph::launch(tsr_stream* stream) {
  const Gpu::Scope scope(gpu_);
  gpu_.check(gpu_.driver().cuGraphLaunch(exec_, stream->native), "cuGraphLaunch");
  gpu_.queued(stream, "a device graph");
}

}  // namespace tessera::cuda
