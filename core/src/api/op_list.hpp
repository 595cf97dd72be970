// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tessera::core {

class OpRegistry;

// Every record, sorted by name. Schema: docs/json.md, "op records".
std::string op_list_json(const OpRegistry& ops);

}  // namespace tessera::core
