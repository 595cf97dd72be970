// SPDX-License-Identifier: Apache-2.0
// A plan's section with numbers for sizes: where every slot lies and which steps run.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "memory/waits.hpp"
#include "plan/executor_layout.hpp"
#include "plan/plan.hpp"
#include "plan/runtime_call.hpp"

namespace tessera::core {

struct Resolved {  // a slot
  enum Place : uint8_t { kNowhere, kRoot, kFixed, kStorage } place = kNowhere;
  uint32_t index = 0;  // kRoot: root; kFixed: constant; kStorage: storage, while the layout is being made
  int64_t offset = 0;  // bytes
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  bool dense = true, aligned = true;
};

// The stream of `queue` waits for what is queued on the stream of `other` by then.
struct QueueWait {
  uint32_t queue, other;
  Wait why;
};

struct Instruction {  // a step that runs
  enum Kind : uint8_t { kLaunch, kCompute, kCopy, kSizes, kComputeSizes, kControl } kind;
  uint32_t step = 0;
  std::vector<uint32_t> inputs, outputs;  // slots
  int64_t workspace_bytes = 0;
  uint32_t workspace_root = kNone;
  int64_t workspace_offset = 0;
  const RuntimeCall* call = nullptr;
  uint32_t queue = kNone;  // of the stream that it is queued on; kNone: the host runs it
  std::vector<QueueWait> waits;
  std::vector<uint32_t> last_reads;  // results of control steps, on the host, that nothing behind this reads
  std::vector<uint32_t> takes;       // of SectionLayout::outputs: those whose memory is taken in front of this
  std::vector<uint32_t> leaves;      // inputs that are given up and that nothing behind this reads
  std::vector<uint32_t> finished;    // of a client's step: inputs that neither this nor anything behind it reads
};

// Immutable once made; shared by every run of a plan.
struct SectionLayout {
  uint32_t section = 0;
  bool bounded = false;         // memory is placed as the largest sizes of the plan need it
  std::vector<Resolved> slots;  // of all sections up to this one
  std::vector<Instruction> program;
  std::vector<int64_t> arena_bytes;  // per arena device
  struct Output {
    uint32_t output;
    uint32_t root;             // output_root(output), or the input or dynamic buffer whose memory it shares
    int64_t bytes;             // to allocate; 0 when shared
    uint32_t written = kNone;  // in the memory of an input: the first instruction that writes there
    bool in_turn = false;      // an instruction takes its memory; else it is there before the first one
  };
  std::vector<Output> outputs;        // whose memory this section provides
  std::vector<QueueWait> last_waits;  // behind the program
  int64_t output_bytes = 0;
  int64_t peak_bytes = 0;  // of arenas, outputs and inputs that are given up, as they come and go
  std::vector<std::pair<uint32_t, int64_t>> storage_places;  // root and offset of each storage placed so far
  std::deque<std::vector<int64_t>> numbers;                  // behind sizes and strides
  std::deque<std::unique_ptr<RuntimeCall>> calls;
  std::shared_ptr<const SectionLayout> previous;           // owns numbers that `slots` borrows
  mutable std::shared_ptr<const ExecutorLayout> executor;  // set before calls share the layout. Null: it runs step by step
};

// What a call brings that a layout depends on, besides dims.
struct InputLayout {
  const int64_t* strides = nullptr;  // null: dense
  bool aligned = true;
  bool give_away = false;  // a donated state whose memory nobody else reads in this call
};

// `dims` holds every size known up to `section`. Throws TSR-R001 when sizes are too large, TSR-T002 for a negative size.
// bounds: values of all slots that no call exceeds. Then memory is placed as these need it, so that calls of other sizes have
// the same offsets. Null: as `dims` need it.
std::shared_ptr<const SectionLayout> make_layout(const Plan& plan, uint32_t section, const int64_t* dims,
                                                 std::span<const InputLayout> inputs,
                                                 std::shared_ptr<const SectionLayout> previous,
                                                 const int64_t* bounds = nullptr);

// Layouts of every section for dense inputs and the sizes that these symbols give: for estimates and descriptions.
std::vector<std::shared_ptr<const SectionLayout>> layouts_at_hints(const Plan& plan, const std::vector<int64_t>& hints);

}  // namespace tessera::core
