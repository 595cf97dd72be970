// SPDX-License-Identifier: Apache-2.0
// Calls that no compiled code serves: the client runs its function as it is, or the function is captured, run and forgotten.
#include <mutex>
#include <utility>

#include "dispatch/callable_capture.hpp"
#include "dispatch/capturing.hpp"
#include "dispatch/events.hpp"
#include "dispatch/path_capture.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

void Callable::run_uncompiled(const UncompiledCall& uncompiled, const tsr_arg* args, size_t count, const Output& out) {
  dispatch_events().fallback({*frame_, uncompiled.why});
  if (!desc_.runs_itself || uncompiled.with_passes) {
    PathCapture path(*this, args, count);
    try {
      return run_uncached(args, count, path, uncompiled.with_passes, out);
    } catch (const Error& error) {
      if (!desc_.runs_itself || path.ran() || !suppresses(error)) throw;
    }
  }
  *out.count = TSR_RUN_YOURSELF;
  if (out.structure) *out.structure = uncompiled.reuse_only ? this : nullptr;
}

void Callable::keep_for_thread(void* structure) {
  void*& kept = transient_[std::this_thread::get_id()];
  if (kept && desc_.structure_free) desc_.structure_free(kept);
  kept = structure;
}

// Captured again and run on the fallback backend, each time. Nothing is kept, so a function whose arguments never repeat cannot
// fill the memory.
void Callable::run_uncached(const tsr_arg* args, size_t count, PathCapture& path, bool with_passes, const Output& out) {
  std::unique_ptr<Executable> executable;
  std::vector<tsr_tensor_handle*> in;  // tensors alone: every number is one
  {
    const Capturing capturing(*this, *frame_);
    const std::lock_guard lock(capture_lock_);
    const TraceCompile trace({"fallback", frame_->name(), frame_->place(), {}});
    Specialised numbers;
    numbers.all = true;
    path.start(*paths_.back(), *tables_.back());
    path.keep_nothing();
    Capture c = capture(args, count, paths_of(args, count), numbers, path);
    if (path.done()) return path.deliver(out);
    executable = compile(std::move(c.graph), fallback_options(), with_passes);
    for (const uint32_t leaf : c.leaves) in.push_back(args[leaf].tensor);
    if (out.structure) *out.structure = c.structure;
    keep_for_thread(std::exchange(c.structure, nullptr));
  }
  check_capacity(executable->num_outputs(), out.capacity);
  if (model_)
    executable->run(in, {out.tensors, executable->num_outputs()});  // nothing has compared its types with the call's
  else
    executable->run_trusted(in.data(), out.tensors);
  *out.count = executable->num_outputs();
}

}  // namespace tessera::core
