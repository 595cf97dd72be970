// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tessera::command {

// The document of executable_describe as a step table and a summary of memory, for people.
std::string plan_text(const std::string& description_json);

}  // namespace tessera::command
