// SPDX-License-Identifier: Apache-2.0
#include "graphs.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "device.hpp"
#include "need.hpp"

namespace tessera::sim {

namespace {

using Node = tsr_device_graph::Node;

}  // namespace

tsr_device_graph* Graphs::create(uint32_t index) {
  auto g = std::make_unique<tsr_device_graph>();
  g->index = index;
  return g.release();
}

std::vector<std::function<void()>> Graphs::work_of(uint32_t index, const tsr_device_call& call) {
  const auto one = [](std::function<void()> run) {
    std::vector<std::function<void()>> work;
    if (run) work.push_back(std::move(run));
    return work;
  };
  switch (call.kind) {
    case TSR_CALL_EMPTY: return {};
    case TSR_CALL_KERNEL:
      need(call.function != nullptr, "graph_add", "a kernel's function");
      return one(static_cast<const SimFunction*>(call.function)->work(index, call));
    case TSR_CALL_COPY: {
      char* const to = device_.bytes_of(index, call.to, call.bytes, "a copy of a graph");
      const char* const from = device_.bytes_of(index, call.from, call.bytes, "a copy of a graph");
      if (!to || !from) return {};
      return one([to, from, n = call.bytes] { std::memmove(to, from, n); });
    }
    case TSR_CALL_FILL: {
      char* const to = device_.bytes_of(index, call.to, call.bytes, "a fill of a graph");
      if (!to) return {};
      return one([to, n = call.bytes, value = static_cast<int>(call.value & 255u)] { std::memset(to, value, n); });
    }
    default: need(false, "graph_add", "a call of a kind TSR_CALL_*"); return {};
  }
}

std::vector<std::function<void()>> Graphs::record(uint32_t index, const sdk::QueueWork& queue) {
  std::vector<std::function<void()>> work;
  tsr_stream recording;
  recording.index = index;
  recording.recorded = &work;
  queue(&recording);
  return work;
}

uint32_t Graphs::append(tsr_device_graph* g, Node node, std::span<const uint32_t> after) {
  need(!g->instantiated, "graph_add", "a graph that is not instantiated");
  for (const uint32_t a : after) need(a < g->nodes.size(), "graph_add", "nodes that were added before");
  node.after.assign(after.begin(), after.end());
  g->nodes.push_back(std::move(node));
  return static_cast<uint32_t>(g->nodes.size() - 1);
}

uint32_t Graphs::add(tsr_device_graph* g, const tsr_device_call& call, std::span<const uint32_t> after) {
  Node node;
  node.kind = call.kind;
  node.function = call.function;
  node.work = work_of(g->index, call);
  return append(g, std::move(node), after);
}

uint32_t Graphs::add_captured(tsr_device_graph* g, const sdk::QueueWork& queue, std::span<const uint32_t> after) {
  Node node;
  node.captured = true;
  node.work = record(g->index, queue);
  return append(g, std::move(node), after);
}

void Graphs::instantiate(tsr_device_graph* g) {
  const auto start = std::chrono::steady_clock::now();
  need(!g->instantiated, "graph_instantiate", "a graph that is not instantiated");
  g->instantiated = true;
  g->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Node& Graphs::changing(tsr_device_graph* g, uint32_t node, const char* function) {
  need(g->instantiated, function, "an instantiated graph");
  need(node < g->nodes.size(), function, "a node of the graph");
  return g->nodes[node];
}

void Graphs::set(tsr_device_graph* g, uint32_t node, const tsr_device_call& call) {
  Node& n = changing(g, node, "graph_set");
  if (n.captured || n.kind != call.kind || n.function != call.function)
    throw sdk::Error(TSR_BUG, "TSR-R044",
                     "node " + std::to_string(node) + " of a graph of sim:" + std::to_string(g->index) +
                         " cannot become a call of another kind or function" +
                         (call.name ? " ('" + std::string(call.name) + "')" : std::string()),
                     "build the graph anew");
  n.work = work_of(g->index, call);
  ++g->set_nodes;
}

void Graphs::set_captured(tsr_device_graph* g, uint32_t node, const sdk::QueueWork& queue) {
  Node& n = changing(g, node, "graph_set_captured");
  if (!n.captured)
    throw sdk::Error(TSR_BUG, "TSR-R044",
                     "node " + std::to_string(node) + " of a graph of sim:" + std::to_string(g->index) +
                         " was added as a call and cannot become captured work",
                     "build the graph anew");
  n.work = record(g->index, queue);
  ++g->set_nodes;
}

void Graphs::info(const tsr_device_graph* g, tsr_device_graph_info& out) const {
  out.nodes = 0;
  for (const Node& n : g->nodes) out.nodes += n.captured ? n.work.size() : 1;
  out.bytes = static_cast<int64_t>(out.nodes) << 10;  // as measured with CUDA: about 1 KiB a node
  out.seconds = g->seconds;
  out.set_nodes = g->set_nodes;
}

// Nodes come in an order that the seed chooses among those that `after` allows.
void Graphs::launch(tsr_device_graph* g, tsr_stream* s) {
  need(g->instantiated, "graph_launch", "an instantiated graph");
  std::vector<uint32_t> missing(g->nodes.size()), ready;
  std::vector<std::vector<uint32_t>> users(g->nodes.size());
  for (uint32_t i = 0; i < g->nodes.size(); ++i) {
    missing[i] = static_cast<uint32_t>(g->nodes[i].after.size());
    for (const uint32_t a : g->nodes[i].after) users[a].push_back(i);
    if (missing[i] == 0) ready.push_back(i);
  }
  if (g->last) queues_.wait(g->last, s);
  while (!ready.empty()) {
    std::swap(ready[queues_.random() % ready.size()], ready.back());
    const uint32_t i = ready.back();
    ready.pop_back();
    for (const auto& w : g->nodes[i].work) queues_.push(s, w);
    for (const uint32_t u : users[i])
      if (--missing[u] == 0) ready.push_back(u);
  }
  g->last = queues_.record(s);
}

void Graphs::capture_begin(tsr_stream* s) {
  need(!s->recorded, "capture_begin", "a stream that does not record");
  s->recorded = new std::vector<std::function<void()>>;
}

tsr_device_graph* Graphs::capture_end(tsr_stream* s) {
  need(s->recorded != nullptr, "capture_end", "a stream that records");
  const std::unique_ptr<std::vector<std::function<void()>>> work(std::exchange(s->recorded, nullptr));
  auto g = std::make_unique<tsr_device_graph>();
  g->index = s->index;
  g->nodes.emplace_back();
  g->nodes[0].captured = true;
  g->nodes[0].work = std::move(*work);
  g->instantiated = true;
  return g.release();
}

}  // namespace tessera::sim
