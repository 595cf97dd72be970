// SPDX-License-Identifier: Apache-2.0
// A context: one config, the plugins it names, and the ops they define. Everything else in the core is handed a context.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.hpp"
#include "ir/records.hpp"
#include "plugin/plugin_host.hpp"
#include "tessera/embed.h"

namespace tessera::core {

class Cache;

// One step of the pipeline: the pass and its options (`options.view()` goes to tsr_pass.run).
struct BoundPass {
  const Factory* factory;
  OptionSet options;
};

// One line for each setting that somebody gave and that does nothing.
std::vector<std::string> idle_settings(const Config& config);

// Immutable after create(): any number of threads may use it. Graphs, executables and callables hold a shared_ptr, so
// plugins outlive whatever they made.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // Reads the config, checks manifests, loads plugins, parses op records. Throws one Error that lists every fault found
  // (TSR-C config, TSR-P plugins, TSR-O records). `host` must live as long as the process; see make_host().
  // Options may be null: the built-in default config.
  static std::shared_ptr<Context> create(const tsr_context_options* options, const tsr_host& host);
  ~Context();

  const Config& config() const { return config_; }
  const OpRegistry& ops() const { return ops_; }
  const PluginHost& plugins() const { return plugins_; }
  Cache* cache() const { return cache_.get(); }  // thread-safe; null: nothing is cached

  // ---- lookups by name; a missing one throws TSR-P030 with a suggestion
  const Factory& pass(std::string_view name) const { return plugins_.get(TSR_PASS, name); }
  const Factory& backend(std::string_view name) const { return plugins_.get(TSR_BACKEND, name); }
  const Factory& frontend(std::string_view name) const { return plugins_.get(TSR_FRONTEND, name); }
  const Factory& device(std::string_view name) const { return plugins_.get(TSR_DEVICE, name); }
  // The frontend that reads this file: the highest probe of `head` (its first bytes), then the extension. Throws TSR-P031
  // when none does, naming the ones there are.
  const Factory& frontend_for(std::string_view path, std::string_view head) const;

  // ---- what the config asks for; `config` is this context's own or one derived from it (a callable's mode and options)
  std::vector<const Factory*> backends_in_order(const Config& config) const;
  std::vector<const Factory*> backends_in_order() const { return backends_in_order(config_); }
  // "eager,reference" as given to compile(); throws TSR-P030, TSR-C for an empty list.
  std::vector<const Factory*> backends_named(std::string_view comma_separated) const;
  const Factory& fallback_backend() const { return *backends_in_order().back(); }
  // The config's passes of one stage (TSR_STAGE_*); before those of TSR_STAGE_GRAPH stand those of TSR_STAGE_CALL.
  std::vector<BoundPass> pipeline(const Config& config, uint32_t stage = TSR_STAGE_GRAPH) const;
  // Those of them that run again over a joint graph, after the autograd stage: the config's `pipeline.joint`.
  std::vector<BoundPass> joint_pipeline(const Config& config) const;
  const Factory* partitioner(const Config& config) const;  // null: none configured
  const Factory* executor(const Config& config) const;     // null: none configured, or an optional one is absent
  // Options of one pass of a textual pipeline ("fuse{max_size=64}"); see Config::pass_options.
  OptionSet pass_options(std::string_view pass, std::span<const std::pair<std::string, std::string>> given,
                         std::string_view place) const {
    return config_.pass_options(pass, given, place);
  }

 private:
  explicit Context(const tsr_host& host);
  Config config_;
  PluginHost plugins_;
  OpRegistry ops_;  // after plugins_: its records point into opset factories
  std::unique_ptr<Cache> cache_;
};

// Manifests in the search path of these options, without opening a library: `tessera plugin list [--all]`. Without `all`,
// those that the config names; with it, everything found. Faults are part of the result. Schema: docs/json.md, "plugin list".
std::string plugin_list_json(const tsr_context_options* options, bool all);
// Checks one library or manifest, opening and querying it in this process: `tessera plugin check`. Schema: docs/json.md.
std::string plugin_check_json(const std::string& path, const tsr_host& host);

}  // namespace tessera::core
