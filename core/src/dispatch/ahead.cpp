// SPDX-License-Identifier: Apache-2.0
// Compiling for calls before they come: traced one after the other, compiled in parallel.
#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "context/context.hpp"
#include "dispatch/callable_capture.hpp"
#include "dispatch/capturing.hpp"
#include "dispatch/events.hpp"
#include "dispatch/make_guards.hpp"
#include "dispatch/path_capture.hpp"
#include "ir/equality.hpp"
#include "memory/parallel.hpp"
#include "run/executable.hpp"
#include "support/clock.hpp"
#include "support/error.hpp"
#include "support/jobs.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

// One example on its way. While its job runs, that alone touches `graph`, `executable`, `error` and `seconds`.
struct Callable::PrecompileJob {
  size_t index = 0;
  const tsr_arg* args = nullptr;
  size_t count = 0;
  std::vector<std::string> paths;
  CompileId id;
  bool symbolic = false;
  // To be done at the end, one at a time: what may have to be captured with fewer symbols, and what another example may turn
  // out to serve.
  bool alone = false;
  uint64_t hash = 0;  // of what was captured
  std::optional<Capture> capture;
  std::unique_ptr<Executable> executable;
  std::exception_ptr error;
  double trace_seconds = 0, compile_seconds = 0;
};

void Callable::trace_ahead(PrecompileJob& a, EntryTable& table) {
  const auto start = std::chrono::steady_clock::now();
  DispatchListener& events = dispatch_events();
  Specialised specialised;
  for (;; ++a.id.attempt) {
    PathCapture path(*this, a.args, a.count);
    path.start(*paths_.back(), table);
    path.decided(a.id);
    path.run_nothing();
    events.capture_begins(*frame_, a.id);
    try {
      Capture c = capture(a.args, a.count, a.paths, specialised, path);
      a.symbolic = path.symbolic;
      if (!model_ && specialise_what_does_not_hold(*c.graph, c.leaves, c.policies, a.args, a.paths, specialised)) continue;
      a.capture.emplace(std::move(c));
      break;
    } catch (const Error& e) {
      if (!path.symbolic || !may_be_symbolic(e)) {
        events.failed({*frame_, a.id, e});
        throw;
      }
      a.alone = true;
      return;
    }
  }
  a.hash = computation_hash(*a.capture->graph);
  a.trace_seconds = seconds_since(start);
}

// Makes the entry; false: another one serves it.
bool Callable::finish_ahead(PrecompileJob& a, EntryTable& table) {
  if (table.find(a.args, a.count)) return false;
  frame_->acquire();
  std::unique_ptr<Entry> made;
  if (a.executable) {
    made = entry_of(*a.capture, std::move(a.executable), frame_->next(a.id.attempt), a.args, a.count, a.paths);
    made->compile_seconds = a.trace_seconds + a.compile_seconds;
  } else {
    PathCapture path(*this, a.args, a.count);
    path.start(*paths_.back(), table);
    const CompileId id = frame_->next();
    path.decided(id);
    path.run_nothing();
    const TraceCompile trace({"function", frame_->name(), frame_->place(), id.text()});
    made = make_entry(a.args, a.count, a.paths, id, path);
    if (table.find(a.args, a.count)) return false;  // of a thread that has traced it, too
    made->id = number_again(made->id);
  }
  const Entry* e = table.insert(std::move(made), a.args, a.count);
  frame_->finish();
  DispatchListener& events = dispatch_events();
  std::vector<GuardText> guards;
  if (events.wants_guards()) guards = e->guards.texts();
  events.compiled({*frame_, e->id, guards, *e->executable, e->compile_seconds});
  return true;
}

void Callable::compile_ahead(const tsr_examples& examples, size_t* compiled, size_t* failed) {
  const Capturing capturing(*this, *frame_);
  const std::lock_guard lock(capture_lock_);
  EntryTable& table = *tables_.back();
  const EntryTable::Reader reader(table);
  const size_t threads = examples.threads > 0 ? examples.threads : static_cast<size_t>(std::max(1, num_threads()));

  std::vector<std::unique_ptr<PrecompileJob>> all;
  const auto get = [&](size_t i, const tsr_arg** args, size_t* count) {
    throw_if(examples.get(examples.self, i, args, count));
  };
  std::exception_ptr first_error;
  size_t first_failed = examples.count;
  const auto fail = [&](size_t index) {
    if (index >= first_failed) return;
    first_error = std::current_exception();
    first_failed = index;
  };
  {
    Jobs jobs(std::min(threads, examples.count));
    int64_t pending = 0;
    for (size_t i = 0; i < examples.count; ++i) {
      auto made = std::make_unique<PrecompileJob>();
      PrecompileJob& a = *made;
      a.index = i;
      try {
        get(i, &a.args, &a.count);
        check_arguments(a.args, a.count, frame_->name(), [&](size_t k) { return path_of(a.args, a.count, k); });
        a.paths = paths_of(a.args, a.count);
        all.push_back(std::move(made));
        if (table.find(a.args, a.count)) continue;
        if (paths_.back()->head)
          throw user_error("TSR-D014",
                           "'" + frame_->name() + "' (" + frame_->place() +
                               ") has graph breaks, and so cannot be compiled ahead of its calls",
                           "call the function with these arguments instead, which compiles its parts as it runs them");
        const Frame::Limits& limits = frame_->limits();
        const bool many = static_cast<int64_t>(table.entries().size()) + failures_ + pending >= limits.recompile;
        if (many || frame_->accumulated() + pending >= limits.accumulated) {
          const std::string key = many ? "recompile_limit" : "accumulated_recompile_limit";
          throw user_error("TSR-D012",
                           "example " + std::to_string(i) + " for '" + frame_->name() + "' (" + frame_->place() +
                               ") is one more than guards." + key + " (" +
                               std::to_string(many ? limits.recompile : limits.accumulated) + ") lets be compiled",
                           "raise guards." + key + " in the function's options: \"guards." + key + "=" +
                               std::to_string(static_cast<int64_t>(examples.count) + limits.recompile) + "\"");
        }
        frame_->acquire();
        if (const int64_t n = frame_->define(); n == frame_->limits().recompile) dispatch_events().redefined({*frame_, n});
        profile_store_.load(context_->cache(), *frame_, profile_);
        a.id = frame_->next();
        a.id.compile += pending;
        trace_ahead(a, table);
        ++pending;
        for (const auto& b : all)
          if (b.get() != &a && b->capture && b->hash == a.hash) a.alone = true;
        if (a.alone) continue;
        jobs.add([this, &a] {
          const auto start = std::chrono::steady_clock::now();
          TraceCompile trace({"function", frame_->name(), frame_->place(), a.id.text()});
          try {
            dispatch_events().capture_ended({*frame_, a.id, a.capture->graph.get(), a.trace_seconds});
            a.executable = compile(std::move(a.capture->graph), options_, true);
          } catch (const Error& e) {
            trace.failed(e);
            dispatch_events().failed({*frame_, a.id, e});
            if (a.symbolic && may_be_symbolic(e))
              a.alone = true;
            else
              a.error = std::current_exception();
          } catch (...) {
            a.error = std::current_exception();
          }
          a.compile_seconds = seconds_since(start);
        });
      } catch (...) {
        fail(i);
      }
    }
  }
  // In order, so that compiles have the numbers of their examples.
  for (const auto& a : all) {
    try {
      if (a->error) std::rethrow_exception(a->error);
      if (!a->executable && !a->alone) continue;  // an entry served it, or it has failed already
      get(a->index, &a->args, &a->count);
      *compiled += finish_ahead(*a, table);
    } catch (...) {
      fail(a->index);
    }
  }
  for (const auto& a : all) see(a->args, a->count, a->paths);
  if (*compiled > 0) profile_store_.save(context_->cache(), *frame_, profile_);
  if (!first_error) return;
  if (failed) *failed = first_failed;
  std::rethrow_exception(first_error);
}

}  // namespace tessera::core
