// SPDX-License-Identifier: Apache-2.0
// The entries of a callable. Internal to dispatch/.
#pragma once

#include <memory>
#include <vector>

#include "compile/executable.hpp"
#include "dispatch/callable.hpp"
#include "dispatch/guards.hpp"

namespace tessera::core {

// Frame numbers as logs print them ("3/0"): given at a callable's first compile; they count from 0 again once no callable has one.
class Frame {
 public:
  ~Frame() { reset(); }
  void acquire();
  void reset();
  int64_t id() const { return id_; }

 private:
  int64_t id_ = -1;
};

struct alignas(64) Callable::Entry {
  // What a hit reads comes first, on as few cache lines as possible.
  mutable FastCallPool calls;
  void* structure = nullptr;
  std::atomic<Entry*> next{nullptr};  // with the same key, told apart by symbolic guards
  mutable std::atomic<uint64_t> tick{0}, hits{0};
  const Plan* plan = nullptr;  // of the executable
  uint32_t num_inputs = 0, num_outputs = 0;
  bool fast = false;  // `calls` may be used
  static constexpr uint32_t kInline = 12;
  uint32_t leaves[kInline];      // argument of each graph input, when there are no more than that
  std::vector<uint32_t> inputs;  // the same, of any length

  size_t number = 0;
  std::unique_ptr<Executable> executable;
  Mask mask;
  std::vector<Expected> expected;
  SymbolicGuards symbolic;
  double compile_seconds = 0;
  void (*structure_free)(void*) = nullptr;
  ~Entry() {
    if (structure && structure_free) structure_free(structure);
  }
};

struct Callable::Group {
  Mask mask;
  WordMap<Entry> map;
};

struct Callable::Groups {
  std::vector<const Group*> list;
};

struct Callable::State {
  State() {
    lists.push_back(std::make_unique<Groups>());
    groups.store(lists.back().get(), std::memory_order_relaxed);
  }
  std::atomic<const Groups*> groups{nullptr};
  std::atomic<uint64_t> tick{1};
  // Under the callable's lock:
  std::vector<std::unique_ptr<Groups>> lists;
  std::vector<std::unique_ptr<Group>> all_groups;
  std::vector<std::unique_ptr<Entry>> entries;
  Frame frame;
  uint64_t misses = 0;
  bool warned = false;
};

}  // namespace tessera::core
