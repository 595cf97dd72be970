// SPDX-License-Identifier: Apache-2.0
// One run of the function: where it begins, breaks and ends.
#include "dispatch/path_capture.hpp"

#include "capture/breaks.hpp"
#include "dispatch/marks.hpp"
#include "dispatch/path_values.hpp"
#include "support/error.hpp"

namespace tessera::core {

void Callable::PathCapture::start(Paths& paths, EntryTable& table) {
  paths_ = &paths;
  root_ = &table;
}

void Callable::PathCapture::again() {
  path_ = nullptr;
  diverged_ = false;
  if (broke_) decided_.reset();  // the head may have been compiled
}

namespace {

// Whether a tensor has the type of the graph's input `k` when the symbols that no other input has take its sizes; then they
// have done so.
bool keeps_type(Graph& g, size_t k, const tsr_tensor& t) {
  const tsr_region& body = g.region(0);
  const tsr_type& type = *g.value(body.inputs[k]).type;
  if (type.dtype != t.dtype || type.rank != t.rank || type.device != t.device || type.strides ||
      !(t.flags & TSR_TENSOR_CONTIGUOUS))
    return false;
  std::vector<std::pair<uint32_t, int64_t>> values;
  for (uint32_t d = 0; d < type.rank; ++d) {
    if (!TSR_DIM_IS_EXPR(type.sizes[d])) {
      if (type.sizes[d] != t.sizes[d]) return false;
      continue;
    }
    const tsr_dim_expr& e = g.sizes().exprs()[TSR_DIM_EXPR_ID(type.sizes[d])];
    if (e.op != TSR_DIM_SYMBOL) return false;
    const tsr_symbol& symbol = g.sizes().symbols()[e.symbol];
    if (symbol.unbacked || t.sizes[d] < symbol.min || t.sizes[d] > symbol.max) return false;
    for (uint32_t j = 0; j < body.num_inputs; ++j) {
      const tsr_type& other = *g.value(body.inputs[j]).type;
      for (uint32_t i = 0; i < other.rank; ++i)
        if ((j != k || i != d) && other.sizes[i] == type.sizes[d] && (j != k || t.sizes[i] != t.sizes[d]) &&
            t.sizes[d] != symbol.hint)
          return false;
    }
    values.emplace_back(e.symbol, t.sizes[d]);
  }
  for (const auto& [symbol, value] : values) g.sizes().observe(symbol, value);
  return true;
}

}  // namespace

std::unique_ptr<Recorder> Callable::PathCapture::begin_again(Capture& c, const std::vector<std::string>& names) {
  const Entry& head = *path_->steps.front().entry;
  const Segment& segment = *head.then->segment;
  std::unique_ptr<Graph> g = segment.start->clone();
  g->begin("capture");
  for (const SymbolicGuards::Place& p : head.guards.symbolic.binds) {
    // What this call marks unbacked stays unknown.
    const DimMark* mark = SymbolicGuards::is_size(p.dim) ? mark_of(args_[p.leaf].tensor->marks, p.dim) : nullptr;
    if (!mark || mark->mark != TSR_MARK_UNBACKED) g->sizes().observe(p.symbol, SymbolicGuards::value_at(args_, p.leaf, p.dim));
  }
  c.policies.resize(count_);
  for (size_t i = 0; i < count_; ++i)
    c.policies[i] =
        policy_of(args_[i], args_[i].kind == TSR_ARG_TENSOR && !(args_[i].tensor->desc.flags & TSR_TENSOR_CONTIGUOUS));
  for (size_t k = 0; k < head.inputs.size(); ++k) {
    const uint32_t leaf = head.inputs[k];
    if (args_[leaf].kind != TSR_ARG_TENSOR || head.guards.mask.leaves[leaf].guarded) continue;
    // The head does not depend on it, so that it may be of another type now than it was then; or of other sizes, of which it
    // has symbols.
    const tsr_tensor& t = args_[leaf].tensor->desc;
    if (keeps_type(*g, k, t)) continue;
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
  return std::make_unique<Recorder>(std::move(g), segment.scalars);
}

void Callable::PathCapture::begins(Recorder& recorder, Capture& capture, const std::vector<std::string>& names) {
  recorder.set_break_handler(this);
  if (!path_) capture.start = recorder.graph().clone();
  capture_ = &capture;
  start_scalars_ = recorder.scalars();
  table_ = root_;
  at_ = 0;
  done_at_ = 0;
  host_failed_ = false;
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
  if (decided_) *decided_ = c_.number_again(*decided_);
  if (!paths_->head) {
    paths_->frames.push_back(std::make_unique<SegmentFrame>(*c_.frame_));
    paths_->head = paths_->frames.back().get();
  }
  frame_ = paths_->head;
  now_.args.assign(args_, args_ + count_);
}

void Callable::PathCapture::graph_break(Recorder& recorder, tsr_break& b) {
  const CaptureLock::Reacquire back(c_.capture_lock_, lent_);
  std::shared_ptr<HostStep> step;
  if (b.step) {
    step = std::make_shared<HostStep>();
    step->call = *b.step;
  }
  if (ahead_)
    throw user_error("TSR-D014",
                     place_text(b.loc) + ": a graph break in '" + c_.frame_->name() +
                         "', which is to be compiled ahead of its calls: " + break_reason(b.code).title +
                         ". What follows depends on what the compiled part before it computes",
                     "call the function with these arguments instead, which compiles its parts as it runs them; or avoid the "
                     "break: docs/graph_breaks.md");
  const bool free = b.code == kGuardedBreak && recorder.graph().num_live_nodes() == 0;  // nothing is there to break
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
    ++done_at_;
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
  if (b.read_kind == TSR_READ_BOOL || b.read_kind == TSR_READ_INT || b.read_kind == TSR_READ_FLOAT) know(read_fact(b, seen));
  if (b.code == kGuardedBreak) know(guarded_fact(b, seen));
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

}  // namespace tessera::core
