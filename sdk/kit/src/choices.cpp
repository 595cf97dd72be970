// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/choices.hpp"

#include <map>
#include <mutex>

#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

struct Memory {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> choices;
};
// Of the process, by directory and problem: two contexts without a disk decide alike.
Memory& memory() {
  static Memory m;
  return m;
}

constexpr std::string_view kRecord = "choice ";

}  // namespace

Choices::Choices(std::string directory, std::string owner)
    : disk_(directory.empty() ? directory : directory + "/tuned"), owner_(std::move(owner)) {}

std::optional<std::string> Choices::find(const std::string& problem) const {
  const std::string here = disk_.directory() + "\n" + problem;
  Memory& m = memory();
  {
    const std::lock_guard lock(m.mutex);
    if (const auto at = m.choices.find(here); at != m.choices.end()) return at->second;
  }
  std::optional<std::string> record = disk_.get(problem);
  if (!record || !record->starts_with(kRecord)) return std::nullopt;
  const std::lock_guard lock(m.mutex);
  return m.choices.emplace(here, record->substr(kRecord.size())).first->second;
}

std::string Choices::keep(const std::string& problem, std::string_view choice) const {
  // Another process may have decided meanwhile: everybody goes by what lies on the disk.
  if (const std::optional<std::string> earlier = find(problem)) return *earlier;
  if (const std::string why = disk_.put(problem, std::string(kRecord) + std::string(choice)); !why.empty())
    sdk::log("autotuning", owner_ + ": a decision is not kept: " + why);
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  return m.choices.emplace(disk_.directory() + "\n" + problem, choice).first->second;
}

}  // namespace tessera::kit
