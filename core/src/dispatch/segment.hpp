// SPDX-License-Identifier: Apache-2.0
// A function with graph breaks: the segments between them, and the tree of paths that calls have taken through them.
//
// A *segment* is compiled once per frame and shared by every path on which the same computation is recorded. A path is a chain
// of entries: an entry that ends in a break says which values go on and what the host code read; what it read selects the next
// *position*, which has a table of entries of its own. On a path that has been taken before only segments run.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/recorder.hpp"
#include "dispatch/entry_table.hpp"
#include "dispatch/frame.hpp"
#include "dispatch/words.hpp"
#include "memory/tensor.hpp"

namespace tessera::core {

class Executable;
class Graph;

// Where a value comes from when a segment has run.
struct ValueSource {
  enum Kind : uint32_t { kArgument, kOutput } kind;
  uint32_t index;  // of the position's arguments, or the segment's outputs
  bool operator==(const ValueSource&) const = default;
};

struct Segment {
  // Of a head: the graph and the numbers before anything was recorded, to begin another capture in the same way.
  std::unique_ptr<Graph> start;
  std::map<uint32_t, Recorder::Scalar> scalars;
  std::unique_ptr<Graph> recorded;         // before passes
  uint64_t hash = 0;                       // computation_hash(*recorded)
  std::shared_ptr<Executable> executable;  // null: there is nothing to compute
  int64_t number = -1;                     // among the compiles of its frame; -1: nothing was compiled
  size_t ops = 0;                          // recorded
  bool effects = false;                    // it calls host functions, which must not happen twice in one call
  double compile_seconds = 0;
  // The call that it was compiled for, to explain why a later one needs another: the arguments of its position, and the host's
  // values on the way to it (plain arguments of the function, numbers read). One that has been seen to change without changing
  // the graph explains nothing.
  Guards guards;
  std::vector<Expected> host;
  std::vector<uint8_t> argument_varies, host_varies;
  mutable std::atomic<uint64_t> tick{0};
};

// A frame with its segments. `place` tells continuations apart: the place of the break, and which way a branch went.
struct SegmentFrame {
  explicit SegmentFrame(Frame& head) : frame(&head) {}
  explicit SegmentFrame(std::unique_ptr<Frame> f) : frame(f.get()), owned(std::move(f)) {}
  Frame* frame;
  std::unique_ptr<Frame> owned;  // of continuations; the head's is the callable's
  uint32_t column = 0;
  int32_t branch = -1;  // of a bool that was read: 0 or 1
  std::vector<std::shared_ptr<Segment>> segments;
};

// What a client keeps of a host step's outcome.
struct Outcome {
  void* data = nullptr;
  void (*free)(void*) = nullptr;
  Outcome() = default;
  Outcome(const Outcome&) = delete;
  ~Outcome() {
    if (data && free) free(data);
  }
};

// What host code saw at a break.
struct Seen {
  int64_t i = 0;
  double f = 0;
  TensorRef tensor;
  std::shared_ptr<Outcome> outcome;
  std::vector<uint64_t> key;  // all of it, for comparison; empty with `opaque`
  bool opaque = false;        // too much to compare: host code has to run again
  Seen again() const {        // the same, for another time
    Seen s;
    s.i = i;
    s.f = f;
    if (tensor) s.tensor = TensorRef::share(tensor.get());
    s.outcome = outcome;
    s.key = key;
    s.opaque = opaque;
    return s;
  }
};

struct HostStep {
  tsr_host_step call{};
  HostStep() = default;
  HostStep(const HostStep&) = delete;
  ~HostStep() {
    if (call.destroy) call.destroy(call.self);
  }
};

// What follows the segment of an entry. Immutable but for `children`, which grows under the lock of the callable's misses.
struct Continuation {
  struct Child {  // a position: what comes after this break when the host has seen a certain thing
    EntryTable table;
    SegmentFrame* frame = nullptr;
  };

  std::shared_ptr<Segment> segment;
  bool returns = false;
  // The results of the function; or the arguments of the next position, each source once, before those that the host step adds.
  std::vector<ValueSource> values;

  // Breaks only:
  uint32_t code = 0, read_kind = 0;
  tsr_loc loc{};  // `file` lives in `file`
  std::string file, detail;
  ValueSource read{ValueSource::kArgument, 0};
  std::shared_ptr<HostStep> step;
  std::vector<ValueSource> step_inputs;
  WordMap<Child> children;
  std::vector<std::unique_ptr<Child>> owned;

  Continuation() = default;
  ~Continuation();  // paths are long where loops are: not by recursion

  // More than this many different things seen are not kept: host code runs for them.
  static constexpr size_t kMaxChildren = 1024;
};

// The arguments at one position: tensors, and the function's symbolic numbers.
struct Values {
  std::vector<tsr_arg> args;
  std::vector<TensorRef> owned;  // by argument; null where the caller owns it
};

// What running a segment and its host step has given, where it must not be done again for the same call: what host code saw,
// the results of the step, and the outputs of a segment with effects.
struct Done {
  std::shared_ptr<const Continuation> then;
  Seen seen;
  std::vector<TensorRef> outputs, results;
  static Done of(const std::shared_ptr<const Continuation>& then, const Seen& seen, const std::vector<TensorRef>& outputs,
                 const std::vector<TensorRef>& results);
};

// One entry of a path that a call has taken.
struct PathStep {
  const Entry* entry = nullptr;
  Seen seen;
  Done done;
  std::vector<int64_t> sizes;  // values of its symbols, in the order of symbolic.binds
};

struct Path {
  const EntryTable* table = nullptr;  // of the heads: what this path hangs on
  std::vector<PathStep> steps;
  Values values;                            // after the last step
  Continuation::Child* position = nullptr;  // after the last step; null: what the host saw there is new
};

// All frames and segments of a callable since its last reset.
struct Paths {
  SegmentFrame* head = nullptr;                       // null: no break yet
  std::vector<std::unique_ptr<SegmentFrame>> frames;  // in order of creation; the head's first
  struct Break {                                      // a place where some path breaks
    uint32_t code;
    std::string place, detail;
    uint64_t count;  // paths
  };
  std::vector<Break> breaks;
  size_t entries = 0;                             // of all paths
  static constexpr size_t kMaxEntries = 1 << 16;  // beyond them ways are taken, and not kept
};

// ---- running (segment_run.cpp)

// The segment of the entry alone.
void run_executable(const Entry& e, const tsr_arg* args, std::vector<TensorRef>& outputs);
// What host code reads at the break behind a segment, if anything.
void read_value(const Continuation& next, const tsr_arg* args, const std::vector<TensorRef>& outputs, Seen& seen);
// Runs the entry's segment and host step; fills in what the host sees. Throws what kernels and host steps report.
void run_segment(const Entry& e, const tsr_arg* args, std::vector<TensorRef>& outputs, std::vector<TensorRef>& results,
                 Seen& seen);
// The values after it, the results of the host step last; what is not among them is released. `before` gives up what it owns.
Values next_values(const Continuation& next, Values& before, std::vector<TensorRef>& outputs, std::vector<TensorRef>& results);
// References to the results of the function.
void give_results(const Continuation& next, const tsr_arg* args, const std::vector<TensorRef>& outputs,
                  tsr_tensor_handle** out);

}  // namespace tessera::core
