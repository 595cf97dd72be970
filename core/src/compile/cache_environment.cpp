// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "compile/cached.hpp"
#include "config/config.hpp"
#include "context/context.hpp"
#include "pass/pipeline.hpp"
#include "plugin/manifest.hpp"
#include "plugin/sha256.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// This library, or the program that it is linked into: a core built anew may compile differently under the same version.
const std::string& core_hash() {
  static const std::string hash = [] {
    Dl_info self{};
    if (dladdr(reinterpret_cast<void*>(&core_hash), &self) == 0 || !self.dli_fname) return std::string("unknown");
    try {
      return sha256_file(self.dli_fname);
    } catch (const Error&) {
      return sha256_file("/proc/self/exe");
    }
  }();
  return hash;
}

// Kernels may be made for the instructions that this processor has.
const std::string& processor() {
  static const std::string text = [] {
    std::ifstream in("/proc/cpuinfo");
    std::string out;
    for (std::string line; std::getline(in, line) && !line.empty();)
      for (const char* key : {"vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features"})
        if (line.starts_with(key)) out += line + "\n";
    return out;
  }();
  return text;
}

// Keys of the config that no executable depends on.
bool is_irrelevant(std::string_view key) {
  for (const char* prefix : {"log.", "cache.", "disk.", "plugins.path", "pipeline.dump_", "pipeline.reproducer", "guards."})
    if (key.starts_with(prefix)) return true;
  return key == "name";
}

std::string devices(const PluginHost& plugins) {
  std::string out;
  for (const Factory* f : plugins.all(TSR_DEVICE)) {
    const auto& table = f->as<tsr_device_table>();
    for (uint32_t i = 0; i < table.count; ++i) {
      tsr_device_info info{};
      info.struct_size = sizeof info;
      f->check(table.info(f->self, i, &info));
      out += std::string("device ") + (info.name ? info.name : "") + " " + (info.description ? info.description : "") + "\n";
    }
  }
  return out;
}

}  // namespace

std::string cache_environment(const CompileRequest& r) {
  const PluginHost& plugins = r.context.plugins();
  std::string out = "tessera " + std::string(host_version()) + " abi " + std::to_string(TSR_ABI_MAJOR) + "." +
                    std::to_string(TSR_ABI_MINOR) + " ir " + std::to_string(TSR_IR_VERSION) + " " + host_platform() + " " +
                    host_sanitizer() + "\ncore " + core_hash() + "\n" + processor() + devices(plugins);
  for (const LoadedPlugin* p : plugins.plugins()) out += "plugin " + p->id + " " + p->hash + "\n";
  out += "passes " + print_pipeline(r.passes) + "\nbackends";
  for (const Factory* f : r.options.backends) out += " " + f->name;
  out += "\nexecutor " + (r.options.executor ? r.options.executor->name : std::string()) + "\n";
  out += "relaxed " + std::to_string(r.options.relaxed) + "\n";
  const auto explained = nlohmann::ordered_json::parse(r.config.explain_json());
  for (const auto& v : explained.at("values"))
    if (const std::string key = v.at("key"); !is_irrelevant(key)) out += "config " + key + " = " + v.at("value").dump() + "\n";
  return out;
}

}  // namespace tessera::core
