// SPDX-License-Identifier: Apache-2.0
#include "context/resolve.hpp"

#include <algorithm>
#include <map>

#include "config/document.hpp"
#include "config/paths.hpp"
#include "support/text.hpp"

namespace tessera::core {
namespace {

// The prefix of the options that the caller knew of.
tsr_context_options read_options(const tsr_context_options* given) {
  tsr_context_options out{};
  if (!given) return out;
  if (TSR_HAS(given, tsr_context_options, config_path)) out.config_path = given->config_path;
  if (TSR_HAS(given, tsr_context_options, config_text)) out.config_text = given->config_text;
  if (TSR_HAS(given, tsr_context_options, num_overrides)) {
    out.overrides = given->overrides;
    out.num_overrides = given->num_overrides;
  }
  if (TSR_HAS(given, tsr_context_options, num_plugin_dirs)) {
    out.plugin_dirs = given->plugin_dirs;
    out.num_plugin_dirs = given->num_plugin_dirs;
  }
  return out;
}

ConfigSource read_source(const tsr_context_options& options) {
  ConfigSource source;
  for (size_t i = 0; i < options.num_overrides; ++i) source.overrides.emplace_back(options.overrides[i]);
  if (options.config_text) {
    source.path = "<text>";
    source.text = options.config_text;
    return source;
  }
  source.path = resolve_config_path(options.config_path ? options.config_path : "default");
  source.text = read_text_file(source.path, 4u << 20);
  return source;
}

void check_needs(const std::vector<ResolvedPlugin>& plugins, const std::vector<PluginRequest>& requested, Faults& faults) {
  for (const ResolvedPlugin& p : plugins)
    for (const std::string& id : p.manifest->needs)
      if (std::none_of(requested.begin(), requested.end(), [&](const PluginRequest& r) { return r.id == id; }))
        faults.add(
            TSR_USER, "TSR-P011",
            p.manifest->place("needs") + ": plugin '" + p.manifest->id + "' needs '" + id + "', which is not in plugins.load",
            "add \"" + id + "\" to plugins.load");
}

void check_factories(const std::vector<ResolvedPlugin>& plugins, Faults& faults) {
  std::map<std::string, const Manifest*> owners;
  for (const ResolvedPlugin& p : plugins)
    for (const std::string& item : p.manifest->provides) {
      const auto [at, fresh] = owners.emplace(item, p.manifest);
      if (!fresh)
        faults.add(TSR_USER, "TSR-P014",
                   p.manifest->place("provides") + ": plugins '" + at->second->id + "' and '" + p.manifest->id +
                       "' both provide " + item,
                   "load only one of them in this config");
    }
}

}  // namespace

ResolvedPlugins resolve_plugins(const tsr_context_options* given) {
  const tsr_context_options options = read_options(given);
  ResolvedPlugins out;
  out.config = Config::parse(read_source(options), out.faults);
  for (size_t i = 0; i < options.num_plugin_dirs; ++i) out.search_dirs.emplace_back(options.plugin_dirs[i]);
  for (const std::string& dir : out.config.plugin_dirs()) out.search_dirs.push_back(dir);
  out.search_dirs.push_back(default_plugin_dir());
  out.manifests = find_manifests(out.search_dirs);

  std::vector<std::string> known, absent;
  for (const Manifest& m : out.manifests) known.push_back(m.id);
  for (const PluginRequest& request : out.config.plugins()) {
    const auto at =
        std::find_if(out.manifests.begin(), out.manifests.end(), [&](const Manifest& m) { return m.id == request.id; });
    if (at == out.manifests.end()) {
      absent.push_back(request.id);
      if (request.optional)
        out.notices.push_back("optional plugin '" + request.id + "' is not installed; going on without it");
      else
        out.faults.add(TSR_USER, "TSR-P001",
                       to_text(request.origin) + ": plugin '" + request.id + "' not found" + did_you_mean(request.id, known),
                       "searched: " + listed(out.search_dirs, "nothing"));
      continue;
    }
    const size_t before = out.faults.size();
    check_manifest(*at, out.faults);
    if (out.faults.size() == before)
      out.plugins.push_back({&*at, request.optional});
    else {
      absent.push_back(request.id);
      absent.insert(absent.end(), at->provides.begin(), at->provides.end());
    }
  }
  check_needs(out.plugins, out.config.plugins(), out.faults);
  check_factories(out.plugins, out.faults);
  std::vector<const Manifest*> sound;
  for (const ResolvedPlugin& p : out.plugins) sound.push_back(p.manifest);
  out.config.bind(sound, absent, out.faults, out.manifests);
  return out;
}

}  // namespace tessera::core
