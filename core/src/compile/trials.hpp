// SPDX-License-Identifier: Apache-2.0
// What plans of a joint graph cost: each is lowered, several side by side, and priced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ir/graph_services.hpp"

namespace tessera::core {

class Graph;
struct CompileOptions;
enum class Stage : uint8_t;

struct Trial {
  std::unique_ptr<Graph> graph;  // a copy of the joint graph
  std::vector<uint8_t> again;    // by node id: what runs again in the backward half
};

// How many are lowered at once: as many as loops of a run have threads. One where somebody reads what passes say, which would
// mix, and where backends measure what they compile.
size_t trials_at_once(const CompileOptions& options, Stage last);

// Lowers `count` plans up to the stage, as estimate() does. `make` is called on this thread, for no more plans ahead than are
// lowered at once. Where costs are measured they are priced on it as well, while nothing else runs. Throws what the first plan
// that fails has thrown.
std::vector<Estimate> estimate_trials(size_t count, const std::function<Trial(size_t)>& make, const CompileOptions& options,
                                      Stage last);

}  // namespace tessera::core
