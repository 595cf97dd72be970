// SPDX-License-Identifier: Apache-2.0
// The plan of one region: a table of steps over tensor slots, independent of the sizes of a call. layout.hpp places the slots
// in memory for given sizes; run/plan_runner.hpp executes the result.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/buffer.hpp"
#include "memory/tensor.hpp"
#include "plan/assignment.hpp"
#include "plan/input_facts.hpp"
#include "plan/size_program.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class Blob;
class Error;
class ExecutorLayout;
class Graph;
class Plan;
struct StepTable;
struct CompileOptions;
struct Factory;
struct OpRecord;
struct RunContext;
struct SectionLayout;

inline constexpr uint32_t kNone = TSR_NONE;

enum class SlotKind : uint8_t {
  kInput,     // index: input of the region
  kConstant,  // index: into Plan::constants
  kStorage,   // index: storage written by its step
  kView,      // source: slot that its step views; index: storage of nothing
  kCopy,      // source: slot that its step copies, where the layout needs that, else the source itself; index: storage
  kDynamic,   // index: buffer that a control step brings along
};

struct Slot {
  tsr_id value = TSR_NONE;  // whose tensor it is
  uint32_t dtype = 0, rank = 0;
  uint32_t dims = 0;  // first of `rank` entries of Plan::dims
  tsr_device device = 0;
  SlotKind kind = SlotKind::kStorage;
  uint32_t index = 0;
  uint32_t source = kNone;
  uint32_t section = 0;
  uint32_t last_section = 0;  // of any use, aliases included
};

struct Storage {
  uint32_t slot = kNone;    // whose bytes it has
  uint32_t output = kNone;  // the region's output that it is
};

// When a copy step runs (bits); otherwise its result is its source.
enum CopyReason : uint32_t {
  kCopyAlways = 1,      // to another device
  kCopyStrided = 2,     // the kernel wants row-major inputs
  kCopyUnaligned = 4,   // the kernel wants 64-byte aligned inputs
  kCopyOutput = 8,      // an output needs memory of its own, unless its source's can be given away
  kCopyWriteback = 16,  // into the memory of state input `target`
  kCopyForView = 32,    // the view that follows may only succeed on dense memory
};

struct ControlPlan {  // what the host does in one control step: nested plans, or a call of the client
  enum Kind { kCond, kWhile, kScan, kClient } kind;
  std::vector<std::unique_ptr<Plan>> regions;
  uint32_t carried = 0, scanned = 0;
  bool reverse = false;
  DimRef length;
  bool predicate_unknown = false;  // computed by a backend that does not compute; of a client's step: any operand
  int64_t client_step = 0;         // its number
  const char* client_name = nullptr;
};

struct Step {
  tsr_step_kind kind = TSR_STEP_KERNEL;
  tsr_id node = TSR_NONE;
  const OpRecord* record = nullptr;
  const Factory* backend = nullptr;  // null: the host
  tsr_kernel kernel{};               // TSR_STEP_KERNEL with a backend; owned
  uint32_t kernel_step = kNone;      // TSR_STEP_SECTION: whose kernel's `sizes` is called
  tsr_device device = 0;
  uint32_t section = 0;
  std::vector<uint32_t> inputs, outputs;  // slots; kNone: omitted operand
  std::vector<uint32_t> symbols;          // TSR_STEP_SECTION: what it computes
  std::string refusals;                   // of a kernel: as Assignment has them
  uint32_t copy = 0;                      // CopyReason bits
  uint32_t target = kNone;                // output or state input of a copy
  std::unique_ptr<ControlPlan> control;
  double predicted_seconds = -1;   // by the backend; negative: unknown
  int64_t expected_workspace = 0;  // bytes; what counts while there is no kernel to ask
  uint64_t site = 0;               // of a kernel on a device, for its faults; owned
  mutable std::atomic<int64_t> measured_ns{0}, measured_runs{0};
  Step() { kernel.in_place = -1; }  // until a backend says otherwise
};

struct Constant {
  BufferRef owned;  // when it had to be moved to a device
  void* data = nullptr;
  tsr_id value;
  tsr_device device;
};

struct UnplacedConstant {
  size_t constant;   // of Plan::constants; its data is not set yet
  const void* data;  // in the graph's memory, which outlives the plan
  size_t bytes;
};

struct InputSpec {
  std::string name;
  uint32_t kind = 0;  // tsr_input_kind
  uint32_t dtype = 0, rank = 0;
  tsr_device device = 0;
  std::vector<tsr_dim> sizes;
  std::vector<tsr_dim> strides;  // empty: any
  uint32_t writeback = kNone;
  bool donated = false;
  bool given_up = false;  // an argument that is donated: it goes with the step that reads it last, where a call hands it over
  bool static_sizes = true;
  bool read = true;  // by the graph
};

// What a call of a plan brings.
struct CallArgs {
  const tsr_tensor* const* inputs;      // checked against the types; one per input
  Tensor* const* handles = nullptr;     // the same as handles: needed to give donated memory away
  const int64_t* outer_dims = nullptr;  // values of the symbols that are known already
  bool guarded = false;                 // inputs that the graph does not read may be anything: guards leave them out
  bool trusted = false;                 // guards have checked dtypes, ranks, sizes, strides and devices
  void* const* places = nullptr;        // run_into(): memory of the results
  const tsr_raw_call* raw = nullptr;    // run_raw(): who gives the memory of the results
  const RunContext* context = nullptr;  // null: the thread's current streams, and memory of the pool
  // By input, null where the caller keeps it: the only reference to an argument that is given up, of which the run lets go.
  TensorRef* handed_over = nullptr;
};

// Immutable after build(). PlanRunner runs it.
class Plan {
 public:
  int threads = 0;
  bool needs_alignment = false;  // some kernel wants aligned inputs: then the addresses of inputs are part of a layout

  // Once the kernels, if any, have said which sizes they read and how much workspace they need: the order of the size program,
  // and the layout of a static plan. Nested plans too. Throws TSR-R023 and TSR-R025.
  void finish();
  // Decides whether the executor of the options is offered this plan's layouts, and offers it that of a static plan.
  void choose_executor(const CompileOptions& options);
  ~Plan();
  Plan(const Plan&) = delete;

  const Graph* graph = nullptr;
  tsr_id region = 0;
  std::vector<InputSpec> inputs;
  std::vector<Slot> slots;
  std::vector<Storage> storages;
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<Constant> constants;
  std::vector<UnplacedConstant> unplaced;  // empty once the kernels are compiled
  std::vector<DimRef> dims;
  std::vector<uint32_t> output_slots;     // one per output of the region
  std::vector<tsr_device> arena_devices;  // devices with an arena
  std::vector<tsr_device> queues;         // devices other than the host: each has one stream per call
  SizeProgram program;
  uint32_t num_sections = 1;
  uint32_t num_dynamic = 0;
  bool is_static = true;         // one section, and no size depends on a symbol
  bool gives_away = false;       // some state input is donated
  bool replaces_states = false;  // as CompileOptions says
  // Arguments that are given up go with the steps that read them last, and each result gets its memory in front of the step
  // that writes it first: it takes the room that those leave.
  bool takes_turns = false;
  int64_t arena_max_bytes = 0;
  bool measure = false;
  bool sync_faults = false;  // wait for every step on a device, and throw what it has found
  bool check_nan = false;    // look at what every step gives, and throw at the first NaN
  bool nested = false;
  bool gets_sizes = false;            // of the plan around it, as values of symbols
  std::vector<int64_t> bounds;        // of all sizes, for layouts that an executor shares between calls; empty: there are none
  const Factory* executor = nullptr;  // that every layout is offered to (executor_layout.hpp); null: all run step by step
  // Of this plan alone; with_nested() adds those of its control steps.
  double pack_seconds = 0;   // spent on moving and rearranging constants
  int64_t held_bytes = 0;    // kept by kernels, forms of constants included
  int64_t form_bytes = 0;    // of those forms, what this process made
  int64_t mapped_bytes = 0;  // and what it shares with others through the cache
  std::vector<std::shared_ptr<const Blob>> forms;
  std::vector<BufferRef> placed_forms;  // those of kernels on devices, which lie there

  // The sum of `what` over this plan and the nested ones.
  template <class T>
  T with_nested(T Plan::*what) const {
    T sum = this->*what;
    for (const auto& s : steps)
      if (s->control)
        for (const auto& r : s->control->regions) sum += r->with_nested(what);
    return sum;
  }

  // Roots: what addresses are relative to.
  uint32_t input_root(uint32_t i) const { return i; }
  uint32_t output_root(uint32_t j) const { return static_cast<uint32_t>(inputs.size()) + j; }
  uint32_t dynamic_root(uint32_t d) const { return static_cast<uint32_t>(inputs.size() + output_slots.size()) + d; }
  uint32_t arena_root(uint32_t section, uint32_t device) const {
    return static_cast<uint32_t>(inputs.size() + output_slots.size() + num_dynamic + section * arena_devices.size()) + device;
  }
  uint32_t num_roots() const { return arena_root(num_sections, 0); }
  uint32_t arena_index(tsr_device d) const;
  uint32_t queue_of(tsr_device d) const {  // kNone: the host
    for (uint32_t q = 0; q < queues.size(); ++q)
      if (queues[q] == d) return q;
    return kNone;
  }

  const DimRef* dims_of(uint32_t slot) const { return dims.data() + slots[slot].dims; }

  // What bind() checks and what it takes the values of symbols from. Whoever has established all of it may call with `trusted`.
  InputFacts facts;

  // The layout for dense, aligned inputs when the plan is static; null otherwise.
  std::shared_ptr<const SectionLayout> primary;

  // Checks count, dtype, rank, sizes, strides, device; throws TSR-T02x. Sets dims of the symbols that inputs determine.
  void bind(const CallArgs& args, int64_t* dims) const;
  // What the sizes that are known from `section` on have to keep among them. Throws TSR-T026.
  void check_relations(uint32_t section, const int64_t* dims) const;
  std::string describe_input(uint32_t i) const;  // for messages

 private:
  explicit Plan(const Graph& graph);
  friend class PlanBuilder;

  std::vector<DimRef> expected_;  // by facts.dims, of those that are kCheck
  struct Relation {
    uint32_t relation;
    DimRef a, b;
    uint32_t section;
    std::string text, why;
  };
  std::vector<Relation> relations_;
};

// The step table of the graph's body, and inside of it those of regions; without kernels.
std::unique_ptr<Plan> build_plan(Graph& graph, const std::vector<Assignment>& assignment, const CompileOptions& options);

// Throws `e` again with the step's place in its message.
// The error of a step with its place, and with the donated states that the call has written over by then.
[[noreturn]] void rethrow_at(const Plan& plan, const Step& step, const SectionLayout& layout, size_t instruction,
                             const Error& e);

// A step as abi.h shows it, without what only executors get. Pointers live as long as the plan.
tsr_step step_row(const Plan& plan, const Step& step, int64_t workspace_bytes);

// All steps of the plan as abi.h shows them. Pointers live as long as the plan.
struct StepTable {
  std::vector<tsr_step> rows;
  tsr_step_table table{};
  explicit StepTable(const Plan& plan);
};

}  // namespace tessera::core
