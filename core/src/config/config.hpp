// SPDX-License-Identifier: Apache-2.0
// The configuration of one context: a TOML file, a mode and overrides, merged and checked. Keys: docs/config.md.
//
// Values are layered; a later layer wins:
//   defaults < mode (when the file names it) < file < mode (when an override names it) < overrides
// so a mode ranks just below the layer that chose it: a file may refine the mode it names, and `--set mode=eager` wins over
// a file that says nothing else about modes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/faults.hpp"
#include "config/options.hpp"

namespace tessera::core {

struct ConfigDocument;  // the parsed layers (layers.hpp)
struct Given;
struct Manifest;

struct PluginRequest {  // one entry of plugins.load
  std::string id;
  bool optional = false;
  Origin origin;
};

struct PassRequest {  // one entry of pipeline.passes
  std::string name;
  std::vector<std::pair<std::string, Setting>> given;  // options written in the entry
  Origin origin;
  OptionSet options;  // complete: manifest defaults < the plugin's section < given; set by bind()
};

struct ConfigSource {
  std::string path;  // of the file, for messages and relative directories; "<text>" for a text
  std::string text;
  std::vector<std::string> overrides;  // "partitioner.budget=0.5": the value is TOML, a bare word is a string
};

// Immutable once bound: any number of threads may read it.
class Config {
 public:
  // Reads everything but plugins' sections and pass options, which wait for bind(). Never throws for a mistake in the
  // input: each one becomes a fault (TSR-C), and the key keeps its default.
  static Config parse(const ConfigSource& source, Faults& faults);
  // Checks the sections and pass options against the manifests of the plugins to be loaded, and names of passes, backends,
  // partitioner and executor against what they provide. `missing` are ids of requested plugins that are not there (optional
  // ones, or reported already), and "KIND:NAME" of what unsound ones would have provided: their sections, passes and backends
  // are passed over. `found`: every manifest in the search path, for hints about names that only plugins which are not loaded
  // have.
  void bind(std::span<const Manifest* const> plugins, std::span<const std::string> missing, Faults& faults,
            std::span<const Manifest> found = {});

  // The same config with another mode and further overrides on top (a callable's `mode` and `options`). Throws TSR-C errors;
  // a key that decides which plugins are loaded or how they were created needs a new context and is refused (TSR-C012).
  Config derive(std::optional<std::string_view> mode, std::span<const std::string> overrides) const;

  // Values of known keys; asking for a key that is not in the table, or by another type, is a bug (TSR-B).
  int64_t get_int(std::string_view key) const;
  double get_float(std::string_view key) const;
  bool get_bool(std::string_view key) const;
  const std::string& get_string(std::string_view key) const;
  const std::vector<std::string>& get_strings(std::string_view key) const;
  const Setting& setting(std::string_view key) const;

  const std::vector<PluginRequest>& plugins() const { return plugins_; }
  // Passes in order, without those that pipeline.skip names or whose optional plugin is absent.
  const std::vector<PassRequest>& passes() const { return passes_; }
  // plugins.path, made absolute against the config file's directory.
  const std::vector<std::string>& plugin_dirs() const { return plugin_dirs_; }
  // Complete options of a loaded plugin: manifest defaults < section < overrides.
  const OptionSet& plugin_options(std::string_view plugin_id) const;
  // Options of one pass as used in a textual pipeline: as passes(), with `given` ("max_size", "64": TOML values) on top.
  // Throws TSR-C errors; `place` starts their messages.
  OptionSet pass_options(std::string_view pass, std::span<const std::pair<std::string, std::string>> given,
                         std::string_view place) const;
  const std::string& source_path() const { return path_; }

  std::string explain_json() const;  // schema: docs/json.md, "config explain"
  std::string options_json() const;  // schema: docs/json.md, "config options"

  Config();
  ~Config();
  Config(const Config&);
  Config(Config&&) noexcept;
  Config& operator=(const Config&);
  Config& operator=(Config&&) noexcept;

 private:
  struct PluginSection {
    std::string id, section;  // "tessera.backend.eager", "eager"
    std::vector<OptionDecl> decls;
    std::vector<std::string> provides;
    std::map<std::string, Setting> settings;
    OptionSet options;
  };
  void merge(Faults& faults);           // document -> settings, requests
  void apply_sections(Faults& faults);  // document -> options of the bound plugins
  void resolve_passes(Faults& faults);
  void resolve_names(Faults& faults);
  const PluginSection* provider(std::string_view kind_and_name) const;  // of "pass:cse"; null: none
  std::vector<std::string> provided(std::string_view kind) const;       // names: of "pass", "cse", ...
  bool absent(std::string_view name) const;                             // is it the last part of a plugin that is not there?
  void unknown_name(const Given& given, Faults& faults) const;          // at root level
  PassRequest complete(PassRequest request, Faults& faults) const;      // fills in `options`

  std::string path_;
  std::shared_ptr<const ConfigDocument> document_;
  std::map<std::string, Setting, std::less<>> settings_;
  std::vector<PluginRequest> plugins_;
  std::vector<PassRequest> requested_passes_, passes_;
  Origin plugins_origin_, passes_origin_;
  std::vector<std::string> plugin_dirs_, missing_;
  std::vector<PluginSection> sections_;
  struct Elsewhere {
    std::string name, id, option;  // "epilogue_fusion", "tessera.pass.fuse", "fuse.epilogue_fusion"
  };
  std::vector<Elsewhere> elsewhere_;  // names at root level of options of plugins that are not loaded
};

// The mode table: name, one sentence, the overlay. As JSON for `tessera config modes`.
std::string modes_json();

}  // namespace tessera::core
