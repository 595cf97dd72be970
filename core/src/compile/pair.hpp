// SPDX-License-Identifier: Apache-2.0
// A program whose backward half is called apart from its forward half, because what the gradient of its results is turns out
// later.
#pragma once

#include <memory>
#include <vector>

#include "compile/driver.hpp"

namespace tessera::core {

class Executable;

// Whether the graph asks for cotangents (op `tangent`).
bool is_pair(const Graph& graph);

// The stages up to the partition on the joint graph, then the others on each half. The executable is that of the forward half.
std::unique_ptr<Executable> compile_pair(std::unique_ptr<Graph> graph, const PassLists& passes, const CompileOptions& options);

// As partition_plans(): what the two halves take, of which one has ended when the other begins.
std::vector<PartitionPlan> partition_plans_of_pair(std::unique_ptr<Graph> graph, const PassLists& passes,
                                                   const CompileOptions& options);

}  // namespace tessera::core
