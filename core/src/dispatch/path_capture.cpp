// SPDX-License-Identifier: Apache-2.0
#include "dispatch/path_capture.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <unordered_map>

#include "capture/breaks.hpp"
#include "compile/executable.hpp"
#include "dispatch/events.hpp"
#include "dispatch/global_state.hpp"
#include "dispatch/marks.hpp"
#include "ir/equality.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Values are named by the operations that make them; what makes a name unique within a graph would change from segment to segment.
std::string name_of(const Graph& g, tsr_id value) {
  const tsr_value& v = g.value(value);
  std::string_view name = v.name;
  const size_t at = name.find_last_not_of("0123456789");
  if (at == std::string_view::npos && v.def_node != TSR_NONE) return g.node(v.def_node).op;
  if (at != std::string_view::npos && at > 0 && at + 1 < name.size() && name[at] == '_') name = name.substr(0, at);
  return std::string(name);
}

// Inputs that give a value to a symbol of the graph are used, even when no operation reads them.
void use_binding_inputs(const Graph& g, std::vector<uint8_t>& used) {
  const Sizes& sizes = g.sizes();
  std::vector<uint32_t> wanted;
  const auto want = [&](tsr_dim d) {
    if (TSR_DIM_IS_EXPR(d)) sizes.collect_symbols(d, wanted);
  };
  const auto want_type = [&](const tsr_type& t) {
    for (uint32_t i = 0; i < t.rank; ++i) want(t.sizes[i]);
  };
  const tsr_region& body = g.region(0);
  for (uint32_t k = 0; k < body.num_inputs; ++k)
    if (used[k]) want_type(*g.value(body.inputs[k]).type);
  for (tsr_id n = 0; n < g.num_nodes(); ++n) {
    const tsr_node& node = g.node(n);
    if (!node.alive) continue;
    for (uint32_t i = 0; i < node.num_results; ++i) want_type(*g.value(node.results[i]).type);
    for (uint32_t i = 0; i < node.num_attrs; ++i) {
      const tsr_attr& a = node.attrs[i];
      if (a.kind == TSR_ATTR_DIM) want(a.i);
      if (a.kind == TSR_ATTR_DIMS)
        for (uint32_t j = 0; j < a.count; ++j) want(a.ints[j]);
    }
  }
  for (const Assumption& a : sizes.assumptions()) want(a.a), want(a.b);
  std::vector<uint8_t> bound(sizes.symbols().size(), 0);
  const auto symbol_of = [&](tsr_dim d) -> int64_t {
    if (!TSR_DIM_IS_EXPR(d)) return -1;
    const tsr_dim_expr& e = sizes.exprs()[TSR_DIM_EXPR_ID(d)];
    return e.op == TSR_DIM_SYMBOL ? static_cast<int64_t>(e.symbol) : -1;
  };
  for (const bool pass : {true, false})  // those that are used anyway first
    for (uint32_t k = 0; k < body.num_inputs; ++k) {
      if (static_cast<bool>(used[k]) != pass) continue;
      const tsr_type& t = *g.value(body.inputs[k]).type;
      for (uint32_t i = 0; i < t.rank; ++i) {
        const int64_t s = symbol_of(t.sizes[i]);
        if (s < 0 || bound[static_cast<size_t>(s)]) continue;
        if (!pass && std::find(wanted.begin(), wanted.end(), static_cast<uint32_t>(s)) == wanted.end()) continue;
        bound[static_cast<size_t>(s)] = 1;
        used[k] = 1;
      }
    }
}

bool has_effects(const Graph& g) {
  for (const tsr_id n : nodes_of(g, 0))
    if (const OpRecord& op = g.record_of(n); !op.has(kPure) && !op.has(kConstant) && !op.has(kView)) return true;
  return false;
}

constexpr uint32_t kGuarded = 16;

// What the client writes of a guarded variable: i, f, b or s, and the value. Anything else is taken as it is.
Expected guarded_fact(const tsr_break& b, const Seen& seen) {
  std::string text;
  if (seen.key.size() > 1) text.assign(reinterpret_cast<const char*>(seen.key.data() + 1), seen.key[0]);
  Expected x;
  x.path = b.detail ? b.detail : "";
  const char kind = text.empty() ? 's' : text[0];
  x.s = text.empty() ? text : text.substr(1);
  x.kind = kind == 'i' ? TSR_ARG_INT : kind == 'f' ? TSR_ARG_FLOAT : kind == 'b' ? TSR_ARG_BOOL : TSR_ARG_STRING;
  if (kind == 'i' || kind == 'b') x.i = std::strtoll(x.s.c_str(), nullptr, 10);
  if (kind == 'f') x.f = std::strtod(x.s.c_str(), nullptr);
  return x;
}

Expected fact(const tsr_break& b, const Seen& seen) {
  Expected x;
  x.path = "value read at " + place_text(b.loc);
  x.kind = b.read_kind == TSR_READ_BOOL ? TSR_ARG_BOOL : b.read_kind == TSR_READ_INT ? TSR_ARG_INT : TSR_ARG_FLOAT;
  x.i = seen.i;
  x.f = seen.f;
  return x;
}

bool same_value(const Expected& a, const Expected& b) {
  return a.kind == b.kind && a.i == b.i && std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f) && a.s == b.s;
}

// What a capture takes as fixed about arguments that another segment hands over: what their types say.
ArgPolicy policy_of(const tsr_arg& a, bool any_strides) {
  ArgPolicy p;
  if (a.kind != TSR_ARG_TENSOR) return p;
  p.any_strides = any_strides;
  p.dims.resize(a.tensor->desc.rank);
  for (const DimMark& m : marks_of(a.tensor->marks))
    if (m.dim < p.dims.size()) p.dims[m.dim].marked = m.mark != TSR_MARK_STATIC;
  return p;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------- beginning

void Callable::PathCapture::start(Paths& paths, EntryTable& table) {
  paths_ = &paths;
  root_ = &table;
}

void Callable::PathCapture::again() {
  path_ = nullptr;
  if (broke_) decided_.reset();  // the head may have been compiled
}

std::unique_ptr<Recorder> Callable::PathCapture::begin_again(Capture& c, const std::vector<std::string>& names) {
  const Entry& head = *path_->steps.front().entry;
  const Segment& segment = *head.then->segment;
  std::unique_ptr<Graph> g = segment.start->clone();
  g->begin("capture");
  for (const SymbolicGuards::Place& p : head.guards.symbolic.binds)
    if (!g->sizes().symbols()[p.symbol].unbacked) g->sizes().observe(p.symbol, SymbolicGuards::value_at(args_, p.leaf, p.dim));
  c.policies.resize(count_);
  for (size_t i = 0; i < count_; ++i)
    c.policies[i] =
        policy_of(args_[i], args_[i].kind == TSR_ARG_TENSOR && !(args_[i].tensor->desc.flags & TSR_TENSOR_CONTIGUOUS));
  for (size_t k = 0; k < head.inputs.size(); ++k) {
    const uint32_t leaf = head.inputs[k];
    if (args_[leaf].kind != TSR_ARG_TENSOR || head.guards.mask.leaves[leaf].guarded) continue;
    // The head does not depend on it, so that it may be of another type now than it was then.
    const tsr_tensor& t = args_[leaf].tensor->desc;
    c.policies[leaf] = input_policy(c_.policy_, c_.profile_, names[leaf], args_[leaf], leaf, {});
    c.policies[leaf].any_strides = false;
    std::vector<tsr_dim> sizes(t.sizes, t.sizes + t.rank);
    for (uint32_t i = 0; i < t.rank; ++i)
      if (const DimPolicy& p = c.policies[leaf].dims[i]; p.kind != DimPolicy::kFixed)
        sizes[i] = g->sizes().fresh(p.kind == DimPolicy::kUnbacked ? "u" : "s", p.min, p.max, p.kind == DimPolicy::kUnbacked,
                                    t.sizes[i]);
    tsr_type type = g->make_type(static_cast<tsr_dtype>(t.dtype), sizes, t.device);
    if (!(t.flags & TSR_TENSOR_CONTIGUOUS)) type.strides = g->copy_dims({t.strides, t.rank});
    g->set_type(g->region(0).inputs[k], type);
  }
  c.leaves = head.inputs;
  c_.capture_was_symbolic_ = !g->sizes().symbols().empty();
  return std::make_unique<Recorder>(std::move(g), segment.scalars);
}

void Callable::PathCapture::begins(Recorder& recorder, Capture& capture, const std::vector<std::string>& names) {
  recorder.set_break_handler(this);
  if (!path_) capture.start = recorder.graph().clone();
  capture_ = &capture;
  start_scalars_ = recorder.scalars();
  table_ = root_;
  at_ = 0;
  now_ = {};
  leaves_ = capture.leaves;
  names_ = names;
  host_.clear();
  policies_ = capture.policies;
  scalars_.clear();
  for (const auto& [arg, s] : recorder.scalars()) scalars_[arg] = arg;
  broke_ = false;
  results_.clear();
  began_ = std::chrono::steady_clock::now();
}

void Callable::PathCapture::begin_head() {
  broke_ = true;
  if (!paths_->head) {
    paths_->frames.push_back(std::make_unique<SegmentFrame>(*c_.frame_));
    paths_->head = paths_->frames.back().get();
  }
  frame_ = paths_->head;
  now_.args.assign(args_, args_ + count_);
}

// ---------------------------------------------------------------------------------------------------------------- breaks

void Callable::PathCapture::graph_break(Recorder& recorder, tsr_break& b) {
  std::shared_ptr<HostStep> step;
  if (b.step) {
    step = std::make_shared<HostStep>();
    step->call = *b.step;
  }
  const bool free = b.code == kGuarded && recorder.graph().num_live_nodes() == 0;  // nothing is there to break
  if ((c_.desc_.fullgraph || b.forbidden) && !free) {
    const BreakReason& why = break_reason(b.code);
    std::string hint = why.fixes;
    for (size_t at = 0; (at = hint.find('\n', at)) != std::string::npos;) hint.replace(at, 1, "; ");
    throw user_error(break_code_text(b.code),
                     place_text(b.loc) + ": a graph break in '" + c_.frame_->name() + "', where " +
                         (c_.desc_.fullgraph ? "fullgraph" : "error_on_graph_break") + " forbids them. " + why.title +
                         (b.detail && *b.detail ? std::string(": ") + b.detail : "") + ". " + why.why,
                     hint + "; docs/graph_breaks.md");
  }
  if (!broke_) begin_head();
  Recorded r = record(recorder, {b.live, b.live + b.num_live}, &b);
  r.next->step = std::move(step);

  Seen seen;
  const Entry* e = nullptr;
  if (following() && !as_before(r)) diverge();
  const bool followed = following();
  if (followed) {
    PathStep& s = path_->steps[at_++];
    seen = std::move(s.seen);
    e = s.entry;
    if (!following()) now_ = std::move(path_->values);
  } else {
    e = advance(r, seen);
  }

  SegmentFrame* next = frame_after(b, seen);
  if (e && !following()) {
    if (!free) announce(b, r, *next->frame);
    Continuation::Child* position = followed ? path_->position : nullptr;
    if (!position) position = child(*e->then, seen);
    if (position) position->frame = next;
    table_ = position ? &position->table : nullptr;
  } else {
    table_ = nullptr;
  }
  if (frame_ == paths_->head)
    for (const Expected& x : (e ? e : transient_.get())->guards.expected)
      if (x.kind != TSR_ARG_TENSOR && x.guarded) know(x);
  if (b.read_kind == TSR_READ_BOOL || b.read_kind == TSR_READ_INT || b.read_kind == TSR_READ_FLOAT) know(fact(b, seen));
  if (b.code == kGuarded) know(guarded_fact(b, seen));
  frame_ = next;
  b.i = seen.i;
  b.f = seen.f;
  b.tensor = nullptr;
  if (seen.tensor) b.tensor = TensorRef::share(seen.tensor.get()).take();
  b.outcome = seen.outcome ? seen.outcome->data : nullptr;
  if (seen.outcome) outcomes_.push_back(seen.outcome);
  restart(recorder, b, r);
  began_ = std::chrono::steady_clock::now();
}

void Callable::PathCapture::know(Expected x) {
  for (Expected& known : host_)
    if (known.path == x.path) {  // the last turn of a loop says it all
      known = std::move(x);
      return;
    }
  host_.push_back(std::move(x));
}

bool Callable::PathCapture::finish(Recorder& recorder, Capture& capture) {
  if (!broke_) {
    if (!paths_->head || decided_ || !root_) return false;
    begin_head();
  }
  const tsr_region& body = recorder.graph().region(0);
  Recorded r = record(recorder, {body.outputs, body.outputs + body.num_outputs}, nullptr);
  r.next->returns = true;
  if (following()) diverge();
  Seen seen;
  structure_ = capture.structure;
  advance(r, seen, &capture.structure);
  if (void* own = std::exchange(capture.structure, nullptr)) c_.keep_for_thread(own);
  done_ = true;
  return true;
}

void Callable::PathCapture::deliver(const Output& out) {
  c_.check_capacity(results_.size(), out.capacity);
  for (size_t i = 0; i < results_.size(); ++i) out.tensors[i] = results_[i].take();
  *out.count = results_.size();
  if (out.structure) *out.structure = structure_;
}

Callable::PathCapture::Recorded Callable::PathCapture::record(Recorder& recorder, std::vector<tsr_id> values, tsr_break* b) {
  Recorded r;
  Graph& g = recorder.graph();
  r.next = std::make_shared<Continuation>();
  Continuation& next = *r.next;
  std::unordered_map<tsr_id, ValueSource> sources;
  for (uint32_t k = 0; k < recorder.inputs().size(); ++k)
    sources.emplace(recorder.inputs()[k], ValueSource{ValueSource::kArgument, leaves_[k]});
  for (const auto& [arg, s] : recorder.scalars())
    if (s.input != TSR_NONE) sources.emplace(s.input, ValueSource{ValueSource::kArgument, scalars_.at(arg)});
  std::vector<tsr_id> outputs;
  const auto source = [&](tsr_id v) {
    if (v >= g.num_values() || !g.value(v).alive || g.value(v).region != 0)
      throw bug("TSR-B036", "graph_break: value " + std::to_string(v) + " is not one of the graph's body");
    const auto [at, fresh] = sources.try_emplace(v, ValueSource{ValueSource::kOutput, static_cast<uint32_t>(outputs.size())});
    if (fresh) outputs.push_back(v);
    return at->second;
  };
  if (b) {  // whatever order the client found them in; numbers go on by themselves
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    std::erase_if(values, [&](tsr_id v) {
      const auto& all = recorder.scalars();
      return std::any_of(all.begin(), all.end(), [v](const auto& s) { return s.second.input == v; });
    });
  }
  for (const tsr_id v : values) next.values.push_back(source(v));
  r.live = std::move(values);
  if (b) {
    for (const auto& [arg, at] : scalars_) next.values.push_back({ValueSource::kArgument, at});
    next.code = b->code;
    next.read_kind = b->read_kind;
    next.file = b->loc.file ? b->loc.file : "";
    next.loc = b->loc;
    next.loc.file = next.file.c_str();
    next.detail = b->detail ? b->detail : "";
    if (b->read_kind != TSR_READ_NONE) next.read = source(b->read);
    for (uint32_t i = 0; i < b->num_step_inputs; ++i) next.step_inputs.push_back(source(b->step_inputs[i]));
  }
  g.set_outputs(0, outputs);
  r.graph = g.clone();
  r.observed = recorder.client_observes();
  for (const auto& [arg, s] : recorder.scalars()) r.scalars.emplace(scalars_.at(arg), s);
  for (uint32_t k = 0; k < recorder.inputs().size(); ++k) r.used.push_back(recorder.used(k));
  for (const auto& [arg, s] : recorder.scalars())
    if (s.input != TSR_NONE) r.used.push_back(s.kind == TSR_SCALAR_DIM ? s.used : g.value(s.input).num_uses > 0);
  use_binding_inputs(*r.graph, r.used);
  // What host code never looked at is not guarded: the graph must not rely on its type either.
  r.graph->begin("capture");
  for (uint32_t k = 0; k < r.used.size(); ++k)
    if (!r.used[k]) r.graph->set_type(r.graph->region(0).inputs[k], r.graph->make_type(TSR_F32, {}));
  r.graph->commit();
  r.hash = computation_hash(*r.graph);
  for (const tsr_id n : nodes_of(*r.graph, 0)) r.ops += std::string_view(r.graph->node(n).op) != "constant";
  return r;
}

bool Callable::PathCapture::as_before(const Recorded& r) const {
  const Continuation& before = *path_->steps[at_].entry->then;
  const Continuation& now = *r.next;
  return !before.returns && before.code == now.code && before.loc.line == now.loc.line && before.read_kind == now.read_kind &&
         before.read == now.read && before.values == now.values && before.step_inputs == now.step_inputs &&
         before.segment->hash == r.hash && same_computation(*before.segment->recorded, *r.graph, true);
}

void Callable::PathCapture::diverge() {
  now_ = {};
  now_.args.assign(args_, args_ + count_);
  for (size_t i = 0; i < at_; ++i) {
    const Entry& e = *path_->steps[i].entry;
    std::vector<TensorRef> outputs, results;
    Seen seen;
    run_segment(e, now_.args.data(), outputs, results, seen);
    now_ = next_values(*e.then, now_, outputs, results);
  }
  path_ = nullptr;
  table_ = nullptr;  // the path that is known stays the one that is taken
}

// ------------------------------------------------------------------------------------------------------ compiling, running

Guards Callable::PathCapture::guards_of(const Segment& s, const Recorded& r) const {
  const Graph& g = s.executable ? s.executable->graph() : *s.recorded;  // passes may assume more than the capture did
  const InputFacts facts = s.executable ? s.executable->plan().facts : input_facts(g, 0, {});
  Guards guards =
      make_guards(g, facts, {leaves_, r.used, policies_, r.scalars, r.observed}, now_.args.data(), now_.args.size(), names_);
  if (!guards.symbolic.hold(now_.args.data()))
    throw user_error("TSR-S004", "'" + frame_->frame->name() + "' (" + frame_->frame->place() +
                                     ") assumes a relation between sizes that does not hold for this very call");
  return guards;
}

const Entry* Callable::PathCapture::advance(Recorded& r, Seen& seen, void** structure) {
  // Other host values than before can lead to the same head again and again: so many of them are kept.
  constexpr size_t kMaxAliases = 4096;
  bool keep = table_ && table_->entries().size() < kMaxAliases && paths_->entries < Paths::kMaxEntries &&
              !table_->find(now_.args.data(), now_.args.size());
  auto e = std::make_unique<Entry>();
  r.next->segment = segment_for(r, &keep);
  Segment& segment = *r.next->segment;
  e->guards = guards_of(segment, r);
  // Layouts that only the call knows are looked at in each.
  e->trusted = std::none_of(e->guards.mask.leaves.begin(), e->guards.mask.leaves.end(),
                            [](const LeafGuard& l) { return l.guarded && l.layout == LeafGuard::kNotDense; });
  keep = keep && e->guards.covers_marks(now_.args.data());
  e->inputs = leaves_;
  e->num_inputs = static_cast<uint32_t>(leaves_.size());
  e->executable = segment.executable;
  e->id = frame_->frame->compile(segment.number);
  e->then = r.next;
  e->in_path = true;
  e->compile_seconds = segment.compile_seconds;
  std::vector<TensorRef> outputs, results;
  run_segment(*e, now_.args.data(), outputs, results, seen);
  segment.tick.store(c_.segment_tick_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  const Entry* made = nullptr;
  if (keep) {
    if (structure) e->structure = std::exchange(*structure, nullptr);
    e->structure_free = c_.desc_.structure_free;
    made = table_->insert(std::move(e), now_.args.data(), now_.args.size());
    ++paths_->entries;
  } else {
    transient_ = std::move(e);
  }
  if (r.next->returns) {
    std::vector<tsr_tensor_handle*> out(r.next->values.size());
    give_results(*r.next, now_.args.data(), outputs, out.data());
    for (tsr_tensor_handle* h : out) results_.emplace_back(h);
  } else {
    now_ = next_values(*r.next, now_, outputs, results);
  }
  return made;
}

std::shared_ptr<Segment> Callable::PathCapture::segment_for(Recorded& r, bool* keep) {
  const bool head = frame_ == paths_->head;
  const auto differs = [](const Expected& x, const tsr_arg& a) {
    return x.kind != a.kind || x.i != a.i || std::bit_cast<uint64_t>(x.f) != std::bit_cast<uint64_t>(a.f) ||
           x.s != (a.s ? a.s : "");
  };
  for (const std::shared_ptr<Segment>& s : frame_->segments) {
    if (s->hash != r.hash || !same_computation(*s->recorded, *r.graph)) continue;
    const std::vector<Expected>& then = s->guards.expected;
    for (size_t i = 0; i < then.size() && then.size() == now_.args.size(); ++i)
      if (then[i].kind != TSR_ARG_TENSOR && differs(then[i], now_.args[i])) s->argument_varies[i] = 1;
    for (size_t i = 0; i < s->host.size(); ++i)
      for (const Expected& x : host_)
        if (x.path == s->host[i].path && !same_value(x, s->host[i])) s->host_varies[i] = 1;
    return s;
  }
  auto s = std::make_shared<Segment>();
  s->hash = r.hash;
  s->ops = r.ops;
  s->host = host_;
  s->host_varies.resize(host_.size());
  s->argument_varies.resize(now_.args.size());
  if (head) {
    s->start = capture_->start ? std::move(capture_->start) : nullptr;
    s->scalars = start_scalars_;
    if (!s->start) *keep = false;  // the function did something else than before: the next call may see it as it is
  }
  Frame& frame = *frame_->frame;
  if (r.graph->region(0).num_outputs > 0 || has_effects(*r.graph)) {
    const bool planned = head && decided_;
    const bool at_limit =
        !planned && (frame.compiles() >= frame.limits().recompile || frame.accumulated() >= frame.limits().accumulated);
    if (!planned && (frame.compiles() > 0 || at_limit)) explain(at_limit);
    DispatchListener& events = dispatch_events();
    if (at_limit || (head && !root_)) {
      *keep = false;
      events.fallback({frame, "the recompile limit was hit"});
      const TraceCompile trace({"fallback", frame.name(), frame.place(), {}});
      s->executable = c_.compile(r.graph->clone(), c_.fallback_options(), false);
      s->recorded = std::move(r.graph);
      return s;
    }
    frame.acquire();
    const CompileId id = planned ? *decided_ : frame.next();
    std::optional<TraceCompile> trace;
    if (!planned) trace.emplace(TraceSubject{"function", frame.name(), frame.place(), id.text()});
    try {
      if (!planned) events.capture_begins(frame, id);
      events.capture_ended({frame, id, r.graph.get(), since(began_)});
      s->executable = c_.compile(r.graph->clone(), c_.options_, true);
    } catch (const Error& error) {
      if (!planned) events.failed({frame, id, error});
      if (trace) trace->failed(error);
      throw;
    }
    s->recorded = std::move(r.graph);
    s->guards = guards_of(*s, r);
    s->number = id.compile;
    s->compile_seconds = since(began_);
    frame.finish();
    std::vector<GuardText> guards;
    if (events.wants_guards()) guards = s->guards.texts();
    events.compiled({frame, id, guards, *s->executable, s->compile_seconds});
  } else {
    s->recorded = std::move(r.graph);
    s->guards = guards_of(*s, r);
  }
  if (s->start || !head) frame_->segments.push_back(s);
  return s;
}

// ------------------------------------------------------------------------------------------------------------ explaining

std::vector<GuardText> Callable::PathCapture::why_not(const Segment& s) const {
  std::vector<GuardText> out;
  for (size_t i = 0; i < s.host.size(); ++i)
    for (const Expected& x : host_)
      if (!s.host_varies[i] && x.path == s.host[i].path && !same_value(x, s.host[i]))
        out.push_back({value_text(s.host[i]), {}});
  if (s.guards.expected.size() != now_.args.size()) return out;
  Guards then = s.guards;
  for (size_t i = 0; i < then.expected.size(); ++i) {
    Expected& x = then.expected[i];
    if (!s.argument_varies[i] || x.kind != now_.args[i].kind) continue;
    x.i = now_.args[i].i;
    x.f = now_.args[i].f;
    x.s = now_.args[i].s ? now_.args[i].s : "";
  }
  for (GuardText& text : then.mismatches(now_.args.data(), now_.args.size(), true)) out.push_back(std::move(text));
  return out;
}

void Callable::PathCapture::explain(bool at_limit) {
  Frame& frame = *frame_->frame;
  DispatchListener& events = dispatch_events();
  const bool warns = at_limit && !frame.warned;
  if (!warns && !events.wants_reasons()) return;
  std::vector<const Segment*> recent;
  for (const auto& s : frame_->segments)
    if (s->number >= 0) recent.push_back(s.get());
  std::stable_sort(recent.begin(), recent.end(), [](const Segment* a, const Segment* b) {
    return a->tick.load(std::memory_order_relaxed) > b->tick.load(std::memory_order_relaxed);
  });
  std::vector<MissReason> reasons;
  bool any = false;
  for (const Segment* s : recent) {
    reasons.push_back({frame.compile(s->number), why_not(*s)});
    any = any || !reasons.back().guards.empty();
  }
  // Without a guard that failed it is no recompile: another path has come to the same place for the first time.
  if (any) events.recompiling({frame, frame.next(), reasons, {}});
  if (!warns) return;
  frame.warned = true;
  std::string last;
  for (const MissReason& r : reasons)
    if (last.empty() && !r.guards.empty()) last = r.entry.text() + ": " + r.guards.front().text;
  const bool own = frame.compiles() >= frame.limits().recompile;
  events.limit_hit({frame, own ? "recompile_limit" : "accumulated_recompile_limit",
                    own ? frame.limits().recompile : frame.limits().accumulated, last});
}

void Callable::PathCapture::announce(const tsr_break& b, const Recorded& r, const Frame& next) {
  const std::string place = place_text(b.loc), detail = b.detail ? b.detail : "";
  for (Paths::Break& known : paths_->breaks)
    if (known.code == b.code && known.place == place && known.detail == detail) {
      ++known.count;
      return;
    }
  paths_->breaks.push_back({b.code, place, detail, 1});
  const BreakReason& why = break_reason(b.code);
  const Frame& ended = *frame_->frame;
  const std::shared_ptr<Segment>& segment = r.next->segment;
  GraphBreakEvent event{
      ended,      ended.compile(segment ? segment->number : 0), break_code_text(b.code), {}, place, why.why, why.fixes, {},
      next.name()};
  event.what = std::string(why.title) + (detail.empty() ? "" : ": " + detail);
  event.after = std::to_string(r.ops) + (r.ops == 1 ? " operation" : " operations") +
                (segment && segment->number >= 0 ? " in " + event.id.text() : "");
  dispatch_events().graph_break(event);
}

// ----------------------------------------------------------------------------------------------------------- continuing

Continuation::Child* Callable::PathCapture::child(Continuation& next, const Seen& seen) {
  if (seen.opaque) return nullptr;
  const uint64_t hash = hash_words(seen.key.data(), seen.key.size());
  if (Continuation::Child* known = next.children.find(hash, seen.key.data(), seen.key.size())) return known;
  if (next.owned.size() >= Continuation::kMaxChildren) return nullptr;
  next.owned.push_back(std::make_unique<Continuation::Child>());
  Continuation::Child* made = next.owned.back().get();
  next.children.insert(hash, seen.key.data(), seen.key.size(), made);
  return made;
}

SegmentFrame* Callable::PathCapture::frame_after(const tsr_break& b, const Seen& seen) {
  const int32_t branch = b.read_kind == TSR_READ_BOOL ? static_cast<int32_t>(seen.i != 0) : -1;
  const std::string file = b.loc.file ? b.loc.file : "<unknown>";
  for (const auto& f : paths_->frames)
    if (f->owned && f->frame->line() == b.loc.line && f->column == b.loc.column && f->branch == branch &&
        f->frame->file() == file)
      return f.get();
  auto made = std::make_unique<SegmentFrame>(std::make_unique<Frame>(
      "tessera_resume_in_" + c_.frame_->name() + "_at_" + std::to_string(b.loc.line), file, b.loc.line, c_.frame_->limits()));
  made->column = b.loc.column;
  made->branch = branch;
  paths_->frames.push_back(std::move(made));
  return paths_->frames.back().get();
}

void Callable::PathCapture::restart(Recorder& recorder, tsr_break& b, const Recorded& r) {
  Graph& g = recorder.graph();
  // While a path is followed the tensors are not at hand: the entry that comes next says what they are like.
  const PathStep* next = following() ? &path_->steps[at_] : nullptr;
  const size_t n = next ? next->entry->guards.expected.size() : now_.args.size();
  const size_t carried = r.live.size(), results = carried + scalars_.size();  // [tensors, numbers, results of a host step]
  struct Input {
    size_t argument;
    tsr_id before;
    std::string name;
    uint32_t dtype;
    tsr_device device;
    std::vector<tsr_dim> sizes, strides;
    std::vector<int64_t> actual;
    tsr_input_kind kind;
  };
  std::vector<Input> inputs;
  std::vector<std::pair<uint32_t, int64_t>> known;  // symbols that have a value now
  std::vector<uint8_t> bound(g.sizes().symbols().size(), 0);
  const auto symbol_of = [&](tsr_dim d) -> int64_t {
    if (!TSR_DIM_IS_EXPR(d)) return -1;
    const tsr_dim_expr& e = g.sizes().exprs()[TSR_DIM_EXPR_ID(d)];
    return e.op == TSR_DIM_SYMBOL ? static_cast<int64_t>(e.symbol) : -1;
  };
  std::vector<std::string> names(n);
  for (size_t i = 0; i < n; ++i) {
    if (i >= carried && i < results) continue;
    Input in{};
    in.argument = i;
    in.before = TSR_NONE;
    in.kind = TSR_INPUT_ARG;
    const tsr_tensor* t = next ? nullptr : &now_.args[i].tensor->desc;
    const Expected* x = next ? &next->entry->guards.expected[i] : nullptr;
    in.actual = t ? std::vector<int64_t>(t->sizes, t->sizes + t->rank) : x->sizes;
    if (next)
      for (size_t k = 0; k < next->entry->guards.symbolic.binds.size() && k < next->sizes.size(); ++k)
        if (const SymbolicGuards::Place& p = next->entry->guards.symbolic.binds[k];
            p.leaf == i && SymbolicGuards::is_size(p.dim))
          in.actual[p.dim] = next->sizes[k];
    const bool dense = t ? (t->flags & TSR_TENSOR_CONTIGUOUS) != 0 : x->layout == LeafGuard::kDense;
    if (!dense) {
      if (t)
        in.strides.assign(t->strides, t->strides + t->rank);
      else
        in.strides = x->strides;
    }
    if (i < carried) {
      const tsr_value& v = g.value(r.live[i]);
      const ValueSource s = r.next->values[i];
      in.before = r.live[i];
      in.dtype = v.type->dtype;
      in.device = v.type->device;
      in.sizes.assign(v.type->sizes, v.type->sizes + v.type->rank);
      if (v.type->strides) in.strides.assign(v.type->strides, v.type->strides + v.type->rank);
      in.name = s.kind == ValueSource::kArgument ? names_[s.index] : name_of(g, r.live[i]);
      if (v.input_kind == TSR_INPUT_PARAM) in.kind = TSR_INPUT_PARAM;
      for (size_t d = 0; d < in.sizes.size(); ++d)
        if (const int64_t symbol = symbol_of(in.sizes[d]); symbol >= 0) {
          bound[static_cast<size_t>(symbol)] = 1;
          // A size that a segment has found out; one that is marked unbacked stays unknown.
          if (s.kind == ValueSource::kOutput && g.sizes().symbols()[static_cast<size_t>(symbol)].unbacked &&
              d < in.actual.size())
            known.emplace_back(static_cast<uint32_t>(symbol), in.actual[d]);
        }
    } else {
      in.dtype = t ? t->dtype : x->dtype;
      in.device = t ? t->device : x->device;
      in.sizes = in.actual;
      in.name = "result" + std::to_string(i - results);
    }
    inputs.push_back(std::move(in));
  }
  const std::map<uint32_t, Recorder::Scalar> scalars = recorder.scalars();
  std::map<uint32_t, std::string> scalar_names;
  for (const auto& [arg, at] : scalars_) scalar_names[arg] = names_[at];

  recorder.restart(frame_->frame->name());
  for (const auto& [symbol, value] : known) g.sizes().observe(symbol, value);
  std::unordered_map<tsr_id, tsr_id> rebound;
  leaves_.clear();
  policies_.assign(n, {});
  b.num_step_results = 0;
  for (Input& in : inputs) {
    for (size_t d = 0; d < in.sizes.size(); ++d) {
      // A size that depends on data, and that no tensor left has as such: a symbol of its own.
      std::vector<uint32_t> symbols;
      if (TSR_DIM_IS_EXPR(in.sizes[d])) g.sizes().collect_symbols(in.sizes[d], symbols);
      const bool lost = std::any_of(symbols.begin(), symbols.end(), [&](uint32_t s) {
        return s < bound.size() && !bound[s] && g.sizes().symbols()[s].unbacked;
      });
      if (lost && d < in.actual.size()) in.sizes[d] = g.sizes().fresh("s", 0, INT64_MAX, false, in.actual[d]);
    }
    tsr_type type{};
    type.dtype = in.dtype;
    type.device = in.device;
    type.rank = static_cast<uint32_t>(in.sizes.size());
    type.sizes = in.sizes.data();
    type.strides = in.strides.empty() ? nullptr : in.strides.data();
    const tsr_id id = recorder.add_input(in.name, type, in.kind);
    leaves_.push_back(static_cast<uint32_t>(in.argument));
    names[in.argument] = in.name;
    if (!next)
      policies_[in.argument] = policy_of(now_.args[in.argument], std::any_of(in.strides.begin(), in.strides.end(),
                                                                             [](tsr_dim s) { return TSR_DIM_IS_EXPR(s); }));
    if (in.before != TSR_NONE) {
      rebound[in.before] = id;
    } else {
      if (b.num_step_results >= b.step_capacity)
        throw bug("TSR-B037", "graph_break: a host step gave more than " + std::to_string(b.step_capacity) + " results");
      b.step_results[b.num_step_results++] = id;
    }
  }
  size_t at = carried;
  for (auto& [arg, position] : scalars_) {
    position = static_cast<uint32_t>(at++);
    names[position] = scalar_names.at(arg);
    const Recorder::Scalar& before = scalars.at(arg);
    recorder.add_scalar(arg, names[position], before);
    if (before.input == TSR_NONE) continue;
    leaves_.push_back(position);
    rebound[before.input] = recorder.scalars().at(arg).input;
  }
  names_ = std::move(names);
  for (uint32_t i = 0; i < b.num_live; ++i) b.rebound[i] = rebound.at(b.live[i]);
}

}  // namespace tessera::core
