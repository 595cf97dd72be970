// SPDX-License-Identifier: Apache-2.0
// Finds, checks and loads plugins. Everything that a manifest can tell is checked before any library is opened; then the
// library describes itself (tsr_plugin_query) and the host compares. All faults of all plugins make one error (TSR-P,
// docs/errors.md). Libraries are never unloaded; instances are destroyed with the host.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "config/faults.hpp"
#include "config/options.hpp"
#include "support/error.hpp"
#include "tessera/abi.h"

namespace tessera::core {

struct Manifest;
struct PluginRequest;

const char* host_version();    // "0.1.0"
const char* host_sanitizer();  // "", "address", "thread"
// The struct handed to plugins, filled in around the given tables, which must live as long as the process.
tsr_host make_host(const tsr_host_core* core, const tsr_graph_api* graph, const tsr_capture_api* capture);

const char* kind_name(uint32_t kind);            // "backend"; "?" for a number that is no kind
uint32_t kind_from_name(std::string_view name);  // 0: no such kind

struct LoadedPlugin {
  std::string id, version, vendor, stability, build_info, manifest_path, library_path, hash;
  std::vector<std::string> features;  // features_provided
};

struct Factory {
  tsr_kind kind;
  std::string name;             // "eager"
  const void* table = nullptr;  // a full-size copy owned by the host: a tail that the plugin does not know is zero
  void* self = nullptr;         // first argument of the table's functions
  const LoadedPlugin* plugin = nullptr;

  // The table by its type: factory.as<tsr_backend>().
  template <class Table>
  const Table& as() const {
    return *static_cast<const Table*>(table);
  }
  // Throws the error that a callback of this factory returned, attributed to the plugin when it is a bug.
  void check(tsr_error* e) const;

  // Calls `f`, which calls `function` of the table: what it returns, or its error as check() throws it. An exception that
  // leaves the plugin, against the rules of the boundary, is TSR-P046 and its bug; errors of the host's own callbacks pass.
  template <class F>
  auto call(const char* function, F&& f) const {
    const auto guarded_call = [&] {
      try {
        return f();
      } catch (const Error&) {
        throw;
      } catch (...) {
        escaped(function);
      }
    };
    if constexpr (std::is_same_v<decltype(f()), tsr_error*>)
      check(guarded_call());
    else
      return guarded_call();
  }
  [[noreturn]] void escaped(const char* function) const;  // in a catch block
};

// Thread-safety: load() from one thread; lookups from any thread afterwards. Factories live as long as the host.
class PluginHost {
 public:
  // `host` must live as long as the process (plugins keep the pointer).
  explicit PluginHost(const tsr_host& host);
  ~PluginHost();  // destroys instances in reverse order of creation
  PluginHost(const PluginHost&) = delete;
  PluginHost& operator=(const PluginHost&) = delete;

  // Opens, checks and creates one plugin whose manifest has passed check_manifest(). Faults are added, nothing is thrown;
  // true: its factories are in use. An `optional` plugin that fails for want of another shared library, or whose `create`
  // reports a fault of the environment (hardware that is not there), is left out with a notice instead.
  bool load(const Manifest& manifest, const OptionSet& options, bool optional, Faults& faults,
            std::vector<std::string>* notices);

  const Factory* find(tsr_kind kind, std::string_view name) const;  // null: none
  // Throws TSR-P030 with what there is and a suggestion.
  const Factory& get(tsr_kind kind, std::string_view name) const;
  std::vector<const Factory*> all(tsr_kind kind) const;  // in load order
  std::vector<const Factory*> all() const;
  std::vector<std::string> names(tsr_kind kind) const;
  std::vector<const LoadedPlugin*> plugins() const;

  std::string loaded_json() const;  // plugins and factories in use; schema: docs/json.md, "loaded"

 private:
  struct Instance;
  const tsr_host& host_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<std::unique_ptr<Factory>> factories_;
};

}  // namespace tessera::core
