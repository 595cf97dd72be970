// SPDX-License-Identifier: Apache-2.0
// From a model file to a graph, through the frontend that takes the file. Where the import has to know more than the file says
// (values that shapes are computed from, sizes that decide between branches, ranks), or where it has assumed of a symbolic size
// what a call contradicts (that it is not 1, say), it is taken from the call's arguments and fixed in the graph.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Context;
class Graph;
struct Assumption;

struct ModelArgument {  // of a call, for the input of this name
  std::string name;
  tsr_tensor tensor;  // borrowed; without data only its type is known
};

struct FixedInput {
  std::string name;
  bool value = false;          // it is a constant of the graph; else only sizes are fixed
  std::vector<tsr_dim> sizes;  // of the latter: -1 where one is open
};

struct ImportedModel {
  std::unique_ptr<Graph> graph;   // null: the arguments do not say what the import has to know
  std::unique_ptr<Graph> inputs;  // then: the inputs that the file declares, and nothing else
  std::vector<FixedInput> fixed;
  bool open = false;  // another call may need another graph: this one assumes something that only one of two branches does
  bool fits = true;   // false: every graph of the model contradicts the sizes of the arguments, and `graph` says best where
  struct Missing {
    std::string input;
    const char* what;  // "rank", "sizes", "value"
  };
  std::vector<Missing> missing;
};

enum class WhenLacking {
  kThrow,
  kReturn
};  // when the arguments lack something: the frontend's error, or `inputs` and `missing`

// Throws what the frontend reports. `bound` inputs become constants in any case; TSR-E013 for one that the frontend does not
// ask for.
ImportedModel import_model(const std::shared_ptr<const Context>& context, const std::string& path,
                           std::span<const ModelArgument> arguments, std::span<const ModelArgument> bound, WhenLacking lacking);

// What the arguments make of a graph that has been imported. Arguments for none of its inputs do not count.
enum class CallFit {
  kFits,
  kContradicts,  // they have the sizes that its inputs declare, and contradict what it assumes about these
  kOther,        // they have not
};
CallFit fit_of(const Graph& graph, std::span<const ModelArgument> arguments);
// What a graph assumes about sizes that its inputs have.
std::vector<Assumption> assumed_of_inputs(const Graph& graph);

// A new graph with the inputs of one that may be half built, and nothing else.
std::unique_ptr<Graph> inputs_of(const Graph& graph);

// The elements of a dense tensor on the host, as guards show them: "[0, 2]"; of many only their number.
std::string value_text(const tsr_tensor& host);

}  // namespace tessera::core
