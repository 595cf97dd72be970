// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "recording.hpp"
#include "tessera/compile.hpp"
#include "tessera/grad.hpp"

namespace tessera {

namespace detail {
namespace {
thread_local std::shared_ptr<Trace> t_trace;
thread_local std::source_location t_place;
constexpr size_t kMaxResults = 256;
}  // namespace

constinit thread_local const Trace* t_traced_now = nullptr;
constinit thread_local uint32_t t_autocast = 0;

namespace {

// What Autocast makes of the operands of an op: the dtype that its floating-point operands take; 0: as they are.
DType autocast_dtype(std::string_view op) {
  constexpr std::string_view kNarrow[] = {"matmul", "linear", "conv", "conv_transpose", "attention"};
  constexpr std::string_view kWide[] = {"softmax",  "log_softmax", "cross_entropy", "mse_loss",           "layer_norm",
                                        "rms_norm", "group_norm",  "batch_norm",    "batch_norm_training"};
  if (std::find(std::begin(kNarrow), std::end(kNarrow), op) != std::end(kNarrow)) return static_cast<DType>(t_autocast);
  if (std::find(std::begin(kWide), std::end(kWide), op) != std::end(kWide)) return f32;
  return static_cast<DType>(0);
}

// f64 stays: who computes in it wants its digits.
bool autocast(const char* op, std::span<const Tensor> operands, std::vector<Tensor>& out) {
  const DType to = autocast_dtype(op);
  if (to == static_cast<DType>(0)) return false;
  bool changes = false;
  for (const Tensor& t : operands) {
    const bool casts = t.defined() && t.dtype() != to && (t.dtype() == f32 || t.dtype() == bf16 || t.dtype() == f16);
    out.push_back(casts ? t.to(to) : t);
    changes = changes || casts;
  }
  return changes;
}

}  // namespace

Trace* current_trace() { return t_trace.get(); }
const std::shared_ptr<Trace>& current_trace_shared() { return t_trace; }
TraceScope::TraceScope(std::shared_ptr<Trace> t) : previous_(std::exchange(t_trace, std::move(t))) {
  t_traced_now = t_trace.get();
}
TraceScope::~TraceScope() {
  t_trace = std::move(previous_);
  t_traced_now = t_trace.get();
}

Tensor make_traced(const std::shared_ptr<Trace>& trace, tsr_id value) {
  auto* t = new Traced;
  t->trace = trace;
  t->value = value;
  t->region = trace->region;
  t->next = trace->live;
  if (t->next) t->next->previous = t;
  trace->live = t;
  return Tensor::adopt(t);
}

AtPlace::AtPlace(const std::source_location& where) : previous_(t_place) {
  if (t_trace && previous_.line() == 0) t_place = where;  // an operation made of others stands where it was written
}
AtPlace::~AtPlace() { t_place = previous_; }

Traced::~Traced() {
  if (!trace->alive) return;
  (previous ? previous->next : trace->live) = next;
  if (next) next->previous = previous;
}

void Trace::end() {
  alive = false;
  kept.clear();
  lifted.clear();
  for (Traced* t = live; t; t = std::exchange(t->next, nullptr)) t->previous = nullptr;
  live = nullptr;
}

const tsr_type& type_of(const Traced& t) {
  if (!t.trace->alive)
    fail("TSR-F001", "a tensor made while a function was traced is used after the trace ended",
         "return it from the compiled function instead of storing it outside");
  // Host code looks at the type: if the value is an input, the entry must be guarded on it (see tsr_capture_api.observe).
  api().host->capture->observe(t.trace->recorder, t.value);
  const tsr_tables& tables = *graph_api().tables(t.trace->graph);
  return *TSR_AT(tsr_value, tables.values, tables.value_stride, t.value)->type;
}

tsr_id value_of(Trace& trace, const Tensor& t) {
  if (!t.defined()) return TSR_NONE;
  if (t.is_traced()) {
    const Traced& x = *t.traced();
    if (x.trace.get() != &trace) {
      type_of(x);
      fail("TSR-F002", "a tensor of one traced function is used in another", "pass it as an argument");
    }
    if (x.region != trace.region)
      fail("TSR-F003", "a function given to cond, while_loop, scan or custom_gradient uses a tensor from outside itself",
           "pass the tensor among the args (cond), the invariants (while_loop, scan), or what is saved (custom_gradient)");
    return x.value;
  }
  if (auto it = trace.lifted.find(t.handle()); it != trace.lifted.end()) return it->second;
  // A tensor that the function closes over: its value is baked in.
  const Tensor dense = t.to(Device()).contiguous();
  tsr_attr value{};
  value.name = "value";
  value.kind = TSR_ATTR_TENSOR;
  value.tensor = &dense.handle()->desc;
  std::vector<Tensor> out;
  run_op("constant", {}, {&value, 1}, out);
  if (const Device home = t.device(); home != Device()) out[0] = out[0].to(home);
  trace.lifted.emplace(t.handle(), out[0].traced()->value);
  trace.kept.push_back(t);
  return out[0].traced()->value;
}

void run_op(const char* op, std::span<const Tensor> operands, std::span<const tsr_attr> attrs, std::vector<Tensor>& results,
            std::span<const tsr_id> regions) {
  if (t_autocast != 0) [[unlikely]] {
    std::vector<Tensor> cast;
    if (autocast(op, operands, cast)) return run_op(op, cast, attrs, results, regions);
  }
  if (Trace* trace = current_trace()) {
    std::vector<tsr_id> ids;
    ids.reserve(operands.size());
    for (const Tensor& t : operands) ids.push_back(value_of(*trace, t));
    tsr_node_desc d{};
    d.struct_size = sizeof d;
    d.op = op;
    d.operands = ids.data();
    d.num_operands = static_cast<uint32_t>(ids.size());
    d.attrs = attrs.data();
    d.num_attrs = static_cast<uint32_t>(attrs.size());
    d.regions = regions.data();
    d.num_regions = static_cast<uint32_t>(regions.size());
    if (t_place.line()) d.loc = {t_place.file_name(), t_place.line(), t_place.column()};
    tsr_id node = TSR_NONE;
    check(graph_api().node_create(trace->graph, &d, trace->region, TSR_NONE, &node));
    int taken = 1;
    check(api().host->capture->taken(trace->recorder, node, &taken));
    if (!taken) return run_between(op, operands, attrs, results, t_place.line() ? to_loc(t_place) : trace->loc);
    const tsr_tables& tables = *graph_api().tables(trace->graph);
    const tsr_node& n = *TSR_AT(tsr_node, tables.nodes, tables.node_stride, node);
    // The tables move when stop_gradient below makes a node of its own.
    const std::vector<tsr_id> made(n.results, n.results + n.num_results);
    const bool constant = trace->gradients && !api().grad_enabled() && std::strcmp(op, "stop_gradient") != 0;
    for (const tsr_id value : made) {
      results.push_back(make_traced(current_trace_shared(), value));
      if (constant) results.back() = stop_gradient(results.back());
    }
    return;
  }
  tsr_tensor_handle* in[16];
  std::vector<tsr_tensor_handle*> many;
  tsr_tensor_handle** handles = in;
  if (operands.size() > 16) {
    many.resize(operands.size());
    handles = many.data();
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].defined() && operands[i].is_traced()) type_of(*operands[i].traced());
    handles[i] = operands[i].defined() ? operands[i].handle() : nullptr;
    if (handles[i] && is_recorded_result(*handles[i]) && api().grad_enabled())
      fail("TSR-F064",
           std::string("'") + op +
               "' outside of compiled functions gets a tensor whose gradient is recorded: what runs at once is not, and the "
               "gradient would be lost",
           "compute it in a function given to tessera::compile; or take detach() of the tensor, or call it where gradients are "
           "off: NoGradGuard");
  }
  if (!regions.empty()) throw BugError("TSR-B035", std::string("op '") + op + "' with regions cannot run outside a trace", "");
  tsr_tensor_handle* out[kMaxResults];
  size_t n = 0;
  check(api().eager_op(Context::current().handle(), op, handles, operands.size(), attrs.data(), attrs.size(), out, kMaxResults,
                       &n));
  for (size_t i = 0; i < n; ++i) results.push_back(Tensor::adopt(out[i]));
}

Tensor run_op1(const char* op, std::initializer_list<Tensor> operands, std::initializer_list<tsr_attr> attrs) {
  std::vector<Tensor> out;
  run_op(op, {operands.begin(), operands.size()}, {attrs.begin(), attrs.size()}, out);
  return std::move(out[0]);
}

}  // namespace detail
}  // namespace tessera
