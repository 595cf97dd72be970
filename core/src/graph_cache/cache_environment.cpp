// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "config/config.hpp"
#include "context/context.hpp"
#include "graph_cache/cached.hpp"
#include "memory/parallel.hpp"
#include "pass/pipeline.hpp"
#include "plugin/manifest.hpp"
#include "plugin/sha256.hpp"
#include "support/error.hpp"
#include "support/processor.hpp"

namespace tessera::core {

namespace {

// The linker's hash of what holds this function; "" when it was linked without --build-id. Layout of notes: elf(5).
std::string build_id() {
  struct Search {
    uintptr_t address;
    std::string found;
  } search{reinterpret_cast<uintptr_t>(&build_id), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* ctx) -> int {
        auto& s = *static_cast<Search*>(ctx);
        bool mine = false;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& p = object->dlpi_phdr[i];
          const uintptr_t begin = object->dlpi_addr + p.p_vaddr;
          mine = mine || (p.p_type == PT_LOAD && s.address >= begin && s.address - begin < p.p_memsz);
        }
        for (int i = 0; mine && i < object->dlpi_phnum; ++i) {
          const ElfW(Phdr)& p = object->dlpi_phdr[i];
          if (p.p_type != PT_NOTE) continue;
          const char* at = reinterpret_cast<const char*>(object->dlpi_addr + p.p_vaddr);
          const char* const end = at + p.p_memsz;
          const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
          while (static_cast<size_t>(end - at) >= sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) note;
            std::memcpy(&note, at, sizeof note);
            at += sizeof note;
            const size_t size = padded(note.n_namesz) + padded(note.n_descsz);
            if (size > static_cast<size_t>(end - at)) break;
            const char* const id = at + padded(note.n_namesz);
            if (note.n_type == NT_GNU_BUILD_ID && std::string_view(at, note.n_namesz) == std::string_view("GNU\0", 4))
              s.found = sha256_hex({id, note.n_descsz});
            at += size;
          }
        }
        return mine ? 1 : 0;
      },
      &search);
  return search.found;
}

// This library, or the program that it is linked into: a core built anew may compile differently under the same version.
const std::string& core_hash() {
  static const std::string hash = [] {
    if (std::string id = build_id(); !id.empty()) return id;
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

// Keys of the config that no executable depends on.
bool is_irrelevant(std::string_view key) {
  for (const char* prefix :
       {"log.", "cache.", "disk.", "plugins.path", "pipeline.dump_", "pipeline.reproducer", "guards.", "trace."})
    if (key.starts_with(prefix)) return true;
  // What a mode sets has rows of its own.
  return key == "name" || key == "mode" || key == "runtime.measure_steps" || key == "runtime.arena_max_bytes" ||
         key == "runtime.sync_faults" || key == "runtime.check_nan" || key == "runtime.pool_limits" ||
         key == "backends.on_compile_error";
}

std::string devices(const PluginHost& plugins) {
  std::string out;
  for (const Factory* f : plugins.all(TSR_DEVICE)) {
    const auto& table = f->as<tsr_device_table>();
    for (uint32_t i = 0; i < table.count; ++i) {
      tsr_device_info info{};
      info.struct_size = sizeof info;
      f->check(table.info(f->self, i, &info));
      out += std::string("device ") + (info.name ? info.name : "") + " " + (info.description ? info.description : "") + " " +
             (info.architecture ? info.architecture : "") + " " + (info.driver_version ? info.driver_version : "") + "\n";
    }
  }
  return out;
}

}  // namespace

std::string cache_environment(const CompileRequest& r) {
  const PluginHost& plugins = r.context.plugins();
  std::string out = "tessera " + std::string(host_version()) + " abi " + std::to_string(TSR_ABI_MAJOR) + "." +
                    std::to_string(TSR_ABI_MINOR) + " ir " + std::to_string(TSR_IR_VERSION) + " " + host_platform() + " " +
                    host_sanitizer() + "\ncore " + core_hash() + "\n" + processor_text() + devices(plugins);
  for (const LoadedPlugin* p : plugins.plugins()) out += "plugin " + p->id + " " + p->hash + "\n";
  out += "passes " + print_pipeline(r.passes) + "\njoint passes " + print_pipeline(r.context.joint_pipeline(r.config)) +
         "\nbackends";
  for (const Factory* f : r.options.backends) out += " " + f->name;
  out += "\nexecutor " + (r.options.executor ? r.options.executor->name : std::string()) + "\n";
  out += "threads " + std::to_string(num_threads()) + "\n";  // by which passes and schedules share work
  out += "relaxed " + std::to_string(r.options.relaxed) + "\n";
  const auto explained = nlohmann::ordered_json::parse(r.config.explain_json());
  for (const auto& v : explained.at("values"))
    if (const std::string key = v.at("key"); !is_irrelevant(key)) out += "config " + key + " = " + v.at("value").dump() + "\n";
  return out;
}

}  // namespace tessera::core
