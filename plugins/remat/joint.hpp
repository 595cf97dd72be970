// SPDX-License-Identifier: Apache-2.0
// A joint graph and what the host says of it, as a problem on plain arrays.
#pragma once

#include <vector>

#include <tessera/plugin.hpp>

#include "problem.hpp"
#include "schedule.hpp"

namespace tessera::remat {

struct Joint {
  Problem problem;
  Schedule schedule;
  std::vector<tsr_id> nodes;  // ids of the problem's nodes
  // Of results that the caller gets, in memory from the beginning of a run on; those of unknown sizes left out. 0: they may
  // come when what is kept has gone, as those of the backward half of a pair.
  int64_t output_bytes = 0;
};

// Options `save` and `recompute` become conditions of the problem. Throws TSR-A012: they name what is not there, or contradict
// each other or the graph.
Joint make_joint(sdk::Graph graph, const tsr_partition& partition, const sdk::Options& options);

// Writes the plan into the host's arrays.
void put(const Joint& joint, const Plan& plan, tsr_partition& partition);

inline constexpr double kPicoseconds = 1e12;

}  // namespace tessera::remat
