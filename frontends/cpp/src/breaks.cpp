// SPDX-License-Identifier: Apache-2.0
// Graph breaks: what host code needs, asked of the host; and the tensors it still has, moved to the next graph.
#include "tessera/breaks.hpp"

#include <charconv>
#include <cstring>
#include <map>
#include <span>

#include "attrs.hpp"
#include "tessera/dtypes.hpp"
#include "trace.hpp"

namespace tessera {

namespace {
thread_local bool t_forbidden = false;
}  // namespace

ErrorOnGraphBreak::ErrorOnGraphBreak(bool on) : previous_(std::exchange(t_forbidden, on)) {}
ErrorOnGraphBreak::~ErrorOnGraphBreak() { t_forbidden = previous_; }

namespace detail {

tsr_loc to_loc(const std::source_location& where) { return {where.file_name(), where.line(), where.column()}; }

tsr_loc loc_of(const Traced& t) {
  type_of(t);  // refuses tensors of a trace that has ended
  const tsr_tables& tables = *graph_api().tables(t.trace->graph);
  const tsr_value& v = *TSR_AT(tsr_value, tables.values, tables.value_stride, t.value);
  if (v.def_node != TSR_NONE) {
    const tsr_loc& loc = TSR_AT(tsr_node, tables.nodes, tables.node_stride, v.def_node)->loc;
    if (loc.file) return loc;
  }
  return t.trace->loc;
}

namespace {

// Ends the segment and moves every tensor that is still reachable over to the next graph.
void break_graph(const std::shared_ptr<Trace>& trace, tsr_break& b) {
  if (!trace->alive)
    fail("TSR-F001", "a tensor made while a function was traced is used after the trace ended",
         "return it from the compiled function instead of storing it outside");
  if (current_trace() != trace.get())
    fail("TSR-F002", "a tensor of a traced function is used by host code that runs outside of its trace",
         "give it to the disabled function as an argument");
  if (trace->region != 0)
    fail("TSR-G020",
         std::string(b.loc.file ? b.loc.file : "<unknown>") + ":" + std::to_string(b.loc.line) +
             ": a function given to cond, while_loop or scan breaks the graph: " + (b.detail ? b.detail : "graph_break()"),
         "do not read values inside of it: use where(), or nested cond() and while_loop(); docs/graph_breaks.md");
  std::map<tsr_id, tsr_id> moved;
  for (const Traced* t = trace->live; t; t = t->next)
    if (t->region == 0) moved.emplace(t->value, TSR_NONE);
  std::vector<tsr_id> live, rebound(moved.size());
  for (const auto& [value, now] : moved) live.push_back(value);
  b.struct_size = sizeof b;
  b.forbidden = t_forbidden;
  b.live = live.data();
  b.num_live = static_cast<uint32_t>(live.size());
  b.rebound = rebound.data();
  const TraceScope outside(nullptr);  // host steps run their operations at once
  check_held(api().host->capture->graph_break(trace->recorder, &b));
  for (size_t i = 0; i < live.size(); ++i) moved[live[i]] = rebound[i];
  for (Traced* t = trace->live; t; t = t->next) {
    if (t->region == 0)
      t->value = moved.at(t->value);
    else
      t->region = TSR_NONE;  // of a region that is gone with its graph
  }
  trace->graph = api().host->capture->graph(trace->recorder);
  trace->broken = true;
  trace->lifted.clear();
}

tsr_break reading(Traced& t, uint32_t code, uint32_t kind, const tsr_loc& loc, const std::string& detail) {
  type_of(t);
  if (t.region != t.trace->region && t.region != 0)
    fail("TSR-F003", "a tensor of a function given to cond, while_loop or scan is used outside of it");
  tsr_break b{};
  b.code = code;
  b.read_kind = kind;
  b.loc = loc;
  b.detail = c_text(detail, "what breaks a graph");
  b.read = t.value;
  return b;
}

}  // namespace

bool break_for_size(tsr_graph* graph, const std::source_location& where) {
  const std::shared_ptr<Trace> trace = current_trace_shared();
  if (!trace || trace->graph != graph) return false;
  tsr_break b{};
  b.code = 2;
  b.loc = where.line() ? to_loc(where) : trace->loc;
  b.read = TSR_NONE;
  break_graph(trace, b);
  return true;
}

bool read_bool(Traced& t, const tsr_loc& loc, const std::string& detail) {
  if (t.read_kind == TSR_READ_BOOL) return t.i != 0;
  const std::shared_ptr<Trace> trace = t.trace;
  tsr_break b = reading(t, 10, TSR_READ_BOOL, loc, detail);
  break_graph(trace, b);
  t.read_kind = TSR_READ_BOOL;
  t.i = b.i;
  return b.i != 0;
}

int64_t read_int(Traced& t, const tsr_loc& loc, const std::string& detail) {
  if (t.read_kind == TSR_READ_INT) return t.i;
  const std::shared_ptr<Trace> trace = t.trace;
  tsr_break b = reading(t, 1, TSR_READ_INT, loc, detail);
  break_graph(trace, b);
  t.read_kind = TSR_READ_INT;
  return t.i = b.i;
}

double read_float(Traced& t, const tsr_loc& loc, const std::string& detail) {
  if (t.read_kind == TSR_READ_FLOAT) return t.f;
  const std::shared_ptr<Trace> trace = t.trace;
  tsr_break b = reading(t, 1, TSR_READ_FLOAT, loc, detail);
  break_graph(trace, b);
  t.read_kind = TSR_READ_FLOAT;
  return t.f = b.f;
}

const Tensor& read_tensor(Traced& t, const tsr_loc& loc, const std::string& detail, bool memory) {
  if (t.concrete.defined() && !memory) return t.concrete;
  const std::shared_ptr<Trace> trace = t.trace;
  tsr_break b = reading(t, 11, memory ? TSR_READ_MEMORY : TSR_READ_TENSOR, loc, detail);
  break_graph(trace, b);
  t.concrete = Tensor::adopt(b.tensor);
  return t.concrete;
}

// ------------------------------------------------------------------------------------------------------------ host steps

namespace {

struct Step {
  StepFn fn;
};

tsr_error* run_step(void* self, tsr_tensor_handle* const* inputs, uint32_t num_inputs, tsr_tensor_handle** results,
                    uint32_t capacity, uint32_t* num_results, const void** key, size_t* key_length, void** outcome) {
  thread_local std::string t_key;
  try {
    std::vector<Tensor> in;
    for (uint32_t i = 0; i < num_inputs; ++i) {
      api().tensor_retain(inputs[i]);
      in.push_back(Tensor::adopt(inputs[i]));
    }
    StepResult r = static_cast<Step*>(self)->fn(in);
    if (r.tensors.size() > capacity)
      fail("TSR-F043", "a disabled function returns more than " + std::to_string(capacity) + " tensors");
    for (const Tensor& t : r.tensors)
      if (!t.defined() || t.is_traced())
        fail("TSR-F042", "a disabled function returns an undefined tensor",
             "use std::optional<Tensor> for results that may be absent");
    for (size_t i = 0; i < r.tensors.size(); ++i) {
      results[i] = r.tensors[i].handle_unchecked();
      api().tensor_retain(results[i]);
    }
    *num_results = static_cast<uint32_t>(r.tensors.size());
    t_key = std::move(r.key);
    *key = t_key.data();
    *key_length = t_key.size();
    *outcome = new std::shared_ptr<void>(std::move(r.outcome));
    return nullptr;
  } catch (...) {
    return hold_exception("a disabled function threw");
  }
}

}  // namespace

StepResult host_step(uint32_t code, const tsr_loc& where, const std::string& detail, const std::vector<Tensor>& inputs,
                     StepFn fn) {
  const std::shared_ptr<Trace> trace = current_trace_shared();
  std::vector<tsr_id> ids, results(256);
  for (const Tensor& t : inputs) ids.push_back(value_of(*trace, t));
  auto owned = std::make_unique<Step>(Step{std::move(fn)});
  tsr_host_step step{};
  step.struct_size = sizeof step;
  step.self = owned.get();
  step.run = run_step;
  step.outcome_free = [](void* o) { delete static_cast<std::shared_ptr<void>*>(o); };
  step.destroy = [](void* self) { delete static_cast<Step*>(self); };
  tsr_break b{};
  b.code = code;
  b.loc = where;
  b.detail = c_text(detail, "the name of host code or of a guarded variable");
  b.read = TSR_NONE;
  b.step = &step;
  b.step_inputs = ids.data();
  b.num_step_inputs = static_cast<uint32_t>(ids.size());
  b.step_results = results.data();
  b.step_capacity = static_cast<uint32_t>(results.size());
  if (trace && trace->region == 0) (void)owned.release();  // the host owns it from here on
  break_graph(trace, b);
  StepResult out;
  for (uint32_t i = 0; i < b.num_step_results; ++i) out.tensors.push_back(make_traced(trace, results[i]));
  if (b.outcome) out.outcome = *static_cast<std::shared_ptr<void>*>(b.outcome);
  return out;
}

std::string host_key(const std::function<void(FlattenVisitor&)>& flatten) {
  ArgBuffer args;
  FlattenVisitor v(args);
  flatten(v);
  std::string key;
  for (const tsr_arg& a : std::span(args.data(), args.size())) {
    key.append(reinterpret_cast<const char*>(&a.kind), sizeof a.kind);
    key.append(reinterpret_cast<const char*>(&a.i), sizeof a.i);
    key.append(reinterpret_cast<const char*>(&a.f), sizeof a.f);
    if (a.s) key.append(a.s, static_cast<size_t>(a.i));  // whose number stands before it
  }
  return key;
}

std::string guard_text(int64_t v) { return "i" + std::to_string(v); }
std::string guard_text(double v) {
  char buf[64];
  return "f" + std::string(buf, std::to_chars(buf, buf + sizeof buf, v).ptr);  // reads back to the same number
}
std::string guard_text(bool v) { return v ? "b1" : "b0"; }

void check_guarded(const std::string& name, std::function<std::string()> now, const std::source_location& where) {
  if (const auto& keeps = current_trace()->callable->options().guard_filter_unsafe) {
    const std::string text = name + " == " + now().substr(1);  // behind the letter of its type
    if (!keeps({GuardInfo::global, name, text})) return;
  }
  host_step(16, to_loc(where), name, {}, [now = std::move(now)](const std::vector<Tensor>&) {
    StepResult r;
    r.key = now();
    return r;
  });
}

// ------------------------------------------------------------------------------------------------------- host functions

namespace {

struct HostFunction {
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn;
};

// A copy: the caller's memory is gone after the call, a tensor that host code keeps is not.
Tensor copy_of(const tsr_tensor& t) {
  tsr_tensor_handle *view = nullptr, *copy = nullptr;
  check(api().tensor_wrap(&t, nullptr, nullptr, &view));
  const Tensor held = Tensor::adopt(view);
  check(api().tensor_copy(view, 0, &copy));
  return Tensor::adopt(copy);
}

tsr_error* call_function(void* self, const tsr_tensor* inputs, uint32_t num_inputs, const tsr_tensor* outputs,
                         uint32_t num_outputs) {
  try {
    const TraceScope outside(nullptr);
    std::vector<Tensor> in;
    for (uint32_t i = 0; i < num_inputs; ++i) in.push_back(copy_of(inputs[i]));
    const std::vector<Tensor> out = static_cast<HostFunction*>(self)->fn(in);
    if (out.size() != num_outputs)
      fail("TSR-F044",
           "a function given to allow_in_graph returns " + std::to_string(out.size()) + " tensors, expected " +
               std::to_string(num_outputs),
           "return what its result types say");
    for (uint32_t i = 0; i < num_outputs; ++i) {
      const Tensor host = out[i].to(Device()).contiguous();
      const tsr_tensor &from = host.handle()->desc, &to = outputs[i];
      int64_t n = 1;
      bool same = from.dtype == to.dtype && from.rank == to.rank;
      for (uint32_t d = 0; same && d < to.rank; ++d) {
        same = from.sizes[d] == to.sizes[d];
        n *= to.sizes[d];
      }
      if (!same)
        fail("TSR-F044",
             "a function given to allow_in_graph returns another type than expected for result " + std::to_string(i) + ": " +
                 host.str(),
             "return what its result types say");
      std::memcpy(to.data, from.data, (static_cast<size_t>(n) * static_cast<size_t>(dtype_bits(to.dtype)) + 7) / 8);
    }
    return nullptr;
  } catch (...) {
    return hold_exception("a host function threw");
  }
}

}  // namespace

std::vector<Tensor> opaque_call(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
                                const std::vector<Tensor>& inputs, const std::vector<TensorType>& results,
                                const std::source_location& where) {
  const std::shared_ptr<Trace> trace = current_trace_shared();
  if (!graph_api().op_traits(trace->graph, "cpp.host_call")) {
    if (!results.empty())
      fail("TSR-F045", "allow_in_graph needs the plugin tessera.frontend.cpp, which the config does not load",
           "add it to plugins.load, or use disable()");
    host_step(13, to_loc(where), "host_call", inputs, [fn = std::move(fn)](const std::vector<Tensor>& in) {
      fn(in);
      return StepResult();
    });
    return {};
  }
  auto self = std::make_unique<HostFunction>(HostFunction{std::move(fn)});
  int64_t number = 0;
  check(api().host->capture->host_function(
      trace->recorder, self.get(), call_function, [](void* f) { delete static_cast<HostFunction*>(f); }, &number));
  (void)self.release();
  std::vector<tsr_dim> types;
  for (const TensorType& r : results) {
    types.push_back(static_cast<int64_t>(r.dtype));
    types.push_back(static_cast<int64_t>(r.shape.size()));
    for (const SymInt& d : r.shape) types.push_back(d.dim());
  }
  tsr_attr attrs[] = {int_attr("callback", number), ints_attr("results", types)};
  attrs[1].kind = TSR_ATTR_DIMS;
  const AtPlace at(where);
  std::vector<Tensor> out;
  run_op("cpp.host_call", inputs, attrs, out);
  out.resize(results.size());
  return out;
}

}  // namespace detail

void host_call(std::function<void(const std::vector<Tensor>&)> fn, const std::vector<Tensor>& inputs,
               std::source_location where) {
  if (!is_compiling()) return fn(inputs);
  detail::opaque_call(
      [fn = std::move(fn)](const std::vector<Tensor>& in) {
        fn(in);
        return std::vector<Tensor>();
      },
      inputs, {}, where);
}

void graph_break(const std::string& why, std::source_location where) {
  const std::shared_ptr<detail::Trace> trace = detail::current_trace_shared();
  if (!trace) return;
  tsr_break b{};
  b.code = 12;
  b.loc = detail::to_loc(where);
  b.detail = why.empty() ? nullptr : detail::c_text(why, "the reason of a graph break");
  b.read = TSR_NONE;
  detail::break_graph(trace, b);
}

}  // namespace tessera
