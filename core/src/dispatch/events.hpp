// SPDX-License-Identifier: Apache-2.0
// What happens between a miss and the entry that answers it, told to whoever listens: logs, traces, tests. Dispatch itself
// prints nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dispatch/frame.hpp"
#include "dispatch/guards.hpp"

namespace tessera::core {

class Error;
class Executable;
class Graph;

struct MissReason {  // why one cached entry did not fit
  CompileId entry;
  std::vector<GuardText> guards;  // those that failed; the first is the reason
};

struct RecompileEvent {
  const Frame& frame;
  CompileId next;                          // what is about to be compiled
  const std::vector<MissReason>& reasons;  // one per entry, the most recently used first
  std::string advice;                      // the smallest change that would have avoided it; empty: none is known
};

struct CaptureEvent {
  const Frame& frame;
  CompileId id;
  const Graph* graph = nullptr;  // as captured; null: it failed
  double seconds = 0;
};

struct CompiledEvent {
  const Frame& frame;
  CompileId id;
  const std::vector<GuardText>& guards;
  const Executable& executable;  // its final graph, step table and times
  double seconds = 0;            // capture, passes and kernels
};

struct FailedEvent {  // a capture or a compile that threw
  const Frame& frame;
  CompileId id;
  const Error& error;
};

struct LimitEvent {
  const Frame& frame;
  const char* key;  // "recompile_limit"
  int64_t limit;
  std::string last_reason;  // "0/7: tensor 'x' size mismatch ..."; empty: nothing was cached
};

struct RedefinedEvent {  // a compiled function that is made again and again, each time to be compiled anew
  const Frame& frame;
  int64_t count;  // of this name and place
};

struct GraphBreakEvent {
  const Frame& frame;
  CompileId id;
  std::string code, what, place, why, hint;  // code: "TSR-G010"; place: "model.cpp:14"; hint: one per line
  std::string after, next;                   // what the segment holds that ends here; the function that goes on
};

struct FallbackEvent {  // a call that ran without compiled code of its own
  const Frame& frame;
  std::string why;
};

// Called on the thread that missed, mostly under the function's lock: a listener must neither throw nor call compiled
// functions. Several threads may call at once.
class DispatchListener {
 public:
  virtual ~DispatchListener() = default;
  // Whether recompiling() is of any use now: reasons cost time to write. Asked before each recompile.
  virtual bool wants_reasons() const { return true; }
  virtual bool wants_guards() const { return true; }
  virtual void recompiling(const RecompileEvent&) {}
  virtual void capture_begins(const Frame&, const CompileId&) {}
  virtual void capture_ended(const CaptureEvent&) {}
  virtual void compiled(const CompiledEvent&) {}
  virtual void failed(const FailedEvent&) {}
  virtual void limit_hit(const LimitEvent&) {}
  virtual void redefined(const RedefinedEvent&) {}
  virtual void graph_break(const GraphBreakEvent&) {}
  virtual void fallback(const FallbackEvent&) {}
};

// Listeners are told in the order in which they were added; the logs come first.
void add_dispatch_listener(std::shared_ptr<DispatchListener> listener);
void remove_dispatch_listener(const DispatchListener* listener);
// Forwards to every listener.
DispatchListener& dispatch_events();

std::shared_ptr<DispatchListener> make_dispatch_log();    // the artifacts recompiles, guards, graph, graph_breaks, and warnings
std::shared_ptr<DispatchListener> make_dispatch_trace();  // docs/trace.md

}  // namespace tessera::core
