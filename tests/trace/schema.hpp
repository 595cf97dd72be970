// SPDX-License-Identifier: Apache-2.0
// The tables of docs/trace.md as a validator, and folders of traces.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace tessera::test {

using Json = nlohmann::json;

class TraceSchema {
 public:
  TraceSchema();  // reads the page; throws when a table cannot be understood
  const std::set<std::string>& events() const { return events_; }
  // "" when the line is an event as documented, else what is wrong with it.
  std::string fault(const std::string& line) const;

 private:
  struct Key {
    std::string type;
    bool optional;
  };
  std::set<std::string> events_;
  std::map<std::string, std::map<std::string, Key>> keys_;  // by event; "": of every event
};

// A folder of its own that goes with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::string path;
  std::vector<std::string> files() const;  // sorted
};

std::vector<std::string> lines_of(const std::string& file);

}  // namespace tessera::test
