// SPDX-License-Identifier: Apache-2.0
#include "subject.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "check.hpp"

namespace tessera::conformance {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

std::string without_quotes(const std::string& toml) {
  return toml.size() >= 2 && toml.front() == '"' && toml.back() == '"' ? toml.substr(1, toml.size() - 2) : toml;
}

// The strings of `["a", "b"]`.
std::vector<std::string> strings_of(const std::string& toml) {
  std::vector<std::string> out;
  for (size_t at = toml.find('"'); at != toml.npos; at = toml.find('"', at + 1)) {
    const size_t end = toml.find('"', at + 1);
    if (end == toml.npos) break;
    out.push_back(toml.substr(at + 1, end - at - 1));
    at = end;
  }
  return out;
}

Manifest manifest_of(const Json& p) {
  Manifest m;
  m.path = p.value("manifest", "");
  m.library = p.value("library", "");
  m.id = p.value("id", "");
  m.version = p.value("version", "");
  m.vendor = p.value("vendor", "");
  m.sanitizer = p.value("sanitizer", "");
  for (const Json& x : p.at("provides")) m.provides.push_back(x);
  for (const Json& x : p.at("needs")) m.needs.push_back(x);
  for (const Json& o : p.at("options"))
    m.options.push_back({o.value("name", ""), o.value("type", ""), o.value("default", ""), o.value("range", "")});
  for (const Json& f : p.at("faults"))
    m.faults.push_back({f.value("code", ""), f.value("family", ""), f.value("message", ""), f.value("hint", "")});
  return m;
}

// What `plugin list` says of a plugin, or of all in the folder. That opens no library, but reads each that it names for
// its hash.
Json listed(const fs::path& folder, const std::string& id = {}) {
  e::ContextOptions wanted;
  wanted.config_text = std::string("[plugins]\nload = [") + (id.empty() ? "" : "\"" + id + "\"") + "]\n";
  wanted.plugin_dirs = {folder};
  char* text = nullptr;
  e::check(e::api().plugin_list(e::ContextOptionsView(wanted).get(), id.empty() ? 1 : 0, &text));
  return Json::parse(e::take(text));
}

// A folder may hold hundreds of megabytes of other plugins. They are not read where the manifest is named by its id, as
// tessera_add_plugin() names it.
Manifest find_manifest(const Settings& settings) {
  fs::path path(settings.plugin);
  if (path.extension() != ".toml") path.replace_extension(".toml");
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    throw e::Error(TSR_USER, "TSR-P001", settings.plugin + ": no manifest '" + path.string() + "' there",
                   "name a plugin's library or its manifest; tessera_add_plugin() writes both");
  const fs::path folder = fs::absolute(path).parent_path();
  Json list;
  for (const std::string& id : {path.stem().string(), std::string()}) {
    list = listed(folder, id);
    for (const Json& p : list.at("plugins"))
      if (fs::equivalent(p.value("manifest", ""), path, error)) return manifest_of(p);
  }
  for (const Json& f : list.at("faults"))
    throw e::Error(TSR_USER, f.value("code", "TSR-P002"), f.value("message", ""), f.value("hint", ""));
  throw e::Error(TSR_USER, "TSR-P002", path.string() + " is not a manifest of a plugin", "see docs/plugins.md");
}

}  // namespace

std::vector<std::string> Manifest::names(const std::string& kind) const {
  std::vector<std::string> out;
  for (const std::string& p : provides)
    if (p.starts_with(kind + ":")) out.push_back(p.substr(kind.size() + 1));
  return out;
}

const tsr_factory* Direct::find(tsr_kind kind, const std::string& name) const {
  for (size_t i = 0; i < count; ++i) {
    const tsr_factory* f = TSR_AT(tsr_factory, items, stride, i);
    if (f->kind == static_cast<uint32_t>(kind) && (name.empty() || name == f->name)) return f;
  }
  return nullptr;
}

DirectOptions::DirectOptions(const Manifest& manifest, const std::vector<std::string>& overrides) {
  const std::string prefix = manifest.section() + ".";
  for (const Manifest::Option& o : manifest.options) {
    std::string value = o.fallback;
    for (const std::string& s : overrides)
      if (s.starts_with(prefix + o.name + "=")) value = s.substr(prefix.size() + o.name.size() + 1);
    tsr_option item{};
    auto text = std::make_unique<Text>();
    item.name = o.name.c_str();
    if (o.type == "int") {
      item.kind = TSR_ATTR_INT;
      item.i = std::strtoll(value.c_str(), nullptr, 0);
    } else if (o.type == "float") {
      item.kind = TSR_ATTR_FLOAT;
      item.f = std::strtod(value.c_str(), nullptr);
    } else if (o.type == "bool") {
      item.kind = TSR_ATTR_BOOL;
      item.i = value == "true";
    } else if (o.type == "string") {
      item.kind = TSR_ATTR_STRING;
      text->s = without_quotes(value);
      item.s = text->s.c_str();
    } else {
      item.kind = TSR_ATTR_STRINGS;
      text->strings = strings_of(value);
      for (const std::string& s : text->strings) text->pointers.push_back(s.c_str());
      item.strings = text->pointers.data();
      item.count = static_cast<uint32_t>(text->pointers.size());
    }
    texts_.push_back(std::move(text));
    items_.push_back(item);
  }
  options_.struct_size = sizeof options_;
  options_.items = items_.data();
  options_.count = items_.size();
  options_.stride = sizeof(tsr_option);
}

Subject::Subject(Settings settings) : settings_(std::move(settings)), manifest_(find_manifest(settings_)) {}

const char* Subject::judge() const { return manifest_.id == "tessera.backend.reference" ? "eager" : "reference"; }

std::string Subject::order_of(const std::string& name, bool fallback) const {
  return "\"" + name + "\"" + (fallback && name != judge() ? ", \"" + std::string(judge()) + "\"" : "");
}

const e::Context& Subject::context(const std::string& order, const std::string& passes, const std::string& more) {
  const std::string key = order + "|" + passes + "|" + more;
  if (const auto it = contexts_.find(key); it != contexts_.end()) return it->second;
  std::vector<std::string> load = {"tessera.opset.standard", "tessera.frontend.text", "tessera.backend.eager",
                                   "tessera.backend.reference"};
  if (!passes.empty()) load.emplace_back("tessera.pass.fuse");
  for (const std::string& id : manifest_.needs) load.push_back(id);
  for (const std::string& id : settings_.load) load.push_back(id);
  load.push_back(manifest_.id);
  e::ContextOptions o;
  o.config_text = "name = \"conformance\"\n[plugins]\nload = [";
  std::set<std::string> seen;
  for (const std::string& id : load)
    if (seen.insert(id).second) o.config_text += (seen.size() > 1 ? ", \"" : "\"") + id + "\"";
  o.config_text +=
      "]\n[backends]\norder = [" + order + "]\non_compile_error = \"error\"\n[pipeline]\npasses = [" + passes + "]\n" + more;
  o.overrides = settings_.overrides;
  o.plugin_dirs.push_back(fs::absolute(manifest_.path).parent_path().string());
  for (const std::string& d : settings_.plugin_dirs) o.plugin_dirs.push_back(d);
  return contexts_.emplace(key, e::Context(o)).first->second;
}

void* Subject::open() {
  if (!handle_) handle_ = dlopen(manifest_.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_) throw Failed("the library cannot be opened: " + std::string(dlerror()));
  return handle_;
}

tsr_plugin_query_fn Subject::query() {
  void* symbol = dlsym(open(), "tsr_plugin_query");
  if (!symbol) throw Failed("the library does not export tsr_plugin_query");
  return reinterpret_cast<tsr_plugin_query_fn>(symbol);
}

const Direct& Subject::direct() {
  if (direct_) return *direct_;
  auto d = std::make_unique<Direct>();
  d->desc = query()(e::api().host);
  if (!d->desc) throw Failed("tsr_plugin_query returned NULL");
  const DirectOptions options(manifest_, settings_.overrides);
  if (const std::string what = text_of_error(d->desc->create(e::api().host, options.get(), &d->instance)); !what.empty())
    throw Failed("create failed: " + what);
  if (const std::string what = text_of_error(d->desc->factories(d->instance, &d->items, &d->count, &d->stride)); !what.empty())
    throw Failed("factories failed: " + what);
  direct_ = std::move(d);
  return *direct_;
}

const tsr_backend& Subject::backend_table(const std::string& name, void** self) {
  const tsr_factory* f = direct().find(TSR_BACKEND, name);
  if (!f) throw Failed("factories lists no backend '" + name + "', which the manifest promises");
  *self = f->self;
  return *static_cast<const tsr_backend*>(f->table);
}

std::string text_of_error(tsr_error* error) {
  try {
    e::check(error);
    return "";
  } catch (const e::Error& x) {
    return x.what();
  }
}

}  // namespace tessera::conformance
