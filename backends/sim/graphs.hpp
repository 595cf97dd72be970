// SPDX-License-Identifier: Apache-2.0
// Graphs of simulated devices: pieces of work with the order between them, made once and queued as often as somebody likes.
#pragma once

#include <memory>
#include <vector>

#include "queues.hpp"

namespace tessera::sim {

// What tsr_device_call.function points to here: code that can run a call that is described as data.
struct SimFunction {
  virtual ~SimFunction() = default;
  // The work of one launch, checked against the memory of device `index`; null: it complained. Work holds what it needs, but
  // not the code: it complains when that is gone.
  virtual std::function<void()> work(uint32_t index, const tsr_device_call& call) const = 0;
};

}  // namespace tessera::sim

// A graph belongs to one thread at a time; its launches may still be queued when it changes or goes away.
struct tsr_device_graph {
  struct Node {
    std::vector<std::function<void()>> work;  // one behind the other
    std::vector<uint32_t> after;
    uint32_t kind = TSR_CALL_EMPTY;
    bool captured = false;
    const void* function = nullptr;
  };
  uint32_t index = 0;
  std::vector<Node> nodes;
  bool instantiated = false;
  uint64_t set_nodes = 0;
  double seconds = 0;
  std::shared_ptr<tessera::sim::Record> last;  // when the last launch has passed; null: there was none
};

namespace tessera::sim {

class SimDevice;

// The functions of the device table that build, change and launch graphs. Throw sdk::Error.
class Graphs {
 public:
  Graphs(SimDevice& device, Queues& queues) : device_(device), queues_(queues) {}
  tsr_device_graph* create(uint32_t index);
  uint32_t add(tsr_device_graph* g, const tsr_device_call& call, std::span<const uint32_t> after);
  uint32_t add_captured(tsr_device_graph* g, const sdk::QueueWork& queue, std::span<const uint32_t> after);
  void instantiate(tsr_device_graph* g);
  void set(tsr_device_graph* g, uint32_t node, const tsr_device_call& call);
  void set_captured(tsr_device_graph* g, uint32_t node, const sdk::QueueWork& queue);
  void info(const tsr_device_graph* g, tsr_device_graph_info& out) const;
  void launch(tsr_device_graph* g, tsr_stream* s);
  // Of a stream that records from now on, and what it has recorded, as a graph of one node that can be launched.
  void capture_begin(tsr_stream* s);
  tsr_device_graph* capture_end(tsr_stream* s);

 private:
  std::vector<std::function<void()>> work_of(uint32_t index, const tsr_device_call& call);
  std::vector<std::function<void()>> record(uint32_t index, const sdk::QueueWork& queue);
  uint32_t append(tsr_device_graph* g, tsr_device_graph::Node node, std::span<const uint32_t> after);
  tsr_device_graph::Node& changing(tsr_device_graph* g, uint32_t node, const char* function);
  SimDevice& device_;
  Queues& queues_;
};

}  // namespace tessera::sim
