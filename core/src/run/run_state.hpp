// SPDX-License-Identifier: Apache-2.0
// What one call of a plan needs for itself: values of sizes, launches filled in for a layout, arenas.
#pragma once

#include <memory>
#include <vector>

#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "run/run_context.hpp"

namespace tessera::core {

class PlanRunner;

// A section's launches over a layout. Addresses are patched when the base of a root differs from the last call's, so that a
// steady call only writes the addresses of its inputs and outputs.
class SectionRun {
 public:
  struct Ready {
    const Instruction* instruction;
    const Step* step;
    uint32_t queue;  // whose stream it is queued on; kNone: the host runs it
    tsr_launch launch;
  };

  void materialise(const Plan& plan, std::shared_ptr<const SectionLayout> layout, const int64_t* dims);
  const SectionLayout* layout() const { return layout_.get(); }
  const std::shared_ptr<const SectionLayout>& shared_layout() const { return layout_; }
  void drop() { layout_.reset(); }
  std::vector<Ready>& program() { return ready_; }
  const std::vector<uint32_t>& used_roots() const { return used_; }
  std::vector<int64_t> key;  // of the layout, where it was found by one: a call like the last takes no lock
  void set_base(uint32_t root, void* base) {
    if (bases_[root] == base) return;
    bases_[root] = base;
    for (uint32_t k = patch_begin_[root]; k < patch_begin_[root + 1]; ++k)
      *patches_[k].where = static_cast<char*>(base) + patches_[k].offset;
  }

 private:
  struct Patch {
    void** where;
    int64_t offset;
  };
  std::shared_ptr<const SectionLayout> layout_;
  std::vector<tsr_tensor> tensors_;
  std::vector<Ready> ready_;
  std::vector<Patch> patches_;
  std::vector<uint32_t> patch_begin_;  // by root
  std::vector<uint32_t> used_;
  std::vector<void*> bases_;
};

// Times of the steps of one call on devices, by events, so that the host need not wait for each.
class StepTimes {
 public:
  StepTimes() = default;
  ~StepTimes() { drop(); }
  StepTimes(const StepTimes&) = delete;
  void begin(const Step& step, Stream& stream);
  void end();      // of the step that began last
  void collect();  // waits for the steps, and adds what they took to their totals
  void drop() noexcept;

 private:
  struct Timed {
    const Step* step;
    Stream* stream;
    tsr_event *from, *to;
  };
  std::vector<Timed> steps_;
};

// Of one run at a time; a plan keeps a few for its next runs.
struct RunState {
  explicit RunState(const Plan& plan);
  ~RunState();
  void reset() noexcept;  // lets go of everything but memory that the next call uses again

  const Plan& plan;
  std::vector<int64_t> dims;
  std::vector<SectionRun> sections;
  std::vector<void*> bases;            // of roots, in this call; then of the plan's constants
  std::vector<Buffer*> outputs;        // allocated for this call, by output
  std::vector<uint32_t> output_roots;  // where output j lies
  std::vector<TensorRef> dynamics;
  std::vector<Buffer*> arenas;  // by section and arena device
  std::vector<int64_t> key;
  std::vector<InputLayout> inputs;
  std::vector<Stream*> streams;            // by queue, of this call
  RunContext context;                      // of this call, for the plans inside
  bool noted = true;                       // its buffers know of this call
  const tsr_raw_call* profiler = nullptr;  // is told of each kernel; null: nobody
  bool uses_executors() const { return !captured && !profiler; }
  bool captured = false;  // some stream of this call is being captured into a graph of somebody else
  StepTimes times;        // of this call, where the plan measures

  Stream* stream_of(tsr_device d) const;  // null: the host
  // A result of a region that is let go of: what has been queued so far may read it.
  void note_used(const TensorRef& t) const {
    if (t && t->buffer->uses) note_write(*t->buffer, stream_of(t->desc.device)->point());
  }
};

// Arenas of the host are shared by all plans: calls mostly come one after the other, and then the largest arena serves them
// all.
Buffer* take_arena(Device& device, int64_t bytes);
void give_arena(Buffer*) noexcept;
// Returns every arena that waits to the pool. Called when the last plan goes.
void drop_arenas() noexcept;

// The memory that the caller gives for an output. Throws TSR-T028 for what no kernel may write to.
void* raw_output(const tsr_raw_call& call, uint32_t index, const tsr_tensor& described, size_t bytes);

// Runs a control step; results go to state.dynamics. `dims` gets the unbacked symbols that the results determine.
void run_control(const PlanRunner& runner, RunState& state, const SectionRun::Ready& ready);

// Whether a plan, or one inside of it, has steps that the client runs.
bool has_client_steps(const Plan& plan);
// Its part for a step of the client (client_step.cpp): dense results, aligned as those of kernels are.
std::vector<TensorRef> run_client_step(const Plan& plan, const RunState& state, const SectionRun::Ready& ready);

}  // namespace tessera::core
