// SPDX-License-Identifier: Apache-2.0
// What happens when no entry fits: compile one, or run without.
#include "compile/executable.hpp"
#include "dispatch/callable_capture.hpp"
#include "dispatch/events.hpp"
#include "support/error.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

const Entry* Callable::miss(const tsr_arg* args, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (args[i].kind == TSR_ARG_TENSOR && !args[i].tensor)
      throw user_error("TSR-E002", "argument " + path_of(args, count, i) + " of '" + frame_->name() + "' is a null tensor");
  const std::lock_guard lock(mutex_);
  EntryTable& table = *table_.load(std::memory_order_relaxed);
  if (const Entry* e = table.find(args, count)) return e;  // another thread has compiled it meanwhile
  ++misses_;
  const bool at_limit = static_cast<int64_t>(table.entries().size()) >= frame_->limits().recompile ||
                        frame_->accumulated() >= frame_->limits().accumulated;
  if (!table.entries().empty() || at_limit) explain_miss(table, args, count, at_limit);
  if (at_limit) return nullptr;
  frame_->acquire();
  const CompileId id = frame_->next();
  TraceCompile trace({"function", frame_->name(), frame_->place(), id.text()});
  const Entry* e = nullptr;
  try {
    e = table.insert(make_entry(args, count, id), args, count);
  } catch (const Error& error) {
    trace.failed(error);
    throw;
  }
  frame_->finish();
  DispatchListener& events = dispatch_events();
  std::vector<GuardText> guards;
  if (events.wants_guards()) guards = e->guards.texts();
  events.compiled({*frame_, e->id, guards, *e->executable, e->compile_seconds});
  return e;
}

// Past the limit: captured again and run on the fallback backend as it is, each time. Nothing is kept, so a function whose arguments
// never repeat cannot fill the memory.
void Callable::run_uncached(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs, size_t capacity,
                            size_t* num_outputs, void** structure) {
  std::unique_ptr<Executable> executable;
  std::vector<tsr_tensor_handle*> in;  // tensors alone: every number is one
  {
    const std::lock_guard lock(mutex_);  // the client's function runs for one thread at a time
    const TraceCompile trace({"fallback", frame_->name(), frame_->place(), {}});
    Specialised numbers;
    numbers.all = true;
    Capture c = capture(args, count, paths_of(args, count), numbers);
    CompileOptions fallback = options_;
    fallback.backends.erase(fallback.backends.begin(), fallback.backends.end() - 1);
    executable = compile(c, fallback, false);
    for (const uint32_t leaf : c.leaves) in.push_back(args[leaf].tensor);
    void*& kept = transient_[std::this_thread::get_id()];
    if (kept && desc_.structure_free) desc_.structure_free(kept);
    kept = std::exchange(c.structure, nullptr);
    if (structure) *structure = kept;
  }
  dispatch_events().fallback({*frame_, "the recompile limit was hit"});
  check_capacity(executable->num_outputs(), capacity);
  executable->run_trusted(in.data(), outputs);
  *num_outputs = executable->num_outputs();
}

}  // namespace tessera::core
