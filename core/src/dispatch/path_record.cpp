// SPDX-License-Identifier: Apache-2.0
// What has been recorded up to a break, as a segment: its graph, which inputs it relies on, and which values go on.
#include <algorithm>
#include <unordered_map>

#include "dispatch/path_capture.hpp"
#include "dispatch/path_values.hpp"
#include "ir/equality.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

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

}  // namespace

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

bool same_continuation(const Continuation& a, const Continuation& b) {
  return a.returns == b.returns && a.code == b.code && a.loc.line == b.loc.line && a.read_kind == b.read_kind &&
         a.read == b.read && a.values == b.values && a.step_inputs == b.step_inputs;
}

bool Callable::PathCapture::as_before(const Recorded& r) const {
  const Continuation& before = *path_->steps[at_].entry->then;
  return !before.returns && same_continuation(before, *r.next) && before.segment->hash == r.hash &&
         same_computation(*before.segment->recorded, *r.graph, true);
}

}  // namespace tessera::core
