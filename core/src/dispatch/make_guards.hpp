// SPDX-License-Identifier: Apache-2.0
// From a captured and compiled graph to what its entry must check. Internal to dispatch/.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "capture/recorder.hpp"
#include "dispatch/guards.hpp"
#include "dispatch/input_policy.hpp"
#include "plan/input_facts.hpp"

namespace tessera::core {

class Graph;

struct CapturedInputs {
  const std::vector<uint32_t>& leaves;  // argument of each graph input
  const std::vector<uint8_t>& used;     // by graph input
  const std::vector<ArgPolicy>& policies;
  const std::map<uint32_t, Recorder::Scalar>& scalars;
  bool observed;                              // the client has said what it looks at; else everything is guarded
  const std::vector<uint8_t>& by_value = {};  // as in Callable::Capture
};

// Throws TSR-D001 when a dimension that is marked dynamic must be a number. `facts` are those that the executable relies on:
// each becomes part of the key or a relation. Throws TSR-B042 where one would be left without a guard.
Guards make_guards(const Graph& final, const InputFacts& facts, const CapturedInputs& inputs, const tsr_arg* args, size_t count,
                   const std::vector<std::string>& paths);

// Which symbols appear in what nodes compute with, or in an assumption; by symbol.
std::vector<uint8_t> used_symbols(const Graph& graph);

// Adds to `specialised` the arguments behind every assumption that does not hold for these very arguments; false when all hold.
// Throws TSR-D001 when one of them is marked dynamic.
bool specialise_what_does_not_hold(const Graph& captured, const std::vector<uint32_t>& leaves,
                                   const std::vector<ArgPolicy>& policies, const tsr_arg* args,
                                   const std::vector<std::string>& paths, Specialised& specialised);

}  // namespace tessera::core
