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
#include "dispatch/entry_table.hpp"
#include "dispatch/frame.hpp"
#include "dispatch/input_policy.hpp"
#include "tessera/embed.h"

namespace tessera::core {

class Context;
class Executable;
struct BoundPass;

// Thread-safe. A hit takes no lock and allocates nothing but its outputs (see EntryTable). A miss compiles under the callable's lock:
// threads that miss meanwhile wait, then look again.
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
  struct Capture;

  // callable.cpp
  void check_capacity(size_t outputs, size_t capacity) const;
  std::string path_of(const tsr_arg* args, size_t count, size_t index) const;
  // miss.cpp
  const Entry* miss(const tsr_arg* args, size_t count);  // null: past the limit
  void run_uncached(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs, size_t capacity, size_t* num_outputs,
                    void** structure);
  // compile_call.cpp
  std::vector<std::string> paths_of(const tsr_arg* args, size_t count) const;
  Capture capture(const tsr_arg* args, size_t count, const std::vector<std::string>& paths, const Specialised& specialised);
  std::unique_ptr<Executable> compile(Capture& capture, const CompileOptions& options, bool with_passes);
  std::unique_ptr<Entry> make_entry(const tsr_arg* args, size_t count, CompileId id);
  // explain.cpp
  void explain_miss(const EntryTable& table, const tsr_arg* args, size_t count, bool at_limit);

  std::shared_ptr<const Context> context_;
  tsr_callable_desc desc_{};
  Config config_;
  CompileOptions options_;
  std::vector<BoundPass> passes_;
  GuardPolicy policy_;

  std::atomic<EntryTable*> table_{nullptr};
  mutable std::mutex mutex_;                         // misses; guards what follows
  std::vector<std::unique_ptr<EntryTable>> tables_;  // the last is current; earlier ones may still be read by a call
  std::unique_ptr<Frame> frame_;
  uint64_t misses_ = 0;
  DynamicProfile profile_;
  bool capture_was_symbolic_ = false;           // of the last attempt
  std::map<std::thread::id, void*> transient_;  // structures of uncached calls
};

// Callables as clients hold them. Every live one is known, so that all can be reset at once.
Callable* make_callable(std::shared_ptr<const Context> context, const tsr_callable_desc& desc);
void drop_callable(Callable* callable);
void reset_callables();

}  // namespace tessera::core
