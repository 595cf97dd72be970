// SPDX-License-Identifier: Apache-2.0
// What happens when a backend fails to compile what it has claimed: the next backend that takes it runs it.
#pragma once

#include <vector>

#include "compile/assign.hpp"

namespace tessera::core {

class KernelError;

// Assigns again without what `e` says one backend failed to compile, and warns. It is all that the backend would be asked for
// when the fault lies with the machine, or when it fails again and again. False: nobody else takes it.
bool leave_to_others(Graph& graph, std::vector<Assignment>& assignment, CompileOptions& options, const KernelError& e);

}  // namespace tessera::core
