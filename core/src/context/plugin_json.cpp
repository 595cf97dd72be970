// SPDX-License-Identifier: Apache-2.0
// `tessera plugin list|check` and the loaded plugins as JSON.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/json_text.hpp"
#include "context/context.hpp"
#include "context/resolve.hpp"
#include "plugin/manifest.hpp"

namespace tessera::core {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const char* family_name(tsr_family family) {
  return family == TSR_USER ? "user" : family == TSR_ENVIRONMENT ? "environment" : "bug";
}

Json faults_json(const Faults& faults) {
  Json out = Json::array();
  for (const Fault& f : faults.items())
    out.push_back({{"code", f.code}, {"family", family_name(f.family)}, {"message", f.message}, {"hint", f.hint}});
  return out;
}

Json manifest_json(const Manifest& m) {
  Json options = Json::array();
  for (const OptionDecl& d : m.options)
    options.push_back({{"name", d.name},
                       {"type", to_string(d.type)},
                       {"default", to_text(d.fallback)},
                       {"range", range_text(d)},
                       {"help", d.help},
                       {"also", d.also.empty() ? Json() : Json(d.also)}});
  return {{"id", m.id},
          {"version", m.version},
          {"vendor", m.vendor},
          {"stability", m.stability},
          {"manifest", m.path},
          {"library", m.library_path},
          {"hash", m.hash},
          {"platform", m.platform},
          {"abi", std::to_string(m.abi_major) + "." + std::to_string(m.abi_minor)},
          {"ir", Json::array({m.ir_min, m.ir_max})},
          {"sanitizer", m.sanitizer},
          {"provides", m.provides},
          {"needs", m.needs},
          {"options", std::move(options)}};
}

}  // namespace

std::string PluginHost::loaded_json() const {
  Json plugins = Json::array();
  for (const LoadedPlugin* instance : this->plugins()) {
    Json factories = Json::array();
    for (const Factory* f : all())
      if (f->plugin == instance) factories.push_back({{"kind", kind_name(f->kind)}, {"name", f->name}});
    plugins.push_back({{"id", instance->id},
                       {"version", instance->version},
                       {"vendor", instance->vendor},
                       {"stability", instance->stability},
                       {"manifest", instance->manifest_path},
                       {"library", instance->library_path},
                       {"hash", instance->hash},
                       {"build_info", instance->build_info},
                       {"features", instance->features},
                       {"factories", std::move(factories)}});
  }
  return json_text(Json{{"plugins", std::move(plugins)}});
}

std::string plugin_list_json(const tsr_context_options* options, bool all) {
  const ResolvedPlugins resolved = resolve_plugins(options);
  Json plugins = Json::array();
  for (const Manifest& m : resolved.manifests) {
    const auto& requested = resolved.config.plugins();
    const auto request = std::find_if(requested.begin(), requested.end(), [&](const PluginRequest& r) { return r.id == m.id; });
    if (request == requested.end() && !all) continue;
    Faults faults;
    check_manifest(m, faults);
    Json row = manifest_json(m);
    row["requested"] = request != requested.end();
    row["faults"] = faults_json(faults);
    plugins.push_back(std::move(row));
  }
  Json missing = Json::array();
  for (const PluginRequest& r : resolved.config.plugins())
    if (std::none_of(resolved.manifests.begin(), resolved.manifests.end(), [&](const Manifest& m) { return m.id == r.id; }))
      missing.push_back({{"id", r.id}, {"optional", r.optional}, {"origin", to_text(r.origin)}});
  return json_text(Json{{"config", resolved.config.source_path()},
                        {"searched", resolved.search_dirs},
                        {"plugins", std::move(plugins)},
                        {"missing", std::move(missing)},
                        {"notices", resolved.notices},
                        {"faults", faults_json(resolved.faults)}});
}

namespace {

// What a plugin's devices say about themselves; one that cannot is a fault.
Json devices_json(const PluginHost& plugins, Faults& faults) {
  const auto text = [](const char* s) { return s ? Json(s) : Json(nullptr); };
  Json out = Json::array();
  for (const Factory* f : plugins.all(TSR_DEVICE)) {
    const auto& table = *static_cast<const tsr_device_table*>(f->table);
    for (uint32_t i = 0; i < table.count; ++i) {
      tsr_device_info info{};
      info.struct_size = sizeof info;
      try {
        throw_if(table.info(f->self, i, &info));
      } catch (const Error& e) {
        faults.add(e.family(), e.code(), e.message(), e.hint());
        continue;
      }
      out.push_back({{"name", text(info.name)},
                     {"description", text(info.description)},
                     {"architecture", text(info.architecture)},
                     {"driver_version", text(info.driver_version)}});
    }
  }
  return out;
}

}  // namespace

std::string plugin_check_json(const std::string& path, const tsr_host& host) {
  Faults faults;
  Json out;
  fs::path manifest_path(path);
  if (manifest_path.extension() != ".toml") manifest_path.replace_extension(".toml");
  std::error_code error;
  if (!fs::is_regular_file(manifest_path, error)) {
    const bool there = fs::exists(path, error);
    faults.add(TSR_USER, "TSR-P001",
               path + ": " + (there ? "no manifest '" + manifest_path.string() + "' beside it" : "no such file"),
               there ? "build the plugin with tessera_add_plugin(), which writes one" : "name a plugin's library or manifest");
    out = {{"path", path},
           {"ok", false},
           {"plugin", nullptr},
           {"factories", Json::array()},
           {"devices", Json::array()},
           {"faults", faults_json(faults)}};
    return json_text(out);
  }
  const Manifest m = read_manifest(manifest_path.string());
  check_manifest(m, faults);
  Json factories = Json::array(), devices = Json::array();
  std::vector<std::string> notices;
  if (faults.empty()) {
    std::vector<std::pair<std::string, Value>> defaults;
    for (const OptionDecl& d : m.options) defaults.emplace_back(d.name, d.fallback);
    PluginHost plugins(host);
    plugins.load(m, OptionSet(std::move(defaults)), false, faults, &notices);
    for (const Factory* f : plugins.all()) factories.push_back({{"kind", kind_name(f->kind)}, {"name", f->name}});
    devices = devices_json(plugins, faults);
  }
  out = {{"path", path},
         {"ok", faults.empty()},
         {"plugin", manifest_json(m)},
         {"factories", std::move(factories)},
         {"devices", std::move(devices)},
         {"faults", faults_json(faults)}};
  return json_text(out);
}

}  // namespace tessera::core
