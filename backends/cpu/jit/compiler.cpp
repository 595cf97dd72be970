// SPDX-License-Identifier: Apache-2.0
#include "compiler.hpp"

#include <chrono>
#include <unordered_map>

#include "tessera/plugin.hpp"
#include "toolchains.hpp"

namespace cpu {
namespace {

namespace sdk = tessera::sdk;
using Clock = std::chrono::steady_clock;

int64_t ns_since(Clock::time_point t) { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - t).count(); }

}  // namespace

Compiler::Compiler(Options options) : options_(std::move(options)), cache_(options_.cache_directory) {
  if (options_.toolchain == Toolchain::kClang && !have_clang())
    throw sdk::Error(
        TSR_ENVIRONMENT, "TSR-J002", "this build has no compiler inside the process: LLVM 19 was not found",
        "install llvm-19-dev, libclang-19-dev and libclang-cpp19-dev and build again, or set compiler = \"system\"");
  // The version goes into keys. clang's is that of the headers: asking the library would load it.
  toolchain_ = options_.toolchain == Toolchain::kClang ? "clang " TESSERA_CPU_LLVM_VERSION : "";
}

Compiler::~Compiler() = default;

std::string Compiler::key_of(const Source& s) const {
  std::string key = "tessera cpu object 1\n" + toolchain_ + "\n" + options_.isa->name + " " + options_.isa->flags + "\nO" +
                    std::to_string(s.optimize) + "\n";
  for (const std::string& symbol : s.symbols) key += symbol + " ";
  return key + "\n" + s.text;
}

std::string Compiler::build(const Source& s) const {
  return options_.toolchain == Toolchain::kClang ? clang_build(s, *options_.isa)
                                                 : system_build(s, *options_.isa, options_.system_compiler);
}

ModulePtr Compiler::load(const Source& s, const std::string& object) const {
  return options_.toolchain == Toolchain::kClang ? clang_load(s, object) : system_load(s, object);
}

ModulePtr Compiler::obtain(const Source& s, const std::string& key) {
  std::optional<std::string> object = cache_.get(key);
  if (object) {
    from_disk_.fetch_add(1, std::memory_order_relaxed);
  } else {
    const Clock::time_point start = Clock::now();
    object = build(s);
    compile_ns_.fetch_add(ns_since(start), std::memory_order_relaxed);
    compiled_.fetch_add(1, std::memory_order_relaxed);
    const std::string trouble = cache_.put(key, *object);
    if (!trouble.empty() && sdk::log_enabled("perf_hints"))
      sdk::log("perf_hints", "cpu: compiled objects are not cached: " + trouble);
  }
  const Clock::time_point start = Clock::now();
  ModulePtr m = load(s, *object);
  link_ns_.fetch_add(ns_since(start), std::memory_order_relaxed);
  return m;
}

std::vector<ModulePtr> Compiler::compile(std::span<const Source> sources) {
  if (options_.toolchain == Toolchain::kSystem) {
    std::lock_guard lock(mutex_);
    if (toolchain_.empty()) toolchain_ = system_version(options_.system_compiler);
  }
  std::vector<std::string> keys;
  keys.reserve(sources.size());
  for (const Source& s : sources) keys.push_back(key_of(s));
  std::vector<ModulePtr> out(sources.size());
  std::vector<size_t> missing;  // the first source of each key that this process does not have
  {
    std::unordered_map<std::string_view, size_t> seen;
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < sources.size(); ++i) {
      const auto it = modules_.find(keys[i]);
      if (it != modules_.end()) out[i] = it->second.lock();
      if (out[i])
        from_memory_.fetch_add(1, std::memory_order_relaxed);
      else if (seen.emplace(keys[i], i).second)
        missing.push_back(i);
    }
  }
  // Two callers that miss the same text at once both compile it; the later module replaces the earlier in the table.
  sdk::parallel(static_cast<int64_t>(missing.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const size_t i = missing[static_cast<size_t>(k)];
      out[i] = obtain(sources[i], keys[i]);
    }
  });
  std::lock_guard lock(mutex_);
  if (modules_.size() > 1024) std::erase_if(modules_, [](const auto& m) { return m.second.expired(); });
  for (const size_t i : missing) modules_[keys[i]] = out[i];
  for (size_t i = 0; i < sources.size(); ++i)
    if (!out[i]) {
      out[i] = modules_.find(keys[i])->second.lock();
      from_memory_.fetch_add(1, std::memory_order_relaxed);
    }
  return out;
}

Compiler::Stats Compiler::stats() const {
  Stats s;
  s.compiled = compiled_.load();
  s.from_disk = from_disk_.load();
  s.from_memory = from_memory_.load();
  s.compile_seconds = static_cast<double>(compile_ns_.load()) * 1e-9;
  s.link_seconds = static_cast<double>(link_ns_.load()) * 1e-9;
  return s;
}

void fail_text(const Source& s, const std::string& messages) {
  std::string text = "the text of kernel '" + s.name + "' does not compile:\n" + messages;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  throw sdk::Error(TSR_BUG, "TSR-J001", text, "TESSERA_LOGS=output_code prints the whole text; report it");
}

}  // namespace cpu
