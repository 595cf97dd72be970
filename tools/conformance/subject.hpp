// SPDX-License-Identifier: Apache-2.0
// The plugin under test: what its manifest says, contexts that load it, and its functions called directly.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/embed.hpp"

namespace tessera::conformance {

namespace e = tessera::embed;

struct Settings {
  std::string plugin;                                     // path of a library or manifest
  std::vector<std::string> overrides, plugin_dirs, load;  // config keys, more folders and more plugins
  std::string cases;                                      // folder of case files
  std::vector<std::string> models;                        // files that a frontend is to import
  int level = 3;
  bool all = false;    // every case of every op, not a choice of them
  int64_t sample = 1;  // every how many-th case of an op runs
};

// What the manifest says. Read without opening the library.
struct Manifest {
  struct Option {
    std::string name, type, fallback, range;  // `fallback`: the default, as TOML
  };
  struct Fault {
    std::string code, family, message, hint;
  };
  std::string path, library, id, version, vendor, sanitizer;
  std::vector<std::string> provides, needs;  // "backend:cpu"
  std::vector<Option> options;
  std::vector<Fault> faults;
  [[nodiscard]] std::vector<std::string> names(const std::string& kind) const;  // of `provides`
  [[nodiscard]] std::string section() const { return id.substr(id.rfind('.') + 1); }
};

// An instance made without the host's help. Lives until the subject is closed: instances share what they hold.
struct Direct {
  Direct() = default;
  Direct(const Direct&) = delete;
  ~Direct() {
    if (instance && desc->destroy) desc->destroy(instance);
  }
  const tsr_plugin_desc* desc = nullptr;
  void* instance = nullptr;
  const tsr_factory* items = nullptr;
  size_t count = 0, stride = 0;
  // The factory of this kind and name, or of any name; null: there is none.
  [[nodiscard]] const tsr_factory* find(tsr_kind kind, const std::string& name = {}) const;
};

// The options of a plugin for `create`: defaults of the manifest, changed as the settings say.
class DirectOptions {
 public:
  DirectOptions(const Manifest&, const std::vector<std::string>& overrides);
  [[nodiscard]] const tsr_options* get() const { return &options_; }

 private:
  struct Text {
    std::string s;
    std::vector<std::string> strings;
    std::vector<const char*> pointers;
  };
  std::vector<std::unique_ptr<Text>> texts_;
  std::vector<tsr_option> items_;
  tsr_options options_{};
};

class Subject {
 public:
  explicit Subject(Settings);
  [[nodiscard]] const Settings& settings() const { return settings_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  // A context that loads the standard op set, the text frontend, the judge, and this plugin. `order` as in a config: "\"npu\",
  // \"reference\"". Made once for each set of arguments.
  const e::Context& context(const std::string& order, const std::string& passes = {}, const std::string& more = {});
  // The order of a config that prefers backend `name` of this plugin, with the judge behind it where `fallback` says so.
  [[nodiscard]] std::string order_of(const std::string& name, bool fallback = true) const;
  [[nodiscard]] const char* judge() const;  // "reference", or "eager" when this plugin is the reference

  void* open();                                                            // the library. Throws Failed
  tsr_plugin_query_fn query();                                             // Throws Failed
  const Direct& direct();                                                  // Throws Failed
  const tsr_backend& backend_table(const std::string& name, void** self);  // of direct()
  // Ends its contexts and the instance that was made directly, as the process is about to end.
  void close() {
    contexts_.clear();
    direct_.reset();
  }

 private:
  Settings settings_;
  Manifest manifest_;
  std::map<std::string, e::Context> contexts_;
  void* handle_ = nullptr;
  std::unique_ptr<Direct> direct_;
};

// "error[CODE] text", and frees it; "" for null.
std::string text_of_error(tsr_error*);

}  // namespace tessera::conformance
