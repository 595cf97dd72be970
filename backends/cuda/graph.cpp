// SPDX-License-Identifier: Apache-2.0
#include "graph.hpp"

#include <chrono>
#include <exception>

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

void need(bool ok, const char* function, const char* expected) {
  if (!ok) throw t::Error(TSR_BUG, "TSR-B045", std::string("device cuda, ") + function + ": expected " + expected);
}

// `parameters` holds what the result points to.
KernelNode kernel_node(const tsr_device_call& c, std::vector<void*>& parameters) {
  need(c.cluster[0] <= 1 && c.cluster[1] <= 1 && c.cluster[2] <= 1, "graph_add", "no cluster of blocks");
  KernelNode k{};
  k.function = static_cast<CUfunction>(c.function);
  k.grid_x = c.grid[0], k.grid_y = c.grid[1], k.grid_z = c.grid[2];
  k.block_x = c.block[0], k.block_y = c.block[1], k.block_z = c.block[2];
  k.shared_bytes = c.shared_bytes;
  char* const bytes = static_cast<char*>(const_cast<void*>(c.arguments));
  parameters.clear();
  for (size_t i = 0; i < c.num_arguments; ++i)
    parameters.push_back(bytes + TSR_AT(tsr_argument, c.layout, c.argument_stride, i)->offset);
  k.parameters = parameters.data();
  return k;
}

CopyNode copy_node(const tsr_device_call& c) {
  CopyNode n{};
  n.source_type = n.target_type = kMemoryDevice;
  n.source_device = address_of(c.from), n.target_device = address_of(c.to);
  n.width = c.bytes, n.height = n.depth = 1;
  return n;
}

FillNode fill_node(const tsr_device_call& c) {
  FillNode n{};
  n.target = address_of(c.to);
  n.value = c.value & 255u;
  n.element_bytes = 1;
  n.width = c.bytes, n.height = 1;
  return n;
}

// The driver's streams on which work is captured; one per thread and device.
CUstream capture_stream(Gpu& gpu) {
  thread_local std::vector<std::pair<Gpu*, CUstream>> streams;
  for (const auto& [g, s] : streams)
    if (g == &gpu) return s;
  CUstream s = nullptr;
  gpu.check(gpu.driver().cuStreamCreate(&s, kStreamNonBlocking), "cuStreamCreate");
  streams.emplace_back(&gpu, s);
  return s;
}

}  // namespace

}  // namespace tessera::cuda

using namespace tessera::cuda;  // of the definitions below, whose class is the ABI's

tsr_device_graph::tsr_device_graph(Gpu& gpu) : gpu_(gpu) {
  const Gpu::Scope scope(gpu_);
  gpu_.check(gpu_.driver().cuGraphCreate(&graph_, 0), "cuGraphCreate");
}

tsr_device_graph::~tsr_device_graph() {
  if (forked()) return;
  if (exec_) gpu_.driver().cuGraphExecDestroy(exec_);
  if (graph_) gpu_.driver().cuGraphDestroy(graph_);
}

std::vector<CUgraphNode> tsr_device_graph::handles(std::span<const uint32_t> nodes) const {
  std::vector<CUgraphNode> out;
  for (const uint32_t n : nodes) {
    need(n < nodes_.size(), "graph_add", "nodes that were added before");
    out.push_back(nodes_[n].handle);
  }
  return out;
}

uint32_t tsr_device_graph::append(Node node) {
  nodes_.push_back(node);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t tsr_device_graph::add(const tsr_device_call& call, std::span<const uint32_t> after) {
  need(!exec_, "graph_add", "a graph that is not instantiated");
  const Gpu::Scope scope(gpu_);
  const Driver& d = gpu_.driver();
  const std::vector<CUgraphNode> behind = handles(after);
  Node node;
  node.kind = call.kind;
  switch (call.kind) {
    case TSR_CALL_KERNEL: {
      node.function = call.function;
      std::vector<void*> parameters;
      const KernelNode k = kernel_node(call, parameters);
      gpu_.check(d.cuGraphAddKernelNode_v2(&node.handle, graph_, behind.data(), behind.size(), &k), "cuGraphAddKernelNode");
      break;
    }
    case TSR_CALL_COPY: {
      const CopyNode c = copy_node(call);
      gpu_.check(d.cuGraphAddMemcpyNode(&node.handle, graph_, behind.data(), behind.size(), &c, gpu_.context()),
                 "cuGraphAddMemcpyNode");
      break;
    }
    case TSR_CALL_FILL: {
      const FillNode f = fill_node(call);
      gpu_.check(d.cuGraphAddMemsetNode(&node.handle, graph_, behind.data(), behind.size(), &f, gpu_.context()),
                 "cuGraphAddMemsetNode");
      break;
    }
    case TSR_CALL_EMPTY:
      gpu_.check(d.cuGraphAddEmptyNode(&node.handle, graph_, behind.data(), behind.size()), "cuGraphAddEmptyNode");
      break;
    default: need(false, "graph_add", "a call of a kind TSR_CALL_*");
  }
  return append(node);
}

CUgraph tsr_device_graph::capture(const tessera::sdk::QueueWork& work) {
  const Driver& d = gpu_.driver();
  tsr_stream stream;
  stream.gpu = &gpu_;
  stream.native = capture_stream(gpu_);
  stream.owned = false;
  stream.capturing = true;
  // Relaxed: what a library does at its first call, such as loading a module, is allowed.
  gpu_.check(d.cuStreamBeginCapture_v2(stream.native, kCaptureRelaxed), "cuStreamBeginCapture");
  std::exception_ptr thrown;
  try {
    work(&stream);
  } catch (...) {
    thrown = std::current_exception();
  }
  CUgraph child = nullptr;
  const CUresult r = d.cuStreamEndCapture(stream.native, &child);
  if (thrown) {
    if (child) d.cuGraphDestroy(child);
    std::rethrow_exception(thrown);
  }
  gpu_.check(r, "cuStreamEndCapture");
  return child;
}

uint32_t tsr_device_graph::add_captured(const tessera::sdk::QueueWork& work, std::span<const uint32_t> after) {
  need(!exec_, "graph_add_captured", "a graph that is not instantiated");
  const Gpu::Scope scope(gpu_);
  const Driver& d = gpu_.driver();
  const std::vector<CUgraphNode> behind = handles(after);
  Node node;
  node.captured = true;
  const CUgraph child = capture(work);
  const CUresult r = d.cuGraphAddChildGraphNode(&node.handle, graph_, behind.data(), behind.size(), child);
  d.cuGraphGetNodes(child, nullptr, &node.nodes);
  d.cuGraphDestroy(child);  // the node has a copy
  gpu_.check(r, "cuGraphAddChildGraphNode");
  return append(node);
}

void tsr_device_graph::instantiate() {
  need(!exec_, "graph_instantiate", "a graph that is not instantiated");
  const Gpu::Scope scope(gpu_);
  const auto start = std::chrono::steady_clock::now();
  gpu_.check(gpu_.driver().cuGraphInstantiateWithFlags(&exec_, graph_, 0), "cuGraphInstantiate");
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

const tsr_device_graph::Node& tsr_device_graph::at(uint32_t node) const {
  need(exec_ && node < nodes_.size(), "graph_set", "a node of an instantiated graph");
  return nodes_[node];
}

namespace {

[[noreturn]] void other_call(const std::string& what) {
  throw tessera::sdk::Error(TSR_BUG, "TSR-R044", "device cuda, graph_set: " + what, "build the graph anew");
}

}  // namespace

void tsr_device_graph::set(uint32_t number, const tsr_device_call& call) {
  const Node& node = at(number);
  if (node.captured || node.kind != call.kind || (call.kind == TSR_CALL_KERNEL && node.function != call.function))
    other_call("a node was to become a call of another kind or of another function");
  const Gpu::Scope scope(gpu_);
  const Driver& d = gpu_.driver();
  ++set_nodes_;
  switch (call.kind) {
    case TSR_CALL_KERNEL: {
      std::vector<void*> parameters;
      const KernelNode k = kernel_node(call, parameters);
      return gpu_.check(d.cuGraphExecKernelNodeSetParams_v2(exec_, node.handle, &k), "cuGraphExecKernelNodeSetParams");
    }
    case TSR_CALL_COPY: {
      const CopyNode c = copy_node(call);
      return gpu_.check(d.cuGraphExecMemcpyNodeSetParams(exec_, node.handle, &c, gpu_.context()),
                        "cuGraphExecMemcpyNodeSetParams");
    }
    case TSR_CALL_FILL: {
      const FillNode f = fill_node(call);
      return gpu_.check(d.cuGraphExecMemsetNodeSetParams(exec_, node.handle, &f, gpu_.context()),
                        "cuGraphExecMemsetNodeSetParams");
    }
    default: return;
  }
}

void tsr_device_graph::set_captured(uint32_t number, const tessera::sdk::QueueWork& work) {
  const Node& node = at(number);
  if (!node.captured) other_call("a node of a described call was to become captured work");
  const Gpu::Scope scope(gpu_);
  const CUgraph child = capture(work);
  const CUresult r = gpu_.driver().cuGraphExecChildGraphNodeSetParams(exec_, node.handle, child);
  gpu_.driver().cuGraphDestroy(child);
  if (r != kSuccess && !is_sticky(r)) other_call("captured work has changed its shape: " + error_text(r));
  gpu_.check(r, "cuGraphExecChildGraphNodeSetParams");
  ++set_nodes_;
}

void tsr_device_graph::launch(tsr_stream* stream) {
  need(exec_ != nullptr, "graph_launch", "an instantiated graph");
  const Gpu::Scope scope(gpu_);
  gpu_.check(gpu_.driver().cuGraphLaunch(exec_, stream->native), "cuGraphLaunch");
  gpu_.queued(stream, "a device graph");
}

void tsr_device_graph::info(tsr_device_graph_info& out) const {
  out.nodes = 0;
  for (const Node& n : nodes_) out.nodes += n.nodes;
  out.bytes = -1;
  out.seconds = seconds_;
  out.set_nodes = set_nodes_;
}
