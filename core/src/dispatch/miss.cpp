// SPDX-License-Identifier: Apache-2.0
// What happens when no entry fits: compile one, or run without.
#include <algorithm>
#include <mutex>

#include "compile/executable.hpp"
#include "context/context.hpp"
#include "dispatch/callable_capture.hpp"
#include "dispatch/events.hpp"
#include "dispatch/path_capture.hpp"
#include "support/error.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {
// Why the most recently used entry does not fit: "0/1: c == 0.5".
std::string last_reason(const EntryTable& table, const tsr_arg* args, size_t count) {
  for (const Entry* e : table.recent())
    if (const auto failed = e->guards.mismatches(args, count, false); !failed.empty())
      return CompileId{e->id.frame, e->id.compile, 0}.text() + ": " + failed.front().text;
  return "nothing is compiled yet";
}

// Captures nest where a capture runs a segment whose host functions call what is being captured.
thread_local std::vector<const Callable*> t_capturing;
constexpr std::ptrdiff_t kMaxNested = 32;

class Capturing {
 public:
  Capturing(const Callable& callable, const Frame& frame) {
    if (std::count(t_capturing.begin(), t_capturing.end(), &callable) >= kMaxNested)
      throw user_error("TSR-D013",
                       "the capture of '" + frame.name() + "' (" + frame.place() + ") calls '" + frame.name() + "' again, " +
                           std::to_string(kMaxNested) +
                           " times over: host code that runs between its compiled parts calls the function itself, and no call "
                           "comes to an end",
                       "give the recursion an end, or call the function that is not compiled from host code");
    t_capturing.push_back(&callable);
  }
  ~Capturing() { t_capturing.pop_back(); }
  Capturing(const Capturing&) = delete;
};
}  // namespace

const Entry* Callable::miss(const tsr_arg* args, size_t count, PathCapture& path) {
  for (size_t i = 0; i < count; ++i)
    if (args[i].kind == TSR_ARG_TENSOR && !args[i].tensor)
      throw user_error("TSR-E002", "argument " + path_of(args, count, i) + " of '" + frame_->name() + "' is a null tensor");
  const Capturing capturing(*this, *frame_);
  const std::lock_guard lock(turn_);
  EntryTable& table = *table_.load(std::memory_order_relaxed);
  if (const Entry* e = table.find(args, count)) return e;  // another thread has compiled it meanwhile
  ++misses_;
  path.start(*paths_.back(), table);
  if (path.broke_before()) {  // whether its head has to be compiled is known once it has been recorded
    make_entry(args, count, {}, path);
    return nullptr;
  }
  const bool compiled = !table.entries().empty();
  const RecompileRules::Limit limit = RecompileRules::limit_hit(*frame_, static_cast<int64_t>(table.entries().size()));
  if (compiled || limit) {
    explain_miss(table, args, count, limit);
    rules_.check(*frame_, limit, compiled, last_reason(table, args, count));
  }
  if (limit) return nullptr;
  frame_->acquire();
  profile_store_.load(context_->cache(), *frame_, profile_);
  const CompileId id = frame_->next();
  path.decided(id);
  TraceCompile trace({"function", frame_->name(), frame_->place(), id.text()});
  const Entry* e = nullptr;
  try {
    std::unique_ptr<Entry> made = make_entry(args, count, id, path);
    if (!made) return nullptr;
    e = table.insert(std::move(made), args, count);
  } catch (const Error& error) {
    trace.failed(error);
    throw;
  }
  frame_->finish();
  profile_store_.save(context_->cache(), *frame_, profile_);
  DispatchListener& events = dispatch_events();
  std::vector<GuardText> guards;
  if (events.wants_guards()) guards = e->guards.texts();
  events.compiled({*frame_, e->id, guards, *e->executable, e->compile_seconds});
  return e;
}

void Callable::keep_for_thread(void* structure) {
  void*& kept = transient_[std::this_thread::get_id()];
  if (kept && desc_.structure_free) desc_.structure_free(kept);
  kept = structure;
}

// Past the limit: captured again and run on the fallback backend as it is, each time. Nothing is kept, so a function whose arguments
// never repeat cannot fill the memory.
void Callable::run_uncached(const tsr_arg* args, size_t count, PathCapture& path, const Output& out) {
  std::unique_ptr<Executable> executable;
  std::vector<tsr_tensor_handle*> in;  // tensors alone: every number is one
  {
    const Capturing capturing(*this, *frame_);
    const std::lock_guard lock(turn_);
    const TraceCompile trace({"fallback", frame_->name(), frame_->place(), {}});
    Specialised numbers;
    numbers.all = true;
    path.keep_nothing();
    Capture c = capture(args, count, paths_of(args, count), numbers, path);
    if (path.done()) return;
    executable = compile(std::move(c.graph), fallback_options(), false);
    for (const uint32_t leaf : c.leaves) in.push_back(args[leaf].tensor);
    if (out.structure) *out.structure = c.structure;
    keep_for_thread(std::exchange(c.structure, nullptr));
  }
  dispatch_events().fallback({*frame_, "the recompile limit was hit"});
  check_capacity(executable->num_outputs(), out.capacity);
  executable->run_trusted(in.data(), out.tensors);
  *out.count = executable->num_outputs();
}

// ------------------------------------------------------------------------------------------------- functions with breaks

const Entry* Callable::continue_path(Path& known, const tsr_arg* args, size_t count, const Output& out) {
  PathCapture path(*this, args, count, known);
  {
    const Capturing capturing(*this, *frame_);
    const std::lock_guard lock(turn_);
    EntryTable& table = *table_.load(std::memory_order_relaxed);
    if (&table == known.table) {  // else everything has been forgotten meanwhile
      const PathStep& last = known.steps.back();
      if (!known.position && !last.seen.opaque) {
        const std::vector<uint64_t>& key = last.seen.key;
        known.position = last.entry->then->children.find(hash_words(key.data(), key.size()), key.data(), key.size());
      }
      if (known.position)
        if (const Entry* e = known.position->table.find(known.values.args.data(), known.values.args.size())) return e;
      ++misses_;
      path.start(*paths_.back(), table);
      make_entry(args, count, {}, path);
    }
  }
  if (path.done())
    path.deliver(out);
  else
    call(args, count, out.tensors, out.capacity, out.count, out.structure);
  return nullptr;
}

}  // namespace tessera::core
