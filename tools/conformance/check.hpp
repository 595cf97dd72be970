// SPDX-License-Identifier: Apache-2.0
// A check of the conformance kit: one rule of the plugin contract, tried on one plugin. Every check runs in a process that may
// end at any moment, so a check holds no state that another one needs.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::conformance {

class Subject;

// The plugin breaks the rule. The text says what was found, what was expected, and what to do.
class Failed : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The rule says nothing about this plugin, because it does not declare what the rule is about. The text says what that is.
class Skipped : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Check {
  int level = 0;                      // the lowest level that includes it: 0 to 4
  std::string name;                   // "contract/empty_graph", "ops/add f32[3] f32[3]"; unique
  std::string about;                  // what must hold, in one sentence
  std::function<void(Subject&)> run;  // throws Failed, Skipped, or what the library throws
};
using Checks = std::vector<Check>;

// The part of a name that checks of one kind share: all up to the first blank. After some crashes the rest of a group is not
// run.
inline std::string group_of(const std::string& name) { return name.substr(0, name.find(' ')); }

}  // namespace tessera::conformance
