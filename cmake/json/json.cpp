// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#define TESSERA_JSON_TEMPLATE template
#include "json_templates.inc"
