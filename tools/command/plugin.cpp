// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "json.hpp"
#include "plugin_test.hpp"
#include "session.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

int status_of(const Json& faults) {
  int status = kOk;
  for (const Json& f : faults) {
    const std::string family = f.value("family", "bug");
    status = std::max<int>(status, family == "user" ? kUserMistake : family == "environment" ? kEnvironmentFault : kBug);
  }
  return status;
}

void print_faults(const Json& faults) {
  for (const Json& f : faults) {
    std::cerr << styled(Style::kRed, "error", 2) << "[" << f.value("code", "") << "] " << f.value("message", "") << "\n";
    if (const std::string hint = f.value("hint", ""); !hint.empty()) std::cerr << "  hint: " << hint << "\n";
  }
}

std::string joined(const Json& strings) {
  std::string out;
  for (const Json& s : strings) out += (out.empty() ? "" : " ") + s.get<std::string>();
  return out;
}

int list(const Options& options, const ContextArguments& context, bool all) {
  char* text = nullptr;
  const embed::ContextOptions wanted = context.options();
  embed::check(embed::api().plugin_list(embed::ContextOptionsView(wanted).get(), all ? 1 : 0, &text));
  const Json d = Json::parse(embed::take(text));
  int status = status_of(d.at("faults"));
  if (options.json()) {
    print_json("tessera.plugin_list/1", d);
    print_faults(d.at("faults"));
    return status;
  }
  Table table("llllll", {"plugin", "version", "stability", "provides", "loaded by the config", "state"});
  for (const Json& p : d.at("plugins"))
    table.row({p.value("id", ""), p.value("version", ""), p.value("stability", ""), joined(p.at("provides")),
               p.value("requested", false) ? "yes" : "no",
               p.at("faults").empty() ? "ok" : p.at("faults")[0].value("code", "")});
  for (const Json& m : d.at("missing"))
    table.row({m.value("id", ""), "-", "-", "-", "yes", m.value("optional", false) ? "missing (optional)" : "missing"});
  std::cout << table.text() << "\nconfig: " << d.value("config", "") << "\nsearched: ";
  std::string searched;
  for (const Json& s : d.at("searched")) searched += (searched.empty() ? "" : ", ") + s.get<std::string>();
  std::cout << searched << "\n";
  for (const Json& n : d.at("notices")) std::cerr << "note: " << n.get<std::string>() << "\n";
  print_faults(d.at("faults"));
  // Faults of plugins that the config does not name are shown with --all, and are nobody's mistake.
  for (const Json& p : d.at("plugins"))
    if (!p.at("faults").empty() && !p.value("requested", false)) print_faults(p.at("faults"));
  return status;
}

int check(const Options& options, const std::string& path) {
  const Json d = Json::parse(embed::text_of(embed::api().plugin_check, path.c_str()));
  const int status = status_of(d.at("faults"));
  print_faults(d.at("faults"));
  if (options.json()) {
    print_json("tessera.plugin_check/1", d);
    return status;
  }
  if (!d.value("ok", false)) return status;
  const Json& p = d.at("plugin");
  std::cout << styled(Style::kGreen, "ok") << "  " << p.value("id", "") << " " << p.value("version", "") << " by "
            << p.value("vendor", "") << ", ABI " << p.value("abi", "") << "\n";
  for (const Json& f : d.at("factories"))
    std::cout << "  provides " << f.value("kind", "") << " " << quote(f.value("name", "")) << "\n";
  const auto add = [](const char* before, const Json& text) {
    return text.is_string() ? before + text.get<std::string>() : "";
  };
  for (const Json& x : d.at("devices"))
    std::cout << "  device " << x.value("name", "") << add(": ", x.at("description")) << add(", ", x.at("architecture"))
              << add(", ", x.at("driver_version")) << "\n";
  for (const Json& o : p.at("options"))
    std::cout << "  option " << o.value("name", "") << " (" << o.value("type", "") << ", default " << o.value("default", "")
              << "): " << o.value("help", "") << "\n";
  return status;
}

}  // namespace

int plugin(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  std::string verb, path;
  bool all = false;
  PluginTest test;
  options.positional("list, check or test", &verb);
  options.positional("PATH", &path, false);
  context.add_to(options, true, false);
  test.add_to(options);
  options.flag("all", &all, "list: every plugin found, not only those that the config names.");
  if (!options.parse(args)) return kOk;
  if (verb == "list") {
    if (!path.empty())
      throw usage_error("TSR-U003", "tessera plugin list: superfluous argument " + quote(path), "see: tessera plugin --help");
    return list(options, context, all);
  }
  if (verb == "check") {
    if (path.empty())
      throw usage_error("TSR-U003", "tessera plugin check: PATH is missing", "name a plugin's library or its manifest");
    return check(options, path);
  }
  if (verb == "test") {
    if (path.empty())
      throw usage_error("TSR-U003", "tessera plugin test: PATH is missing", "name a plugin's library or its manifest");
    return test.run(options, context, path, args);
  }
  throw usage_error("TSR-U001",
                    "tessera plugin: unknown subcommand " + quote(verb) + did_you_mean(verb, {"list", "check", "test"}),
                    "expected list, check or test");
}

}  // namespace tessera::command
