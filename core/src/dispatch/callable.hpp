// SPDX-License-Identifier: Apache-2.0
// A compiled function: captured on a miss, dispatched on guards afterwards.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "config/config.hpp"
#include "dispatch/capture_lock.hpp"
#include "dispatch/entry_table.hpp"
#include "dispatch/frame.hpp"
#include "dispatch/input_policy.hpp"
#include "dispatch/profile_store.hpp"
#include "dispatch/recompile_rules.hpp"
#include "plan/compile_options.hpp"
#include "tessera/embed.h"

namespace tessera::core {

class Context;
class Error;
class Executable;
class Graph;
class ModelSource;
struct BoundPass;
struct Path;
struct Paths;
class Recorder;
class SavedValues;

// Thread-safe. A hit takes no lock and allocates nothing but its outputs (see EntryTable). One thread at a time captures and
// compiles: threads that miss meanwhile wait for the lock, then look again, or run the function as it is (guards.on_busy).
// Where the capture runs compiled segments, and with them host functions that may wait for other threads, it steps aside; while
// it traces the function it lends the lock (CaptureLock::Interruptible).
class Callable {
 public:
  // `desc` is copied. Throws TSR-C and TSR-P errors for its backend, mode and options.
  Callable(std::shared_ptr<const Context> context, const tsr_callable_desc& desc);
  // A model file: its import takes the place of running a function. See model_source.hpp.
  Callable(std::shared_ptr<const Context> context, std::unique_ptr<ModelSource> model);
  ~Callable();
  Callable(const Callable&) = delete;

  // Throws what the capture, the compiler and the kernels report; then no output is set. *structure belongs to the entry and
  // stays valid until the callable goes (of a call that ran uncached: until this thread's next call). *num_outputs may be
  // TSR_RUN_YOURSELF, but only before anything of the function has run.
  void call(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs, size_t capacity, size_t* num_outputs,
            void** structure);
  // What the backward half of a call needs that gave this structure and these outputs; null: its program is not a pair.
  std::unique_ptr<SavedValues> save(const void* structure, const tsr_arg* args, size_t count, tsr_tensor_handle* const* outputs,
                                    size_t num_outputs);
  void reset();      // forgets every entry, and what was learned about sizes
  void recompile();  // the entries there are serve no call any more
  // Makes entries for calls before they come; runs nothing of what it compiles. Examples are traced one after the other on this
  // thread, and compiled on up to `threads` threads (0: as many as parallel loops have). Each is compiled as if it were the
  // first call: what varies among them counts as varying afterwards only. Returns when all are done; *compiled counts the
  // entries made. Throws what the first example that failed reports, *failed (may be null) being its number: TSR-D014 at a
  // graph break, TSR-D012 at a limit, and what captures and compilers report. The others are compiled all the same.
  void compile_ahead(const tsr_examples& examples, size_t* compiled, size_t* failed);
  void stance_changed();              // by whoever has changed it
  std::string describe_json() const;  // schema: docs/json.md, "callable"

 private:
  struct Capture;
  class PathCapture;
  struct PrecompileJob;
  struct Output {  // where a call's results go
    tsr_tensor_handle** tensors;
    size_t capacity;
    size_t* count;
    void** structure;
  };

  // callable.cpp
  void call_generally(const EntryTable& front, const Entry* e, const tsr_arg* args, size_t count, const Output& out);
  void call_slowly(const EntryTable& front, const Entry* e, const tsr_arg* args, size_t count, const Output& out);
  void publish();
  void check_capacity(size_t outputs, size_t capacity) const;
  std::string path_of(const tsr_arg* args, size_t count, size_t index) const;
  // miss.cpp
  struct UncompiledCall {       // a call that is served without compiled code
    const char* why = nullptr;  // null: it is not
    bool reuse_only = false;    // what it calls compiles nothing either
    bool with_passes = false;   // on the fallback backend
    bool look_again = false;    // everything was forgotten while the call waited
  };
  // Null: to be served without compiled code, as `uncompiled` says, or the capture broke and `path` has run the call.
  const Entry* miss(EntryTable& table, const tsr_arg* args, size_t count, PathCapture& path, UncompiledCall& uncompiled);
  // The number of a compile that has been traced: another thread may have compiled meanwhile.
  CompileId number_again(const CompileId& id);
  bool suppresses(const Error& error);  // whether guards.suppress_errors hides it; then warns, once
  // uncompiled_call.cpp
  void run_uncompiled(const UncompiledCall& uncompiled, const tsr_arg* args, size_t count, const Output& out);
  void run_uncached(const tsr_arg* args, size_t count, PathCapture& path, bool with_passes, const Output& out);
  void keep_for_thread(void* structure);  // until this thread's next call that keeps one
  // segment_run.cpp, path_capture.cpp: functions with graph breaks
  void run_path(const EntryTable& table, const Entry* e, const tsr_arg* args, size_t count, const Output& out);
  // The call has left the paths that are known: runs the function, without what has run already. Or the entry to go on with,
  // which another thread has made meanwhile.
  const Entry* continue_path(Path& path, const tsr_arg* args, size_t count, const Output& out);
  // compile_call.cpp
  std::vector<std::string> paths_of(const tsr_arg* args, size_t count) const;
  std::unique_ptr<Recorder> begin_capture(Capture& c, const tsr_arg* args, size_t count, const std::vector<std::string>& paths,
                                          const Specialised& specialised);
  Capture capture(const tsr_arg* args, size_t count, const std::vector<std::string>& paths, const Specialised& specialised,
                  PathCapture& path);
  std::unique_ptr<Executable> compile(std::unique_ptr<Graph> graph, const CompileOptions& options, bool with_passes);
  CompileOptions fallback_options() const;  // the last backend alone
  // Whether an error may come from a size being a symbol: then the call is captured again with numbers.
  static bool may_be_symbolic(const Error& error);
  // What has been captured for this call and compiled, with its guards. Takes the capture's structure.
  std::unique_ptr<Entry> entry_of(Capture& c, std::shared_ptr<Executable> executable, const CompileId& id, const tsr_arg* args,
                                  size_t count, const std::vector<std::string>& paths);
  std::unique_ptr<Entry> make_entry(const tsr_arg* args, size_t count, const std::vector<std::string>& paths, CompileId id,
                                    PathCapture& path);
  void see(const tsr_arg* args, size_t count, const std::vector<std::string>& paths);  // what varies among calls
  // model_source.cpp
  void refuse_misfit(const tsr_arg* args,
                     size_t count) const;  // of arguments that are wrong for every entry, as far as that is known
  Capture import_for(const tsr_arg* args, size_t count) const;
  Capture describe_call(const Graph& graph, const tsr_arg* args, size_t count) const;  // without the graph itself
  // Whether an entry is for what these arguments have of all that its import has fixed; and whether these keep what its graph
  // assumes about sizes, whatever else differs; and the executable of such an entry.
  bool made_for_fixed(const Entry& entry, const tsr_arg* args) const;
  bool made_for(const Entry& entry, const tsr_arg* args) const;
  std::shared_ptr<Executable> made_for_values(const tsr_arg* args) const;
  // ahead.cpp
  void trace_ahead(PrecompileJob& a, EntryTable& table);
  bool finish_ahead(PrecompileJob& a, EntryTable& table);
  // explain.cpp
  void explain_miss(const EntryTable& table, const tsr_arg* args, size_t count, const RecompileRules::Limit& limit);

  std::shared_ptr<const Context> context_;
  std::unique_ptr<ModelSource> model_;  // null: a function of the client
  tsr_callable_desc desc_{};
  Config config_;
  CompileOptions options_;
  std::vector<BoundPass> passes_;
  GuardPolicy policy_;
  RecompileRules rules_;
  EntryTable::Limits table_limits_;
  bool suppress_errors_ = false, fallback_when_busy_ = false;

  // What calls look in first: the current table; or one without entries, where a call has to look further (call_slowly): under
  // a stance that uses none, and in tables that evict, whose readers count themselves.
  std::atomic<const EntryTable*> front_{nullptr};
  std::atomic<EntryTable*> table_{nullptr};          // the current one
  std::mutex publishing_;                            // of `front_`
  mutable CaptureLock capture_lock_;                 // of misses (a host step may call the function again); guards what follows
  std::vector<std::unique_ptr<EntryTable>> tables_;  // the last is current; earlier ones may still be read by a call
  std::unique_ptr<Frame> frame_;
  uint64_t misses_ = 0;
  int64_t failures_ = 0;  // calls whose error was suppressed: each counts as an entry
  bool warned_suppressed_ = false;
  bool first_call_gone_ = false;  // of the stances that begin without compiled code
  DynamicProfile profile_;
  ProfileStore profile_store_;
  std::vector<std::unique_ptr<Paths>> paths_;  // as tables_
  std::atomic<uint64_t> segment_tick_{1};
  std::map<std::thread::id, void*> transient_;  // structures of uncached calls
};

// Callables as clients hold them. Every live one is known, so that all can be reset at once.
Callable* make_callable(std::shared_ptr<const Context> context, const tsr_callable_desc& desc);
Callable* make_callable(std::shared_ptr<const Context> context, std::unique_ptr<ModelSource> model);
void drop_callable(Callable* callable);
void reset_callables();
// Callable::call as clients call it.
tsr_error* call_callable(tsr_callable_handle* callable, const tsr_arg* args, size_t count, tsr_tensor_handle** outputs,
                         size_t capacity, size_t* num_outputs, void** structure) noexcept;
// Sets the stance of the process; throws TSR-D004 for a name that is none. See stance.hpp.
void change_stance(std::string_view name);

}  // namespace tessera::core
