// SPDX-License-Identifier: Apache-2.0
// From a node of a graph to programs of the SIMT family: one op, or the region of a `fused` node, which is one kernel or one of
// the things of gpu/parts.hpp. SimtBackend compiles what comes from here; tests run it by the interpreter, and compile its text
// for devices that are not there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/kit/gpu/schedule.hpp"
#include "tessera/kit/lower.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

// The schedule that the model chose for one kernel, and how to get at others.
struct ScheduleSpace {
  SimtSchedule chosen;
  // Those that differ from one in one number and make programs. Only while SimtOptions::search runs.
  std::function<std::vector<SimtSchedule>(const SimtSchedule&)> neighbours;
};

struct SimtOptions {
  // Chooses another schedule than the model's, of which programs can be made; for searches and tests. Empty: the model's.
  std::function<SimtSchedule(Kernel&, const SimtSchedule&, const GpuDescription&)> vary;
  // The same for whoever needs no kernel for that; it is asked for the backward pass of a norm as well. Not called for what has
  // no schedule: parts side by side, and programs of single ops. Where no program can be made of its answer, the model's holds.
  std::function<SimtSchedule(const ScheduleSpace&)> search;
  // What is taken beside the pointwise ops, reductions and views: everything that can be, by default.
  LowerOptions lower{.everything = true};
};

// A stride of an operand, which a launch tells.
struct OperandStride {
  uint32_t operand, dimension;
};
inline constexpr int64_t kStrideMultiple = 8;

struct SimtPrograms {
  std::vector<Program> programs;  // the first whose `require` holds for the sizes of a launch runs
  std::vector<tsr_dim> symbol_dims;
  std::vector<uint32_t> operand_of;  // of each input buffer of the programs: the operand of the node
  std::vector<uint32_t> result_of;   // of each output buffer: the result of the node
  std::string schedule;              // text for people
  std::optional<SimtSchedule> used;  // the same where a search may choose another; nothing: there is none to choose
  // Operands that are read where they lie: their strides are symbols behind those of `symbol_dims`. Of two programs the first
  // is then right where the last stride is 1 and the others are multiples of kStrideMultiple, the second in any case.
  std::vector<OperandStride> strides;
  int in_place = -1;  // the operand of the node whose memory its first result may take; -1: none
};

// Why no program computes the node on the device; empty: one does.
std::string why_no_simt_programs(sdk::Graph g, sdk::Node n, const GpuDescription& device, const SimtOptions& options);
// Throws Unfit with that reason. Buffers and symbols of the programs have names of their own, not those of the graph.
SimtPrograms simt_programs(sdk::Graph g, sdk::Node n, const std::string& name, const GpuDescription& device,
                           const SimtOptions& options);

}  // namespace tessera::kit
