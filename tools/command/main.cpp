// SPDX-License-Identifier: Apache-2.0
// Finds the subcommand and turns what it throws into a message and an exit status.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include "command.hpp"
#include "json.hpp"
#include "npz/npz.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tessera::command {

int exit_status(tsr_family family) {
  return family == TSR_USER ? kUserMistake : family == TSR_ENVIRONMENT ? kEnvironmentFault : kBug;
}

const char* family_name(tsr_family family) {
  return family == TSR_USER ? "user" : family == TSR_ENVIRONMENT ? "environment" : "bug";
}

int help(const Command&, const std::vector<std::string>& args) {
  for (const std::string& a : args) {
    if (a.starts_with('-')) continue;
    for (const Command& c : commands())
      if (a == c.name && c.run != help) return c.run(c, {"--help"});
    std::vector<std::string> names;
    for (const Command& c : commands()) names.push_back(c.name);
    throw usage_error("TSR-U001", "unknown command " + quote(a) + did_you_mean(a, names), "see: tessera help");
  }
  std::cout << "Usage: tessera COMMAND [arguments]\n\nCompiles, runs and compares tensor programs.\n\n"
            << styled(Style::kBold, "Commands:") << "\n";
  for (const Command& c : commands()) {
    std::string name = c.name;
    name.resize(9, ' ');
    std::cout << "  " << name << c.summary << "\n";
  }
  std::cout << "\n`tessera COMMAND --help` describes one. Every command takes --json.\n"
               "Exit status: 0 done, 1 a check did not hold, 2 your mistake, 3 a fault of the machine, 70 a bug.\n\n"
               "Example:\n  tessera run model.tsr --config configs/default.toml --inputs in.npz --outputs out.npz\n";
  return kOk;
}

namespace {

int dispatch(const std::vector<std::string>& args) {
  const auto find = [](std::string_view name) -> const Command* {
    for (const Command& c : commands())
      if (name == c.name) return &c;
    return nullptr;
  };
  if (args.empty()) throw usage_error("TSR-U003", "no command given", "see: tessera help");
  std::string name = args[0];
  if (name == "--help" || name == "-h") name = "help";
  if (name == "--version") name = "version";
  if (const Command* c = find(name)) return c->run(*c, {args.begin() + 1, args.end()});
  std::vector<std::string> names;
  for (const Command& c : commands()) names.push_back(c.name);
  throw usage_error("TSR-U001", "unknown command " + quote(args[0]) + did_you_mean(args[0], names), "see: tessera help");
}

// npz files are input: their faults are the user's, but for those of the machine.
Error of(const npz::Error& e) { return {e.code() == "TSR-N010" ? TSR_ENVIRONMENT : TSR_USER, e.code(), e.what(), e.hint()}; }

int report(const Error& e, bool json) {
  std::fflush(stdout);
  // The first word carries the colour; the rest is what() as it is.
  const std::string what = e.what();
  std::fprintf(stderr, "%s%s\n", styled(Style::kRed, what.substr(0, 5), 2).c_str(), what.substr(5).c_str());
  const int status = exit_status(e.family());
  if (json)
    print_json("tessera.error/1", {{"code", e.code()},
                                   {"family", family_name(e.family())},
                                   {"message", e.message()},
                                   {"hint", e.hint()},
                                   {"exit_status", status}});
  return status;
}

int guarded_main(const std::vector<std::string>& args) {
  const bool json = std::find(args.begin(), args.end(), "--json") != args.end();
  try {
    return dispatch(args);
  } catch (const Error& e) {
    return report(e, json);
  } catch (const npz::Error& e) {
    return report(of(e), json);
  } catch (const std::bad_alloc&) {
    return report(Error(TSR_ENVIRONMENT, "TSR-R001", "out of memory"), json);
  } catch (const std::exception& e) {
    return report(Error(TSR_BUG, "TSR-B000", e.what(), "this is a bug in Tessera: please report it with the command line"),
                  json);
  }
}

}  // namespace
}  // namespace tessera::command

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);  // `tessera ops | head` ends quietly
  const int status = tessera::command::guarded_main({argv + 1, argv + argc});
  std::cout.flush();
  // A full disk or a closed pipe must not look like success.
  if (std::fflush(stdout) != 0 || !std::cout) {
    std::fputs("error[TSR-E012] stdout cannot be written\n", stderr);
    return status == 0 ? tessera::command::kEnvironmentFault : status;
  }
  return status;
}
