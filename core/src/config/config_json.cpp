// SPDX-License-Identifier: Apache-2.0
// `tessera config explain|options|modes` as JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/config.hpp"
#include "config/json_text.hpp"
#include "config/keys.hpp"

namespace tessera::core {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Value& value) {
  switch (value.type) {
    case OptionType::kInt: return value.i;
    case OptionType::kFloat:
      // JSON has no infinities; the TOML word is what a user would write.
      return std::isfinite(value.f) ? Json(value.f) : Json(to_text(value));
    case OptionType::kBool: return value.b;
    case OptionType::kString: return value.s;
    case OptionType::kStrings: break;
  }
  return value.strings;
}

Json origin_json(const Origin& origin) {
  Json out = {{"origin", to_text(origin)}};
  if (origin.kind == Origin::kFile) {
    out["file"] = origin.source;
    out["line"] = origin.line;
    out["column"] = origin.column;
  }
  return out;
}

Json setting_json(const std::string& key, const Setting& setting, const Value& fallback) {
  Json out = {{"key", key}, {"value", to_json(setting.value)}, {"default", to_json(fallback)}};
  out.update(origin_json(setting.origin));
  return out;
}

Json decl_json(const std::string& key, const OptionDecl& decl, const Json& plugin) {
  Json out = {{"key", key}, {"type", to_string(decl.type)}, {"default", to_json(decl.fallback)}};
  const auto bound = [&](double b) -> Json {
    if (!std::isfinite(b)) return nullptr;
    return decl.type == OptionType::kInt ? Json(static_cast<int64_t>(b)) : Json(b);
  };
  out["min"] = bound(decl.min);
  out["max"] = bound(decl.max);
  out["choices"] = decl.choices;
  out["help"] = decl.help;
  out["plugin"] = plugin;
  out["also"] = decl.also.empty() ? Json() : Json(decl.also);
  return out;
}

}  // namespace

std::string Config::explain_json() const {
  Json out;
  out["file"] = path_;
  out["mode"] = get_string("mode");
  Json& values = out["values"] = Json::array();
  for (const KeyDecl& k : known_keys()) values.push_back(setting_json(k.name, setting(k.name), k.fallback));
  for (const PluginSection& s : sections_)
    for (const OptionDecl& d : s.decls)
      values.push_back(setting_json(s.section + "." + d.name, s.settings.at(d.name), d.fallback));
  Json& plugins = out["plugins"] = Json::array();
  for (const PluginRequest& r : plugins_) {
    Json p = {{"id", r.id}, {"optional", r.optional}, {"present", false}};
    for (const PluginSection& s : sections_)
      if (s.id == r.id) p["present"] = true;
    p.update(origin_json(r.origin));
    plugins.push_back(std::move(p));
  }
  Json& passes = out["passes"] = Json::array();
  for (const PassRequest& r : passes_) {
    const PluginSection* s = provider("pass:" + r.name);
    Json options = Json::object();
    for (const auto& [name, value] : r.options.values()) options[name] = to_json(value);
    Json p = {{"name", r.name}, {"plugin", s ? Json(s->id) : Json()}, {"options", std::move(options)}};
    p.update(origin_json(r.origin));
    passes.push_back(std::move(p));
  }
  return json_text(out);
}

std::string Config::options_json() const {
  Json keys = Json::array();
  keys.push_back({{"key", kPluginsLoad},
                  {"type", "plugins"},
                  {"default", Json::array()},
                  {"min", nullptr},
                  {"max", nullptr},
                  {"choices", Json::array()},
                  {"help", "Plugins to load: ids, or { id = \"...\", optional = true }."},
                  {"plugin", nullptr},
                  {"also", nullptr}});
  keys.push_back({{"key", kPipelinePasses},
                  {"type", "passes"},
                  {"default", Json::array()},
                  {"min", nullptr},
                  {"max", nullptr},
                  {"choices", Json::array()},
                  {"help", "The pipeline: pass names, or { name = \"...\", option = value }."},
                  {"plugin", nullptr},
                  {"also", nullptr}});
  for (const KeyDecl& k : known_keys()) keys.push_back(decl_json(k.name, k, nullptr));
  for (const PluginSection& s : sections_)
    for (const OptionDecl& d : s.decls) keys.push_back(decl_json(s.section + "." + d.name, d, s.id));
  return json_text(Json{{"keys", std::move(keys)}});
}

std::string modes_json() {
  Json modes = Json::array();
  for (const ModeDecl& m : known_modes()) {
    Json overlay = Json::object();
    for (const auto& [key, value] : m.overlay) overlay[key] = to_json(value);
    modes.push_back({{"name", m.name}, {"help", m.help}, {"sets", std::move(overlay)}});
  }
  return json_text(Json{{"modes", std::move(modes)}});
}

}  // namespace tessera::core
