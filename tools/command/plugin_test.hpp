// SPDX-License-Identifier: Apache-2.0
// The options of `tessera plugin test`, and the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.hpp"
#include "session.hpp"

namespace tessera::command {

struct PluginTest {
  std::string level = "L3", filter, expect, junit, html;
  std::vector<std::string> load, models;
  bool all = false, list = false, progress = false;
  int64_t sample = 1, jobs = 2;
  double timeout = 60;

  void add_to(Options&);
  // `args`: those of the subcommand, with which workers are started again.
  int run(const Options&, const ContextArguments&, const std::string& path, const std::vector<std::string>& args);
};

}  // namespace tessera::command
