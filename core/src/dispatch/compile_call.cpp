// SPDX-License-Identifier: Apache-2.0
// From a call that missed to an entry: capture, passes, kernels, guards.
#include <algorithm>
#include <chrono>
#include <map>

#include "compile/services.hpp"
#include "context/context.hpp"
#include "dispatch/callable_capture.hpp"
#include "dispatch/events.hpp"
#include "ir/graph.hpp"
#include "pass/pass_manager.hpp"
#include "support/error.hpp"

namespace tessera::core {

Callable::Capture Callable::capture(const tsr_arg* args, size_t count) {
  Capture c;
  c.structure_free = desc_.structure_free;
  Recorder recorder(context_->ops(), frame_->name());
  Graph& g = recorder.graph();
  std::map<int64_t, tsr_dim> by_size;  // duck shaping: equal sizes are one symbol
  for (size_t i = 0; i < count; ++i) {
    c.paths.push_back(path_of(args, count, i));
    if (args[i].kind != TSR_ARG_TENSOR) continue;
    const tsr_tensor& t = args[i].tensor->desc;
    std::vector<tsr_dim> sizes(t.sizes, t.sizes + t.rank);
    if (dynamic_)
      for (tsr_dim& s : sizes)
        if (s >= 2) {  // 0 and 1 are special to broadcasting: always numbers
          const auto [at, fresh] = by_size.try_emplace(s, 0);
          if (fresh) at->second = g.sizes().fresh("s", 2, INT64_MAX, false, s);
          s = at->second;
        }
    tsr_type type{};
    type.dtype = t.dtype;
    type.rank = t.rank;
    type.sizes = sizes.data();
    type.strides = t.flags & TSR_TENSOR_CONTIGUOUS ? nullptr : t.strides;
    type.device = t.device;
    recorder.add_input(c.paths.back(), type, args[i].role == TSR_INPUT_PARAM ? TSR_INPUT_PARAM : TSR_INPUT_ARG);
    c.leaves.push_back(static_cast<uint32_t>(i));
  }

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
  const ServiceScope scope(options_);
  if (frontend)
    frontend->check(frontend->as<tsr_frontend>().capture(frontend->self, recorder.handle(), &callable));
  else
    throw_if(callable.invoke(callable.self, recorder.handle()));
  if (!recorder.has_outputs())
    throw user_error("TSR-G002", "capturing '" + frame_->name() + "' (" + frame_->place() + ") set no outputs",
                     "the client must call set_outputs, with no values for a function without results");
  for (uint32_t i = 0; i < c.leaves.size(); ++i) {
    c.used.push_back(recorder.used(i));
    // What the function never looked at is not guarded: the graph must not rely on its type either.
    if (!c.used.back()) g.set_type(recorder.inputs()[i], g.make_type(TSR_F32, {}));
  }
  g.commit();
  c.graph = recorder.take();
  return c;
}

std::unique_ptr<Executable> Callable::compile(Capture& c, const CompileOptions& options, bool with_passes) {
  const ServiceScope scope(options);
  const auto start = std::chrono::steady_clock::now();
  if (with_passes) run_passes(*c.graph, passes_, pass_options_of(config_));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::unique_ptr<Executable> e = Executable::compile(std::move(c.graph), options);
  e->times.passes = seconds;
  return e;
}

std::unique_ptr<Entry> Callable::make_entry(const tsr_arg* args, size_t count, const CompileId& id) {
  const auto start = std::chrono::steady_clock::now();
  DispatchListener& events = dispatch_events();
  events.capture_begins(*frame_, id);
  Capture c = capture(args, count);
  events.capture_ended(
      {*frame_, id, c.graph.get(), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
  auto e = std::make_unique<Entry>();
  e->executable = compile(c, options_, true);
  e->plan = &e->executable->plan();
  e->fast = e->plan->fast && !e->plan->needs_alignment;
  e->inputs = c.leaves;
  e->num_inputs = static_cast<uint32_t>(c.leaves.size());
  e->num_outputs = static_cast<uint32_t>(e->executable->num_outputs());
  std::copy_n(c.leaves.begin(), std::min<size_t>(c.leaves.size(), Entry::kInline), e->leaves);
  const Graph& g = e->executable->graph();
  const Sizes& sizes = g.sizes();

  e->expected.resize(count);
  e->mask.leaves.resize(count);
  for (size_t i = 0; i < count; ++i) {
    Expected& x = e->expected[i];
    LeafGuard& l = e->mask.leaves[i];
    x.path = std::move(c.paths[i]);
    x.kind = l.kind = args[i].kind;
    x.role = args[i].role;
    l.guarded = args[i].kind != TSR_ARG_TENSOR;
    if (args[i].kind == TSR_ARG_TENSOR) continue;
    x.i = args[i].i;
    x.f = args[i].f;
    if ((args[i].kind == TSR_ARG_STRING || args[i].kind == TSR_ARG_KEYS) && args[i].s) x.s = args[i].s;
  }
  std::vector<uint8_t> bound(sizes.symbols().size(), 0);
  for (uint32_t k = 0; k < c.leaves.size(); ++k) {
    const uint32_t i = c.leaves[k];
    const tsr_tensor& t = args[i].tensor->desc;
    const tsr_type& type = *g.value(g.region(0).inputs[k]).type;
    Expected& x = e->expected[i];
    LeafGuard& l = e->mask.leaves[i];
    x.guarded = l.guarded = c.used[k] != 0;
    x.dtype = t.dtype;
    x.device = t.device;
    x.requires_grad = args[i].tensor->requires_grad != 0;
    x.sizes.assign(t.sizes, t.sizes + t.rank);
    x.strides.assign(t.strides, t.strides + t.rank);
    x.symbols.assign(t.rank, -1);
    x.dense = t.flags & TSR_TENSOR_CONTIGUOUS;
    if (!l.guarded) continue;
    l.rank = t.rank;
    l.dense = x.dense;
    for (uint32_t d = 0; d < t.rank; ++d) {
      if (!TSR_DIM_IS_EXPR(type.sizes[d])) {
        l.fixed |= uint64_t{1} << d;
        continue;
      }
      const uint32_t symbol = sizes.exprs()[TSR_DIM_EXPR_ID(type.sizes[d])].symbol;  // captured sizes are plain symbols
      x.symbols[d] = static_cast<int32_t>(symbol);
      if (bound[symbol]) {
        e->symbolic.equals.push_back({i, d, symbol});
        continue;
      }
      bound[symbol] = 1;
      e->symbolic.binds.push_back({i, d, symbol});
      const tsr_symbol& s = sizes.symbols()[symbol];
      e->symbolic.bounds.push_back({symbol, s.min, s.max, i, d});
    }
  }
  e->symbolic.sizes = &sizes;
  for (const Assumption& a : sizes.assumptions()) {
    std::vector<uint32_t> symbols;
    sizes.collect_symbols(a.a, symbols);
    sizes.collect_symbols(a.b, symbols);
    // About sizes that are computed later: checked by the plan when they are known.
    if (std::all_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return bound[s] != 0; }))
      e->symbolic.relations.push_back(a);
  }
  e->number = id.compile;
  e->mask.finish();
  e->structure = std::exchange(c.structure, nullptr);
  e->structure_free = desc_.structure_free;
  e->compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return e;
}

}  // namespace tessera::core
