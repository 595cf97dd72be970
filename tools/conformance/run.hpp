// SPDX-License-Identifier: Apache-2.0
// A run of the kit: checks one by one in workers, and what came of each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "check.hpp"
#include "expectations.hpp"
#include "subject.hpp"

namespace tessera::conformance {

enum class Status {
  kPassed,
  kFailed,
  kSkipped,         // about something that the plugin does not declare
  kExpected,        // failed, as the file of expectations says
  kUnexpectedPass,  // passed, and the file of expectations says that it fails: as bad as a failure
  kNotRun           // its group has ended too many workers, or the plugin does not load
};
const char* word(Status);  // "passed", "failed", ...

struct Result {
  int level = 0;
  std::string name, about, text;  // text: what was found; the reason of a skip
  Status status = Status::kNotRun;
  double ms = 0;
  [[nodiscard]] bool bad() const { return status == Status::kFailed || status == Status::kUnexpectedPass; }
};

struct RunOptions {
  std::vector<std::string> command_line;  // that starts a worker
  std::string filter;                     // checks whose name matches; "*" stands for anything. Empty: all
  double timeout = 60;                    // seconds per check
  int64_t jobs = 1;
  Expectations expectations;
  bool sampled = false;  // not all checks are there, and a line of the expectations may name one that is not
  std::function<void(size_t done, size_t total, const std::string& name)> progress;
  std::function<void(const Result&)> each;  // as soon as it is known, in no particular order
};

struct Run {
  std::vector<Result> results;    // in the order of levels and suites
  bool missing_hardware = false;  // the plugin says that this machine lacks what it needs
  double seconds = 0;
  [[nodiscard]] size_t count(Status) const;
  [[nodiscard]] bool good() const;
};

Run run_checks(const RunOptions&);
// The checks that apply, without what they run.
Checks list_checks(const RunOptions&);

bool matches(const std::string& name, const std::string& pattern);  // "*" stands for any characters

}  // namespace tessera::conformance
