// SPDX-License-Identifier: Apache-2.0
// The graphs of one plan. All its layouts share them: another layout has the same kernels with other addresses, sizes and
// grids, which are set in the nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared_arena.hpp"

namespace tessera::cudagraphs {

// A step of a layout.
struct Row {
  const tsr_kernel* kernel = nullptr;  // null: a copy within the device
  std::vector<uint32_t> roots;         // whose memory it uses
  std::vector<uint32_t> waits;         // rows that must be done before
};

// Steps that one graph runs, or one step that a graph cannot hold and that is launched by itself in between.
struct Segment {
  size_t begin = 0, end = 0;
  bool direct = false;
};

// Every function wants the arena's mutex to be held.
class PlanGraph {
 public:
  // `chain`: nodes run one after the other, whatever waits a layout has, so that all layouts fit the same graphs. `limit`:
  // bytes that the graphs of a device may take.
  PlanGraph(SharedArena& arena, std::string name, std::vector<Segment> segments, bool chain, int64_t limit)
      : arena_(arena), name_(std::move(name)), segments_(std::move(segments)), chain_(chain), limit_(limit) {}
  ~PlanGraph();  // takes the mutex itself
  PlanGraph(const PlanGraph&) = delete;

  const std::string& name() const { return name_; }
  bool built() const { return built_; }
  // Queues all rows of a layout on `stream`, behind every other graph of the device. Rows with changed[i] == 0 are as they were
  // in the last run.
  void run(const std::vector<Row>& rows, const tsr_executor_call& call, const std::vector<char>& changed, tsr_stream* stream);
  void drop();  // gives the graphs up, when their last launch has passed

  const void* layout = nullptr;  // that ran last

 private:
  // One node, with what it was given last.
  struct Node {
    uint32_t number = 0;
    bool captured = false;
    tsr_device_call call{};  // its scalars; what it points to lies in `arguments` or is not kept
    std::vector<char> arguments;
    bool same(const tsr_device_call& c) const;
    void keep(const tsr_device_call& c);
  };
  void build(const std::vector<Row>& rows, const tsr_executor_call& call);
  void build_segment(const Segment& s, tsr_device_graph* g, const std::vector<Row>& rows, const tsr_executor_call& call);
  size_t set(tsr_device_graph* g, size_t row, const Row& r, const tsr_launch& l);

  SharedArena& arena_;
  std::string name_;
  std::vector<Segment> segments_;
  bool chain_;
  int64_t limit_;
  bool built_ = false;
  std::vector<tsr_device_graph*> graphs_;  // by segment; null: it is launched directly
  std::vector<std::vector<Node>> nodes_;   // by row
};

}  // namespace tessera::cudagraphs
