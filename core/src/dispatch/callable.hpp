// SPDX-License-Identifier: Apache-2.0
// A compiled function: captured on a miss, dispatched on guards afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compile/options.hpp"
#include "config/config.hpp"
#include "dispatch/entry_table.hpp"
#include "dispatch/frame.hpp"
#include "dispatch/input_policy.hpp"
#include "dispatch/profile_store.hpp"
#include "dispatch/recompile_rules.hpp"
#include "dispatch/turn.hpp"
#include "tessera/embed.h"

namespace tessera::core {

class Context;
class Executable;
class Graph;
struct BoundPass;
struct Path;
struct Paths;
class Recorder;

// Thread-safe. A hit takes no lock and allocates nothing but its outputs (see EntryTable). One thread at a time captures and compiles:
// threads that miss meanwhile wait for their turn, then look again. Where the capture runs compiled segments, and with them host functions that
// may wait for other threads, it steps aside.
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
  class PathCapture;
  struct Output {  // where a call's results go
    tsr_tensor_handle** tensors;
    size_t capacity;
    size_t* count;
    void** structure;
  };

  // callable.cpp
  void check_capacity(size_t outputs, size_t capacity) const;
  std::string path_of(const tsr_arg* args, size_t count, size_t index) const;
  // miss.cpp
  // Null: past the limit, or the capture broke and `path` has run the call.
  const Entry* miss(const tsr_arg* args, size_t count, PathCapture& path);
  void run_uncached(const tsr_arg* args, size_t count, PathCapture& path, const Output& out);
  void keep_for_thread(void* structure);  // until this thread's next call that keeps one
  // segment_run.cpp, path_capture.cpp: functions with graph breaks
  void run_path(const Entry* e, const tsr_arg* args, size_t count, const Output& out);
  // The call has left the paths that are known: runs the function. Or the entry to go on with, which another thread has made meanwhile.
  const Entry* continue_path(Path& path, const tsr_arg* args, size_t count, const Output& out);
  // compile_call.cpp
  std::vector<std::string> paths_of(const tsr_arg* args, size_t count) const;
  std::unique_ptr<Recorder> begin_capture(Capture& c, const tsr_arg* args, size_t count, const std::vector<std::string>& paths,
                                          const Specialised& specialised);
  Capture capture(const tsr_arg* args, size_t count, const std::vector<std::string>& paths, const Specialised& specialised,
                  PathCapture& path);
  std::unique_ptr<Executable> compile(std::unique_ptr<Graph> graph, const CompileOptions& options, bool with_passes);
  CompileOptions fallback_options() const;  // the last backend alone
  std::unique_ptr<Entry> make_entry(const tsr_arg* args, size_t count, CompileId id, PathCapture& path);
  // explain.cpp
  void explain_miss(const EntryTable& table, const tsr_arg* args, size_t count, const RecompileRules::Limit& limit);

  std::shared_ptr<const Context> context_;
  tsr_callable_desc desc_{};
  Config config_;
  CompileOptions options_;
  std::vector<BoundPass> passes_;
  GuardPolicy policy_;
  RecompileRules rules_;

  std::atomic<EntryTable*> table_{nullptr};
  mutable Turn turn_;                                // of misses (a host step may call the function again); guards what follows
  std::vector<std::unique_ptr<EntryTable>> tables_;  // the last is current; earlier ones may still be read by a call
  std::unique_ptr<Frame> frame_;
  uint64_t misses_ = 0;
  DynamicProfile profile_;
  ProfileStore profile_store_;
  std::vector<std::unique_ptr<Paths>> paths_;  // as tables_
  std::atomic<uint64_t> segment_tick_{1};
  std::map<std::thread::id, void*> transient_;  // structures of uncached calls
};

// Callables as clients hold them. Every live one is known, so that all can be reset at once.
Callable* make_callable(std::shared_ptr<const Context> context, const tsr_callable_desc& desc);
void drop_callable(Callable* callable);
void reset_callables();

}  // namespace tessera::core
