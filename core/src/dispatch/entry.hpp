// SPDX-License-Identifier: Apache-2.0
// One compiled version of a frame: the facts about the arguments that it was compiled for, and what runs for them.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "compile/executable.hpp"
#include "dispatch/frame.hpp"
#include "dispatch/guards.hpp"

namespace tessera::core {

struct Continuation;

// Immutable once it is in a table, but for the counters.
struct alignas(64) Entry {
  // What a hit reads comes first, on as few cache lines as possible.
  const FastCall* fast = nullptr;     // of the plan, when the guards imply all that it takes for granted; else null
  void* structure = nullptr;          // the client's description of the outputs
  std::atomic<Entry*> next{nullptr};  // with the same key, told apart by symbolic guards
  mutable std::atomic<uint64_t> tick{0}, hits{0};
  const Plan* plan = nullptr;  // of the executable
  uint32_t num_inputs = 0, num_outputs = 0;
  bool in_path = false;      // `then` is set
  bool trusted = true;       // the guards imply what the plan would check
  uint32_t num_scalars = 0;  // graph inputs that are numbers: the last ones
  static constexpr uint32_t kInline = 12;
  uint32_t leaves[kInline];      // argument of each graph input, when there are no more than that
  std::vector<uint32_t> inputs;  // the same, of any length

  CompileId id;
  std::vector<uint64_t> key;               // in its group
  int64_t bytes = 0;                       // that it holds, as near as can be told
  std::shared_ptr<Executable> executable;  // null: a segment without operations
  std::shared_ptr<Continuation> then;      // of a function with graph breaks (segment.hpp); null: the outputs are the results
  Guards guards;
  double compile_seconds = 0;
  void (*structure_free)(void*) = nullptr;

  Entry() = default;
  ~Entry() {
    if (structure && structure_free) structure_free(structure);
  }
  // Outputs are new references; the arguments fit the guards.
  void run(const tsr_arg* args, tsr_tensor_handle** outputs) const {
    if (fast) [[likely]]
      return fast->run(*plan, args, num_inputs <= kInline ? leaves : inputs.data(), outputs);
    run_slowly(args, outputs);
  }

 private:
  void run_slowly(const tsr_arg* args, tsr_tensor_handle** outputs) const;
};

}  // namespace tessera::core
