// SPDX-License-Identifier: Apache-2.0
// After a break: the position that the host's choice leads to, and the recorder with the values that go on.
#include <algorithm>
#include <unordered_map>

#include "dispatch/path_capture.hpp"
#include "dispatch/path_values.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// Values are named by the operations that make them; what makes a name unique within a graph would change from segment to
// segment.
std::string name_of(const Graph& g, tsr_id value) {
  const tsr_value& v = g.value(value);
  std::string_view name = v.name;
  const size_t at = name.find_last_not_of("0123456789");
  if (at == std::string_view::npos && v.def_node != TSR_NONE) return g.node(v.def_node).op;
  if (at != std::string_view::npos && at > 0 && at + 1 < name.size() && name[at] == '_') name = name.substr(0, at);
  return std::string(name);
}

}  // namespace

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
