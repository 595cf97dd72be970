// SPDX-License-Identifier: Apache-2.0
// From text to settings: reading the file and the overrides, layering them. Binding to plugins: bind.cpp.
#include "config/config.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "config/document.hpp"
#include "config/keys.hpp"
#include "config/layers.hpp"

namespace tessera::core {
namespace {

namespace fs = std::filesystem;

Error wrong_use(std::string_view key, const char* what) {
  return bug("TSR-B040", "config key '" + std::string(key) + "' " + what, "this is a bug in Tessera: please report it");
}

void add_unknown(const std::string& place, const std::string& key, Faults& faults) {
  faults.add(TSR_USER, "TSR-C002", place + ": unknown key '" + key + "'" + did_you_mean(key, all_key_names()),
             "`tessera config options` lists every key");
}

// Reads plugins.load: ids, or tables { id = "...", optional = true }.
std::vector<PluginRequest> read_plugins(const Given& given, const std::string& file, Faults& faults) {
  std::vector<PluginRequest> out;
  constexpr const char* kExpected = "an array of plugin ids or { id = \"...\", optional = true } tables";
  if (given.node->kind != TomlNode::kArray) {
    faults.add(TSR_USER, "TSR-C003",
               given.place + ": '" + given.key + "': found " + describe(*given.node) + ", expected " + kExpected);
    return out;
  }
  for (const TomlNode& item : given.node->items) {
    PluginRequest request;
    const std::string place = given.raw ? given.place : place_of(file, item);
    request.origin = given.raw ? given.origin : origin_of(file, item);
    if (item.kind == TomlNode::kString) {
      request.id = item.s;
    } else if (item.kind == TomlNode::kTable) {
      for (const TomlNode& field : item.items) {
        const std::string at = given.raw ? given.place : place_of(file, field);
        if (field.key == "id" && field.kind == TomlNode::kString) {
          request.id = field.s;
        } else if (field.key == "optional" && field.kind == TomlNode::kBool) {
          request.optional = field.b;
        } else if (field.key == "id" || field.key == "optional") {
          faults.add(TSR_USER, "TSR-C003",
                     at + ": 'plugins.load': '" + field.key + "' is " + describe(field) + ", expected a " +
                         (field.key == "id" ? "string" : "bool"));
        } else {
          faults.add(TSR_USER, "TSR-C002",
                     at + ": unknown key '" + field.key + "' in an entry of 'plugins.load'" +
                         did_you_mean(field.key, {"id", "optional"}),
                     "a plugin's options stand in a section named after the last part of its id");
        }
      }
      if (request.id.empty() && !item.find("id"))
        faults.add(TSR_USER, "TSR-C009", place + ": an entry of 'plugins.load' has no 'id'");
    } else {
      faults.add(TSR_USER, "TSR-C003", place + ": 'plugins.load': found " + describe(item) + ", expected a plugin id");
    }
    if (item.kind == TomlNode::kString && request.id.empty())
      faults.add(TSR_USER, "TSR-C003", place + ": 'plugins.load': found an empty string, expected a plugin id");
    const bool twice = std::any_of(out.begin(), out.end(), [&](const PluginRequest& r) { return r.id == request.id; });
    if (twice)
      faults.add(TSR_USER, "TSR-C010", place + ": 'plugins.load' names '" + request.id + "' twice", "remove one of them");
    if (!request.id.empty() && !twice) out.push_back(std::move(request));
  }
  return out;
}

// Reads pipeline.passes: names, or tables { name = "fuse", option = value, ... }.
std::vector<PassRequest> read_passes(const Given& given, const std::string& file, Faults& faults) {
  std::vector<PassRequest> out;
  TomlNode split;
  const TomlNode* node = given.node;
  if (given.raw && node->kind == TomlNode::kString) {  // --set pipeline.passes=cse,dce
    split.kind = TomlNode::kArray;
    for (std::string_view rest = node->s; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      TomlNode item;
      item.kind = TomlNode::kString;
      item.s = std::string(rest.substr(0, comma));
      std::erase(item.s, ' ');
      if (!item.s.empty()) split.items.push_back(std::move(item));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    node = &split;
  }
  if (node->kind != TomlNode::kArray) {
    faults.add(TSR_USER, "TSR-C003",
               given.place + ": '" + given.key + "': found " + describe(*node) +
                   ", expected an array of pass names or { name = \"...\", option = value } tables");
    return out;
  }
  for (const TomlNode& item : node->items) {
    PassRequest request;
    const std::string place = given.raw ? given.place : place_of(file, item);
    request.origin = given.raw ? given.origin : origin_of(file, item);
    bool good = true;
    if (item.kind == TomlNode::kString) {
      request.name = item.s;
    } else if (item.kind == TomlNode::kTable) {
      for (const TomlNode& field : item.items) {
        const std::string at = given.raw ? given.place : place_of(file, field);
        Value value;
        if (field.key == "name") {
          if (field.kind == TomlNode::kString)
            request.name = field.s;
          else
            faults.add(TSR_USER, "TSR-C003", at + ": 'pipeline.passes': 'name' is " + describe(field) + ", expected a string");
          good = good && field.kind == TomlNode::kString;
        } else if (to_value(field, &value)) {
          request.given.emplace_back(field.key, Setting{std::move(value), given.raw ? given.origin : origin_of(file, field)});
        } else {
          faults.add(TSR_USER, "TSR-C003",
                     at + ": 'pipeline.passes': option '" + field.key + "' is " + describe(field) +
                         ", expected an int, float, bool, string or array of strings");
        }
      }
      if (!item.find("name")) {
        faults.add(TSR_USER, "TSR-C009", place + ": an entry of 'pipeline.passes' has no 'name'");
        good = false;
      }
    } else {
      faults.add(TSR_USER, "TSR-C003", place + ": 'pipeline.passes': found " + describe(item) + ", expected a pass's name");
      good = false;
    }
    if (good) out.push_back(std::move(request));
  }
  return out;
}

std::string absolute_dir(const Setting& setting, const std::string& dir, const std::string& config_path) {
  fs::path path(dir);
  if (path.is_relative() && setting.origin.kind == Origin::kFile) path = fs::path(config_path).parent_path() / path;
  std::error_code error;
  const fs::path full = fs::absolute(path, error);
  return (error ? path : full).lexically_normal().string();
}

}  // namespace

Config::Config() = default;
Config::~Config() = default;
Config::Config(const Config&) = default;
Config::Config(Config&&) noexcept = default;
Config& Config::operator=(const Config&) = default;
Config& Config::operator=(Config&&) noexcept = default;

Config Config::parse(const ConfigSource& source, Faults& faults) {
  auto document = std::make_shared<ConfigDocument>();
  Config config;
  config.path_ = source.path;
  try {
    document->root = parse_toml(source.text, source.path);
  } catch (const Error& e) {
    faults.add(e);
  }
  for (const std::string& text : source.overrides) {
    try {
      document->overrides.push_back(parse_override(text, "--set"));
    } catch (const Error& e) {
      faults.add(e);
    }
  }
  if (const char* off = std::getenv("TESSERA_FORCE_DISABLE_CACHES"); off && *off && std::string_view(off) != "0") {
    document->overrides.push_back(parse_override("force_disable_caches=true", "TESSERA_FORCE_DISABLE_CACHES"));
    document->overrides.back().layer = 1;
  }
  config.document_ = std::move(document);
  config.merge(faults);
  return config;
}

void Config::merge(Faults& faults) {
  for (const KeyDecl& k : known_keys()) settings_[k.name] = {k.fallback, {}};
  plugins_.clear();
  requested_passes_.clear();
  plugins_origin_ = passes_origin_ = {};

  const auto assign = [&](const Given& given) {
    if (given.key == kPluginsLoad) {
      plugins_ = read_plugins(given, path_, faults);
      plugins_origin_ = given.origin;
    } else if (given.key == kPipelinePasses) {
      requested_passes_ = read_passes(given, path_, faults);
      passes_origin_ = given.origin;
    } else if (const KeyDecl* decl = find_key(given.key)) {
      if (auto setting = check_given(*decl, given, faults)) settings_[decl->name] = std::move(*setting);
    } else {
      return false;
    }
    return true;
  };
  const auto overlay = [&](const ModeDecl* mode) {
    if (!mode) return;
    const Origin origin{Origin::kMode, mode->name, 0, 0};
    for (const auto& [key, value] : mode->overlay) {
      if (key != kPipelinePasses) {
        settings_[key] = {value, origin};
        continue;
      }
      requested_passes_.clear();
      passes_origin_ = origin;
      for (const std::string& pass : value.strings) {
        PassRequest request;
        request.name = pass;
        request.origin = origin;
        requested_passes_.push_back(std::move(request));
      }
    }
  };

  const ChosenModes modes = chosen_modes(*document_);
  overlay(modes.by_file);
  for (const TomlNode& top : document_->root.items) {
    const std::string place = place_of(path_, top);
    if (!is_known_section(top.key)) {
      // What is not known may be the section of a plugin, or a name that options of plugins have at this level:
      // apply_sections() decides.
      assign({&top, top.key, place, origin_of(path_, top)});
      continue;
    }
    if (top.kind != TomlNode::kTable) {
      faults.add(TSR_USER, "TSR-C003",
                 place + ": '" + top.key + "' is " + describe(top) + ", expected a section [" + top.key + "]");
      continue;
    }
    for (const TomlNode& item : top.items) {
      const std::string key = top.key + "." + item.key;
      if (!assign({&item, key, place_of(path_, item), origin_of(path_, item)})) add_unknown(place_of(path_, item), key, faults);
    }
  }

  overlay(modes.by_override);
  for (const Override& o : document_->overrides) {
    if (assign({&o.value, o.key, o.place, o.origin, &o.raw})) continue;
    if (is_known_section(o.key.substr(0, o.key.find('.')))) add_unknown(o.place, o.key, faults);
  }

  plugin_dirs_.clear();
  const Setting& dirs = setting("plugins.path");
  for (const std::string& dir : dirs.value.strings) plugin_dirs_.push_back(absolute_dir(dirs, dir, path_));
}

Config Config::derive(std::optional<std::string_view> mode, std::span<const std::string> overrides) const {
  Faults faults;
  Config out(*this);
  auto document = std::make_shared<ConfigDocument>(*document_);
  const int layer = document->overrides.empty() ? 1 : document->overrides.back().layer + 1;
  const auto add = [&](std::string_view text, const char* source) {
    try {
      document->overrides.push_back(parse_override(text, source));
      document->overrides.back().layer = layer;
    } catch (const Error& e) {
      faults.add(e);
    }
  };
  const size_t before = document->overrides.size();
  if (mode) add("mode=" + std::string(*mode), "compile");
  for (const std::string& text : overrides) add(text, "compile");
  for (size_t i = before; i < document->overrides.size(); ++i) {
    const Override& o = document->overrides[i];
    const KeyDecl* decl = find_key(o.key);
    bool fixed = o.key == kPluginsLoad || (decl && decl->fixed);
    const std::string section = o.key.substr(0, o.key.find('.'));
    for (const PluginSection& s : sections_) {
      // A pass reads its options at every run; everything else got them when it was created.
      const bool created = !std::all_of(s.provides.begin(), s.provides.end(), [](const std::string& p) {
        return p.starts_with("pass:") || p.starts_with("partitioner:");
      });
      if (s.section == section && section != o.key) fixed = created;
      for (const OptionDecl& d : s.decls) fixed = fixed || (created && !d.also.empty() && d.also == o.key);
    }
    if (fixed)
      faults.add(TSR_USER, "TSR-C012", o.place + ": '" + o.key + "' is fixed when the context is created",
                 "set it in the config file, or create another context");
  }
  faults.throw_if_any();
  out.document_ = std::move(document);
  out.merge(faults);
  out.apply_sections(faults);
  out.resolve_passes(faults);
  out.resolve_names(faults);
  faults.throw_if_any();
  return out;
}

const Setting& Config::setting(std::string_view key) const {
  const auto at = settings_.find(key);
  if (at == settings_.end()) throw wrong_use(key, "is not in the table");
  return at->second;
}

int64_t Config::get_int(std::string_view key) const {
  const Setting& s = setting(key);
  if (s.value.type != OptionType::kInt) throw wrong_use(key, "is not an int");
  return s.value.i;
}
double Config::get_float(std::string_view key) const {
  const Setting& s = setting(key);
  if (s.value.type != OptionType::kFloat) throw wrong_use(key, "is not a float");
  return s.value.f;
}
bool Config::get_bool(std::string_view key) const {
  const Setting& s = setting(key);
  if (s.value.type != OptionType::kBool) throw wrong_use(key, "is not a bool");
  return s.value.b;
}
const std::string& Config::get_string(std::string_view key) const {
  const Setting& s = setting(key);
  if (s.value.type != OptionType::kString) throw wrong_use(key, "is not a string");
  return s.value.s;
}
const std::vector<std::string>& Config::get_strings(std::string_view key) const {
  const Setting& s = setting(key);
  if (s.value.type != OptionType::kStrings) throw wrong_use(key, "is not a list of strings");
  return s.value.strings;
}

}  // namespace tessera::core
