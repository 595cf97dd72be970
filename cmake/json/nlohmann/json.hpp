// SPDX-License-Identifier: Apache-2.0
// nlohmann/json.hpp for what links Tessera::json: its templates are instantiated once, in json.cpp, and not by every unit that
// reads or writes JSON.
#pragma once

#include_next <nlohmann/json.hpp>

#define TESSERA_JSON_TEMPLATE extern template
#include "json_templates.inc"
#undef TESSERA_JSON_TEMPLATE
