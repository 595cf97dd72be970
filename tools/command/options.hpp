// SPDX-License-Identifier: Apache-2.0
// The command line of one subcommand, over Boost.Program_options. Values land in the caller's variables; their values before
// parse() are the defaults. Every command has --help and --json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"

namespace tessera::command {

class Options {
 public:
  explicit Options(const Command& command);
  ~Options();
  Options(const Options&) = delete;

  // `name` may carry a short form: "output,o". `what` stands for the value in the help text: "FILE".
  void flag(const char* name, bool* out, const char* help);
  void value(const char* name, const char* what, std::string* out, const char* help);
  void choice(const char* name, std::vector<std::string> choices, std::string* out, const char* help);
  void integer(const char* name, const char* what, int64_t* out, int64_t min, int64_t max, const char* help);
  void number(const char* name, const char* what, double* out, double min, double max, const char* help);
  void list(const char* name, const char* what, std::vector<std::string>* out, const char* help);  // may be repeated
  // In the order of the calls; required ones first.
  void positional(const char* what, std::string* out, bool required = true);

  // False: --help was given and answered. Throws TSR-U002..5.
  bool parse(const std::vector<std::string>& args);
  bool json() const;
  bool given(const char* name) const;
  std::string help() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::command
