// SPDX-License-Identifier: Apache-2.0
#include "compile/services.hpp"

#include <algorithm>
#include <cstring>

#include "compile/driver.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "plugin/plugin_host.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {
thread_local const CompileOptions* t_options = nullptr;

Error unfit(const Graph& g, tsr_id node, const std::string& why) {
  return user_error("TSR-R022", "cannot evaluate " + g.describe(node) + ": " + why);
}
}  // namespace

ServiceScope::ServiceScope(const CompileOptions& options) noexcept : previous_(t_options) { t_options = &options; }
ServiceScope::~ServiceScope() { t_options = previous_; }
const CompileOptions& service_options() noexcept {
  static const CompileOptions none;
  return t_options ? *t_options : none;
}

void evaluate_node(Graph& graph, tsr_id node, std::span<tsr_tensor> out) {
  const tsr_node& n = graph.node(node);
  const OpRecord& record = graph.record_of(node);
  if (!record.has(kPure) && !record.has(kView) && !record.has(kConstant)) throw unfit(graph, node, "the op is not pure");
  if (n.num_regions > 0 || record.has(kControl)) throw unfit(graph, node, "the host runs it, not a backend");
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

  CompileOptions options = service_options();
  // The last backend is the fallback; one that computes nothing has no values to give.
  std::erase_if(options.backends,
                [](const Factory* f) { return (f->as<tsr_backend>().capabilities & TSR_CAP_NO_COMPUTE) != 0; });
  if (options.backends.size() > 1) options.backends.erase(options.backends.begin(), options.backends.end() - 1);
  options.measure = false;
  options.device = kCpu;
  options.late_passes = nullptr;
  options.partition = nullptr;
  options.debug = nullptr;
  options.restore = nullptr;  // those are of the compile that asks
  options.save = nullptr;
  options.forms = nullptr;
  const LogCapture quiet;  // the folder of the compile that asks shows its own kernels
  std::unique_ptr<Executable> executable;
  try {
    executable = traced_compile({"constant", n.op, {}, {}}, [&] { return compile_graph(std::move(one), options); });
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
  for (const Factory* f : service_options().backends) {
    if (why_not_asked(graph, node, *f, service_options())) continue;
    const tsr_backend& table = f->as<tsr_backend>();
    const char* why = nullptr;
    if (f->call("claim", [&] { return table.claim(f->self, graph.handle(), node, &why); }) != TSR_CLAIM_YES) continue;
    if (capabilities) *capabilities = table.capabilities;
    return f->name.c_str();
  }
  return nullptr;
}

}  // namespace tessera::core
