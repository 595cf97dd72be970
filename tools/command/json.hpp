// SPDX-License-Identifier: Apache-2.0
// JSON of the command; docs/json.md holds the schemas. Heavy: include it from .cpp files.
#pragma once

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera::command {

using Json = nlohmann::ordered_json;

// The one document of a --json run: `schema` first, then the keys of `body`.
inline void print_json(const char* schema, const Json& body) {
  Json out = {{"schema", schema}};
  out.update(body);
  std::cout << out.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
}

// JSON has no infinities and NaNs: they are words.
inline Json json_number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  return v;
}

// A key of a document that the library wrote, as a number; `fallback` when it is missing or null.
inline double number_at(const Json& document, const Json::json_pointer& key, double fallback) {
  if (!document.contains(key)) return fallback;
  const Json& v = document.at(key);
  return v.is_number() ? v.get<double>() : fallback;
}

}  // namespace tessera::command
