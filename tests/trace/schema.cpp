// SPDX-License-Identifier: Apache-2.0
#include "schema.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace tessera::test {

namespace {

// "a | b | c" of a row "| a | b | c |".
std::vector<std::string> cells(const std::string& row) {
  std::vector<std::string> out;
  for (size_t at = row.find('|'); at != row.npos;) {
    const size_t next = row.find('|', at + 1);
    if (next == row.npos) break;
    std::string cell = row.substr(at + 1, next - at - 1);
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    out.push_back(std::move(cell));
    at = next;
  }
  return out;
}

bool is_a(const Json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number() || value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  throw std::runtime_error("docs/trace.md has a type '" + type + "'");
}

}  // namespace

TraceSchema::TraceSchema() {
  const char* source = std::getenv("TESSERA_SOURCE_DIR");
  std::string event;
  bool in_keys = false;
  for (const std::string& line : lines_of(std::string(source ? source : ".") + "/docs/trace.md")) {
    if (line.starts_with("### `")) {
      event = line.substr(5, line.find('`', 5) - 5);
      events_.insert(event);
      keys_[event];
    }
    if (!line.starts_with('|')) {
      in_keys = false;
      continue;
    }
    const std::vector<std::string> row = cells(line);
    if (row[0] == "Key") in_keys = true;
    if (!in_keys || !row[0].starts_with('`')) continue;
    const bool optional = row.at(1).ends_with('?');
    keys_[event][row[0].substr(1, row[0].size() - 2)] = {optional ? row[1].substr(0, row[1].size() - 1) : row[1], optional};
  }
  if (events_.size() < 5 || keys_[""].size() < 3) throw std::runtime_error("docs/trace.md: no tables found");
}

std::string TraceSchema::fault(const std::string& line) const {
  const Json j = Json::parse(line, nullptr, false);
  if (!j.is_object()) return "not a JSON object";
  if (!j.contains("event") || !j["event"].is_string()) return "no event";
  const std::string event = j["event"];
  if (!events_.count(event)) return "the event '" + event + "' is not documented";
  for (const std::string& table : {std::string(), event})
    for (const auto& [name, key] : keys_.at(table)) {
      if (!j.contains(name)) {
        if (!key.optional) return event + ": no '" + name + "'";
        continue;
      }
      if (!is_a(j[name], key.type)) return event + ": '" + name + "' is " + j[name].dump() + ", documented as " + key.type;
    }
  for (const auto& [name, value] : j.items())
    if (!keys_.at("").count(name) && !keys_.at(event).count(name)) return event + ": '" + name + "' is not documented";
  return {};
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "tessera-trace-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp: " + name);
  path = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::vector<std::string> TemporaryFolder::files() const {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(path)) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace tessera::test
