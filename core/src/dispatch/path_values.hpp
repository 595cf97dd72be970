// SPDX-License-Identifier: Apache-2.0
// What host code has seen, as facts that guards are explained with. Internal to dispatch/.
#pragma once

#include "dispatch/guards.hpp"
#include "dispatch/input_policy.hpp"
#include "dispatch/segment.hpp"

namespace tessera::core {

inline constexpr uint32_t kGuardedBreak = 16;  // the code of a break that reads a guarded variable

Expected guarded_fact(const tsr_break& b, const Seen& seen);           // of such a variable
Expected read_fact(const tsr_break& b, const Seen& seen);              // of a value that was read
bool same_continuation(const Continuation& a, const Continuation& b);  // of segments that compute the same
bool same_value(const Expected& a, const Expected& b);
// What a capture takes as fixed about an argument that another segment hands over: what its type says.
ArgPolicy policy_of(const tsr_arg& a, bool any_strides);

}  // namespace tessera::core
