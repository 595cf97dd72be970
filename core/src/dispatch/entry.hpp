// SPDX-License-Identifier: Apache-2.0
// One compiled version of a frame: the facts about the arguments that it was compiled for, and what runs for them.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "dispatch/frame.hpp"
#include "dispatch/guards.hpp"
#include "memory/block_pool.hpp"
#include "run/executable.hpp"

namespace tessera::core {

struct Continuation;

// Immutable once it is in a table, but for the counters. Of an entry with up to eight arguments, all tensors, a hit reads the
// first cache line and what `fast` points at, and nothing else.
struct alignas(64) Entry {
  void* structure = nullptr;  // the client's description of the outputs
  mutable std::atomic<uint64_t> tick{0}, hits{0};
  uint32_t num_outputs = 0;
  static constexpr uint32_t kInlineKey = 12;

 private:
  uint32_t state_and_size_ = 0;  // of the thread, a key's first word; and how many words come after that
  uint64_t short_key_[kInlineKey];
  std::unique_ptr<uint64_t[]> long_key_;

 public:
  const FastCall* fast = nullptr;  // of the plan, when the guards imply all that it takes for granted but alignment; else null
  std::atomic<Entry*> next{nullptr};  // with the same key, told apart by symbolic guards
  uint64_t hash = 0;                  // of the key
  bool in_path = false;               // `then` is set
  bool trusted = true;                // the guards imply what the plan would check
  bool needs_alignment = false;       // `fast` takes aligned data for granted
  uint16_t first_input = kScattered;  // graph input i is argument first_input + i
  static constexpr uint16_t kScattered = 0xffff;
  std::vector<uint32_t> inputs;  // argument of each graph input
  uint32_t num_inputs = 0;
  uint32_t num_scalars = 0;    // graph inputs that are numbers: the last ones
  const Plan* plan = nullptr;  // of the executable
  CompileId id;
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
  static void* operator new(size_t bytes) { return allocate_lines(bytes); }
  static void operator delete(void* p, size_t bytes) noexcept { free_lines(p, bytes); }

  // What finds it in its group (see Mask::key): the state of the thread, then the other n words.
  void set_key(uint64_t key_hash, uint64_t state, const uint64_t* words, size_t n);
  bool has_key(uint64_t state, const uint64_t* words, size_t n) const {
    if (state_and_size(state, n) != state_and_size_) [[unlikely]]
      return false;
    const uint64_t* const key = n <= kInlineKey ? short_key_ : long_key_.get();
    uint64_t differ = 0;
    for (size_t i = 0; i < n; ++i) differ |= key[i] ^ words[i];
    return differ == 0;
  }
  bool has_key_of(const Entry& other) const { return has_key(other.state(), other.key(), other.key_size()); }
  // Outputs are new references; the arguments fit the guards.
  void run(const tsr_arg* args, tsr_tensor_handle** outputs) const {
    if (fast && !needs_alignment) [[likely]]
      return first_input != kScattered ? fast->run(args + first_input, nullptr, outputs)
                                       : fast->run(args, inputs.data(), outputs);
    run_slowly(args, outputs);
  }

 private:
  static constexpr uint64_t kMaxState = 0xff, kMaxKey = 0xffffff;
  static uint64_t state_and_size(uint64_t state, uint64_t n) { return state | n << 8; }
  uint64_t state() const { return state_and_size_ & kMaxState; }
  size_t key_size() const { return state_and_size_ >> 8; }
  const uint64_t* key() const { return key_size() <= kInlineKey ? short_key_ : long_key_.get(); }
  void run_slowly(const tsr_arg* args, tsr_tensor_handle** outputs) const;
};

}  // namespace tessera::core
