// SPDX-License-Identifier: Apache-2.0
// What running the client's function once has recorded. Internal to dispatch/.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capture/recorder.hpp"
#include "dispatch/callable.hpp"
#include "dispatch/input_policy.hpp"
#include "ir/graph.hpp"

namespace tessera::core {

struct Callable::Capture {
  std::unique_ptr<Graph> start;     // the graph before the function ran
  std::unique_ptr<Graph> graph;     // null: the graph broke, and all is done (see PathCapture)
  std::vector<uint32_t> leaves;     // argument of each graph input: tensors, then symbolic numbers
  std::vector<uint8_t> used;        // by graph input
  std::vector<ArgPolicy> policies;  // by argument
  std::vector<uint8_t> by_value;    // by argument: the graph depends on the elements of this tensor; empty: on none
  std::map<uint32_t, Recorder::Scalar> scalars;
  bool observed = false;  // the client has said what it looks at
  void* structure = nullptr;
  void (*structure_free)(void*) = nullptr;
  Capture() = default;
  Capture(Capture&& o) noexcept
      : start(std::move(o.start)),
        graph(std::move(o.graph)),
        leaves(std::move(o.leaves)),
        used(std::move(o.used)),
        policies(std::move(o.policies)),
        by_value(std::move(o.by_value)),
        scalars(std::move(o.scalars)),
        observed(o.observed),
        structure(std::exchange(o.structure, nullptr)),
        structure_free(o.structure_free) {}
  Capture& operator=(Capture&&) = delete;
  ~Capture() {
    if (structure && structure_free) structure_free(structure);
  }
};

}  // namespace tessera::core
