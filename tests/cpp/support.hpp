// SPDX-License-Identifier: Apache-2.0
// What tests of compiled functions ask about results and about what was compiled.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

inline std::vector<float> values(const tessera::Tensor& t) { return t.to_vector<float>(); }

// How many entries a function has; from describe().
inline size_t entries(const std::string& description) { return nlohmann::json::parse(description).at("entries").size(); }
