// SPDX-License-Identifier: Apache-2.0
// One call of a plan: bind sizes, take a layout, patch addresses, launch.
#include <algorithm>
#include <chrono>
#include <optional>

#include "ir/graph.hpp"
#include "ir/op_callback.hpp"
#include "memory/copy.hpp"
#include "memory/parallel.hpp"
#include "plan/executor_layout.hpp"
#include "plan/layout.hpp"
#include "plugin/plugin_host.hpp"
#include "run/check_nan.hpp"
#include "run/plan_runner.hpp"
#include "run/run_state.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

PlanRunner::PlanRunner(const Plan& plan) : plan_(plan) {
  for (const auto& s : plan.steps) {
    std::vector<std::unique_ptr<PlanRunner>>& regions = regions_.emplace_back();
    if (s->control)
      for (const auto& r : s->control->regions) regions.push_back(std::make_unique<PlanRunner>(*r));
  }
}

PlanRunner::~PlanRunner() {
  for (const StreamPoint& p : used_) {
    try {
      Stream::host_wait(p, Wait::kPlanDestroyed);
    } catch (const Error&) {}  // a device that fails says so to the next who queues work
  }
  for (auto& l : idle_states_) delete l.load();
}

// A lock-free bag of a few idle run states: taking one is an exchange, so nothing can be taken twice and nothing has to be
// counted.
RunState* PlanRunner::acquire() const {
  for (auto& l : idle_states_)
    if (l.load(std::memory_order_relaxed))
      if (RunState* state = l.exchange(nullptr, std::memory_order_acquire)) return state;
  return new RunState(plan_);
}

void PlanRunner::release(RunState* state) const noexcept {
  state->reset();
  for (auto& l : idle_states_) {
    RunState* expected = nullptr;
    if (!l.load(std::memory_order_relaxed) && l.compare_exchange_strong(expected, state, std::memory_order_release)) return;
  }
  delete state;
}

void rethrow_at(const Plan& plan, const Step& step, const SectionLayout& layout, size_t instruction, const Error& e) {
  std::string message = e.message() + (step.node == TSR_NONE ? "" : " in " + plan.graph->describe(step.node)), hint = e.hint();
  size_t lost = 0;
  std::string first;
  for (const SectionLayout::Output& o : layout.outputs) {
    if (o.written > instruction) continue;
    if (lost++ == 0) first = plan.inputs[o.root].name;
  }
  if (lost > 0) {
    message += "; by then the call has written over the donated state '" + first + "'" +
               (lost > 1 ? " and " + std::to_string(lost - 1) + " more" : "");
    hint += (hint.empty() ? "" : "; ") + std::string("go on from the last checkpoint");
  }
  throw Error(e.family(), e.code(), message, hint);
}

namespace {

// Sets the symbols that a step has computed, and checks them.
void set_symbols(const Plan& plan, const Step& step, const int64_t* values, int64_t* dims) {
  for (size_t k = 0; k < step.symbols.size(); ++k) {
    const uint32_t s = step.symbols[k];
    const tsr_symbol& symbol = plan.graph->sizes().symbols()[s];
    const int64_t v = values[k];
    if (v < 0 || v < symbol.min || v > symbol.max)
      throw user_error("TSR-R021", "size " + std::string(symbol.name) + " = " + std::to_string(v) + " computed by " +
                                       plan.graph->describe(step.node) + " is out of its range " + std::to_string(symbol.min) +
                                       ".." + (symbol.max == INT64_MAX ? "" : std::to_string(symbol.max)));
    if (plan.program.known(s) <= step.section && dims[s] != v)
      throw user_error("TSR-R021", "size " + std::string(symbol.name) + " is " + std::to_string(dims[s]) + ", and " +
                                       plan.graph->describe(step.node) + " computed " + std::to_string(v));
    dims[s] = v;
  }
}

void compute_sizes(const Plan& plan, RunState& state, const SectionRun::Ready& r) {
  std::vector<int64_t> values(r.step->symbols.size(), -1);
  const auto count = static_cast<uint32_t>(values.size());
  const Step& kernel = *plan.steps[r.step->kernel_step];
  if (r.instruction->kind == Instruction::kComputeSizes) {
    for (uint32_t i = 0; i < r.launch.num_inputs; ++i)
      if (!(r.launch.inputs[i].flags & TSR_TENSOR_ABSENT))
        if (Stream* s = state.stream_of(r.launch.inputs[i].device)) s->synchronize(Wait::kNone);
    const OpRecord& op = *r.step->record;
    throw_if(op_callback(op, "compute_sizes", [&] {
      return op.impl->compute_sizes(op.impl->self, &r.instruction->call->call, r.launch.inputs, r.launch.num_inputs,
                                    values.data(), count);
    }));
  } else if (kernel.kernel.sizes) {
    kernel.backend->call("sizes", [&] { return kernel.kernel.sizes(kernel.kernel.self, &r.launch, values.data(), count); });
  } else {
    // A backend that computes nothing has no data to take sizes from: the hint stands for them.
    const std::vector<int64_t> hints = hint_values(*plan.graph);
    for (uint32_t k = 0; k < count; ++k) values[k] = hints[r.step->symbols[k]];
  }
  set_symbols(plan, *r.step, values.data(), state.dims.data());
}

}  // namespace

void* raw_output(const tsr_raw_call& call, uint32_t index, const tsr_tensor& described, size_t bytes) {
  void* data = nullptr;
  throw_if(call.output(call.self, index, &described, bytes, &data));
  if ((!data && bytes > 0) || reinterpret_cast<uintptr_t>(data) % kAlignment != 0) [[unlikely]]
    throw user_error("TSR-T028",
                     "output " + std::to_string(index) + " (" + type_text(described.dtype, {described.sizes, described.rank}) +
                         "): the caller gave " +
                         (data ? "memory that is not aligned to " + std::to_string(kAlignment) + " bytes" : "no memory") +
                         ", expected " + std::to_string(bytes) + " bytes aligned to " + std::to_string(kAlignment),
                     "allocate it so, or let `run` make the outputs");
  return data;
}

// Takes the streams of this call, throws what earlier work on them has found, and puts them behind the work that the inputs
// need.
void PlanRunner::begin_streams(RunState& state, const CallArgs& args) const {
  static const RunContext none;
  const RunContext& given = args.context ? *args.context : none;
  const auto on_one_of_mine = [&](const Stream* s) { return plan_.queue_of(s->device().id()) != kNone; };
  if (!plan_.nested && !given.streams.empty() && std::none_of(given.streams.begin(), given.streams.end(), on_one_of_mine))
    throw user_error("TSR-R040",
                     "a stream of device '" + given.streams[0]->device().name() + "' was given for graph '" +
                         std::string(plan_.graph->tables().name) + "', which runs on '" + device(plan_.queues[0]).name() +
                         (plan_.queues.size() > 1 ? "' and other devices" : "'"),
                     "pass a stream of a device that the graph runs on, or none");
  state.streams.clear();
  for (const tsr_device d : plan_.queues) state.streams.push_back(&given.stream_of(device(d)));
  state.context.streams = state.streams;
  state.context.allocator = given.allocator;
  state.noted = false;
  state.captured = std::any_of(state.streams.begin(), state.streams.end(), [](Stream* s) { return s->is_captured(); });
  if (plan_.nested) return;
  for (Stream* s : state.streams) s->raise_fault();
  if (!args.handles) return;
  for (uint32_t i = 0; i < plan_.inputs.size(); ++i) {
    if (args.handles[i]->desc.device == kCpu || !plan_.inputs[i].read) continue;
    Stream& s = *state.stream_of(args.handles[i]->desc.device);
    try {
      order_read(*args.handles[i]->buffer, s, Wait::kInputWritten);
      if (plan_.inputs[i].writeback != TSR_NONE) order_write(*args.handles[i]->buffer, s, Wait::kStateRead);
    } catch (const Error& e) {
      throw Error(e.family(), e.code(), plan_.describe_input(i) + ": " + e.message(), e.hint());
    }
  }
}

// Notes with every buffer, and with the plan, how far this call has come on its streams. Also after an error: part of it may be
// queued.
void PlanRunner::end_streams(RunState& state, const CallArgs& args) const noexcept {
  if (state.noted) return;
  state.noted = true;
  std::vector<StreamPoint> points;
  for (Stream* s : state.streams) points.push_back(s->point());
  const auto point_of = [&](const Buffer& b) -> const StreamPoint& { return points[plan_.queue_of(b.device->id())]; };
  if (args.handles)
    for (uint32_t i = 0; i < plan_.inputs.size(); ++i) {
      if (args.handed_over && plan_.inputs[i].given_up && !args.handed_over[i]) continue;
      if (args.handles[i]->desc.device == kCpu || !plan_.inputs[i].read) continue;
      Buffer& b = *args.handles[i]->buffer;
      plan_.inputs[i].writeback != TSR_NONE ? note_write(b, point_of(b)) : note_read(b, point_of(b));
    }
  for (const auto* buffers : {&state.outputs, &state.arenas})
    for (Buffer* b : *buffers)
      if (b && b->uses) note_write(*b, point_of(*b));
  for (const TensorRef& t : state.dynamics)
    if (t && t->buffer->uses) note_write(*t->buffer, state.stream_of(t->desc.device)->point());
  std::lock_guard lock(used_mutex_);
  for (const StreamPoint& p : points) {
    const auto at = std::find_if(used_.begin(), used_.end(), [&](const StreamPoint& u) { return u.stream == p.stream; });
    if (at == used_.end())
      used_.push_back(p);
    else
      at->tick = std::max(at->tick, p.tick);
  }
}

Buffer* PlanRunner::allocate(const RunState& state, tsr_device d, int64_t bytes) const {
  Stream* const s = state.stream_of(d);
  if (state.captured && s && !state.context.allocator)
    throw user_error("TSR-R045",
                     "graph '" + std::string(plan_.graph->tables().name) + "' needs " + std::to_string(bytes) +
                         " bytes on device '" + device(d).name() +
                         "', and its stream is being captured into a graph of somebody else, to which memory " +
                         "of the pool would not belong",
                     "pass an allocator whose memory lives as long as that graph (tsr_run_options.allocator)");
  if (s && state.context.allocator) return borrow_buffer(*state.context.allocator, device(d), static_cast<size_t>(bytes), *s);
  return allocate_buffer(device(d), static_cast<size_t>(bytes), s);
}

namespace {

// Tells the client's profiler of one launch, also where it throws.
class KernelRange {
 public:
  KernelRange(const Plan& plan, const Step& step, const tsr_raw_call* client) : client_(client) {
    if (client) [[unlikely]]
      client->kernel(client->self, step.kernel.name ? step.kernel.name : "kernel",
                     step.node == TSR_NONE ? &kUnknown : &plan.graph->node(step.node).loc);
  }
  ~KernelRange() {
    if (client_) [[unlikely]]
      client_->kernel(client_->self, nullptr, nullptr);
  }
  KernelRange(const KernelRange&) = delete;

 private:
  static constexpr tsr_loc kUnknown{nullptr, 0, 0};
  const tsr_raw_call* client_;
};

}  // namespace

void PlanRunner::take_output(RunState& state, const CallArgs& args, const SectionLayout& layout,
                             const SectionLayout::Output& o) const {
  if (args.raw) {
    const Slot& s = plan_.slots[plan_.output_slots[o.output]];
    const Resolved& r = layout.slots[plan_.output_slots[o.output]];
    state.bases[o.root] =
        raw_output(*args.raw, o.output, {nullptr, s.dtype, s.rank, r.sizes, r.strides, s.device, TSR_TENSOR_CONTIGUOUS},
                   static_cast<size_t>(o.bytes));
    return;
  }
  Buffer* b = allocate(state, plan_.slots[plan_.output_slots[o.output]].device, o.bytes);
  state.outputs[o.output] = b;
  state.bases[o.root] = b->data;
}

// Of an argument that is given up, behind all that has been queued so far.
void PlanRunner::let_go(const RunState& state, TensorRef& t) const {
  if (!t) return;
  if (t->buffer->uses) note_read(*t->buffer, state.stream_of(t->desc.device)->point());
  t = TensorRef();
}

void PlanRunner::run_sections(RunState& state, const CallArgs& args) const {
  const bool look = !args.trusted || plan_.needs_alignment || plan_.gives_away || !plan_.is_static;
  const bool irregular = look && describe_inputs(state, args);
  const bool in_turn = plan_.takes_turns && (!args.raw || args.raw->let_go);
  for (uint32_t i = 0; i < plan_.inputs.size(); ++i) state.bases[plan_.input_root(i)] = args.inputs[i]->data;
  for (uint32_t section = 0; section < plan_.num_sections; ++section) {
    if (section > 0) {
      plan_.program.evaluate(section, state.dims.data());
      plan_.check_relations(section, state.dims.data());
    }
    const SectionLayout& layout = *layout_for(state, section, irregular);
    SectionRun& run = state.sections[section];
    for (const SectionLayout::Output& o : layout.outputs) {
      state.output_roots[o.output] = o.root;
      if (o.root != plan_.output_root(o.output)) continue;
      if (args.places) {
        state.bases[o.root] = args.places[o.output];
        continue;
      }
      if (!o.in_turn || !in_turn) take_output(state, args, layout, o);
    }
    take_arenas(state, layout, false);
    for (const uint32_t root : run.used_roots())
      if (state.bases[root] || root < plan_.arena_root(0, 0))
        run.set_base(root, state.bases[root]);  // else the executor brings it
    bool passed = false;                        // what may fail has run, and has not
    for (size_t next = 0; next < run.program().size(); ++next) {
      if (layout.executor && next == layout.executor->begin() && state.uses_executors() && run_executor(state, layout)) {
        next = layout.executor->end() - 1;
        continue;
      }
      SectionRun::Ready& r = run.program()[next];
      const bool timed = plan_.measure && !state.captured;
      const auto start = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
      try {
        for (const QueueWait& w : r.instruction->waits) state.streams[w.queue]->wait(state.streams[w.other]->point(), w.why);
        if (in_turn)
          for (const uint32_t k : r.instruction->takes) {
            take_output(state, args, layout, layout.outputs[k]);
            run.set_base(layout.outputs[k].root, state.bases[layout.outputs[k].root]);
          }
        if (r.queue != kNone) {
          Stream& s = *state.streams[r.queue];
          r.launch.stream = s.raw();
          r.launch.fault = s.fault();
          if (timed) state.times.begin(*r.step, s);
        }
        switch (r.instruction->kind) {
          case Instruction::kLaunch: {
            const KernelRange range(plan_, *r.step, state.profiler);
            r.step->backend->call("launch", [&] { return r.step->kernel.launch(r.step->kernel.self, &r.launch); });
            if (plan_.sync_faults && r.queue != kNone && !state.captured) {
              state.streams[r.queue]->synchronize(Wait::kFaultsSynced);
              state.streams[r.queue]->raise_fault();
            }
            break;
          }
          case Instruction::kCompute: {
            const OpRecord& op = *r.step->record;
            throw_if(op_callback(op, "compute", [&] {
              return op.impl->compute(op.impl->self, &r.instruction->call->call, r.launch.inputs, r.launch.num_inputs,
                                      r.launch.outputs, r.launch.num_outputs);
            }));
            break;
          }
          case Instruction::kCopy:
            // A state that is not donated keeps its value when a kernel of the call fails, which is known once the kernels have
            // run.
            if ((r.step->copy & kCopyWriteback) && r.queue != kNone && !passed) {
              passed = true;
              for (Stream* s : state.streams) s->synchronize(Wait::kStateKept);
              for (Stream* s : state.streams) s->raise_fault();
            }
            copy_tensor(r.launch.outputs[0], r.launch.inputs[0], state.stream_of(r.launch.outputs[0].device),
                        state.stream_of(r.launch.inputs[0].device));
            break;
          case Instruction::kSizes:
          case Instruction::kComputeSizes: compute_sizes(plan_, state, r); break;
          case Instruction::kControl:
            run_control(*this, state, r);
            for (const uint32_t slot : r.step->outputs) {
              const uint32_t root = plan_.dynamic_root(plan_.slots[slot].index);
              state.bases[root] = state.dynamics[plan_.slots[slot].index]->desc.data;
              run.set_base(root, state.bases[root]);
            }
            break;
        }
        if (plan_.check_nan && !state.captured) [[unlikely]]
          throw_if_nan(state, r);
        for (const uint32_t d : r.instruction->last_reads) state.dynamics[d] = TensorRef();
        if (args.handed_over)
          for (const uint32_t i : r.instruction->leaves) let_go(state, args.handed_over[i]);
        if (args.raw && in_turn)
          for (const uint32_t i : r.instruction->leaves) args.raw->let_go(args.raw->self, i);
      } catch (const Error& e) {
        rethrow_at(plan_, *r.step, layout, next, e);
      }
      if (timed && r.queue != kNone) state.times.end();
      if (timed && r.queue == kNone) {
        r.step->measured_ns.fetch_add(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count(),
            std::memory_order_relaxed);
        r.step->measured_runs.fetch_add(1, std::memory_order_relaxed);
      }
    }
    for (const QueueWait& w : layout.last_waits) state.streams[w.queue]->wait(state.streams[w.other]->point(), w.why);
  }
  state.times.collect();
}

// Memory for the arenas of a section: those that the layout's executor would bring, or the others.
void PlanRunner::take_arenas(RunState& state, const SectionLayout& layout, bool of_executor) const {
  for (uint32_t d = 0; d < plan_.arena_devices.size(); ++d) {
    if (layout.arena_bytes[d] == 0) continue;
    const uint32_t root = plan_.arena_root(layout.section, d);
    if ((layout.executor && state.uses_executors() && layout.executor->brings_arena(d)) != of_executor) {
      if (!of_executor) state.bases[root] = nullptr;
      continue;
    }
    Buffer* b = plan_.arena_devices[d] == kCpu ? take_arena(device(kCpu), layout.arena_bytes[d])
                                               : allocate(state, plan_.arena_devices[d], layout.arena_bytes[d]);
    state.arenas[layout.section * plan_.arena_devices.size() + d] = b;
    state.bases[root] = b->data;
  }
}

// False: the executor declines this call, whose steps can be launched now.
bool PlanRunner::run_executor(RunState& state, const SectionLayout& layout) const {
  const ExecutorLayout& e = *layout.executor;
  SectionRun& run = state.sections[layout.section];
  Stream* const s = e.queue() == kNone ? nullptr : state.streams[e.queue()];
  // The steps of other queues that this stretch needs are all queued by now.
  for (size_t i = e.begin(); i < e.end(); ++i) {
    SectionRun::Ready& r = run.program()[i];
    for (const QueueWait& w : r.instruction->waits) state.streams[w.queue]->wait(state.streams[w.other]->point(), w.why);
    if (!s) continue;
    r.launch.stream = s->raw();
    r.launch.fault = s->fault();
  }
  struct Place {
    RunState& state;
    SectionRun& run;
  } place{state, run};
  tsr_stream* const stream = s ? s->raw() : nullptr;
  tsr_fault* const fault = s ? s->fault() : nullptr;
  tsr_executor_call call{};
  call.struct_size = sizeof call;
  call.launches = &run.program()[e.begin()].launch;
  call.launch_stride = sizeof(SectionRun::Ready);
  call.roots = state.bases.data();
  call.dims = state.dims.data();
  call.streams = &stream;
  call.faults = &fault;
  call.place = [](void* ctx, uint32_t root, void* address) noexcept {
    const auto& p = *static_cast<Place*>(ctx);
    p.state.bases[root] = address;
    p.run.set_base(root, address);
  };
  call.ctx = &place;
  if (e.run(call)) return true;
  take_arenas(state, layout, true);
  for (const uint32_t root : run.used_roots()) run.set_base(root, state.bases[root]);
  return false;
}

template <class Finish>
void PlanRunner::run_with_state(const CallArgs& args, Finish&& finish) const {
  struct Guard {
    const PlanRunner& runner;
    const CallArgs& args;
    RunState* state;
    ~Guard() {
      runner.end_streams(*state, args);
      runner.release(state);
    }
  } guard{*this, args, acquire()};
  RunState& state = *guard.state;
  state.context.client = args.raw ? args.raw : args.context ? args.context->client : nullptr;
  state.profiler = state.context.client && state.context.client->kernel ? state.context.client : nullptr;
  if (!(args.trusted && plan_.is_static)) plan_.bind(args, state.dims.data());
  std::optional<ThreadLimit> limit;
  if (plan_.threads > 0) limit.emplace(plan_.threads);
  if (!plan_.queues.empty()) begin_streams(state, args);
  run_sections(state, args);
  // Whoever holds a state for later finds its memory written. A state that the caller replaces was held by nobody.
  if (!plan_.replaces_states && args.handles)
    for (uint32_t i = 0; i < plan_.inputs.size(); ++i)
      if (plan_.inputs[i].writeback != TSR_NONE) args.handles[i]->buffer->note_written();
  end_streams(state, args);
  const SectionLayout& last = *state.sections[plan_.num_sections - 1].layout();
  for (uint32_t j = 0; j < plan_.output_slots.size(); ++j)
    finish(state, j, plan_.slots[plan_.output_slots[j]], last.slots[plan_.output_slots[j]]);
}

void PlanRunner::run(const CallArgs& args, TensorRef* outputs) const {
  run_with_state(args, [&](RunState& state, uint32_t j, const Slot& s, const Resolved& r) {
    const uint32_t root = state.output_roots[j];
    BufferRef buffer;
    if (root == plan_.output_root(j)) {
      buffer = BufferRef(state.outputs[j]);
      state.outputs[j] = nullptr;
    } else {
      Buffer* shared =
          root < plan_.inputs.size() ? args.handles[root]->buffer : state.dynamics[root - plan_.dynamic_root(0)]->buffer;
      shared->retain();
      buffer = BufferRef(shared);
    }
    outputs[j] = TensorRef(tensor_over(buffer.get(), static_cast<char*>(state.bases[root]) + r.offset, s.dtype, s.rank, r.sizes,
                                       r.strides, s.device, TSR_TENSOR_CONTIGUOUS));
    buffer.take();
  });
}

void PlanRunner::run_into(const CallArgs& args) const {
  run_with_state(args, [&](RunState& state, uint32_t j, const Slot& s, const Resolved& r) {
    const uint32_t root = state.output_roots[j];
    if (root == plan_.output_root(j)) return;  // written there by its step
    const char* base = static_cast<char*>(state.bases[root]) + r.offset;
    copy_tensor({args.places[j], s.dtype, s.rank, r.sizes, r.strides, s.device, TSR_TENSOR_CONTIGUOUS},
                {const_cast<char*>(base), s.dtype, s.rank, r.sizes, r.strides, s.device, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u});
  });
}

void PlanRunner::run_raw(const CallArgs& args) const {
  run_with_state(args, [&](RunState& state, uint32_t j, const Slot& s, const Resolved& r) {
    const uint32_t root = state.output_roots[j];
    if (root == plan_.output_root(j)) return;  // written there by its step
    const int64_t elements = num_elements({r.sizes, s.rank});
    std::vector<int64_t> strides(s.rank);
    dense_strides({r.sizes, s.rank}, strides.data());
    void* data = raw_output(*args.raw, j, {nullptr, s.dtype, s.rank, r.sizes, strides.data(), s.device, TSR_TENSOR_CONTIGUOUS},
                            static_cast<size_t>(tensor_bytes(static_cast<tsr_dtype>(s.dtype), elements)));
    if (elements == 0) return;
    char* base = static_cast<char*>(state.bases[root]) + r.offset;
    Stream* const stream = state.stream_of(s.device);
    copy_tensor({data, s.dtype, s.rank, r.sizes, strides.data(), s.device, TSR_TENSOR_CONTIGUOUS},
                {base, s.dtype, s.rank, r.sizes, r.strides, s.device, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u}, stream, stream);
    if (root >= plan_.dynamic_root(0)) state.note_used(state.dynamics[root - plan_.dynamic_root(0)]);
  });
}

}  // namespace tessera::core
