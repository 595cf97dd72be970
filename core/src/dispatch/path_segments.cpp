// SPDX-License-Identifier: Apache-2.0
// Segments of a path: compiled once per frame, run, and hung on the tree of paths.
#include <algorithm>
#include <bit>

#include "context/context.hpp"
#include "dispatch/events.hpp"
#include "dispatch/guard_filter.hpp"
#include "dispatch/path_capture.hpp"
#include "dispatch/path_values.hpp"
#include "ir/equality.hpp"
#include "ir/records.hpp"
#include "run/executable.hpp"
#include "support/clock.hpp"
#include "support/error.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

bool has_effects(const Graph& g) {
  for (const tsr_id n : nodes_of(g, 0))
    if (const OpRecord& op = g.record_of(n); !op.has(kPure) && !op.has(kConstant) && !op.has(kView)) return true;
  return false;
}

}  // namespace

void Callable::PathCapture::diverge() {
  diverged_ = true;
  done_at_ = 0;
  now_ = {};
  now_.args.assign(args_, args_ + count_);
  for (size_t i = 0; i < at_; ++i) {
    const Entry& e = *path_->steps[i].entry;
    std::vector<TensorRef> outputs, results;
    Seen seen;
    run(e, outputs, results, seen);
    now_ = next_values(*e.then, now_, outputs, results);
  }
  path_ = nullptr;
  table_ = nullptr;  // the path that is known stays the one that is taken
}

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

// Host functions inside may wait for other threads that call the same function: they must be able to capture meanwhile.
void Callable::PathCapture::run(const Entry& e, std::vector<TensorRef>& outputs, std::vector<TensorRef>& results, Seen& seen) {
  ran_ = true;
  const CaptureLock::Release aside(c_.capture_lock_);
  if (done_at_ < done_before_.size() && repeats(e)) {
    const Continuation& next = *e.then;
    const Done& d = done_before_[done_at_++];
    if (next.segment->effects)
      for (const TensorRef& t : d.outputs) outputs.push_back(TensorRef::share(t.get()));
    else
      run_executable(e, now_.args.data(), outputs);
    for (const TensorRef& t : d.results) results.push_back(TensorRef::share(t.get()));
    if (diverged_ && !next.step)
      read_value(next, now_.args.data(), outputs, seen);  // of another computation, maybe
    else
      seen = d.seen.again();
    return;
  }
  done_before_.resize(std::min(done_before_.size(), done_at_));
  host_failed_ = false;
  try {
    run_segment(e, now_.args.data(), outputs, results, seen);
  } catch (...) {
    host_failed_ = e.then->segment->effects || outputs.size() == (e.executable ? e.executable->num_outputs() : 0);
    throw;
  }
  done_before_.push_back(Done::of(e.then, seen, outputs, results));
  ++done_at_;
}

// Whether this segment and its host step have run in an earlier attempt of this call. Sizes may have been symbols then.
bool Callable::PathCapture::repeats(const Entry& e) const {
  const Continuation &before = *done_before_[done_at_].then, &now = *e.then;
  const bool same_place = before.returns == now.returns && before.code == now.code && before.loc.line == now.loc.line &&
                          before.loc.column == now.loc.column && before.file == now.file && before.read_kind == now.read_kind &&
                          !before.step == !now.step && before.step_inputs.size() == now.step_inputs.size();
  const bool effects = before.segment->effects || now.segment->effects;
  return same_place &&
         (!effects || (before.segment->effects == now.segment->effects &&
                       done_before_[done_at_].outputs.size() == (e.executable ? e.executable->num_outputs() : 0)));
}

bool Callable::PathCapture::may_keep() const {
  // Other host values than before can lead to the same head again and again: so many of them are kept.
  constexpr size_t kMaxAliases = 4096;
  return table_ && table_->entries().size() < kMaxAliases && paths_->entries < Paths::kMaxEntries &&
         root_ == c_.tables_.back().get();  // else everything has been forgotten meanwhile
}

const Entry* Callable::PathCapture::advance(Recorded& r, Seen& seen, void** structure) {
  bool keep = may_keep() && !table_->find(now_.args.data(), now_.args.size());
  auto e = std::make_unique<Entry>();
  r.next->segment = segment_for(r, &keep);
  Segment& segment = *r.next->segment;
  e->guards = guards_of(segment, r);
  // Layouts that only the call knows are looked at in each, and so are tensors that have lost their guard.
  e->trusted = !filter_guards(e->guards, c_.desc_) &&
               std::none_of(e->guards.mask.leaves.begin(), e->guards.mask.leaves.end(),
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
  run(*e, outputs, results, seen);
  segment.tick.store(c_.segment_tick_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  const Entry* made = nullptr;
  if (keep && may_keep()) {
    made = table_->find(now_.args.data(), now_.args.size());  // of another thread, made while this one stood aside
    if (!made) {
      if (structure) e->structure = std::exchange(*structure, nullptr);
      e->structure_free = c_.desc_.structure_free;
      made = table_->insert(std::move(e), now_.args.data(), now_.args.size());
      ++paths_->entries;
    } else if (!same_continuation(*made->then, *r.next)) {
      made = nullptr;
    }
  }
  if (e) transient_ = std::move(e);
  if (r.next->returns) {
    std::vector<tsr_tensor_handle*> out(r.next->values.size());
    give_results(*r.next, now_.args.data(), outputs, out.data());
    for (tsr_tensor_handle* h : out) results_.emplace_back(h);
  } else {
    now_ = next_values(*r.next, now_, outputs, results);
  }
  return made;
}

// A segment whose error is suppressed is one for the fallback backend: what the function did before it must not happen twice.
std::shared_ptr<Executable> Callable::PathCapture::compile(const Graph& recorded, const CompileId& id, TraceCompile* trace) {
  Frame& frame = *frame_->frame;
  DispatchListener& events = dispatch_events();
  const bool planned = !trace;  // and traced as the function
  try {
    if (!planned) events.capture_begins(frame, id);
    events.capture_ended({frame, id, &recorded, seconds_since(began_)});
    return c_.compile(recorded.clone(), c_.options_, true);
  } catch (const Error& error) {
    if (!planned) events.failed({frame, id, error});
    if (trace) trace->failed(error);
    if (!c_.suppresses(error)) throw;
  }
  CompileOptions fallback = c_.options_;
  fallback.backends = {&c_.context_->fallback_backend()};  // of the config: the function's own may be the one that fails
  return c_.compile(recorded.clone(), fallback, false);
}

std::shared_ptr<Segment> Callable::PathCapture::segment_for(Recorded& r, bool* keep) {
  const bool head = frame_ == paths_->head;
  const auto differs = [](const Expected& x, const tsr_arg& a) {
    return x.kind != a.kind || x.i != a.i || std::bit_cast<uint64_t>(x.f) != std::bit_cast<uint64_t>(a.f) || x.s != arg_text(a);
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
  s->effects = has_effects(*r.graph);
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
    const RecompileRules::Limit limit = planned ? RecompileRules::Limit{} : RecompileRules::limit_hit(frame, frame.compiles());
    const char* const why = forbidden(limit);
    if (!planned && (limit || (frame.compiles() > 0 && !why))) explain(limit);
    DispatchListener& events = dispatch_events();
    if (why) {
      *keep = false;
      events.fallback({frame, why});
      const TraceCompile trace({"fallback", frame.name(), frame.place(), {}});
      s->executable = c_.compile(r.graph->clone(), c_.fallback_options(), false);
      s->recorded = std::move(r.graph);
      return s;
    }
    frame.acquire();
    const CompileId id = planned ? *decided_ : frame.next();
    std::optional<TraceCompile> trace;
    if (!planned) trace.emplace(TraceSubject{"function", frame.name(), frame.place(), id.text()});
    s->executable = compile(*r.graph, id, trace ? &*trace : nullptr);
    s->recorded = std::move(r.graph);
    s->guards = guards_of(*s, r);
    s->number = id.compile;
    s->compile_seconds = seconds_since(began_);
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

}  // namespace tessera::core
