// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tessera::command {

// The steps of the document of executable_describe that were measured, the slowest first, with their part of the sum. Steps of
// nested plans share the time of their control step.
std::string steps_text(const std::string& description_json);

// `after`, with the times of its steps counted from `before` on, an earlier description of the same executable.
std::string measured_since(const std::string& before, const std::string& after);

}  // namespace tessera::command
