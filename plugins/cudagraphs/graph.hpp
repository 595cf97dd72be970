// SPDX-License-Identifier: Apache-2.0
// The graphs of one plan. All its layouts share them: another layout has the same kernels with other addresses, sizes and
// grids, which are set in the nodes.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
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

// Every function of what follows wants the arena's mutex to be held.

// The segments of a plan as instantiated graphs. Nodes of generated kernels take any size; what a library queues may be of
// another form for another size (other kernels, blocks in other clusters), which no node can be set to.
class GraphSet {
 public:
  GraphSet(SharedArena& arena, const std::string& name, const std::vector<Segment>& segments)
      : arena_(arena), name_(name), segments_(segments) {}
  ~GraphSet() { drop(); }
  GraphSet(const GraphSet&) = delete;

  const std::string& name() const { return name_; }
  bool built() const { return built_; }
  // `chain`, `limit`: see PlanGraph.
  void build(const std::vector<Row>& rows, const tsr_executor_call& call, bool chain, int64_t limit);
  // Sets the nodes of the rows with changed[i] != 0. Returns the number of a row of another form, or rows.size(): there is
  // none. Where there is one, some nodes are set, and the others have to be before a launch.
  size_t set(const std::vector<Row>& rows, const tsr_executor_call& call, const std::vector<char>& changed);
  void launch(const std::vector<Row>& rows, const tsr_executor_call& call, tsr_stream* stream);
  void drop();  // gives the graphs up, when their last launch has passed

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
  void build_segment(const Segment& s, tsr_device_graph* g, const std::vector<Row>& rows, const tsr_executor_call& call,
                     bool chain);
  size_t set_row(tsr_device_graph* g, size_t row, const Row& r, const tsr_launch& l);

  SharedArena& arena_;
  const std::string name_;
  const std::vector<Segment> segments_;
  bool built_ = false;
  std::vector<tsr_device_graph*> graphs_;  // by segment; null: it is launched directly
  std::vector<std::vector<Node>> nodes_;   // by row
};

class PlanGraph {
 public:
  // `chain`: nodes run one after the other, whatever waits a layout has, so that all layouts fit the same graphs. `limit`:
  // bytes that the graphs of a device may take.
  PlanGraph(SharedArena& arena, std::string name, std::vector<char> direct, bool chain, int64_t limit)
      : arena_(arena), name_(std::move(name)), direct_(std::move(direct)), chain_(chain), limit_(limit) {}
  ~PlanGraph();  // takes the mutex itself
  PlanGraph(const PlanGraph&) = delete;

  const std::string& name() const { return name_; }
  bool built() const { return !sets_.empty() && sets_.front()->built(); }  // of the set that ran last
  // Queues all rows of a layout on `stream`, behind every other graph of the device. Rows with changed[i] == 0 are as they were
  // in the last run.
  void run(const std::vector<Row>& rows, const tsr_executor_call& call, const std::vector<char>& changed, tsr_stream* stream);

  const void* layout = nullptr;  // that ran last

 private:
  // Sets of a plan: for each form that library calls have taken. Beyond that many the rows that differ leave the graphs.
  static constexpr size_t kMostSets = 8;
  GraphSet* fitting(const std::vector<Row>& rows, const tsr_executor_call& call, const std::vector<char>& changed);
  std::vector<Segment> segments() const;

  SharedArena& arena_;
  std::string name_;
  std::vector<char> direct_;  // by row: it is launched between two graphs
  bool chain_;
  int64_t limit_;
  std::list<std::unique_ptr<GraphSet>> sets_;  // the one that ran last first
};

}  // namespace tessera::cudagraphs
