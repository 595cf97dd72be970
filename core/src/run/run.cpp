// SPDX-License-Identifier: Apache-2.0
// Execution of a plan: bind sizes, take a layout, patch addresses, launch.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <numeric>
#include <optional>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "memory/copy.hpp"
#include "memory/parallel.hpp"
#include "plan/executor_layout.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "run/run_state.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

std::string place(const Plan& plan, uint32_t i) {
  const std::string graph = plan.graph->tables().name ? plan.graph->tables().name : "";
  if (plan.nested) return "region input '" + plan.inputs[i].name + "'";
  const char* kind = plan.inputs[i].kind == TSR_INPUT_PARAM   ? "param"
                     : plan.inputs[i].kind == TSR_INPUT_STATE ? "state"
                                                              : "input";
  return std::string(kind) + " '" + plan.inputs[i].name + "' (number " + std::to_string(i) + " of graph '" + graph + "')";
}

std::string expected_type(const Plan& plan, uint32_t i) {
  const InputSpec& in = plan.inputs[i];
  std::string s(dtype_name(in.dtype));
  s += '[';
  for (uint32_t k = 0; k < in.rank; ++k) s += (k ? ", " : "") + plan.graph->sizes().print(in.sizes[k]);
  return s + ']';
}

std::string found_type(const tsr_tensor& t) { return type_text(t.dtype, {t.sizes, t.rank}); }

// Where the symbols of a text come from: "; s0 is the size at index 0 of input 'x'".
std::string sources_of(const Plan& plan, std::string_view text) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string out;
  for (const InputFacts::Dim& fact : plan.facts.dims) {
    if (fact.kind != InputFacts::Dim::kSymbol) continue;
    const std::string_view name = plan.graph->sizes().symbols()[fact.symbol].name;
    bool found = false;
    for (size_t at = text.find(name); at != text.npos && !found; at = text.find(name, at + 1))
      found = (at == 0 || !is_word(text[at - 1])) && (at + name.size() == text.size() || !is_word(text[at + name.size()]));
    if (found)
      out += "; " + std::string(name) + " is the size at index " + std::to_string(fact.dim) + " of input '" +
             plan.inputs[fact.input].name + "'";
  }
  return out;
}

[[noreturn]] void size_mismatch(const Plan& plan, uint32_t i, uint32_t k, const tsr_tensor& t, int64_t expected) {
  const tsr_dim d = plan.inputs[i].sizes[k];
  std::string want = std::to_string(expected);
  if (TSR_DIM_IS_EXPR(d)) want = plan.graph->sizes().print(d) + " = " + want;
  throw user_error("TSR-T023",
                   place(plan, i) + ": size mismatch at index " + std::to_string(k) + ". found " + std::to_string(t.sizes[k]) +
                       " (" + found_type(t) + "), expected " + want + " (" + expected_type(plan, i) + ")" +
                       (TSR_DIM_IS_EXPR(d) ? sources_of(plan, plan.graph->sizes().print(d)) : ""),
                   "pass a tensor of that shape, or compile for this one");
}

// As the tensor has it; of a row-major one that carries none, what its sizes say.
int64_t stride_of(const tsr_tensor& t, uint32_t dim) {
  if (t.strides) return t.strides[dim];
  int64_t stride = 1;
  for (uint32_t k = dim + 1; k < t.rank; ++k) stride *= t.sizes[k];
  return stride;
}

}  // namespace

void Plan::bind(const Args& args, int64_t* dims) const {
  if (args.outer_dims) std::copy(args.outer_dims, args.outer_dims + program.num_symbols(), dims);
  if (!args.trusted)
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      const InputSpec& in = inputs[i];
      const tsr_tensor& t = *args.inputs[i];
      if (args.guarded && !in.read) continue;
      if (t.dtype != in.dtype)
        throw user_error("TSR-T021",
                         place(*this, i) + ": dtype mismatch. found " + std::string(dtype_name(t.dtype)) + ", expected " +
                             std::string(dtype_name(in.dtype)),
                         "cast it to " + std::string(dtype_name(in.dtype)));
      if (t.rank != in.rank)
        throw user_error("TSR-T022",
                         place(*this, i) + ": rank mismatch. found " + std::to_string(t.rank) + " (" + found_type(t) +
                             "), expected " + std::to_string(in.rank) + " (" + expected_type(*this, i) + ")",
                         "reshape it to rank " + std::to_string(in.rank));
      if (t.device != in.device)
        throw user_error("TSR-T024",
                         place(*this, i) + ": device mismatch. found '" + device(t.device).name() + "', expected '" +
                             device(in.device).name() + "'",
                         device(in.device).available()
                             ? "copy the tensor to '" + device(in.device).name() + "' before the call"
                             : "no loaded plugin provides '" + device(in.device).name() +
                                   "': change the device in the graph's type to '" + device(t.device).name() + "'");
      if (!in.strides.empty())
        for (uint32_t k = 0; k < in.rank; ++k)
          if (t.sizes[k] > 1 && t.strides[k] != in.strides[k])
            throw user_error("TSR-T027",
                             place(*this, i) + ": stride mismatch at index " + std::to_string(k) + ". found " +
                                 std::to_string(t.strides[k]) + ", expected " + std::to_string(in.strides[k]),
                             "pass a tensor of the layout that the graph was captured with");
    }
  bool evaluated = false;
  for (size_t f = 0; f < facts.dims.size(); ++f) {
    const InputFacts::Dim& fact = facts.dims[f];
    const tsr_tensor& t = *args.inputs[fact.input];
    const int64_t found = t.sizes[fact.dim];
    switch (fact.kind) {
      case InputFacts::Dim::kNumber:
        if (found != fact.size) size_mismatch(*this, fact.input, fact.dim, t, fact.size);
        break;
      case InputFacts::Dim::kSymbol: dims[fact.symbol] = found; break;
      case InputFacts::Dim::kStride: dims[fact.symbol] = stride_of(t, fact.dim); break;
      case InputFacts::Dim::kSolve:
        switch (graph->sizes().solve(fact.size, fact.symbol, found, {dims, program.num_symbols()}, &dims[fact.symbol])) {
          case Sizes::Solution::kFound: break;
          case Sizes::Solution::kMany:
            throw user_error("TSR-R023",
                             place(*this, fact.input) + ": " + graph->sizes().print(fact.size) + " = " + std::to_string(found) +
                                 " has no single solution",
                             "give an input a dimension of exactly that symbol");
          case Sizes::Solution::kNone:
            throw user_error("TSR-T023", place(*this, fact.input) + ": size mismatch at index " + std::to_string(fact.dim) +
                                             ". found " + std::to_string(found) + ", which no value of " +
                                             graph->sizes().print(fact.size) + " gives (" + expected_type(*this, fact.input) +
                                             ")");
        }
        break;
      case InputFacts::Dim::kCheck:
        if (!evaluated) program.evaluate(0, dims);
        evaluated = true;
        if (const int64_t expected = expected_[f].value(dims); found != expected)
          size_mismatch(*this, fact.input, fact.dim, t, expected);
        break;
    }
  }
  if (!evaluated) program.evaluate(0, dims);
  for (const uint32_t s : facts.symbols) {
    const tsr_symbol& symbol = graph->sizes().symbols()[s];
    if (dims[s] >= symbol.min && dims[s] <= symbol.max) continue;
    for (const InputFacts::Dim& fact : facts.dims)
      if (fact.kind != InputFacts::Dim::kNumber && fact.kind != InputFacts::Dim::kCheck && fact.symbol == s)
        throw user_error("TSR-T025",
                         place(*this, fact.input) + (fact.kind == InputFacts::Dim::kStride ? ": stride" : ": size") +
                             " at index " + std::to_string(fact.dim) + " is out of range. found " + symbol.name + " = " +
                             std::to_string(dims[s]) + ", expected " + std::to_string(symbol.min) + ".." +
                             (symbol.max == INT64_MAX ? "" : std::to_string(symbol.max)),
                         "pass a size in that range, or compile for this one");
  }
  check_relations(0, dims);
}

void Plan::check_relations(uint32_t section, const int64_t* dims) const {
  for (const Relation& r : relations_)
    if (r.section == section && !Sizes::holds(static_cast<tsr_relation>(r.relation), r.a.value(dims), r.b.value(dims)))
      throw user_error("TSR-T026",
                       "the sizes of this call break an assumption of graph '" + std::string(graph->tables().name) + "': " +
                           r.text + ", found " + std::to_string(r.a.value(dims)) + " and " + std::to_string(r.b.value(dims)) +
                           (r.why.empty() ? "" : " (" + r.why + ")") + sources_of(*this, r.text),
                       "pass sizes that keep it, or compile for these");
}

// What the inputs of this call look like. False when every one is as the primary layout expects it.
bool Plan::describe_inputs(RunState& state, const Args& args) const {
  bool irregular = false;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    const tsr_tensor& t = *args.inputs[i];
    InputLayout& in = state.inputs[i];
    in = {};
    if (!inputs[i].strides.empty()) {
      in.strides = inputs[i].strides.data();
    } else if (!(t.flags & TSR_TENSOR_CONTIGUOUS) && !is_dense(t.rank, t.sizes, t.strides)) {
      in.strides = t.strides;
      irregular = true;
    }
    if (needs_alignment && reinterpret_cast<uintptr_t>(t.data) % kAlignment != 0) {
      in.aligned = false;
      irregular = true;
    }
    if (gives_away && inputs[i].donated && inputs[i].writeback != TSR_NONE) {
      // Memory that another input reads too is not given away: writing it early would change that input.
      in.give_away = args.handles != nullptr;
      for (uint32_t k = 0; in.give_away && k < inputs.size(); ++k)
        in.give_away = k == i || args.handles[k]->buffer != args.handles[i]->buffer;
      irregular = irregular || !in.give_away;
    }
  }
  return irregular;
}

const std::shared_ptr<const SectionLayout>& Plan::layout_for(RunState& state, uint32_t section, bool irregular) const {
  SectionRun& run = state.sections[section];
  if (is_static && !irregular) {
    if (run.layout() != primary.get()) run.materialise(*this, primary, state.dims.data());
    run.key.clear();
    return run.shared_layout();
  }
  // The key: every number that a layout of this section depends on.
  std::vector<int64_t>& key = state.key;
  key.assign(1, section);
  key.insert(key.end(), state.dims.begin(), state.dims.begin() + static_cast<std::ptrdiff_t>(program.num_symbols()));
  for (size_t s = 0; s < program.num_symbols(); ++s)
    if (program.known(static_cast<uint32_t>(s)) > section) key[s + 1] = -1;  // left over from an earlier call
  if (irregular)
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      const InputLayout& in = state.inputs[i];
      if (!in.strides && in.aligned && !(inputs[i].donated && !in.give_away)) continue;
      key.push_back(-2 - static_cast<int64_t>(i));
      key.push_back((in.aligned ? 1 : 0) + (in.give_away ? 2 : 0) + (in.strides ? 4 : 0));
      if (in.strides) key.insert(key.end(), in.strides, in.strides + inputs[i].rank);
    }
  const SectionLayout* before = section > 0 ? state.sections[section - 1].layout() : nullptr;
  if (run.layout() && run.key == key && run.layout()->previous.get() == before) return run.shared_layout();
  std::shared_ptr<const SectionLayout> layout;
  {
    std::lock_guard lock(layouts_mutex_);
    if (const auto it = layouts_.find(key); it != layouts_.end()) {
      layout = it->second.layout;
      it->second.used = ++layout_lookups_;
    }
  }
  // A layout borrows from the one before it: both must come from one chain.
  const std::shared_ptr<const SectionLayout> previous = section > 0 ? state.sections[section - 1].shared_layout() : nullptr;
  if (!layout || layout->previous != previous) {
    layout = executor ? layout_for_executor(state) : make_layout(*this, section, state.dims.data(), state.inputs, previous);
    std::lock_guard lock(layouts_mutex_);
    if (layouts_.size() >= kKeptLayouts && !layouts_.contains(key))
      layouts_.erase(std::min_element(layouts_.begin(), layouts_.end(),
                                      [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    layouts_[key] = {layout, ++layout_lookups_};
  }
  if (run.layout() != layout.get()) run.materialise(*this, layout, state.dims.data());
  run.key = key;
  return run.shared_layout();
}

// A layout that an executor has taken, where it does. With sizes at their upper bounds, layouts that differ in nothing but
// sizes and strides share what the executor has made of the first.
std::shared_ptr<const SectionLayout> Plan::layout_for_executor(const RunState& state) const {
  const auto plain = [&] { return make_layout(*this, 0, state.dims.data(), state.inputs, nullptr); };
  const auto total = [](const SectionLayout& l) {
    return std::accumulate(l.arena_bytes.begin(), l.arena_bytes.end(), int64_t{0});
  };
  std::shared_ptr<const SectionLayout> layout;
  if (!bounds_.empty()) {
    constexpr int64_t kSpare = int64_t{64} << 20, kTimes = 8;  // an arena for sizes that never come is no gain
    try {
      layout = make_layout(*this, 0, state.dims.data(), state.inputs, nullptr, bounds_.data());
      if (total(*layout) > kSpare && total(*layout) / kTimes > total(*plain())) layout = nullptr;
    } catch (const Error&) {
      layout = nullptr;  // the largest sizes are too large for memory, or a kernel does not take them
    }
  }
  if (!layout) {
    layout = plain();
    layout->executor = ExecutorLayout::make(*this, *layout, state.dims.data(), *executor);
    return layout;
  }
  std::vector<int64_t> alike;
  for (const Instruction& e : layout->program) {
    alike.insert(alike.end(), {e.step, static_cast<int64_t>(e.kind), e.workspace_root, e.workspace_offset});
    for (const auto* all : {&e.inputs, &e.outputs})
      for (const uint32_t slot : *all) {
        alike.push_back(slot);
        if (slot == kNone) continue;
        const Resolved& r = layout->slots[slot];
        alike.insert(alike.end(), {r.place, r.index, r.offset});
      }
  }
  {
    const std::lock_guard lock(layouts_mutex_);
    const auto at = shared_executors_.find(alike);
    if (at != shared_executors_.end()) {
      layout->executor = at->second;
      return layout;
    }
  }
  layout->executor = ExecutorLayout::make(*this, *layout, state.dims.data(), *executor);
  const std::lock_guard lock(layouts_mutex_);
  if (shared_executors_.size() >= kKeptLayouts) shared_executors_.clear();
  shared_executors_.emplace(std::move(alike), layout->executor);
  return layout;
}

void rethrow_at(const Plan& plan, const Step& step, const Error& e) {
  const std::string where = step.node == TSR_NONE ? "" : " in " + plan.graph->describe(step.node);
  throw Error(e.family(), e.code(), e.message() + where, e.hint());
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
    const tsr_op_impl& impl = *r.step->record->impl;
    throw_if(
        impl.compute_sizes(impl.self, &r.instruction->call->call, r.launch.inputs, r.launch.num_inputs, values.data(), count));
  } else if (kernel.kernel.sizes) {
    kernel.backend->check(kernel.kernel.sizes(kernel.kernel.self, &r.launch, values.data(), count));
  } else {
    // A backend that computes nothing has no data to take sizes from: the hint stands for them.
    const std::vector<int64_t> hints = hint_values(*plan.graph);
    for (uint32_t k = 0; k < count; ++k) values[k] = hints[r.step->symbols[k]];
  }
  set_symbols(plan, *r.step, values.data(), state.dims.data());
}

// The memory that the caller gives for an output.
void* raw_output(const tsr_raw_call& call, uint32_t index, const Slot& s, const Resolved& r, size_t bytes) {
  const tsr_tensor described{nullptr, s.dtype, s.rank, r.sizes, r.strides, s.device, TSR_TENSOR_CONTIGUOUS};
  void* data = nullptr;
  throw_if(call.output(call.self, index, &described, bytes, &data));
  if ((!data && bytes > 0) || reinterpret_cast<uintptr_t>(data) % kAlignment != 0)
    throw user_error("TSR-T028",
                     "output " + std::to_string(index) + " (" + found_type(described) + "): the caller gave " +
                         (data ? "memory that is not aligned to " + std::to_string(kAlignment) + " bytes" : "no memory") +
                         ", expected " + std::to_string(bytes) + " bytes aligned to " + std::to_string(kAlignment),
                     "allocate it so, or let `run` make the outputs");
  return data;
}

}  // namespace

// Takes the streams of this call, throws what earlier work on them has found, and puts them behind the work that the inputs
// need.
void Plan::begin_streams(RunState& state, const Args& args) const {
  static const RunContext none;
  const RunContext& given = args.context ? *args.context : none;
  state.streams.clear();
  for (const tsr_device d : queues) state.streams.push_back(&given.stream_of(device(d)));
  state.context = {state.streams, given.allocator};
  state.noted = false;
  state.captured = std::any_of(state.streams.begin(), state.streams.end(), [](Stream* s) { return s->is_captured(); });
  if (nested) return;
  for (Stream* s : state.streams) s->raise_fault();
  if (!args.handles) return;
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    if (args.handles[i]->desc.device == kCpu || !inputs[i].read) continue;
    Stream& s = *state.stream_of(args.handles[i]->desc.device);
    try {
      order_read(*args.handles[i]->buffer, s, Wait::kInputWritten);
      if (inputs[i].writeback != TSR_NONE) order_write(*args.handles[i]->buffer, s, Wait::kStateRead);
    } catch (const Error& e) {
      throw Error(e.family(), e.code(), place(*this, i) + ": " + e.message(), e.hint());
    }
  }
}

// Notes with every buffer, and with the plan, how far this call has come on its streams. Also after an error: part of it may be
// queued.
void Plan::end_streams(RunState& state, const Args& args) const noexcept {
  if (state.noted) return;
  state.noted = true;
  std::vector<StreamPoint> points;
  for (Stream* s : state.streams) points.push_back(s->point());
  const auto point_of = [&](const Buffer& b) -> const StreamPoint& { return points[queue_of(b.device->id())]; };
  if (args.handles)
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      if (args.handles[i]->desc.device == kCpu || !inputs[i].read) continue;
      Buffer& b = *args.handles[i]->buffer;
      inputs[i].writeback != TSR_NONE ? note_write(b, point_of(b)) : note_read(b, point_of(b));
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

Buffer* Plan::allocate(const RunState& state, tsr_device d, int64_t bytes) const {
  Stream* const s = state.stream_of(d);
  if (state.captured && s && !state.context.allocator)
    throw user_error("TSR-R045",
                     "graph '" + std::string(graph->tables().name) + "' needs " + std::to_string(bytes) + " bytes on device '" +
                         device(d).name() +
                         "', and its stream is being captured into a graph of somebody else, to which memory " +
                         "of the pool would not belong",
                     "pass an allocator whose memory lives as long as that graph (tsr_run_options.allocator)");
  if (s && state.context.allocator) return borrow_buffer(*state.context.allocator, device(d), static_cast<size_t>(bytes), *s);
  return allocate_buffer(device(d), static_cast<size_t>(bytes), s);
}

void Plan::run_sections(RunState& state, const Args& args) const {
  const bool look = !args.trusted || needs_alignment || gives_away || !is_static;
  const bool irregular = look && describe_inputs(state, args);
  for (uint32_t i = 0; i < inputs.size(); ++i) state.bases[input_root(i)] = args.inputs[i]->data;
  for (uint32_t section = 0; section < num_sections; ++section) {
    if (section > 0) {
      program.evaluate(section, state.dims.data());
      check_relations(section, state.dims.data());
    }
    const SectionLayout& layout = *layout_for(state, section, irregular);
    SectionRun& run = state.sections[section];
    for (const SectionLayout::Output& o : layout.outputs) {
      state.output_roots[o.output] = o.root;
      if (o.root != output_root(o.output)) continue;
      if (args.places) {
        state.bases[o.root] = args.places[o.output];
        continue;
      }
      if (args.raw) {
        const uint32_t slot = output_slots[o.output];
        state.bases[o.root] = raw_output(*args.raw, o.output, slots[slot], layout.slots[slot], static_cast<size_t>(o.bytes));
        continue;
      }
      Buffer* b = allocate(state, slots[output_slots[o.output]].device, o.bytes);
      state.outputs[o.output] = b;
      state.bases[o.root] = b->data;
    }
    take_arenas(state, layout, false);
    for (const uint32_t root : run.used_roots())
      if (state.bases[root] || root < arena_root(0, 0)) run.set_base(root, state.bases[root]);  // else the executor brings it
    bool passed = false;  // what may fail has run, and has not
    for (size_t next = 0; next < run.program().size(); ++next) {
      if (layout.executor && next == layout.executor->begin() && !state.captured && run_executor(state, layout)) {
        next = layout.executor->end() - 1;
        continue;
      }
      SectionRun::Ready& r = run.program()[next];
      const bool timed = measure && !state.captured;
      const auto start = timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
      try {
        for (const QueueWait& w : r.instruction->waits) state.streams[w.queue]->wait(state.streams[w.other]->point(), w.why);
        if (r.queue != kNone) {
          Stream& s = *state.streams[r.queue];
          r.launch.stream = s.raw();
          r.launch.fault = s.fault();
          if (timed) state.times.begin(*r.step, s);
        }
        switch (r.instruction->kind) {
          case Instruction::kLaunch:
            if (tsr_error* e = r.step->kernel.launch(r.step->kernel.self, &r.launch)) [[unlikely]]
              r.step->backend->check(e);
            if (sync_faults && r.queue != kNone && !state.captured) {
              state.streams[r.queue]->synchronize(Wait::kNone);
              state.streams[r.queue]->raise_fault();
            }
            break;
          case Instruction::kCompute: {
            const tsr_op_impl& impl = *r.step->record->impl;
            throw_if(impl.compute(impl.self, &r.instruction->call->call, r.launch.inputs, r.launch.num_inputs, r.launch.outputs,
                                  r.launch.num_outputs));
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
          case Instruction::kComputeSizes: compute_sizes(*this, state, r); break;
          case Instruction::kControl:
            run_control(*this, state, r);
            for (const uint32_t slot : r.step->outputs) {
              const uint32_t root = dynamic_root(slots[slot].index);
              state.bases[root] = state.dynamics[slots[slot].index]->desc.data;
              run.set_base(root, state.bases[root]);
            }
            break;
        }
      } catch (const Error& e) {
        rethrow_at(*this, *r.step, e);
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
void Plan::take_arenas(RunState& state, const SectionLayout& layout, bool of_executor) const {
  for (uint32_t d = 0; d < arena_devices.size(); ++d) {
    if (layout.arena_bytes[d] == 0) continue;
    const uint32_t root = arena_root(layout.section, d);
    if ((layout.executor && !state.captured && layout.executor->brings_arena(d)) != of_executor) {
      if (!of_executor) state.bases[root] = nullptr;
      continue;
    }
    Buffer* b = arena_devices[d] == kCpu ? take_arena(device(kCpu), layout.arena_bytes[d])
                                         : allocate(state, arena_devices[d], layout.arena_bytes[d]);
    state.arenas[layout.section * arena_devices.size() + d] = b;
    state.bases[root] = b->data;
  }
}

// False: the executor declines this call, whose steps can be launched now.
bool Plan::run_executor(RunState& state, const SectionLayout& layout) const {
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
void Plan::run_with_state(const Args& args, Finish&& finish) const {
  struct Guard {
    const Plan& plan;
    const Args& args;
    RunState* state;
    ~Guard() {
      plan.end_streams(*state, args);
      plan.release(state);
    }
  } guard{*this, args, acquire()};
  RunState& state = *guard.state;
  if (!(args.trusted && is_static)) bind(args, state.dims.data());
  std::optional<ThreadLimit> limit;
  if (threads > 0) limit.emplace(threads);
  if (!queues.empty()) begin_streams(state, args);
  run_sections(state, args);
  end_streams(state, args);
  const SectionLayout& last = *state.sections[num_sections - 1].layout();
  for (uint32_t j = 0; j < output_slots.size(); ++j) finish(state, j, slots[output_slots[j]], last.slots[output_slots[j]]);
}

void Plan::run(const Args& args, TensorRef* outputs) const {
  run_with_state(args, [&](RunState& state, uint32_t j, const Slot& s, const Resolved& r) {
    const uint32_t root = state.output_roots[j];
    BufferRef buffer;
    if (root == output_root(j)) {
      buffer = BufferRef(state.outputs[j]);
      state.outputs[j] = nullptr;
    } else {
      Buffer* shared = root < inputs.size() ? args.handles[root]->buffer : state.dynamics[root - dynamic_root(0)]->buffer;
      shared->retain();
      buffer = BufferRef(shared);
    }
    outputs[j] = TensorRef(tensor_over(buffer.get(), static_cast<char*>(state.bases[root]) + r.offset, s.dtype, s.rank, r.sizes,
                                       r.strides, s.device, TSR_TENSOR_CONTIGUOUS));
    buffer.take();
  });
}

void Plan::run_into(const Args& args) const {
  run_with_state(args, [&](RunState& state, uint32_t j, const Slot& s, const Resolved& r) {
    const uint32_t root = state.output_roots[j];
    if (root == output_root(j)) return;  // written there by its step
    const char* base = static_cast<char*>(state.bases[root]) + r.offset;
    copy_tensor({args.places[j], s.dtype, s.rank, r.sizes, r.strides, s.device, TSR_TENSOR_CONTIGUOUS},
                {const_cast<char*>(base), s.dtype, s.rank, r.sizes, r.strides, s.device, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u});
  });
}

void Plan::run_raw(const Args& args) const {
  run_with_state(args, [&](RunState& state, uint32_t j, const Slot& s, const Resolved& r) {
    const uint32_t root = state.output_roots[j];
    if (root == output_root(j)) return;  // written there by its step
    const int64_t elements = num_elements({r.sizes, s.rank});
    std::vector<int64_t> strides(s.rank);
    dense_strides({r.sizes, s.rank}, strides.data());
    Resolved dense = r;
    dense.strides = strides.data();
    void* data =
        raw_output(*args.raw, j, s, dense, static_cast<size_t>(tensor_bytes(static_cast<tsr_dtype>(s.dtype), elements)));
    if (elements == 0) return;
    char* base = static_cast<char*>(state.bases[root]) + r.offset;
    Stream* const stream = state.stream_of(s.device);
    copy_tensor({data, s.dtype, s.rank, r.sizes, dense.strides, s.device, TSR_TENSOR_CONTIGUOUS},
                {base, s.dtype, s.rank, r.sizes, r.strides, s.device, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u}, stream, stream);
    if (root >= dynamic_root(0)) state.note_used(state.dynamics[root - dynamic_root(0)]);
  });
}

}  // namespace tessera::core
