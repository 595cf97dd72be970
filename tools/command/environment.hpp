// SPDX-License-Identifier: Apache-2.0
// What a measurement was made on.
#pragma once

#include "json.hpp"

namespace tessera::command {

// {"version", "cpu", "cores", "frequency_policy", "memory_bytes", "system", "load", "variables"}. What cannot be found out is
// null. `variables` are those of the environment that change what runs: TESSERA_*, OMP_*, CUDA_VISIBLE_DEVICES.
Json environment_record();
// A line of it, for people.
std::string environment_text(const Json& record);

}  // namespace tessera::command
