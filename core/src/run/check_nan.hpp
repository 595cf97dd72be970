// SPDX-License-Identifier: Apache-2.0
// runtime.check_nan: what a step has given, looked at before the next one runs.
#pragma once

#include "run/run_state.hpp"

namespace tessera::core {

// Throws TSR-R051 when a floating-point result of the step has a NaN. Waits for the step.
void throw_if_nan(RunState& state, const SectionRun::Ready& step);

}  // namespace tessera::core
