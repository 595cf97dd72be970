// SPDX-License-Identifier: Apache-2.0
// How this library prints JSON documents. Include it from .cpp files only: the JSON headers are heavy.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::core {

// Two spaces of indent. Bytes that are not UTF-8 (file names, a broken plugin's strings) become U+FFFD instead of throwing.
inline std::string json_text(const nlohmann::ordered_json& document) {
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tessera::core
