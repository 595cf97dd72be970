// SPDX-License-Identifier: Apache-2.0
#include "tuning/choices.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>

#include "tessera/caches.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

// What times depend on: the processor, its caches, and this build of the kernels.
const std::string& machine() {
  static const std::string text = [] {
    std::string out = "processor ", line;
    for (std::ifstream info("/proc/cpuinfo"); std::getline(info, line);)
      if (line.starts_with("model name") || line.starts_with("cpu family") || line.starts_with("stepping")) {
        out += line + "; ";
        if (line.starts_with("stepping")) break;
      }
    for (int level = 1; level <= 3; ++level) out += " " + std::to_string(tessera::cache_bytes(level, 0));
    return out + "\n";
  }();
  return text;
}

struct Memory {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> choices;
};
// Of the process, by directory and key: two contexts without a disk decide alike.
Memory& memory() {
  static Memory m;
  return m;
}

constexpr std::string_view kRecord = "choice ";

}  // namespace

Choices::Choices(std::string directory, const Isa& isa)
    : disk_(directory.empty() ? directory : directory + "/tuned"), isa_(isa.name) {}

std::string Choices::key(std::string_view problem) const {
  return "tessera cpu tuning 1 build " TSR_PLUGIN_VERSION "\n" + machine() + "isa " + isa_ + " threads " +
         std::to_string(std::max(1, sdk::host().core->num_threads())) + "\n" + std::string(problem);
}

std::optional<std::string> Choices::find(std::string_view problem) const {
  const std::string k = key(problem), here = disk_.directory() + "\n" + k;
  Memory& m = memory();
  {
    const std::lock_guard lock(m.mutex);
    if (const auto at = m.choices.find(here); at != m.choices.end()) return at->second;
  }
  std::optional<std::string> record = disk_.get(k);
  if (!record || !record->starts_with(kRecord)) return std::nullopt;
  const std::lock_guard lock(m.mutex);
  return m.choices.emplace(here, record->substr(kRecord.size())).first->second;
}

std::string Choices::keep(std::string_view problem, std::string_view choice) const {
  // Another process may have decided meanwhile: everybody goes by what lies on the disk.
  if (const std::optional<std::string> earlier = find(problem)) return *earlier;
  const std::string k = key(problem);
  if (const std::string why = disk_.put(k, std::string(kRecord) + std::string(choice)); !why.empty())
    sdk::log("autotuning", "cpu: a decision is not kept: " + why);
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return m.choices.emplace(disk_.directory() + "\n" + k, choice).first->second;
}

}  // namespace cpu
