// SPDX-License-Identifier: Apache-2.0
// What happens when no entry fits: compile one, or run without compiled code.
#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "context/context.hpp"
#include "dispatch/callable_capture.hpp"
#include "dispatch/capturing.hpp"
#include "dispatch/events.hpp"
#include "dispatch/path_capture.hpp"
#include "dispatch/stance.hpp"
#include "log/log.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
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
}  // namespace

const Entry* Callable::miss(EntryTable& table, const tsr_arg* args, size_t count, PathCapture& path,
                            UncompiledCall& uncompiled) {
  check_arguments(args, count, frame_->name(), [&](size_t i) { return path_of(args, count, i); });
  const auto serve = [&](UncompiledCall how) {
    uncompiled = how;
    return nullptr;
  };
  if (reuse_only()) return serve({"the function that calls it is past its limit", true});
  const Stance now = stance();
  if (now == Stance::kEagerOnRecompile) return serve({"the stance is 'eager_on_recompile'"});
  const Capturing capturing(*this, *frame_);
  std::unique_lock lock(capture_lock_, std::defer_lock);
  if (!fallback_when_busy_)
    lock.lock();
  else if (!lock.try_lock())
    return serve({"another thread compiles the function"});
  if (&table != tables_.back().get()) {  // everything has been forgotten meanwhile
    uncompiled.look_again = true;
    return nullptr;
  }
  if (const Entry* e = table.find(args, count)) return e;  // another thread has compiled it meanwhile
  if (model_) refuse_misfit(args, count);
  ++misses_;
  if (now == Stance::kFailOnRecompile) RecompileRules::refuse(*frame_, last_reason(table, args, count));
  if ((now == Stance::kEagerThenCompile || now == Stance::kAotEagerThenCompile) && table.entries().empty() &&
      !std::exchange(first_call_gone_, true)) {
    see(args, count, paths_of(args, count));
    return serve({"the first call under its stance", false, now == Stance::kAotEagerThenCompile});
  }
  path.start(*paths_.back(), table);
  const bool compiled = !table.entries().empty();
  CompileId id;
  if (!path.broke_before()) {  // else whether its head has to be compiled is known once it has been recorded
    const RecompileRules::Limit limit =
        RecompileRules::limit_hit(*frame_, static_cast<int64_t>(table.entries().size()) + failures_);
    if (compiled || limit) {
      explain_miss(table, args, count, failures_ == 0 ? limit : RecompileRules::Limit());  // failures have had their warning
      rules_.check(*frame_, limit, compiled, last_reason(table, args, count));
    }
    if (limit) return serve({"the recompile limit was hit", true});
    frame_->acquire();
    if (const int64_t count = frame_->define(); count == frame_->limits().recompile)
      dispatch_events().redefined({*frame_, count});
    profile_store_.load(context_->cache(), *frame_, profile_);
    id = frame_->next();
    path.decided(id);
  }
  std::optional<TraceCompile> trace;
  if (!path.broke_before()) trace.emplace(TraceSubject{"function", frame_->name(), frame_->place(), id.text()});
  const Entry* e = nullptr;
  try {
    const std::vector<std::string> paths = paths_of(args, count);
    see(args, count, paths);
    std::unique_ptr<Entry> made = make_entry(args, count, paths, id, path);
    if (!made) return nullptr;
    if (const Entry* same = table.find(args, count)) return same;  // of a thread that has traced it, too
    made->id = number_again(made->id);
    e = table.insert(std::move(made), args, count);
  } catch (const Error& error) {
    if (trace) trace->failed(error);
    // What the function has done before a break would happen twice.
    if (path.ran() || dynamic_cast<const Interrupted*>(&error) || !suppresses(error)) throw;
    ++failures_;
    return serve({"it could not be compiled"});
  }
  frame_->finish();
  profile_store_.save(context_->cache(), *frame_, profile_);
  DispatchListener& events = dispatch_events();
  std::vector<GuardText> guards;
  if (events.wants_guards()) guards = e->guards.texts();
  events.compiled({*frame_, e->id, guards, *e->executable, e->compile_seconds});
  return e;
}

void Callable::see(const tsr_arg* args, size_t count, const std::vector<std::string>& paths) {
  for (size_t i = 0; i < count; ++i) profile_.see(paths[i], args[i]);
}

CompileId Callable::number_again(const CompileId& id) {
  frame_->acquire();  // a reset may have taken its number
  const CompileId next = frame_->next(id.attempt);
  return id.frame == next.frame && id.compile == next.compile ? id : next;
}

bool Callable::suppresses(const Error& error) {
  if (!suppress_errors_ || desc_.fullgraph || error.family() == TSR_BUG) return false;
  if (!std::exchange(warned_suppressed_, true))
    log_warning(
        "'" + frame_->name() + "' (" + frame_->place() +
        ") runs without compiled code where it cannot be compiled, because guards.suppress_errors is set: " + error.what());
  return true;
}

// ------------------------------------------------------------------------------------------------- functions with breaks

const Entry* Callable::continue_path(Path& known, const tsr_arg* args, size_t count, const Output& out) {
  PathCapture path(*this, args, count, known);
  {
    const Capturing capturing(*this, *frame_);
    const std::lock_guard lock(capture_lock_);
    const PathStep& last = known.steps.back();
    if (!known.position && !last.seen.opaque) {
      const std::vector<uint64_t>& key = last.seen.key;
      known.position = last.entry->then->children.find(hash_words(key.data(), key.size()), key.data(), key.size());
    }
    if (known.position)
      if (const Entry* e = known.position->table.find(known.values.args.data(), known.values.args.size())) return e;
    ++misses_;
    // Its paths may have been forgotten meanwhile. It goes on along them all the same: what has run must not run again.
    const auto at = std::find_if(tables_.begin(), tables_.end(), [&](const auto& t) { return t.get() == known.table; });
    path.start(*paths_.at(static_cast<size_t>(at - tables_.begin())), **at);
    const std::vector<std::string> paths = paths_of(args, count);
    see(args, count, paths);
    make_entry(args, count, paths, {}, path);
  }
  path.deliver(out);
  return nullptr;
}

}  // namespace tessera::core
