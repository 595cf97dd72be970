// SPDX-License-Identifier: Apache-2.0
#include "plugin/plugin_host.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "log/log.hpp"
#include "plugin/library.hpp"
#include "plugin/manifest.hpp"
#include "plugin/tables.hpp"
#include "support/text.hpp"

#ifndef TESSERA_VERSION
#define TESSERA_VERSION "0.1.0"
#endif

namespace tessera::core {
namespace {

constexpr std::array<const char*, 9> kKindNames = {"?",      "opset",   "frontend", "pass", "partitioner",
                                                   "device", "backend", "executor", "store"};
// Through `factories`; whoever leaves out `destroy` has nothing to destroy.
constexpr size_t kDescPrefix = offsetof(tsr_plugin_desc, factories) + sizeof(tsr_plugin_desc::factories);
constexpr size_t kVersionPrefix = offsetof(tsr_plugin_desc, abi_minor) + sizeof(tsr_plugin_desc::abi_minor);
constexpr size_t kFactoryPrefix = offsetof(tsr_factory, self) + sizeof(tsr_factory::self);

std::string text_of(const char* s) { return s ? s : ""; }

std::string what_escaped() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "not a std::exception";
  }
}

// What this host can do beyond its version number: follows from the tables that it hands out.
std::vector<std::string> host_features(const tsr_host& host) {
  std::vector<std::string> out;
  if (host.core && host.core->parallel) out.emplace_back("parallel");
  if (host.graph) {
    out.emplace_back("graph");
    if (host.graph->rewrite) out.emplace_back("rewrite");
    if (host.graph->evaluate) out.emplace_back("evaluate");
    if (host.graph->estimate) out.emplace_back("estimate");
  }
  if (host.capture) out.emplace_back("capture");
  return out;
}

}  // namespace

const char* host_version() { return TESSERA_VERSION; }

const char* host_sanitizer() {
#if defined(__SANITIZE_ADDRESS__)
  return "address";
#elif defined(__SANITIZE_THREAD__)
  return "thread";
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return "address";
#elif __has_feature(thread_sanitizer)
  return "thread";
#else
  return "";
#endif
#else
  return "";
#endif
}

tsr_host make_host(const tsr_host_core* core, const tsr_graph_api* graph, const tsr_capture_api* capture) {
  tsr_host host{};
  host.struct_size = sizeof host;
  host.abi_major = TSR_ABI_MAJOR;
  host.abi_minor = TSR_ABI_MINOR;
  host.ir_version = TSR_IR_VERSION;
  host.version = host_version();
  host.sanitizer = host_sanitizer();
  host.core = core;
  host.graph = graph;
  host.capture = capture;
  return host;
}

const char* kind_name(uint32_t kind) { return kind < kKindNames.size() ? kKindNames[kind] : "?"; }

uint32_t kind_from_name(std::string_view name) {
  for (uint32_t k = 1; k < kKindNames.size(); ++k)
    if (name == kKindNames[k]) return k;
  return 0;
}

void Factory::check(tsr_error* e) const { throw_if(e, plugin->id, plugin->vendor); }
void Factory::escaped(const char* function) const {
  const std::string whose = plugin ? "plugin '" + plugin->id + "' (" + plugin->vendor + "): " : "";
  throw Error(TSR_BUG, "TSR-P046",
              whose + "an exception left " + function + " of " + kind_name(kind) + " '" + name + "': " + what_escaped(),
              "catch it in the plugin; the wrapper of <tessera/plugin.hpp> does");
}

struct PluginHost::Instance {
  LoadedPlugin plugin;
  tsr_plugin_desc desc{};
  void* self = nullptr;
  bool created = false;
  std::vector<TableCopy> tables;
};

namespace {

// The steps of loading one plugin. Each returns false after adding its faults; all faults of one step are collected.
class Loader {
 public:
  Loader(const tsr_host& host, const Manifest& manifest, Faults& faults) : host_(host), m_(manifest), faults_(faults) {}

  bool describe(tsr_plugin_query_fn query, tsr_plugin_desc* desc) {
    const tsr_plugin_desc* given = nullptr;
    if (!call("tsr_plugin_query", [&] { given = query(&host_); })) return false;
    if (!given)
      return blame("TSR-P024", "tsr_plugin_query returned NULL: it cannot describe itself to this host",
                   "ask its vendor for a build for Tessera " + std::string(host_version()));
    size_t size = 0;
    // The versions stand first in every version of the struct: an incompatible one is not read any further.
    if (!read_prefix(given, kVersionPrefix, sizeof *desc, desc, &size) ||
        (desc->abi_major == TSR_ABI_MAJOR && size < kDescPrefix))
      return blame(
          "TSR-P025",
          "its description has struct_size " + std::to_string(size) + ", expected at least " + std::to_string(kDescPrefix),
          "set desc.struct_size = sizeof(tsr_plugin_desc)");
    if (desc->abi_major != TSR_ABI_MAJOR)
      return user("TSR-P026",
                  "the library is built for plugin ABI " + std::to_string(desc->abi_major) + "." +
                      std::to_string(desc->abi_minor) + ", this host has " + std::to_string(TSR_ABI_MAJOR) + "." +
                      std::to_string(TSR_ABI_MINOR),
                  desc->abi_major > TSR_ABI_MAJOR ? "use a newer Tessera, or a build of the plugin for this one"
                                                  : "rebuild the plugin with this SDK");
    return compare(*desc);
  }

  // *missing: what the machine lacks for an optional plugin, which is then no fault.
  bool create(const tsr_plugin_desc& desc, const OptionSet& options, bool optional, void** instance, std::string* missing) {
    tsr_error* error = nullptr;
    if (!call("create", [&] { error = desc.create(&host_, options.view(), instance); })) return false;
    if (error && optional && host_.core->error_family(error) == TSR_ENVIRONMENT) {
      *missing = std::string("[") + host_.core->error_code(error) + "] " + host_.core->error_message(error);
      host_.core->error_free(error);
      return false;
    }
    return !returned(error, "TSR-P040", "could not be created");
  }

  // Reads and checks the factory array; on success every factory has a table copy.
  bool factories(const tsr_plugin_desc& desc, void* instance, std::vector<Factory>* out, std::vector<TableCopy>* tables) {
    const tsr_factory* items = nullptr;
    size_t count = 0, stride = 0;
    tsr_error* error = nullptr;
    if (!call("factories", [&] { error = desc.factories(instance, &items, &count, &stride); })) return false;
    if (returned(error, "TSR-P041", "could not list its factories")) return false;
    if (count > 0 && (!items || stride < kFactoryPrefix))
      return blame("TSR-P041",
                   "its factory array is " + std::string(items ? "" : "NULL or ") + "of stride " + std::to_string(stride) +
                       ", expected at least " + std::to_string(kFactoryPrefix),
                   "set *items, *count and *stride = sizeof(tsr_factory)");
    const size_t before = faults_.size();
    std::vector<std::string> found;
    for (size_t i = 0; i < count; ++i) {
      const tsr_factory& f = *TSR_AT(tsr_factory, items, stride, i);
      const std::string where = "factory " + std::to_string(i);
      if (f.kind < TSR_OPSET || f.kind > TSR_STORE) {
        blame("TSR-P041", where + " has kind " + std::to_string(f.kind) + ", expected 1.." + std::to_string(TSR_STORE),
              "use a tsr_kind");
        continue;
      }
      if (!f.name || !*f.name || !f.table) {
        blame("TSR-P044", where + " (" + kind_name(f.kind) + ") has " + (f.name && *f.name ? "a null table" : "no name"),
              "set both");
        continue;
      }
      const std::string id = std::string(kind_name(f.kind)) + ":" + f.name;
      if (std::find(found.begin(), found.end(), id) != found.end()) {
        blame("TSR-P045", "it has two factories " + id, "names are unique per kind");
        continue;
      }
      found.push_back(id);
      if (desc.abi_major == 0 &&
          ((f.kind == TSR_DEVICE && desc.abi_minor < 2) || (f.kind == TSR_EXECUTOR && desc.abi_minor < 3))) {
        user("TSR-P047",
             id + ": the library is built for plugin ABI " + std::to_string(desc.abi_major) + "." +
                 std::to_string(desc.abi_minor) + ", whose " + kind_name(f.kind) + " table is laid out in another way",
             "build the plugin with this SDK");
        continue;
      }
      std::vector<TableProblem> problems;
      tables->push_back(copy_table(static_cast<tsr_kind>(f.kind), id, f.table, &problems));
      for (const TableProblem& p : problems)
        blame(p.code, p.message,
              p.code == "TSR-P043" ? "set the table's struct_size = sizeof it" : "abi.h says which fields may be NULL");
      out->push_back({static_cast<tsr_kind>(f.kind), f.name, tables->back().get(), f.self, nullptr});
    }
    std::vector<std::string> promised = m_.provides;
    std::sort(promised.begin(), promised.end());
    std::sort(found.begin(), found.end());
    if (faults_.size() == before && promised != found)
      blame("TSR-P042",
            "it provides " + listed(found, "nothing") + "; its manifest (" + m_.place("provides") + ") says " +
                listed(promised, "nothing"),
            "list every factory under PROVIDES of tessera_add_plugin()");
    return faults_.size() == before;
  }

  bool add(tsr_family family, const char* code, const std::string& what, const std::string& hint) {
    faults_.add(family, code, m_.library_path + ": plugin '" + m_.id + "' (" + m_.vendor + "): " + what, hint);
    return false;
  }
  bool user(const char* code, const std::string& what, const std::string& hint) { return add(TSR_USER, code, what, hint); }
  // A contract that the plugin broke: its vendor must hear of it.
  bool blame(const std::string& code, const std::string& what, const std::string& hint) {
    return add(TSR_BUG, code.c_str(), what, hint.empty() ? "report this to " + m_.vendor : hint);
  }

 private:
  bool compare(const tsr_plugin_desc& d) {
    const size_t before = faults_.size();
    if (d.abi_minor_min > TSR_ABI_MINOR)
      user("TSR-P026",
           "the library needs plugin ABI " + std::to_string(TSR_ABI_MAJOR) + "." + std::to_string(d.abi_minor_min) +
               " or newer, this host has " + std::to_string(TSR_ABI_MAJOR) + "." + std::to_string(TSR_ABI_MINOR),
           "use a newer Tessera, or a build of the plugin for this one");
    if (d.ir_min > TSR_IR_VERSION || d.ir_max < TSR_IR_VERSION)
      user("TSR-P032",
           "the library reads graph IR versions " + std::to_string(d.ir_min) + " to " + std::to_string(d.ir_max) +
               ", this host has " + std::to_string(TSR_IR_VERSION),
           d.ir_min > TSR_IR_VERSION ? "use a newer Tessera, or a build of the plugin for this one"
                                     : "rebuild the plugin with this SDK");
    if (text_of(d.sanitizer) != host_sanitizer())
      user("TSR-P033",
           "the library is built with sanitizer '" + text_of(d.sanitizer) + "', this host with '" + host_sanitizer() + "'",
           "two sanitizer run times cannot share a process: build both the same way");
    const auto same = [&](const char* what, const char* found, const std::string& expected) {
      if (!found)
        blame("TSR-P027", std::string("its ") + what + " is NULL", "set desc." + std::string(what));
      else if (found != expected)
        blame("TSR-P028",
              std::string("the library says ") + what + " '" + found + "', its manifest (" + m_.place(what) + ") '" + expected +
                  "'",
              "use TSR_PLUGIN_ID, TSR_PLUGIN_VERSION and TSR_PLUGIN_VENDOR, which tessera_add_plugin() defines");
    };
    same("id", d.id, m_.id);
    same("version", d.version, m_.version);
    same("vendor", d.vendor, m_.vendor);
    if (!d.create) blame("TSR-P027", "its create is NULL", "set desc.create");
    if (!d.factories) blame("TSR-P027", "its factories is NULL", "set desc.factories");
    const std::vector<std::string> known = host_features(host_);
    if (d.num_features_needed > 0 && !d.features_needed)
      blame("TSR-P027", "its features_needed is NULL", "set it, or num_features_needed = 0");
    else
      for (size_t i = 0; i < d.num_features_needed; ++i) {
        const std::string feature = text_of(d.features_needed[i]);
        if (std::find(known.begin(), known.end(), feature) == known.end())
          user("TSR-P029",
               "it needs the feature '" + feature + "', which this host has not; it has " + listed(known, "nothing"),
               "use a newer Tessera, or a build of the plugin for this one");
      }
    if (d.num_features_provided > 0 && !d.features_provided)
      blame("TSR-P027", "its features_provided is NULL", "set it, or num_features_provided = 0");
    return faults_.size() == before;
  }

  // No exception may cross the boundary; one that does all the same must not take the process down.
  template <class F>
  bool call(const char* function, F&& f) {
    try {
      f();
      return true;
    } catch (...) {
      return blame("TSR-P046", std::string("an exception left ") + function + ": " + what_escaped(),
                   "catch it in the plugin; the wrapper of <tessera/plugin.hpp> does");
    }
  }

  // True when the plugin returned an error, which becomes a fault of its family.
  bool returned(tsr_error* e, const char* code, const char* what) {
    if (!e) return false;
    try {
      throw_if(e);
    } catch (const Error& inner) {
      const std::string hint = !inner.hint().empty()       ? inner.hint()
                               : inner.family() == TSR_BUG ? "report this to " + m_.vendor
                                                           : "";
      add(inner.family(), code, std::string(what) + ": [" + inner.code() + "] " + inner.message(), hint);
    }
    return true;
  }

  const tsr_host& host_;
  const Manifest& m_;
  Faults& faults_;
};

void destroy_quietly(const tsr_plugin_desc& desc, void* self, const std::string& id) {
  if (!desc.destroy) return;
  try {
    desc.destroy(self);
  } catch (...) {
    log_warning("plugin '" + id + "': an exception left destroy: " + what_escaped());
  }
}

}  // namespace

PluginHost::PluginHost(const tsr_host& host) : host_(host) {}

PluginHost::~PluginHost() {
  factories_.clear();
  while (!instances_.empty()) {
    Instance& last = *instances_.back();
    if (last.created) destroy_quietly(last.desc, last.self, last.plugin.id);
    instances_.pop_back();
  }
}

bool PluginHost::load(const Manifest& m, const OptionSet& options, bool optional, Faults& faults,
                      std::vector<std::string>* notices) {
  Loader loader(host_, m, faults);
  const OpenResult opened = open_library(m.library_path, m.hash);
  switch (opened.problem) {
    case OpenProblem::kNone: break;
    case OpenProblem::kMissingDependency:
      if (optional) {
        notices->push_back("optional plugin '" + m.id + "' is left out: " + opened.reason);
        return false;
      }
      return loader.add(TSR_ENVIRONMENT, "TSR-P021", "a library that it needs is missing: " + opened.reason,
                        "install that library, or make the plugin { optional = true }");
    case OpenProblem::kUndefinedSymbol:
      return loader.blame("TSR-P022", opened.reason, "link the plugin with what defines the symbol (tessera_add_plugin: LINK)");
    case OpenProblem::kNoEntryPoint: return loader.user("TSR-P023", opened.reason, "is this library a Tessera plugin?");
    case OpenProblem::kReplaced: return loader.user("TSR-P034", opened.reason, "restart the process to use the new library");
    case OpenProblem::kNotALibrary:
      return loader.add(TSR_ENVIRONMENT, "TSR-P020", "cannot be opened: " + opened.reason, "install the plugin again");
  }
  auto instance = std::make_unique<Instance>();
  if (!loader.describe(opened.query, &instance->desc)) return false;
  const tsr_plugin_desc& d = instance->desc;
  std::string missing;
  if (!loader.create(d, options, optional, &instance->self, &missing)) {
    if (!missing.empty())
      notices->push_back("optional plugin '" + m.id + "' is left out: " + missing.substr(0, missing.find('\n')));
    return false;
  }
  instance->created = true;
  instance->plugin = {m.id, m.version, m.vendor, m.stability, text_of(d.build_info), m.path, m.library_path, m.hash, {}};
  for (size_t i = 0; i < d.num_features_provided; ++i) instance->plugin.features.push_back(text_of(d.features_provided[i]));
  std::vector<Factory> found;
  if (!loader.factories(d, instance->self, &found, &instance->tables)) {
    destroy_quietly(d, instance->self, m.id);
    return false;
  }
  for (Factory& f : found) {
    f.plugin = &instance->plugin;
    factories_.push_back(std::make_unique<Factory>(std::move(f)));
  }
  if (log_enabled(Artifact::kPlugins))
    log_write(Artifact::kPlugins, "loaded " + m.id + " " + m.version + " (" + m.vendor + ") from " + m.library_path + ": " +
                                      listed(m.provides, "nothing"));
  if (log_enabled(Artifact::kPlugins, 1)) log_write(Artifact::kPlugins, 1, "  " + m.hash + ", " + text_of(d.build_info));
  instances_.push_back(std::move(instance));
  return true;
}

const Factory* PluginHost::find(tsr_kind kind, std::string_view name) const {
  for (const auto& f : factories_)
    if (f->kind == kind && f->name == name) return f.get();
  return nullptr;
}

const Factory& PluginHost::get(tsr_kind kind, std::string_view name) const {
  if (const Factory* f = find(kind, name)) return *f;
  const std::vector<std::string> known = names(kind);
  throw user_error("TSR-P030",
                   "no loaded plugin provides the " + std::string(kind_name(kind)) + " '" + std::string(name) + "'" +
                       did_you_mean(name, known),
                   std::string(kind == TSR_PASS ? "passe" : kind_name(kind)) +
                       "s of the loaded plugins: " + listed(known, "nothing") + "; further plugins are named in plugins.load");
}

std::vector<const Factory*> PluginHost::all(tsr_kind kind) const {
  std::vector<const Factory*> out;
  for (const auto& f : factories_)
    if (f->kind == kind) out.push_back(f.get());
  return out;
}

std::vector<const Factory*> PluginHost::all() const {
  std::vector<const Factory*> out;
  for (const auto& f : factories_) out.push_back(f.get());
  return out;
}

std::vector<std::string> PluginHost::names(tsr_kind kind) const {
  std::vector<std::string> out;
  for (const Factory* f : all(kind)) out.push_back(f->name);
  return out;
}

std::vector<const LoadedPlugin*> PluginHost::plugins() const {
  std::vector<const LoadedPlugin*> out;
  for (const auto& i : instances_) out.push_back(&i->plugin);
  return out;
}

}  // namespace tessera::core
