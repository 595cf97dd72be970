// SPDX-License-Identifier: Apache-2.0
// From a call that missed to an entry: capture, passes, kernels. Guards: make_guards.cpp.
#include <algorithm>
#include <chrono>
#include <map>

#include "compile/driver.hpp"
#include "compile/services.hpp"
#include "context/context.hpp"
#include "dispatch/callable_capture.hpp"
#include "dispatch/events.hpp"
#include "dispatch/guard_filter.hpp"
#include "dispatch/make_guards.hpp"
#include "dispatch/model_source.hpp"
#include "dispatch/node_check.hpp"
#include "dispatch/path_capture.hpp"
#include "graph_cache/cached.hpp"
#include "ir/graph.hpp"
#include "pass/pass_manager.hpp"
#include "support/clock.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace tessera::core {

namespace {

// Symbols for the sizes of the inputs of one capture.
class InputSymbols {
 public:
  InputSymbols(Sizes& sizes, bool duck_shaping) : sizes_(sizes), duck_shaping_(duck_shaping) {}
  tsr_dim size(const DimPolicy& p, int64_t value) {
    if (p.kind == DimPolicy::kFixed) return value;
    if (p.kind == DimPolicy::kUnbacked) return sizes_.fresh("u", p.min, p.max, true, value);
    // Marked dimensions have ranges of their own.
    if (p.marked || !duck_shaping_) return sizes_.fresh("s", p.min, p.max, false, value);
    const auto [at, fresh] = by_size_.try_emplace(value, 0);
    if (fresh) at->second = sizes_.fresh("s", p.min, p.max, false, value);
    return at->second;
  }

 private:
  Sizes& sizes_;
  bool duck_shaping_;
  std::map<int64_t, tsr_dim> by_size_;
};

}  // namespace

std::vector<std::string> Callable::paths_of(const tsr_arg* args, size_t count) const {
  std::vector<std::string> paths;
  for (size_t i = 0; i < count; ++i) paths.push_back(path_of(args, count, i));
  return paths;
}

std::unique_ptr<Recorder> Callable::begin_capture(Capture& c, const tsr_arg* args, size_t count,
                                                  const std::vector<std::string>& paths, const Specialised& specialised) {
  auto made = std::make_unique<Recorder>(context_->ops(), frame_->name());
  Recorder& recorder = *made;
  Graph& g = recorder.graph();
  InputSymbols symbols(g.sizes(), policy_.duck_shaping);
  for (uint32_t i = 0; i < count; ++i) {
    c.policies.push_back(input_policy(policy_, profile_, paths[i], args[i], i, specialised));
    if (args[i].kind != TSR_ARG_TENSOR) continue;
    const ArgPolicy& p = c.policies.back();
    const tsr_tensor& t = args[i].tensor->desc;
    std::vector<tsr_dim> sizes, strides;
    for (uint32_t d = 0; d < t.rank; ++d) {
      sizes.push_back(symbols.size(p.dims[d], t.sizes[d]));
      strides.push_back(p.any_strides ? g.sizes().fresh("t", 0, INT64_MAX, false, t.strides[d]) : t.strides[d]);
    }
    tsr_type type{};
    type.dtype = t.dtype;
    type.rank = t.rank;
    type.sizes = sizes.data();
    type.strides = t.flags & TSR_TENSOR_CONTIGUOUS ? nullptr : strides.data();
    type.device = t.device;
    recorder.add_input(paths[i], type, args[i].role == TSR_INPUT_PARAM ? TSR_INPUT_PARAM : TSR_INPUT_ARG);
    c.leaves.push_back(i);
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (args[i].kind != TSR_ARG_SYM_FLOAT && args[i].kind != TSR_ARG_SYM_INT) continue;
    if (c.policies[i].scalar == ArgPolicy::kNumber) {
      recorder.add_number(i);
      continue;
    }
    if (args[i].kind == TSR_ARG_SYM_FLOAT)
      recorder.add_float(i, paths[i]);
    else
      recorder.add_symbol(i, paths[i], g.sizes().fresh("s", c.policies[i].min, INT64_MAX, false, args[i].i));
    c.leaves.push_back(i);
  }
  return made;
}

Callable::Capture Callable::capture(const tsr_arg* args, size_t count, const std::vector<std::string>& paths,
                                    const Specialised& specialised, PathCapture& path) {
  if (model_) return import_for(args, count);
  Capture c;
  c.structure_free = desc_.structure_free;
  const std::unique_ptr<Recorder> made =
      path.follows() ? path.begin_again(c, paths) : begin_capture(c, args, count, paths, specialised);
  Recorder& recorder = *made;
  Graph& g = recorder.graph();
  path.begins(recorder, c, paths);
  path.symbolic = !g.sizes().symbols().empty();

  struct Invocation {
    const tsr_callable_desc& desc;
    const tsr_arg* args;
    size_t count;
    void** structure;
  } invocation{desc_, args, count, &c.structure};
  tsr_callable callable{};
  callable.struct_size = sizeof callable;
  callable.self = &invocation;
  callable.name = frame_->name().c_str();
  callable.loc = desc_.loc;
  callable.invoke = [](void* self, tsr_recorder* r) noexcept {
    auto& i = *static_cast<Invocation*>(self);
    return i.desc.invoke(i.desc.self, r, i.args, i.count, i.structure);
  };
  const Factory* frontend = nullptr;
  for (const Factory* f : context_->plugins().all(TSR_FRONTEND))
    if (!frontend && f->as<tsr_frontend>().capture) frontend = f;
  BackendCheck check(*context_, options_);
  if (check.needed()) recorder.set_node_check(&check);
  const ServiceScope scope(options_);
  {
    CaptureLock::Interruptible lent(
        capture_lock_);  // the function may wait for other threads, and with that for their calls of it
    path.lends(&lent);
    if (frontend)
      frontend->call("capture",
                     [&] { return frontend->as<tsr_frontend>().capture(frontend->self, recorder.handle(), &callable); });
    else
      throw_if(callable.invoke(callable.self, recorder.handle()));
  }
  if (!recorder.has_outputs())
    throw user_error("TSR-E004", "capturing '" + frame_->name() + "' (" + frame_->place() + ") set no outputs",
                     "the client must call set_outputs, with no values for a function without results");
  if (path.finish(recorder, c)) return c;
  c.observed = recorder.client_observes();
  c.scalars = recorder.scalars();
  // What the function never looked at is not guarded: the graph must not rely on its type either.
  const size_t num_tensors = recorder.inputs().size();
  const auto unused = [&](tsr_id value) { g.set_type(value, g.make_type(TSR_F32, {})); };
  for (uint32_t i = 0; i < num_tensors; ++i) {
    c.used.push_back(recorder.used(i));
    if (!c.used.back()) unused(recorder.inputs()[i]);
  }
  std::vector<uint8_t> symbols_used;
  for (size_t i = num_tensors; i < c.leaves.size(); ++i) {
    const Recorder::Scalar& s = c.scalars.at(c.leaves[i]);
    if (s.kind == TSR_SCALAR_DIM && symbols_used.empty()) symbols_used = used_symbols(g);
    // What host code looked at has been used, even when the range of the symbol was all it needed.
    c.used.push_back(s.kind == TSR_SCALAR_DIM ? s.used || symbols_used[g.sizes().exprs()[TSR_DIM_EXPR_ID(s.dim)].symbol] != 0
                                              : g.value(s.input).num_uses > 0);
    if (!c.used.back()) unused(s.input);
  }
  g.commit();
  c.graph = recorder.take();
  return c;
}

CompileOptions Callable::fallback_options() const {
  CompileOptions fallback = options_;
  fallback.backends.erase(fallback.backends.begin(), fallback.backends.end() - 1);
  return fallback;
}

std::unique_ptr<Executable> Callable::compile(std::unique_ptr<Graph> graph, const CompileOptions& options, bool with_passes) {
  const InterruptScope interrupt(desc_.interrupted, desc_.self);
  if (with_passes) return compile_cached(std::move(graph), {*context_, config_, passes_, options});
  return compile_graph(std::move(graph), options);
}

namespace {

// What an executable holds: its constants, and a guess for tables and kernels.
int64_t bytes_held(const Executable& e) {
  int64_t bytes = 16384 + 1024 * static_cast<int64_t>(e.plan().steps.size());
  const Graph& g = e.graph();
  for (tsr_id n = 0; n < g.num_nodes(); ++n) {
    const tsr_node& node = g.node(n);
    for (uint32_t i = 0; node.alive && i < node.num_attrs; ++i)
      if (const tsr_attr& a = node.attrs[i]; a.kind == TSR_ATTR_TENSOR && a.tensor)
        bytes += checked_bytes(a.tensor->dtype, {a.tensor->sizes, a.tensor->rank}, "cpu");
  }
  return bytes;
}

}  // namespace

bool Callable::may_be_symbolic(const Error& e) {
  static constexpr std::string_view kCodes[] = {"TSR-I", "TSR-S", "TSR-F", "TSR-R020", "TSR-R023", "TSR-R027"};
  return std::any_of(std::begin(kCodes), std::end(kCodes), [&](std::string_view c) { return e.code().starts_with(c); });
}

std::unique_ptr<Entry> Callable::entry_of(Capture& c, std::shared_ptr<Executable> executable, const CompileId& id,
                                          const tsr_arg* args, size_t count, const std::vector<std::string>& paths) {
  auto e = std::make_unique<Entry>();
  e->id = id;
  e->executable = std::move(executable);
  e->plan = &e->executable->plan();
  if (model_) check_model_call(*e->plan, args, c.leaves);  // a call of other types than the file names is an error, no miss
  e->inputs = c.leaves;
  e->num_inputs = static_cast<uint32_t>(c.leaves.size());
  e->num_scalars = static_cast<uint32_t>(
      std::count_if(c.leaves.begin(), c.leaves.end(), [&](uint32_t i) { return args[i].kind != TSR_ARG_TENSOR; }));
  e->num_outputs = static_cast<uint32_t>(e->executable->num_outputs());
  if (!c.leaves.empty() && c.leaves[0] < Entry::kScattered) e->first_input = static_cast<uint16_t>(c.leaves[0]);
  for (uint32_t i = 0; i < e->num_inputs; ++i)
    if (c.leaves[i] != c.leaves[0] + i) e->first_input = Entry::kScattered;
  e->guards = make_guards(e->executable->graph(), e->plan->facts,
                          {c.leaves, c.used, c.policies, c.scalars, c.observed, c.by_value}, args, count, paths);
  // Layouts that only the call knows are looked at in each, and so are tensors that have lost their guard.
  e->trusted = !filter_guards(e->guards, desc_) &&
               std::none_of(e->guards.mask.leaves.begin(), e->guards.mask.leaves.end(),
                            [](const LeafGuard& l) { return l.guarded && l.layout == LeafGuard::kNotDense; });
  const FastCall* const steady = e->executable->fast_call();
  if (e->trusted && e->num_scalars == 0 && steady && !steady->gives_away()) e->fast = steady;
  e->needs_alignment = e->plan->needs_alignment;
  e->bytes = bytes_held(*e->executable);
  e->structure = std::exchange(c.structure, nullptr);
  e->structure_free = desc_.structure_free;
  return e;
}

std::unique_ptr<Entry> Callable::make_entry(const tsr_arg* args, size_t count, const std::vector<std::string>& paths,
                                            CompileId id, PathCapture& path) {
  const auto start = std::chrono::steady_clock::now();
  DispatchListener& events = dispatch_events();
  if (model_)
    if (std::shared_ptr<Executable> made = made_for_values(args)) {
      Capture c = describe_call(made->graph(), args, count);
      return entry_of(c, std::move(made), id, args, count, paths);
    }
  Specialised specialised;
  for (;; ++id.attempt) {
    try {
      const auto begun = std::chrono::steady_clock::now();
      if (!path.broke_before()) events.capture_begins(*frame_, id);
      Capture c = capture(args, count, paths, specialised, path);
      if (path.done()) return nullptr;
      events.capture_ended({*frame_, id, c.graph.get(), seconds_since(begun)});
      // A symbol that may be 1 is taken to be equal to what it is broadcast against. Where that is wrong for the very call that
      // is compiled, the symbol was one too many.
      if (!model_ && specialise_what_does_not_hold(*c.graph, c.leaves, c.policies, args, paths, specialised)) continue;
      std::unique_ptr<Executable> executable = compile(std::move(c.graph), options_, true);
      std::unique_ptr<Entry> e = entry_of(c, std::move(executable), id, args, count, paths);
      e->compile_seconds = seconds_since(start);
      return e;
    } catch (const Error& e) {
      if (!path.broke_before()) events.failed({*frame_, id, e});
      const bool unbacked = policy_.automatic_unbacked && !specialised.backed && e.code().starts_with("TSR-G");
      if (specialised.all || !path.symbolic || path.host_failed() || !(unbacked || may_be_symbolic(e))) throw;
      (unbacked ? specialised.backed : specialised.all) = true;
      path.again();
    }
  }
}

}  // namespace tessera::core
