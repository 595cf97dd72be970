// SPDX-License-Identifier: Apache-2.0
// Kernels of the SIMT family's classes, and all schedules that a search reaches.
#pragma once

#include <string>
#include <vector>

#include "kit_support.hpp"
#include "tessera/kit/gpu/schedule.hpp"

namespace tessera::test {

// A kernel, or the two of a norm's backward pass. `text` is a graph; `columns` a second one over the same inputs, whose outputs
// are gradients across rows.
struct SimtCase {
  std::string name, text, columns;
  std::vector<int64_t> symbols;
  std::vector<int64_t> multiples = {};
};

struct SimtKernel {
  kit::Lowered rows, columns;
  std::vector<uint32_t> shared;  // see make_norm_backward
  bool pair = false;
};
SimtKernel lower_case(const SimtCase& c);

kit::SimtSchedule choose(SimtKernel& k, const SimtCase& c, const kit::GpuDescription& d, const kit::SimtOrder& o);
kit::Program make(SimtKernel& k, const SimtCase& c, const kit::SimtSchedule& s, const kit::GpuDescription& d,
                  const kit::SimtOrder& o);
// The chosen schedule and its neighbours' neighbours, breadth first, at most so many.
std::vector<kit::SimtSchedule> reachable(SimtKernel& k, const SimtCase& c, const kit::GpuDescription& d,
                                         const kit::SimtOrder& o, size_t most);

// What the family computes: the judge's outputs in the order of the program's buffers.
Data case_data(const SimtKernel& k, const SimtCase& c, uint64_t seed, bool wild);
uint32_t judge(const SimtKernel& k, const SimtCase& c, const kit::SimtOrder& o, Data& data);
// The first difference of two runs, over both kernels' buffers.
std::string case_difference(const SimtKernel& k, const Data& a, const Data& b);

// At least one of each form; sizes are small, some of them odd.
std::vector<SimtCase> simt_cases();

}  // namespace tessera::test
