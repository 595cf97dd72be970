// SPDX-License-Identifier: Apache-2.0
// A compiled function: captured on a miss, dispatched on guards afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "compile/options.hpp"
#include "config/config.hpp"
#include "dispatch/guards.hpp"
#include "tessera/embed.h"

namespace tessera::core {

class Context;
class Executable;
class Graph;
struct BoundPass;

// Thread-safe. A hit takes no lock and allocates nothing but its outputs: entries stand in groups by the mask of what is fixed about
// their arguments; each group is one hash table that is read while it grows, so a call costs one probe per mask, whatever the number
// of entries. A miss compiles under the callable's lock: threads that miss meanwhile wait, then look again.
class Callable {
 public:
  // `desc` is copied. Throws TSR-C and TSR-P errors for its backend, mode and options.
  Callable(std::shared_ptr<const Context> context, const tsr_callable_desc& desc);
  ~Callable();
  Callable(const Callable&) = delete;

  // Throws what the capture, the compiler and the kernels report; then no output is set. *structure belongs to the entry and stays valid
  // until the callable goes (of a call that ran uncached, past the limit: until this thread's next call).
  void call(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs, size_t capacity, size_t* num_outputs,
            void** structure);
  void reset();                       // forgets every entry
  std::string describe_json() const;  // schema: docs/json.md, "callable"

 private:
  struct Entry;
  struct Group;
  struct Groups;
  struct State;
  struct Capture;

  const Entry* find(const State& state, const tsr_arg* args, size_t count) const;
  void run(const Entry& entry, const tsr_arg* args, tsr_tensor_handle** outputs, size_t capacity, size_t* num_outputs) const;
  const Entry* miss(const tsr_arg* args, size_t count);  // null: past the limit
  Capture capture(const tsr_arg* args, size_t count);
  std::unique_ptr<Executable> compile(Capture& capture, const CompileOptions& options, bool with_passes);
  std::unique_ptr<Entry> make_entry(const tsr_arg* args, size_t count);
  void insert(State& state, std::unique_ptr<Entry> entry, const tsr_arg* args, size_t count);
  void run_uncached(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs, size_t capacity, size_t* num_outputs,
                    void** structure);
  void explain_miss(State& state, const tsr_arg* args, size_t count, bool at_limit);
  std::string path_of(const tsr_arg* args, size_t count, size_t index) const;
  std::string place() const;  // "FILE:LINE"

  std::shared_ptr<const Context> context_;
  std::string name_, file_;
  tsr_callable_desc desc_{};
  Config config_;
  CompileOptions options_;
  std::vector<BoundPass> passes_;
  bool dynamic_ = false;
  int64_t limit_ = 8;

  std::atomic<State*> state_{nullptr};
  mutable std::mutex mutex_;                    // misses
  std::vector<std::unique_ptr<State>> states_;  // the last is current; earlier ones may still be read by a call
  std::map<std::thread::id, void*> transient_;  // structures of uncached calls
};

}  // namespace tessera::core
