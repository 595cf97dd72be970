// SPDX-License-Identifier: Apache-2.0
// Binding a config to the plugins that it names: their sections, the pipeline, and names of backends and the like.
#include <algorithm>

#include "config/config.hpp"
#include "config/keys.hpp"
#include "config/layers.hpp"
#include "plugin/manifest.hpp"

namespace tessera::core {
namespace {

// "eager" of "tessera.backend.eager" and of "backend:eager".
std::string last_part(const std::string& id) { return id.substr(id.find_last_of(".:") + 1); }

std::string quoted_list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "" : ", ") + n;
  return out.empty() ? "none" : out;
}

const OptionDecl* find_decl(const std::vector<OptionDecl>& decls, std::string_view name) {
  for (const OptionDecl& d : decls)
    if (d.name == name) return &d;
  return nullptr;
}

std::string given_place(const Origin& origin) { return to_text(origin); }

}  // namespace

void Config::bind(std::span<const Manifest* const> plugins, std::span<const std::string> missing, Faults& faults,
                  std::span<const Manifest> found) {
  missing_.assign(missing.begin(), missing.end());
  sections_.clear();
  elsewhere_.clear();
  for (const Manifest& m : found)
    for (const OptionDecl& d : m.options)
      if (!d.also.empty() && std::none_of(plugins.begin(), plugins.end(), [&](const Manifest* p) { return p->id == m.id; }))
        elsewhere_.push_back({d.also, m.id, last_part(m.id) + "." + d.name});
  for (const Manifest* m : plugins) {
    PluginSection s;
    s.id = m->id;
    s.section = last_part(m->id);
    s.decls = m->options;
    s.provides = m->provides;
    const auto clash = std::find_if(sections_.begin(), sections_.end(), [&](const PluginSection& o) {
      // Sections of plugins without options are never written, so they cannot clash.
      return o.section == s.section && !o.decls.empty() && !s.decls.empty();
    });
    if (clash != sections_.end())
      faults.add(TSR_USER, "TSR-C007",
                 path_ + ": plugins '" + clash->id + "' and '" + s.id + "' share the section [" + s.section + "]",
                 "load only one of them in this config");
    if (is_known_section(s.section) && !s.decls.empty())
      faults.add(TSR_USER, "TSR-C007",
                 path_ + ": plugin '" + s.id + "' needs the section [" + s.section + "], which is Tessera's own",
                 "the last part of a plugin's id must not be the name of a config section; tell its vendor");
    sections_.push_back(std::move(s));
  }
  apply_sections(faults);
  resolve_passes(faults);
  resolve_names(faults);
}

bool Config::absent(std::string_view name) const {
  return std::any_of(missing_.begin(), missing_.end(), [&](const std::string& id) { return last_part(id) == name; });
}

const Config::PluginSection* Config::provider(std::string_view kind_and_name) const {
  for (const PluginSection& s : sections_)
    if (std::find(s.provides.begin(), s.provides.end(), kind_and_name) != s.provides.end()) return &s;
  return nullptr;
}

std::vector<std::string> Config::provided(std::string_view kind) const {
  std::vector<std::string> names;
  for (const PluginSection& s : sections_)
    for (const std::string& p : s.provides)
      if (p.size() > kind.size() && p[kind.size()] == ':' && p.starts_with(kind)) names.push_back(p.substr(kind.size() + 1));
  return names;
}

void Config::apply_sections(Faults& faults) {
  for (PluginSection& s : sections_) {
    s.settings.clear();
    for (const OptionDecl& d : s.decls) s.settings[d.name] = {d.fallback, {}};
  }
  const auto find_section = [&](std::string_view name) -> PluginSection* {
    PluginSection* found = nullptr;
    for (PluginSection& s : sections_)
      if (s.section == name && (!found || found->decls.empty())) found = &s;
    return found;
  };
  const auto assign = [&](const std::string& section, const std::string& option, const Given& given) {
    PluginSection* s = find_section(section);
    if (!s) {
      if (absent(section)) return;
      std::vector<std::string> keys = all_key_names();
      for (const PluginSection& p : sections_)
        for (const OptionDecl& d : p.decls) keys.push_back(p.section + "." + d.name);
      faults.add(TSR_USER, "TSR-C002", given.place + ": unknown key '" + given.key + "'" + did_you_mean(given.key, keys),
                 "a section is one of Tessera's own or the last part of the id of a plugin in plugins.load");
      return;
    }
    const OptionDecl* decl = find_decl(s->decls, option);
    if (!decl) {
      std::vector<std::string> names;
      for (const OptionDecl& d : s->decls) names.push_back(d.name);
      std::string suggestion = closest(option, names);
      if (!suggestion.empty()) suggestion = "; did you mean '" + section + "." + suggestion + "'?";
      faults.add(TSR_USER, "TSR-C002",
                 given.place + ": unknown key '" + given.key + "': plugin '" + s->id + "' has no such option" + suggestion,
                 "its options: " + quoted_list(names));
      return;
    }
    if (auto setting = check_given(*decl, given, faults)) s->settings[option] = std::move(*setting);
  };

  // A name at root level, for every option that has it. One complaint about a value is enough.
  const auto assign_general = [&](Given given) {
    const KeyDecl* own = find_key(given.key);
    Faults reported;  // by merge()
    if (own && !check_given(*own, given, reported)) return;
    // An override says its key; a place in the file shows it.
    if (!own && given.raw) given.origin.source += " " + given.key;
    bool known = own != nullptr;
    for (PluginSection& s : sections_)
      for (const OptionDecl& d : s.decls) {
        if (d.also != given.key) continue;
        auto setting = check_given(d, given, faults);
        if (!setting) return;
        s.settings[d.name] = std::move(*setting);
        known = true;
      }
    if (!known) unknown_name(given, faults);
  };
  const auto assign_mode = [&](const ModeDecl* mode) {
    if (!mode) return;
    for (const auto& [key, value] : mode->overlay)
      for (PluginSection& s : sections_)
        for (const OptionDecl& d : s.decls)
          if (d.also == key) s.settings[d.name] = {value, {Origin::kMode, mode->name, 0, 0}};
  };

  // In each layer the names at root level first: an option's own key is more specific.
  const ChosenModes modes = chosen_modes(*document_);
  assign_mode(modes.by_file);
  for (const TomlNode& top : document_->root.items)
    if (top.kind != TomlNode::kTable && !is_known_section(top.key))
      assign_general({&top, top.key, place_of(path_, top), origin_of(path_, top)});
  for (const TomlNode& top : document_->root.items) {
    if (top.kind != TomlNode::kTable || is_known_section(top.key) || find_key(top.key)) continue;
    if (top.items.empty() && !find_section(top.key) && !absent(top.key))
      faults.add(TSR_USER, "TSR-C002", place_of(path_, top) + ": unknown section '" + top.key + "'",
                 "a section is one of Tessera's own or the last part of the id of a plugin in plugins.load");
    for (const TomlNode& item : top.items)
      assign(top.key, item.key, {&item, top.key + "." + item.key, place_of(path_, item), origin_of(path_, item)});
  }
  assign_mode(modes.by_override);
  const std::vector<Override>& overrides = document_->overrides;
  for (size_t first = 0, end; first < overrides.size(); first = end) {
    for (end = first; end < overrides.size() && overrides[end].layer == overrides[first].layer;) ++end;
    for (const bool general : {true, false})
      for (size_t i = first; i < end; ++i) {
        const Override& o = overrides[i];
        const size_t dot = o.key.find('.');
        if (is_known_section(o.key.substr(0, dot)) || general != (dot == std::string::npos)) continue;
        const Given given{&o.value, o.key, o.place, o.origin, &o.raw};
        if (general)
          assign_general(given);
        else
          assign(o.key.substr(0, dot), o.key.substr(dot + 1), given);
      }
  }
  for (PluginSection& s : sections_) {
    std::vector<std::pair<std::string, Value>> values;
    for (const OptionDecl& d : s.decls) values.emplace_back(d.name, s.settings[d.name].value);
    s.options = OptionSet(std::move(values));
  }
}

void Config::unknown_name(const Given& given, Faults& faults) const {
  const auto at = std::find_if(elsewhere_.begin(), elsewhere_.end(), [&](const Elsewhere& e) { return e.name == given.key; });
  if (at == elsewhere_.end()) {
    std::vector<std::string> keys = all_key_names();
    for (const PluginSection& s : sections_)
      for (const OptionDecl& d : s.decls)
        if (!d.also.empty()) keys.push_back(d.also);
    faults.add(TSR_USER, "TSR-C002", given.place + ": unknown key '" + given.key + "'" + did_you_mean(given.key, keys),
               "`tessera config options` lists every key");
  } else if (std::find(missing_.begin(), missing_.end(), at->id) == missing_.end()) {  // else it was requested, and reported
    faults.add(TSR_USER, "TSR-C002",
               given.place + ": unknown key '" + given.key + "': no loaded plugin has an option of this name",
               "it is option '" + at->option + "' of plugin '" + at->id + "': add that to plugins.load");
  }
}

PassRequest Config::complete(PassRequest request, Faults& faults) const {
  const PluginSection* s = provider("pass:" + request.name);
  if (!s) return request;
  std::vector<std::pair<std::string, Value>> values = s->options.values();
  std::vector<std::string> names;
  for (const OptionDecl& d : s->decls) names.push_back(d.name);
  for (auto& [name, setting] : request.given) {
    const std::string what = given_place(setting.origin) + ": option '" + name + "' of pass '" + request.name + "': ";
    const OptionDecl* decl = find_decl(s->decls, name);
    if (!decl) {
      faults.add(TSR_USER, "TSR-C002",
                 given_place(setting.origin) + ": pass '" + request.name + "' (plugin '" + s->id + "') has no option '" + name +
                     "'" + did_you_mean(name, names),
                 "its options: " + quoted_list(names));
      continue;
    }
    const std::string problem = check_value(*decl, &setting.value);
    if (!problem.empty()) {
      faults.add(TSR_USER, setting.value.type != decl->type ? "TSR-C003" : "TSR-C004", what + problem, decl->help);
      continue;
    }
    for (auto& [n, v] : values)
      if (n == name) v = setting.value;
  }
  request.options = OptionSet(std::move(values));
  return request;
}

void Config::resolve_passes(Faults& faults) {
  passes_.clear();
  const std::vector<std::string> known = provided("pass");
  const Setting& skip = setting("pipeline.skip");
  for (const PassRequest& request : requested_passes_) {
    if (!provider("pass:" + request.name)) {
      if (!absent(request.name))
        faults.add(TSR_USER, "TSR-C008",
                   given_place(request.origin) + ": 'pipeline.passes' names '" + request.name +
                       "', which no loaded plugin provides" + did_you_mean(request.name, known),
                   "passes of the loaded plugins: " + quoted_list(known) + "; further plugins are named in plugins.load");
      continue;
    }
    if (std::find(skip.value.strings.begin(), skip.value.strings.end(), request.name) != skip.value.strings.end()) continue;
    passes_.push_back(complete(request, faults));
  }
  if (skip.origin.kind == Origin::kMode) return;  // a mode cannot know the pipeline
  std::vector<std::string> names;
  for (const PassRequest& r : requested_passes_) names.push_back(r.name);
  for (const std::string& s : skip.value.strings)
    if (std::find(names.begin(), names.end(), s) == names.end())
      faults.add(TSR_USER, "TSR-C008",
                 given_place(skip.origin) + ": 'pipeline.skip' names '" + s + "', which is not in 'pipeline.passes'" +
                     did_you_mean(s, names),
                 "the pipeline: " + quoted_list(names));
}

void Config::resolve_names(Faults& faults) {
  const auto require = [&](const char* key, const char* kind, const std::string& name, bool may_be_absent) {
    const Setting& s = setting(key);
    if (provider(std::string(kind) + ":" + name) || (may_be_absent && absent(name))) return;
    const std::vector<std::string> known = provided(kind);
    faults.add(
        TSR_USER, "TSR-C008",
        given_place(s.origin) + ": '" + key + "' names the " + kind + " '" + name + "', which no loaded plugin provides" +
            did_you_mean(name, known),
        std::string(kind) + "s of the loaded plugins: " + quoted_list(known) + "; further plugins are named in plugins.load");
  };
  const Setting& order = setting("backends.order");
  const std::vector<std::string>& names = order.value.strings;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<ptrdiff_t>(i)) {
      faults.add(TSR_USER, "TSR-C010", given_place(order.origin) + ": 'backends.order' names '" + names[i] + "' twice",
                 "remove one of them");
      continue;
    }
    require("backends.order", "backend", names[i], true);
  }
  if (!names.empty() && absent(names.back()) && !provider("backend:" + names.back())) {
    // The last one is what everything else falls back on: to go on without it would change results silently.
    const bool optional = std::any_of(plugins_.begin(), plugins_.end(),
                                      [&](const PluginRequest& r) { return r.optional && last_part(r.id) == names.back(); });
    if (optional)
      faults.add(TSR_USER, "TSR-C008",
                 given_place(order.origin) + ": the fallback backend '" + names.back() +
                     "' belongs to an optional plugin that is not there",
                 "put a backend that is always there last in 'backends.order'");
  }
  const std::string& partitioner = get_string("partitioner.name");
  if (!partitioner.empty()) require("partitioner.name", "partitioner", partitioner, false);
  const std::string& executor = get_string("executor.name");
  if (!executor.empty() && !get_bool("executor.optional")) require("executor.name", "executor", executor, false);
}

const OptionSet& Config::plugin_options(std::string_view plugin_id) const {
  for (const PluginSection& s : sections_)
    if (s.id == plugin_id) return s.options;
  throw bug("TSR-B041", "plugin '" + std::string(plugin_id) + "' is not part of this config");
}

OptionSet Config::pass_options(std::string_view pass, std::span<const std::pair<std::string, std::string>> given,
                               std::string_view place) const {
  Faults faults;
  PassRequest request;
  request.name = std::string(pass);
  request.origin = {Origin::kOverride, std::string(place), 0, 0};
  const PluginSection* s = provider("pass:" + request.name);
  for (const auto& [name, text] : given) {
    try {
      const TomlNode node = parse_override_value(text, std::string(place));
      const OptionDecl* decl = s ? find_decl(s->decls, name) : nullptr;
      if (!decl) {
        request.given.emplace_back(name, Setting{Value::of_string(text), request.origin});  // complete() refuses it
        continue;
      }
      const std::string key = request.name + "." + name;
      if (auto setting = check_given(*decl, {&node, key, std::string(place), request.origin, &text}, faults))
        request.given.emplace_back(name, std::move(*setting));
    } catch (const Error& e) {
      faults.add(e);
    }
  }
  request = complete(std::move(request), faults);
  faults.throw_if_any();
  return request.options;
}

}  // namespace tessera::core
