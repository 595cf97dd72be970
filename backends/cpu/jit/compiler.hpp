// SPDX-License-Identifier: Apache-2.0
// From C++ text to callable code: clang and ORC inside the process, or the system's compiler as a process. Objects are cached
// on disk, and equal texts share one module within a process.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "isa.hpp"
#include "tessera/kit/object_cache.hpp"

namespace cpu {

enum class Toolchain {
  kClang,   // clang 19 and ORC in this process
  kSystem,  // a compiler as a process, its shared library opened
};
// Whether this build has libtessera_cpu_jit beside the plugin. Opens nothing.
bool have_clang();
// Opens it. Empty: it is there; else why not, in one line.
std::string why_no_clang();

struct Source {
  std::string name;                  // for messages: "gelu"
  std::string text;                  // C++20 that includes nothing
  std::vector<std::string> symbols;  // extern "C" functions to find in it
  int optimize = 1;                  // 1: explicit vectors, little to do; 2: the compiler's O2 with its vectorisers
};

// What modules were linked from.
struct Linked {
  std::string id;                    // of the text and all that it was compiled with
  std::string object;                // an object, or a shared library
  std::vector<std::string> symbols;  // all of its functions
};

// Code that stays executable as long as the module lives.
class Module {
 public:
  virtual ~Module() = default;
  // What this came from, and which of its symbols is the first here; null: unknown.
  const std::shared_ptr<const Linked>& linked() const { return linked_; }
  size_t first() const { return first_; }
  size_t count() const { return addresses_.size(); }
  void* address(size_t symbol) const { return addresses_[symbol]; }  // by its place in Source::symbols
  template <class Fn>
  Fn* function(size_t symbol = 0) const {
    return reinterpret_cast<Fn*>(addresses_[symbol]);
  }

 protected:
  std::vector<void*> addresses_;
  std::shared_ptr<const Linked> linked_;
  size_t first_ = 0;
};
using ModulePtr = std::shared_ptr<const Module>;

class Compiler {
 public:
  struct Options {
    Toolchain toolchain = Toolchain::kClang;
    const Isa* isa = &native_isa();
    std::string cache_directory;          // empty: no cache on disk
    std::string system_compiler = "c++";  // looked for in PATH
  };
  // Throws TSR-J002 (environment) when the toolchain is kClang and this build or machine has none. Loads nothing yet.
  explicit Compiler(Options options);
  ~Compiler();
  Compiler(const Compiler&) = delete;

  // Compiles what neither this process nor the cache has, on several of the host's threads, several texts at a time; one module
  // per source, in order. Throws TSR-J001 (bug: the text does not compile; the message holds the compiler's, with lines), J002,
  // J003 (environment). Thread-safe.
  std::vector<ModulePtr> compile(std::span<const Source> sources);
  ModulePtr compile(const Source& source) { return compile({&source, 1})[0]; }
  // What this process has compiled or loaded and somebody still holds; else null. Thread-safe.
  ModulePtr find(const Source& source) const;

  // A module that another process had: `count` of its functions from `first` on. Thread-safe.
  ModulePtr restore(Linked linked, size_t first, size_t count);

  struct Stats {
    int64_t compiled = 0, from_disk = 0, from_memory = 0;
    double compile_seconds = 0, link_seconds = 0;  // summed over threads
  };
  Stats stats() const;
  const Isa& isa() const { return *options_.isa; }

 private:
  std::string key_of(const Source& source) const;
  std::string build(const Source& source) const;  // an object, or a shared library
  ModulePtr load(const Source& source, const std::string& object) const;
  void store(const std::string& key, const std::string& object) const;
  ModulePtr link(const Source& source, const std::string& object, const std::string& key);
  std::vector<ModulePtr> build_batch(std::span<const Source* const> batch, std::span<const std::string* const> keys);
  ModulePtr from_disk(const Source& source, const std::string& key, std::map<std::string, ModulePtr>& batches);

  Options options_;
  tessera::kit::ObjectCache cache_;
  std::string toolchain_;  // names the compiler and its version in keys
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<const Module>, std::less<>> modules_;
  std::map<std::string, std::weak_ptr<const Module>, std::less<>> restored_;  // by Linked::id
  std::atomic<int64_t> compiled_{0}, from_disk_{0}, from_memory_{0}, compile_ns_{0}, link_ns_{0};
};

}  // namespace cpu
