// SPDX-License-Identifier: Apache-2.0
// One case of an op on a backend of the plugin under test, against the judge.
#pragma once

#include <string>

#include "cases.hpp"
#include "subject.hpp"

namespace tessera::conformance {

struct OpRun {
  std::string backend;
  bool special = false;     // operands hold the values that formulas forget, and zeros have signs
  bool all_layouts = true;  // else dense operands only
};

// Throws Failed where results differ or a rule of the host's is broken; Skipped where the backend takes no part of the case,
// once it has been seen to refuse with a reason.
void run_case(Subject&, const Case&, const OpRun&);

// Whether a step of the plan is the backend's.
bool runs_on(const e::Executable&, const std::string& backend);
// How many steps of the plan are fused groups of the backend.
size_t fused_groups(const e::Executable&, const std::string& backend);
// Operands of a case, dense, in host memory.
std::vector<e::Tensor> dense_operands(const Case&);

}  // namespace tessera::conformance
