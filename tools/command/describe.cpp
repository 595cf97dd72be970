// SPDX-License-Identifier: Apache-2.0
#include "describe.hpp"

#include "json.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

std::string word_at(const Json& row, const char* key) {
  const auto at = row.find(key);
  return at != row.end() && at->is_string() ? at->get<std::string>() : "";
}
template <class F>
std::string number_cell(const Json& row, const char* key, F&& format) {
  const auto at = row.find(key);
  return at != row.end() && at->is_number() ? format(at->get<double>()) : "-";
}

}  // namespace

std::string plan_text(const std::string& description) {
  const Json d = Json::parse(description);
  Table table("rlllllrrrl",
              {"step", "kind", "op", "results", "backend", "kernel", "bytes", "workspace", "predicted", "from"});
  for (const Json& row : d.value("steps", Json::array())) {
    std::string results;
    for (const Json& r : row.value("results", Json::array()))
      if (r.is_string()) results += (results.empty() ? "" : " ") + r.get<std::string>();
    table.row({number_cell(row, "index", [](double v) { return std::to_string(static_cast<int64_t>(v)); }),
               word_at(row, "kind"), word_at(row, "op"), results, word_at(row, "backend"), word_at(row, "kernel"),
               number_cell(row, "bytes", bytes_text), number_cell(row, "workspace_bytes", bytes_text),
               number_cell(row, "predicted_ms", ms_text), word_at(row, "loc")});
  }
  std::string out = table.text() + "\n";
  for (const auto& [key, value] : d.value("memory", Json::object()).items()) {
    if (!value.is_number()) continue;
    std::string name = key;
    const bool bytes = name.ends_with("_bytes");
    if (bytes) name.resize(name.size() - 6);
    for (char& c : name)
      if (c == '_') c = ' ';
    out += name + ": " + (bytes ? bytes_text(value.get<double>()) : value.dump()) + "\n";
  }
  return out;
}

}  // namespace tessera::command
