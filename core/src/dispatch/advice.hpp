// SPDX-License-Identifier: Apache-2.0
// The smallest change that would have avoided a compile.
#pragma once

#include <string>
#include <vector>

#include "dispatch/guards.hpp"
#include "dispatch/input_policy.hpp"

namespace tessera::core {

// What to do about a guard of an entry that failed for these arguments, with the section of docs/recompiles.md that says more.
// Empty: nothing is known.
std::string advice_for(const GuardPolicy& policy, const Guards& guards, const GuardText& failed, const tsr_arg* args);

// How far a call is from an entry: the number of guards that fail. Another structure is further away than any number of other
// facts, because nothing behind it has been compared.
size_t distance(const std::vector<GuardText>& failed);

}  // namespace tessera::core
