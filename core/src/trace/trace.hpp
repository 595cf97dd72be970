// SPDX-License-Identifier: Apache-2.0
// The trace of a process: what TESSERA_TRACE=dir records about compilation, one JSON object per line. The schema is
// docs/trace.md.
//
// Off, it costs one relaxed load per question. On, every line goes to the operating system in one write() as soon as it is
// complete, so that a crash of the process loses nothing that was written before it. Thread-safe; a forked child starts a file
// of its own. A trace never fails a program: what cannot be written stops the recording with one warning.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "support/error.hpp"

namespace tessera::core {

inline constexpr const char* kTraceSchema = "tessera.trace/1";

namespace detail {
extern std::atomic<int> g_trace;  // -1: TESSERA_TRACE has not been read yet
bool trace_from_environment();
}  // namespace detail

inline bool trace_enabled() {
  const int on = detail::g_trace.load(std::memory_order_relaxed);
  return on >= 0 ? on != 0 : detail::trace_from_environment();
}

// Records into a new file in `dir`, which is made if need be, in place of whatever was recorded to before. False: it cannot be
// written, which has been warned about.
bool start_trace(const std::string& dir);
void stop_trace();         // ends the file; later events go nowhere
std::string trace_file();  // "" when nothing is recorded

// Nanoseconds of the clock that events are stamped with.
int64_t trace_clock();

// One line. Build it only when trace_enabled(); nothing is written without write().
class TraceEvent {
 public:
  // Stamped with now, with this thread, and with the innermost compile in progress on it.
  explicit TraceEvent(const char* event) : TraceEvent(event, trace_clock()) {}
  TraceEvent(const char* event, int64_t clock);

  TraceEvent& text(const char* key, std::string_view value);  // bytes that are not UTF-8 become U+FFFD
  TraceEvent& number(const char* key, int64_t value);
  TraceEvent& real(const char* key, double value);  // null when it is not finite
  TraceEvent& flag(const char* key, bool value);
  TraceEvent& texts(const char* key, std::span<const std::string> values);
  TraceEvent& json(const char* key, std::string_view value);  // a value that is JSON text already
  TraceEvent& since(int64_t begin);                           // "us": the time from then to now
  void write();

 private:
  void key(const char* name);
  std::string line_;
};

// What is being compiled, as "compile_begin" says it.
struct TraceSubject {
  const char* kind = "graph";  // see docs/trace.md
  std::string name, place;     // "fn", "model.cpp:12"
  std::string entry;           // "0/0"; empty: none
};

// A compile in progress on this thread: writes "compile_begin" and "compile_end", and every event in between carries its
// number. Scopes nest; the enclosing ones are the stack of the inner one. Does nothing when tracing is off as it begins.
class TraceCompile {
 public:
  explicit TraceCompile(const TraceSubject& subject);
  ~TraceCompile();  // while an exception unwinds: the compile has failed
  TraceCompile(const TraceCompile&) = delete;
  void failed(const Error& e);  // what "compile_end" says about it; the caller throws it on

 private:
  uint64_t id_ = 0;
  int64_t begin_ = 0;
  int exceptions_ = 0;
  std::string error_;  // JSON
};

// f(), as one compile. What it throws is recorded and goes on.
template <class F>
auto traced_compile(const TraceSubject& subject, F&& f);

// Whether graphs, guards and step tables of what this thread compiles are worth recording: not those of single ops and of
// constants that a pass evaluates, which are many and small.
bool trace_details();

// A stage of a compile: writes "phase" when it ends.
class TracePhase {
 public:
  explicit TracePhase(const char* name) : name_(name), begin_(trace_enabled() ? trace_clock() : -1) {}
  ~TracePhase();
  TracePhase(const TracePhase&) = delete;

 private:
  const char* name_;
  int64_t begin_;
};

template <class F>
auto traced_compile(const TraceSubject& subject, F&& f) {
  TraceCompile scope(subject);
  try {
    return f();
  } catch (const Error& e) {
    scope.failed(e);
    throw;
  }
}

}  // namespace tessera::core
