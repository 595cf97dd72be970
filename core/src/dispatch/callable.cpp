// SPDX-License-Identifier: Apache-2.0
#include "dispatch/callable.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "api/api.hpp"
#include "capture/recorder.hpp"
#include "compile/executable.hpp"
#include "compile/services.hpp"
#include "context/context.hpp"
#include "dispatch/callable_state.hpp"
#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"
#include "pass/pass_manager.hpp"
#include "support/error.hpp"

namespace tessera::core {

Callable::Callable(std::shared_ptr<const Context> context, const tsr_callable_desc& given) : context_(std::move(context)) {
  // The prefix that the client knew of.
  std::memcpy(&desc_, &given, std::min(given.struct_size, sizeof desc_));
  if (!desc_.invoke) throw user_error("TSR-E002", "callable_create: the description has no invoke function");
  name_ = desc_.name && *desc_.name ? desc_.name : "fn";
  file_ = desc_.loc.file ? desc_.loc.file : "<unknown>";
  std::vector<std::string> overrides;
  for (size_t i = 0; i < desc_.num_options; ++i) overrides.emplace_back(desc_.options[i]);
  config_ = desc_.mode || !overrides.empty()
                ? context_->config().derive(
                      desc_.mode && *desc_.mode ? std::optional<std::string_view>(desc_.mode) : std::nullopt, overrides)
                : context_->config();
  options_ = api::compile_options(context_, config_, desc_.backend);
  options_.keep = nullptr;  // entries go with this callable, which holds the context
  passes_ = context_->pipeline(config_);
  limit_ = config_.get_int("guards.recompile_limit");
  // auto compiles for the sizes at hand, unless the config makes sizes symbols at the first capture.
  dynamic_ = desc_.dynamic == 1 ||
             (desc_.dynamic < 0 &&
              (config_.get_string("guards.dynamic") == "true" ||
               (config_.get_string("guards.dynamic") == "auto" && !config_.get_bool("guards.assume_static_by_default"))));
  desc_.name = name_.c_str();
  desc_.loc.file = file_.c_str();
  desc_.backend = desc_.mode = nullptr;
  desc_.options = nullptr;
  desc_.num_options = 0;
  reset();
}

Callable::~Callable() {
  states_.clear();
  if (desc_.structure_free)
    for (const auto& [thread, structure] : transient_)
      if (structure) desc_.structure_free(structure);
}

std::string Callable::place() const { return file_ + ":" + std::to_string(desc_.loc.line); }

void Callable::reset() {
  const std::lock_guard lock(mutex_);
  if (!states_.empty()) states_.back()->frame.reset();
  states_.push_back(std::make_unique<State>());
  state_.store(states_.back().get(), std::memory_order_release);
}

// ------------------------------------------------------------------------------------------------------------- dispatch

const Callable::Entry* Callable::find(const State& state, const tsr_arg* args, size_t count) const {
  const Groups* groups = state.groups.load(std::memory_order_acquire);
  WordBuffer key;
  for (const Group* g : groups->list) {
    key.clear();
    if (!g->mask.key(args, count, key)) continue;
    for (const Entry* e = g->map.find(hash_words(key.data(), key.size()), key.data(), key.size()); e;
         e = e->next.load(std::memory_order_acquire))
      if (!g->mask.symbolic || e->symbolic.hold(args)) return e;
  }
  return nullptr;
}

void Callable::run(const Entry& e, const tsr_arg* args, tsr_tensor_handle** outputs, size_t capacity,
                   size_t* num_outputs) const {
  const uint32_t n = e.num_inputs, m = e.num_outputs;
  if (m > capacity)
    throw user_error(
        "TSR-E003", "'" + name_ + "' returns " + std::to_string(m) + " tensors, there is room for " + std::to_string(capacity));
  tsr_tensor_handle* stack[64];
  std::vector<tsr_tensor_handle*> heap;
  tsr_tensor_handle** in = stack;
  if (n > 64) {
    heap.resize(n);
    in = heap.data();
  }
  const uint32_t* leaves = n <= Entry::kInline ? e.leaves : e.inputs.data();
  for (uint32_t i = 0; i < n; ++i) in[i] = args[leaves[i]].tensor;
  if (e.fast)
    e.calls.run(*e.plan, in, outputs);
  else
    e.executable->run_trusted(in, outputs);
  *num_outputs = m;
}

void Callable::call(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs, size_t capacity, size_t* num_outputs,
                    void** structure) {
  State& state = *state_.load(std::memory_order_acquire);
  const Entry* e = find(state, args, count);
  if (!e) [[unlikely]] {
    for (size_t i = 0; i < count; ++i)
      if (args[i].kind == TSR_ARG_TENSOR && !args[i].tensor)
        throw user_error("TSR-E002", "argument " + path_of(args, count, i) + " of '" + name_ + "' is a null tensor");
    e = miss(args, count);
    if (!e) return run_uncached(args, count, outputs, capacity, num_outputs, structure);
  }
  run(*e, args, outputs, capacity, num_outputs);
  if (structure) *structure = e->structure;
  // A tick that two threads may share, and a count that may miss one: exact enough to order entries, and free of contention.
  e->tick.store(state.tick.load(std::memory_order_relaxed), std::memory_order_relaxed);
  state.tick.store(e->tick.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  e->hits.store(e->hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// --------------------------------------------------------------------------------------------------------------- misses

const Callable::Entry* Callable::miss(const tsr_arg* args, size_t count) {
  const std::lock_guard lock(mutex_);
  State& state = *state_.load(std::memory_order_relaxed);
  if (const Entry* e = find(state, args, count)) return e;  // another thread has compiled it meanwhile
  ++state.misses;
  const bool at_limit = static_cast<int64_t>(state.entries.size()) >= limit_;
  if (!state.entries.empty()) explain_miss(state, args, count, at_limit);
  if (at_limit) return nullptr;
  state.frame.acquire();
  std::unique_ptr<Entry> entry = make_entry(args, count);
  const Entry* e = entry.get();
  insert(state, std::move(entry), args, count);
  return e;
}

void Callable::explain_miss(State& state, const tsr_arg* args, size_t count, bool at_limit) {
  const bool verbose = log_enabled(Artifact::kRecompilesVerbose);
  const bool wanted = verbose || log_enabled(Artifact::kRecompiles) || (at_limit && !state.warned);
  if (!wanted) return;
  std::vector<const Entry*> recent;
  for (const auto& e : state.entries) recent.push_back(e.get());
  std::stable_sort(recent.begin(), recent.end(), [](const Entry* a, const Entry* b) {
    return a->tick.load(std::memory_order_relaxed) > b->tick.load(std::memory_order_relaxed);
  });
  const std::string head =
      "Recompiling function " + name_ + " in " + place() + "\n    triggered by the following guard failure(s):";
  std::string text = head, all = head, last;
  for (const Entry* e : recent) {
    const std::string id = std::to_string(state.frame.id()) + "/" + std::to_string(e->number) + ": ";
    const std::vector<std::string> why = mismatches(e->expected, e->symbolic, args, count, verbose);
    if (why.empty()) continue;
    text += "\n    - " + id + why.front();
    for (const std::string& w : why) all += "\n    - " + id + w;
    if (last.empty()) last = id + why.front();
  }
  log_write(Artifact::kRecompiles, text);
  if (verbose) log_write(Artifact::kRecompilesVerbose, all);
  if (at_limit && !state.warned) {
    state.warned = true;
    log_warning("tessera hit config.recompile_limit (" + std::to_string(limit_) + ")\n   function: '" + name_ + "' (" +
                place() + ")\n   last reason: " + last +
                "\nTo log all recompilation reasons, use TESSERA_LOGS=\"recompiles\".\nTo diagnose recompilation issues, see "
                "docs/recompiles.md");
  }
}

std::string Callable::path_of(const tsr_arg* args, size_t count, size_t index) const {
  char buf[512];
  buf[0] = 0;
  if (desc_.path) desc_.path(desc_.self, args, count, index, buf, sizeof buf);
  buf[sizeof buf - 1] = 0;
  return buf[0] ? std::string(buf) : "arg" + std::to_string(index);
}

// -------------------------------------------------------------------------------------------------------------- capture

struct Callable::Capture {
  std::unique_ptr<Graph> graph;
  std::vector<uint32_t> leaves;    // argument of each graph input
  std::vector<uint8_t> used;       // by graph input
  std::vector<std::string> paths;  // by argument
  void* structure = nullptr;
  void (*structure_free)(void*) = nullptr;
  Capture() = default;
  Capture(Capture&& o) noexcept
      : graph(std::move(o.graph)),
        leaves(std::move(o.leaves)),
        used(std::move(o.used)),
        paths(std::move(o.paths)),
        structure(std::exchange(o.structure, nullptr)),
        structure_free(o.structure_free) {}
  ~Capture() {
    if (structure && structure_free) structure_free(structure);
  }
};

Callable::Capture Callable::capture(const tsr_arg* args, size_t count) {
  Capture c;
  c.structure_free = desc_.structure_free;
  Recorder recorder(context_->ops(), name_);
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
  callable.name = name_.c_str();
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
    throw user_error("TSR-G002", "capturing '" + name_ + "' (" + place() + ") set no outputs",
                     "the client must call set_outputs, with no values for a function without results");
  for (uint32_t i = 0; i < c.leaves.size(); ++i) {
    c.used.push_back(recorder.used(i));
    // What the function never looked at is not guarded: the graph must not rely on its type either.
    if (!c.used.back()) g.set_type(recorder.inputs()[i], g.make_type(TSR_F32, {}));
  }
  g.commit();
  c.graph = recorder.take();
  if (log_enabled(Artifact::kGraph)) log_write(Artifact::kGraph, print_graph(*c.graph));
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

std::unique_ptr<Callable::Entry> Callable::make_entry(const tsr_arg* args, size_t count) {
  const auto start = std::chrono::steady_clock::now();
  Capture c = capture(args, count);
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
  e->mask.finish();
  e->structure = std::exchange(c.structure, nullptr);
  e->structure_free = desc_.structure_free;
  e->compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return e;
}

void Callable::insert(State& state, std::unique_ptr<Entry> owned, const tsr_arg* args, size_t count) {
  Entry* e = owned.get();
  e->number = state.entries.size();
  e->tick.store(state.tick.load(std::memory_order_relaxed), std::memory_order_relaxed);
  state.tick.store(state.tick.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  state.entries.push_back(std::move(owned));
  Group* group = nullptr;
  for (const auto& g : state.all_groups)
    if (g->mask == e->mask) group = g.get();
  const bool fresh = !group;
  if (fresh) {
    state.all_groups.push_back(std::make_unique<Group>());
    group = state.all_groups.back().get();
    group->mask = e->mask;
  }
  WordBuffer key;
  if (!group->mask.key(args, count, key))
    throw bug("TSR-B031", "the arguments of '" + name_ + "' changed while it was captured");
  const uint64_t hash = hash_words(key.data(), key.size());
  if (Entry* first = group->map.find(hash, key.data(), key.size())) {
    while (Entry* next = first->next.load(std::memory_order_relaxed)) first = next;
    first->next.store(e, std::memory_order_release);
  } else {
    group->map.insert(hash, key.data(), key.size(), e, e->fast ? e->calls.fill(*e->plan) : nullptr);
  }
  if (fresh) {  // symbolic masks last: an exact match is the better one
    auto list = std::make_unique<Groups>();
    for (const bool symbolic : {false, true})
      for (const auto& g : state.all_groups)
        if (g->mask.symbolic == symbolic) list->list.push_back(g.get());
    state.groups.store(list.get(), std::memory_order_release);
    state.lists.push_back(std::move(list));  // earlier lists may still be walked
  }
  if (log_enabled(Artifact::kGuards)) {
    std::string text =
        "guards of " + name_ + " " + std::to_string(state.frame.id()) + "/" + std::to_string(e->number) + " (" + place() + ")";
    for (const std::string& g : guard_texts(e->expected, e->symbolic)) text += "\n  " + g;
    log_write(Artifact::kGuards, text);
  }
}

// Past the limit: captured again and run on the fallback backend as it is, each time. Nothing is kept, so a function whose arguments
// never repeat cannot fill the memory.
void Callable::run_uncached(const tsr_arg* args, size_t count, tsr_tensor_handle** outputs, size_t capacity,
                            size_t* num_outputs, void** structure) {
  std::unique_ptr<Executable> executable;
  std::vector<tsr_tensor_handle*> in;
  {
    const std::lock_guard lock(mutex_);  // the client's function runs for one thread at a time
    Capture c = capture(args, count);
    CompileOptions fallback = options_;
    fallback.backends.erase(fallback.backends.begin(), fallback.backends.end() - 1);
    executable = compile(c, fallback, false);
    for (const uint32_t leaf : c.leaves) in.push_back(args[leaf].tensor);
    void*& kept = transient_[std::this_thread::get_id()];
    if (kept && desc_.structure_free) desc_.structure_free(kept);
    kept = std::exchange(c.structure, nullptr);
    if (structure) *structure = kept;
  }
  if (executable->num_outputs() > capacity)
    throw user_error("TSR-E003", "'" + name_ + "' returns " + std::to_string(executable->num_outputs()) +
                                     " tensors, there is room for " + std::to_string(capacity));
  executable->run_trusted(in.data(), outputs);
  *num_outputs = executable->num_outputs();
}

}  // namespace tessera::core
