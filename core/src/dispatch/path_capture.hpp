// SPDX-License-Identifier: Apache-2.0
// Running the client's function through its graph breaks. Internal to dispatch/.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/callable_capture.hpp"
#include "dispatch/events.hpp"
#include "dispatch/make_guards.hpp"
#include "dispatch/segment.hpp"

namespace tessera::core {

class TraceCompile;

// One run of the function, on a call that no path fits. Until the first break it does nothing: a function without breaks is
// captured as one graph. At a break it ends the segment, finds or compiles it, runs it, and lets recording go on in the
// continuation. When the call has been along a known path before it left it, finished segments are only recorded and compared:
// their results are the ones that the call has already. Used by the thread that holds the lock; while segments run it may be
// another's, and what the callable holds may grow.
class Callable::PathCapture final : public Recorder::BreakHandler {
 public:
  PathCapture(Callable& callable, const tsr_arg* args, size_t count) : c_(callable), args_(args), count_(count) {}
  // Goes on where `path` ends.
  PathCapture(Callable& callable, const tsr_arg* args, size_t count, Path& path) : PathCapture(callable, args, count) {
    path_ = &path;
    ran_ = true;
    for (const PathStep& s : path.steps)
      done_before_.push_back(s.done.then ? Done::of(s.done.then, s.done.seen, s.done.outputs, s.done.results)
                                         : Done::of(s.entry->then, s.seen, {}, {}));
  }

  void again();           // another attempt, with fewer symbols and from the start
  bool symbolic = false;  // the last attempt began with symbols

  // ---- in this order
  void start(Paths& paths, EntryTable& table);
  bool broke_before() const { return paths_->head != nullptr; }
  void decided(const CompileId& id) { decided_ = id; }  // the head is to be compiled, whatever is recorded
  void keep_nothing() { root_ = nullptr; }
  void run_nothing() { ahead_ = true; }  // a break is an error (TSR-D014): there is no call whose parts could run
  void lends(CaptureLock::Interruptible* lent) { lent_ = lent; }  // while the function runs; graph_break() holds the lock again
  bool follows() const { return path_ != nullptr; }
  std::unique_ptr<Recorder> begin_again(Capture& c, const std::vector<std::string>& names);  // as the path's head was begun
  void begins(Recorder& recorder, Capture& capture, const std::vector<std::string>& names);
  void graph_break(Recorder& recorder, tsr_break& request) override;
  // The function has returned. False: it is one graph, and the caller compiles it.
  bool finish(Recorder& recorder, Capture& capture);
  bool done() const { return done_; }
  bool host_failed() const { return host_failed_; }  // what host code reported is not for another attempt
  bool ran() const { return ran_; }                  // part of the function has run, whose effects must not recur
  void deliver(const Output& out);

 private:
  struct Recorded {  // a segment that has ended
    std::unique_ptr<Graph> graph;
    uint64_t hash = 0;
    size_t ops = 0;
    std::vector<uint8_t> used;  // by graph input
    std::shared_ptr<Continuation> next;
    std::vector<tsr_id> live;  // in the order of next->values; the symbolic numbers come behind them
    bool observed = false;
    std::map<uint32_t, Recorder::Scalar> scalars;  // by argument of this position
  };
  void begin_head();
  Recorded record(Recorder& recorder, std::vector<tsr_id> values, tsr_break* request);
  bool following() const { return path_ && at_ < path_->steps.size(); }
  bool as_before(const Recorded& r) const;  // as the path's next step
  void diverge();                           // the function did something else than on the path: its values, again
  // Runs what has been recorded; null: nothing of it is kept.
  const Entry* advance(Recorded& r, Seen& seen, void** structure = nullptr);  // takes the structure when it is kept
  void run(const Entry& e, std::vector<TensorRef>& outputs, std::vector<TensorRef>& results, Seen& seen);
  bool repeats(const Entry& e) const;
  bool may_keep() const;
  std::shared_ptr<Segment> segment_for(Recorded& r, bool* keep);
  Guards guards_of(const Segment& s, const Recorded& r) const;
  std::vector<GuardText> why_not(const Segment& s) const;
  std::vector<MissReason> reasons() const;           // by segment, the most recently used first
  void explain(const RecompileRules::Limit& limit);  // throws where the config forbids it
  // Why a segment that is not compiled yet must not be: the limit, the stance, the caller. Null: it may. Throws where that is
  // an error.
  const char* forbidden(const RecompileRules::Limit& limit) const;
  std::shared_ptr<Executable> compile(const Graph& recorded, const CompileId& id, TraceCompile* trace);
  void know(Expected x);  // a value of the host on the way here
  void announce(const tsr_break& request, const Recorded& r, const Frame& next);
  Continuation::Child* child(Continuation& next, const Seen& seen);
  SegmentFrame* frame_after(const tsr_break& request, const Seen& seen);
  void restart(Recorder& recorder, tsr_break& request, const Recorded& r);

  Callable& c_;
  CaptureLock::Interruptible* lent_ = nullptr;
  const tsr_arg* args_;
  const size_t count_;
  Path* path_ = nullptr;
  size_t at_ = 0;  // steps of the path that have been followed
  Paths* paths_ = nullptr;
  std::optional<CompileId> decided_;
  std::map<uint32_t, Recorder::Scalar> start_scalars_;
  Capture* capture_ = nullptr;
  std::chrono::steady_clock::time_point began_;

  // ---- the position
  EntryTable* root_ = nullptr;
  EntryTable* table_ = nullptr;  // null: nothing is kept from here on
  SegmentFrame* frame_ = nullptr;
  Values now_;                            // not while a path is followed
  std::vector<uint32_t> leaves_;          // argument of each graph input
  std::vector<std::string> names_;        // by argument
  std::vector<Expected> host_;            // plain arguments of the function and numbers that were read, on the way here
  std::vector<ArgPolicy> policies_;       // by argument
  std::map<uint32_t, uint32_t> scalars_;  // symbolic numbers: argument of the function -> argument of this position
  bool broke_ = false, done_ = false, ran_ = false, ahead_ = false;

  // What this call has run, in order, attempts before this one included: it is not run again.
  std::vector<Done> done_before_;
  size_t done_at_ = 0;
  bool host_failed_ = false, diverged_ = false;

  // ---- when done
  std::vector<TensorRef> results_;
  void* structure_ = nullptr;
  std::unique_ptr<Entry> transient_;
  std::vector<std::shared_ptr<Outcome>> outcomes_;
};

}  // namespace tessera::core
