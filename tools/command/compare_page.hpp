// SPDX-License-Identifier: Apache-2.0
// A comparison as one HTML page. All of it is text that the command prints too.
#pragma once

#include <string>

namespace tessera::command {

// `table`: lines of columns; `verdict` and `divergence` may be empty.
std::string compare_page(const std::string& model, const std::string& table, const std::string& difference,
                         const std::string& verdict, const std::string& divergence);

}  // namespace tessera::command
