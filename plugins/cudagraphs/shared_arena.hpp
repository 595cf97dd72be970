// SPDX-License-Identifier: Apache-2.0
// What all graphs of one device share: the memory of intermediate values, the order of their launches, and a limit on what
// graphs take.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "tessera/executor.hpp"

namespace tessera::cudagraphs {

class GraphSet;

// One for each device of the process. Its functions want `mutex` to be held by the caller, from where a call reads or changes a
// graph until its launch is queued.
class SharedArena {
 public:
  static SharedArena& of(tsr_device device);  // lives as long as the process

  std::mutex mutex;
  const sdk::DeviceTable device;

  // Memory for one launch at a time, at the same address as long as the process lives: it grows in place.
  void* memory(size_t bytes, tsr_stream* stream);
  // What is queued on `stream` from now on comes behind all launches so far.
  void order(tsr_stream* stream);
  void launched(tsr_stream* stream);
  void wait();  // for all launches so far

  // Graphs in the order of their last launch. `used` moves one to the front; `admit` makes room for one that takes `bytes`.
  void admit(GraphSet* graph, int64_t bytes, int64_t limit);
  void used(GraphSet* graph);
  void remove(GraphSet* graph);

 private:
  explicit SharedArena(tsr_device d) : device(d) {}

  void* base_ = nullptr;
  size_t reserved_ = 0, committed_ = 0;
  tsr_event* event_ = nullptr;
  tsr_stream* last_ = nullptr;  // whose event stands for all launches; compared, never followed
  struct Kept {
    GraphSet* graph;
    int64_t bytes;
  };
  std::list<Kept> kept_;
  int64_t kept_bytes_ = 0;
};

}  // namespace tessera::cudagraphs
