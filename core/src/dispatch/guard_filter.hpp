// SPDX-License-Identifier: Apache-2.0
// Guards that a client does not want (tsr_callable_desc.guard_filter). Internal to dispatch/.
#pragma once

#include "dispatch/guards.hpp"
#include "tessera/embed.h"

namespace tessera::core {

// Drops the guards that the client's filter refuses. What must hold for memory to stay safe is kept: kinds of arguments,
// structure, and whatever gives a symbol its value. Returns whether a tensor has lost its guard: the plan must then check what
// it is given. Throws what the filter reports.
bool filter_guards(Guards& guards, const tsr_callable_desc& client);

}  // namespace tessera::core
