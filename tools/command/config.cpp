// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "json.hpp"
#include "session.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

// A JSON value as TOML writes it; the two agree on everything that a setting can be.
std::string toml(const Json& v) {
  if (v.is_array()) {
    std::string out;
    for (const Json& x : v) out += (out.empty() ? "" : ", ") + x.dump();
    return "[" + out + "]";
  }
  return v.is_null() ? "" : v.dump();
}

std::string limits(const Json& key) {
  if (!key.at("choices").empty()) {
    std::string out;
    for (const Json& c : key.at("choices")) out += (out.empty() ? "" : "|") + c.get<std::string>();
    return out;
  }
  const Json &min = key.at("min"), &max = key.at("max");
  if (min.is_null() && max.is_null()) return "";
  return max.is_null() ? ">= " + min.dump() : min.is_null() ? "<= " + max.dump() : min.dump() + ".." + max.dump();
}

int explain(const Options& options, const Json& d) {
  if (options.json()) {
    print_json("tessera.config_explain/1", d);
    return kOk;
  }
  std::cout << "config " << d.value("file", "") << ", mode " << d.value("mode", "") << "\n\n";
  Table values("lll", {"key", "value", "from"});
  for (const Json& v : d.at("values")) {
    const bool changed = v.at("value") != v.at("default");
    values.row({v.value("key", ""), toml(v.at("value")) + (changed ? "" : ""), v.value("origin", "")});
  }
  std::cout << values.text() << "\n";
  Table plugins("lll", {"plugin", "state", "from"});
  for (const Json& p : d.at("plugins"))
    plugins.row({p.value("id", ""),
                 p.value("present", false)    ? "present"
                 : p.value("optional", false) ? "missing (optional)"
                                              : "missing",
                 p.value("origin", "")});
  std::cout << plugins.text() << "\n";
  Table passes("rllll", {"", "pass", "plugin", "options", "from"});
  size_t n = 0;
  for (const Json& p : d.at("passes")) {
    std::string set;
    for (const auto& [name, value] : p.at("options").items()) set += (set.empty() ? "" : ", ") + name + " = " + toml(value);
    passes.row({std::to_string(++n), p.value("name", ""), p.at("plugin").is_string() ? p.at("plugin").get<std::string>() : "-",
                set, p.value("origin", "")});
  }
  std::cout << passes.text();
  return kOk;
}

int list_options(const Options& options, const Json& d) {
  if (options.json()) {
    print_json("tessera.config_options/1", d);
    return kOk;
  }
  for (const Json& k : d.at("keys")) {
    const std::string range = limits(k);
    std::cout << styled(Style::kBold, k.value("key", "")) << "  " << k.value("type", "") << (range.empty() ? "" : " " + range)
              << ", default " << toml(k.at("default"))
              << (k.at("plugin").is_string() ? ", of " + k.at("plugin").get<std::string>() : "")
              << (k.at("also").is_string() ? ", also " + k.at("also").get<std::string>() : "") << "\n    "
              << k.value("help", "") << "\n";
  }
  return kOk;
}

int modes(const Options& options) {
  const Json d = Json::parse(embed::text_of(embed::api().config_modes));
  if (options.json()) {
    print_json("tessera.config_modes/1", d);
    return kOk;
  }
  for (const Json& m : d.at("modes")) {
    std::cout << styled(Style::kBold, m.value("name", "")) << "\n    " << m.value("help", "") << "\n";
    for (const auto& [key, value] : m.at("sets").items()) std::cout << "    " << key << " = " << toml(value) << "\n";
  }
  return kOk;
}

}  // namespace

int config(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  std::string verb, file;
  options.positional("explain, options or modes", &verb);
  options.positional("FILE", &file, false);
  context.add_to(options, true, false);
  if (!options.parse(args)) return kOk;
  if (!file.empty() && !context.config.empty())
    throw usage_error("TSR-U003", "the config is given twice: " + quote(file) + " and --config " + quote(context.config));
  if (!file.empty()) context.config = file;
  if (verb == "modes") return modes(options);
  if (verb == "explain") return explain(options, Json::parse(embed::Context(context.options()).explain()));
  if (verb == "options") return list_options(options, Json::parse(embed::Context(context.options()).options()));
  throw usage_error("TSR-U001",
                    "tessera config: unknown subcommand " + quote(verb) + did_you_mean(verb, {"explain", "options", "modes"}),
                    "expected explain, options or modes");
}

}  // namespace tessera::command
