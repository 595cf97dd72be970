// SPDX-License-Identifier: Apache-2.0
// A subcommand and the table of them all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/embed.hpp"

namespace tessera::command {

using embed::Error;

struct Command {
  const char* name;       // "run"
  const char* arguments;  // "MODEL --config FILE [options]"
  const char* summary;    // one sentence
  const char* example;    // command lines, each on a line of its own
  int (*run)(const Command&, const std::vector<std::string>& args);
};

std::span<const Command> commands();  // in the order of the help text

// What the process exits with. A failed check is a result, not a mistake: `run --check`, `compare --max-rel`. kSlower and
// kInconclusive are those of `compare --gate`.
enum ExitStatus : int {
  kOk = 0,
  kCheckFailed = 1,
  kUserMistake = 2,
  kEnvironmentFault = 3,
  kSlower = 4,
  kInconclusive = 5,
  kBug = 70
};
int exit_status(tsr_family family);
const char* family_name(tsr_family family);  // "user", "environment", "bug"

// The command's own codes:
//   TSR-U001  unknown command or subcommand       TSR-U006  a size that does not fit the model
//   TSR-U002  unknown option                      TSR-U007  no such input
//   TSR-U003  missing or superfluous argument     TSR-U008  a file that cannot be read or written
//   TSR-U004  malformed value of an option        TSR-U009  a name or directory that `new` cannot use
//   TSR-U005  a value out of range                TSR-U010  a check that did not hold
//                                                 TSR-U011  a folder without a trace
//                                                 TSR-U012  a plugin whose checks cannot be listed
inline Error usage_error(const char* code, const std::string& message, const std::string& hint = {}) {
  return {TSR_USER, code, message, hint};
}

// One per file of the same name.
int run_model(const Command&, const std::vector<std::string>&);
int bench(const Command&, const std::vector<std::string>&);
int opt(const Command&, const std::vector<std::string>&);
int memory(const Command&, const std::vector<std::string>&);
int import_model(const Command&, const std::vector<std::string>&);
int compile_model(const Command&, const std::vector<std::string>&);
int compare(const Command&, const std::vector<std::string>&);
int plugin(const Command&, const std::vector<std::string>&);
int cache(const Command&, const std::vector<std::string>&);
int config(const Command&, const std::vector<std::string>&);
int ops(const Command&, const std::vector<std::string>&);
int report_traces(const Command&, const std::vector<std::string>&);
int scaffold(const Command&, const std::vector<std::string>&);
int version(const Command&, const std::vector<std::string>&);
int help(const Command&, const std::vector<std::string>&);

}  // namespace tessera::command
