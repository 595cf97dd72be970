// SPDX-License-Identifier: Apache-2.0
#include "compile/services.hpp"
#include "compile/place.hpp"

#include <algorithm>
#include <cstring>

#include "compile/executable.hpp"
#include "compile/layout.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {
thread_local const CompileOptions* t_options = nullptr;

const CompileOptions& current_options() {
  static const CompileOptions none;
  return t_options ? *t_options : none;
}

Error unfit(const Graph& g, tsr_id node, const std::string& why) {
  return user_error("TSR-R022", "cannot evaluate " + g.describe(node) + ": " + why);
}
}  // namespace

ServiceScope::ServiceScope(const CompileOptions& options) noexcept : previous_(t_options) { t_options = &options; }
ServiceScope::~ServiceScope() { t_options = previous_; }
const CompileOptions* ServiceScope::current() noexcept { return t_options; }

void evaluate_node(Graph& graph, tsr_id node, std::span<tsr_tensor> out) {
  const tsr_node& n = graph.node(node);
  const OpRecord& record = graph.record_of(node);
  if (!record.has(kPure) && !record.has(kView) && !record.has(kConstant)) throw unfit(graph, node, "the op is not pure");
  if (n.num_regions > 0) throw unfit(graph, node, "it has regions");
  if (record.has(kTransfer)) throw unfit(graph, node, "its result lies on another device");
  if (out.size() != n.num_results)
    throw unfit(graph, node, std::to_string(out.size()) + " results were asked for, it has " + std::to_string(n.num_results));

  // A graph of that one node, whose inputs are the constants' data.
  auto one = std::make_unique<Graph>(graph.ops(), "evaluate");
  NodeSpec spec;
  spec.op = n.op;
  spec.attrs.assign(n.attrs, n.attrs + n.num_attrs);
  spec.loc = n.loc;
  for (const tsr_attr& a : spec.attrs) {
    bool symbolic = a.kind == TSR_ATTR_DIM && TSR_DIM_IS_EXPR(a.i);
    if (a.kind == TSR_ATTR_DIMS)
      for (uint32_t k = 0; k < a.count; ++k) symbolic = symbolic || TSR_DIM_IS_EXPR(a.ints[k]);
    if (symbolic) throw unfit(graph, node, std::string("attribute '") + a.name + "' is symbolic");
  }
  std::vector<TensorRef> inputs;
  std::vector<tsr_tensor_handle*> handles;
  std::vector<std::pair<tsr_id, tsr_id>> seen;  // the same constant twice is one input
  for (uint32_t i = 0; i < n.num_operands; ++i) {
    const tsr_id v = n.operands[i];
    if (v == TSR_NONE) {
      spec.operands.push_back(TSR_NONE);
      continue;
    }
    if (const auto at = std::find_if(seen.begin(), seen.end(), [&](const auto& s) { return s.first == v; }); at != seen.end()) {
      spec.operands.push_back(at->second);
      continue;
    }
    const tsr_id def = graph.value(v).def_node;
    const tsr_attr* value = def == TSR_NONE || !graph.record_of(def).has(kConstant) ? nullptr : graph.attr(def, "value");
    if (!value || value->kind != TSR_ATTR_TENSOR)
      throw unfit(graph, node, "operand %" + std::string(graph.value(v).name) + " is not a constant");
    tsr_tensor desc = *value->tensor;
    desc.device = kCpu;
    inputs.emplace_back(tensor_wrap(desc, nullptr, nullptr));
    handles.push_back(inputs.back().get());
    spec.operands.push_back(one->create_input("x" + std::to_string(i),
                                              one->make_type(static_cast<tsr_dtype>(desc.dtype), {desc.sizes, desc.rank})));
    seen.emplace_back(v, spec.operands.back());
  }
  for (uint32_t i = 0; i < n.num_results; ++i) {
    const tsr_type& t = *graph.value(n.results[i]).type;
    for (uint32_t k = 0; k < t.rank; ++k)
      if (TSR_DIM_IS_EXPR(t.sizes[k]))
        throw unfit(graph, node, "result %" + std::string(graph.value(n.results[i]).name) + " has a symbolic size");
    spec.result_types.push_back(one->make_type(static_cast<tsr_dtype>(t.dtype), {t.sizes, t.rank}));
  }
  spec.typed = true;
  const tsr_id copy = one->create_node(spec);
  one->set_outputs(0, {one->node(copy).results, one->node(copy).num_results});
  one->commit();

  CompileOptions options = current_options();
  // The last backend is the fallback; one that computes nothing has no values to give.
  std::erase_if(options.backends,
                [](const Factory* f) { return (f->as<tsr_backend>().capabilities & TSR_CAP_NO_COMPUTE) != 0; });
  if (options.backends.size() > 1) options.backends.erase(options.backends.begin(), options.backends.end() - 1);
  options.measure = false;
  options.late_passes = nullptr;
  options.debug = nullptr;
  const LogCapture quiet;  // the folder of the compile that asks shows its own kernels
  std::unique_ptr<Executable> executable;
  try {
    executable = traced_compile({"constant", n.op, {}, {}}, [&] { return Executable::compile(std::move(one), options); });
  } catch (const Error& e) {
    if (is_unassignable(e)) throw unfit(graph, node, e.message());
    throw;
  }
  std::vector<tsr_tensor_handle*> results(n.num_results, nullptr);
  executable->run(handles, results);
  for (uint32_t i = 0; i < n.num_results; ++i) {
    const TensorRef owner(results[i]);
    const tsr_tensor& t = owner->desc;
    const auto bytes = static_cast<size_t>(storage_bytes(t.dtype, num_elements({t.sizes, t.rank})));
    auto* sizes = static_cast<int64_t*>(graph.scratch(2 * sizeof(int64_t) * t.rank));
    auto* data = static_cast<char*>(graph.scratch(bytes));
    std::copy(t.sizes, t.sizes + t.rank, sizes);
    std::copy(t.strides, t.strides + t.rank, sizes + t.rank);
    if (bytes) std::memcpy(data, t.data, bytes);
    out[i] = {data, t.dtype, t.rank, sizes, sizes + t.rank, kCpu, TSR_TENSOR_CONTIGUOUS};
  }
}

const char* backend_of(Graph& graph, tsr_id node, uint64_t* capabilities) {
  if (capabilities) *capabilities = 0;
  if (node >= graph.num_nodes() || !graph.node(node).alive) return nullptr;
  const OpRecord& record = graph.record_of(node);
  if (record.has(kConstant) || (record.has(kControl) && record.name != "fused")) return nullptr;
  for (const Factory* f : current_options().backends) {
    if (why_not_asked(graph, node, *f, current_options())) continue;
    const tsr_backend& table = f->as<tsr_backend>();
    const char* why = nullptr;
    if (table.claim(f->self, graph.handle(), node, &why) != TSR_CLAIM_YES) continue;
    if (capabilities) *capabilities = table.capabilities;
    return f->name.c_str();
  }
  return nullptr;
}

namespace {

// A machine to measure against when a backend has no model of its own: order-of-magnitude figures of one CPU socket. They rank
// plans; they are not a promise of time.
constexpr double kBytesPerSecond = 20e9, kFlopsPerSecond = 50e9, kSecondsPerLaunch = 200e-9;

double node_seconds(Graph& g, const Plan& plan, const Step& step, const std::vector<int64_t>& hints) {
  if (step.kind == TSR_STEP_KERNEL && step.backend) {
    const tsr_backend& table = step.backend->as<tsr_backend>();
    if (table.cost)
      if (const double s = table.cost(step.backend->self, g.handle(), step.node); s >= 0) return s;
  }
  tsr_cost cost{};
  cost.struct_size = sizeof cost;
  bool modelled = false;
  if (step.record && step.record->impl && step.record->impl->cost) {
    const auto call = RuntimeCall::make(g, step.node, [&](tsr_dim d) { return hint_size(g, d, hints); });
    throw_if(step.record->impl->cost(step.record->impl->self, &call->call, &cost));
    modelled = true;
  }
  if (!modelled) {
    const auto bytes = [&](uint32_t slot) {
      if (slot == kNone) return 0.0;
      const Slot& s = plan.slots[slot];
      double n = dtype_bits(s.dtype) / 8.0;
      for (uint32_t k = 0; k < s.rank; ++k) {
        const DimRef& d = plan.dims_of(slot)[k];
        n *= static_cast<double>(d.slot < 0 ? d.number : hint_size(g, g.value(s.value).type->sizes[k], hints));
      }
      return n;
    };
    for (const uint32_t slot : step.inputs) cost.bytes_read += bytes(slot);
    for (const uint32_t slot : step.outputs) cost.bytes_written += bytes(slot);
    cost.flops = cost.bytes_written / 4;
  }
  return kSecondsPerLaunch + std::max((cost.bytes_read + cost.bytes_written) / kBytesPerSecond, cost.flops / kFlopsPerSecond);
}

Estimate estimate_plan(Graph& g, const Plan& plan, const std::vector<int64_t>& hints) {
  Estimate e;
  for (const auto& layout : layouts_at_hints(plan, hints)) {
    for (const int64_t b : layout->arena_bytes) e.peak_bytes += b;
    e.peak_bytes += layout->output_bytes;
    for (const Instruction& x : layout->program) {
      const Step& step = *plan.steps[x.step];
      if (!step.control) {
        e.seconds += node_seconds(g, plan, step, hints);
        continue;
      }
      // One branch, the dearer; a loop of unknown length counts one iteration.
      Estimate worst;
      for (const auto& region : step.control->regions) {
        const Estimate r = estimate_plan(g, *region, hints);
        worst.peak_bytes = std::max(worst.peak_bytes, r.peak_bytes);
        worst.seconds = std::max(worst.seconds, r.seconds);
      }
      if (step.control->kind == ControlPlan::kScan)
        worst.seconds *= static_cast<double>(hint_size(g, g.attr(step.node, "length")->i, hints));
      e.peak_bytes += worst.peak_bytes;
      e.seconds += worst.seconds;
    }
  }
  return e;
}

}  // namespace

Estimate estimate(const Graph& graph) {
  const CompileOptions& options = current_options();
  const std::unique_ptr<Graph> copy = graph.clone();
  if (copy->in_transaction()) copy->commit();
  place_on_devices(*copy);
  const std::vector<Assignment> assignment = assign_backends(*copy, options);
  const std::unique_ptr<Plan> plan = Plan::build(*copy, 0, assignment, options, {}, false);
  return estimate_plan(*copy, *plan, hint_values(*copy));
}

}  // namespace tessera::core
