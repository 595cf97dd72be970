// SPDX-License-Identifier: Apache-2.0
// Gradients are one node of the op `grad`, which the compiler's autograd stage expands.
#include "tessera/grad.hpp"

#include <algorithm>
#include <cstring>

#include "attrs.hpp"
#include "tessera/dtypes.hpp"
#include "trace.hpp"

namespace tessera {

using detail::fail;

namespace {

detail::Trace& tracing(const char* what) {
  if (detail::Trace* trace = detail::current_trace()) return *trace;
  fail("TSR-F049", std::string(what) + " outside a compiled function: operations that run at once are not recorded",
       "call it in a function given to tessera::compile: compile([](const Tensor& x) { return grad(f(x), x); })");
}

const tsr_tables& tables(const detail::Trace& trace) { return *detail::graph_api().tables(trace.graph); }
const tsr_value& value(const detail::Trace& trace, tsr_id v) {
  return *TSR_AT(tsr_value, tables(trace).values, tables(trace).value_stride, v);
}
const tsr_node& node(const detail::Trace& trace, tsr_id n) {
  return *TSR_AT(tsr_node, tables(trace).nodes, tables(trace).node_stride, n);
}

// Makes what has been computed already a leaf: everything that reads the value reads the leaf from now on, host code included.
tsr_id make_leaf(detail::Trace& trace, tsr_id v) {
  const tsr_id def = value(trace, v).def_node;
  if (def == TSR_NONE || std::strcmp(node(trace, def).op, "leaf") == 0) return v;
  tsr_node_desc d{};
  d.struct_size = sizeof d;
  d.op = "leaf";
  d.operands = &v;
  d.num_operands = 1;
  d.loc = node(trace, def).loc;
  tsr_id made = TSR_NONE;
  detail::check(detail::graph_api().node_create(trace.graph, &d, trace.region, node(trace, def).next, &made));
  const tsr_id leaf = node(trace, made).results[0];
  uint32_t count = 0;
  const tsr_use* found = detail::graph_api().uses(trace.graph, v, &count);
  const std::vector<tsr_use> uses(found, found + count);
  for (const tsr_use& u : uses)
    if (u.node != TSR_NONE && u.node != made)
      detail::check(detail::graph_api().set_operand(trace.graph, u.node, u.operand, leaf));
  for (detail::Traced* t = trace.live; t; t = t->next)
    if (t->value == v) t->value = leaf;
  return leaf;
}

void expect_differentiable(const std::vector<Tensor>& ts, const char* what) {
  for (const Tensor& t : ts) {
    if (!t.defined()) fail("TSR-F050", std::string("grad: one of the ") + what + " is an undefined tensor");
    if (!is_float(static_cast<uint32_t>(t.dtype())))
      fail("TSR-F050",
           std::string("grad: one of the ") + what + " has the dtype " +
               std::string(dtype_name(static_cast<uint32_t>(t.dtype()))) + ", expected a floating-point dtype",
           "only floating-point tensors have gradients: convert with .to(f32) before, not after, what is differentiated");
  }
}

}  // namespace

namespace detail {

Tensor leaf(const Tensor& x) {
  tracing("a gradient");
  return run_op1("leaf", {x});
}

std::vector<Tensor> with_gradient(const WithSaved& forward, const std::vector<Tensor>& inputs, RegionCallback backward) {
  const std::shared_ptr<Trace> trace = current_trace_shared();
  const auto traced = [&](const Tensor& t) { return t.is_traced() ? t : make_traced(trace, value_of(*trace, t)); };
  std::vector<Tensor> operands;
  std::vector<tsr_type> types;
  for (const Tensor& y : forward.results) operands.push_back(traced(y));
  for (const Tensor& y : operands) types.push_back(type_of(*y.traced()));
  for (const Tensor& x : inputs) operands.push_back(traced(x));
  for (const Tensor& s : forward.saved) {
    operands.push_back(traced(s));
    types.push_back(type_of(*operands.back().traced()));
  }
  if (forward.results.empty() || inputs.empty())
    fail("TSR-F059", "custom_gradient: a function without inputs or results has no gradient");
  const tsr_id region = trace_region(backward, types);
  const tsr_region& made = *TSR_AT(tsr_region, tables(*trace).regions, tables(*trace).region_stride, region);
  std::vector<tsr_type> wanted;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const tsr_type& t = type_of(*operands[forward.results.size() + i].traced()); is_float(t.dtype)) wanted.push_back(t);
  if (made.num_outputs != wanted.size())
    fail("TSR-F059", "custom_gradient: the function of the gradient returns " + std::to_string(made.num_outputs) +
                         " tensors, expected one for each of the " + std::to_string(wanted.size()) + " floating-point inputs");
  for (size_t i = 0; i < wanted.size(); ++i) {
    const tsr_type& found = *value(*trace, made.outputs[i]).type;
    bool same = found.dtype == wanted[i].dtype && found.rank == wanted[i].rank;
    for (uint32_t d = 0; same && d < found.rank; ++d) same = found.sizes[d] == wanted[i].sizes[d];
    if (!same)
      fail("TSR-F059", "custom_gradient: gradient " + std::to_string(i) + " is not of the type of its input",
           "a gradient has the dtype and the shape of what it belongs to");
  }
  const tsr_attr attrs[] = {int_attr("results", static_cast<int64_t>(forward.results.size())),
                            int_attr("inputs", static_cast<int64_t>(inputs.size()))};
  std::vector<Tensor> out;
  run_op("cpp.custom_gradient", operands, attrs, out, {&region, 1});
  return out;
}

Tensor cotangent(const Tensor& y) {
  tracing("a cotangent").asks_cotangents = true;
  return run_op1("tangent", {y});
}

CheckpointScope::CheckpointScope() : first_(tables(tracing("checkpoint")).num_nodes) {}

void CheckpointScope::end(const std::vector<Tensor*>& results) {
  const Trace& trace = tracing("checkpoint");
  std::vector<tsr_id> kept;
  for (const Tensor* t : results)
    if (t->is_traced()) kept.push_back(value(trace, t->traced()->value).def_node);
  const size_t end = tables(trace).num_nodes;
  for (size_t n = first_; n < end; ++n) {
    const auto id = static_cast<tsr_id>(n);
    if (!node(trace, id).alive || std::find(kept.begin(), kept.end(), id) != kept.end()) continue;
    check(graph_api().set_marks(trace.graph, id, node(trace, id).marks | TSR_MARK_CHECKPOINT));
  }
}

std::vector<Tensor> run_backward(Saved& saved, const std::vector<Tensor>& cotangents) {
  std::vector<tsr_tensor_handle*> given;
  for (const Tensor& t : cotangents) {
    if (!t.defined() || t.is_traced())
      fail("TSR-F052", "a pullback gets a cotangent that is undefined, or that is being traced");
    given.push_back(t.handle());
  }
  std::vector<tsr_tensor_handle*> made(saved.num_gradients(), nullptr);
  check(api().saved_backward(saved.handle, given.data(), given.size(), made.data(), made.size()));
  std::vector<Tensor> out;
  for (tsr_tensor_handle* t : made) out.push_back(Tensor::adopt(t));
  return out;
}

}  // namespace detail

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& wanted,
                         const std::vector<Tensor>& seeds) {
  detail::Trace& trace = tracing("grad");
  expect_differentiable(outputs, "outputs");
  expect_differentiable(wanted, "tensors to differentiate with respect to");
  expect_differentiable(seeds, "seeds");
  if (!seeds.empty() && seeds.size() != outputs.size())
    fail("TSR-F050", "grad: " + std::to_string(seeds.size()) + " seeds for " + std::to_string(outputs.size()) + " outputs",
         "give one seed per output, or none for outputs of one element");
  if (outputs.empty() || wanted.empty()) return {};
  std::vector<Tensor> operands, results, leaves;
  for (const Tensor& w : wanted) {
    const tsr_id leaf = make_leaf(trace, detail::value_of(trace, w));
    if (!w.is_traced()) trace.lifted[w.handle()] = leaf;  // a tensor that the function closes over: a constant so far
    leaves.push_back(w.is_traced() ? w : detail::make_traced(detail::current_trace_shared(), leaf));
  }
  for (const std::vector<Tensor>* list : {&outputs, &seeds, static_cast<const std::vector<Tensor>*>(&leaves)})
    operands.insert(operands.end(), list->begin(), list->end());
  const tsr_attr attrs[] = {detail::int_attr("outputs", static_cast<int64_t>(outputs.size())),
                            detail::bool_attr("seeded", !seeds.empty())};
  detail::run_op("grad", operands, attrs, results);
  return results;
}

std::vector<Tensor> grad(const Tensor& output, const std::vector<Tensor>& wanted) {
  return grad(std::vector<Tensor>{output}, wanted);
}

Tensor grad(const Tensor& output, const Tensor& wanted) {
  return grad(std::vector<Tensor>{output}, std::vector<Tensor>{wanted}).at(0);
}

std::vector<Tensor> grad(const Tensor& output, nn::ModuleBase& module) {
  std::vector<Tensor> wanted;
  for (const auto& [name, parameter] : module.named_parameters()) wanted.push_back(*parameter);
  return grad(std::vector<Tensor>{output}, wanted);
}

Tensor stop_gradient(const Tensor& x) {
  if (detail::current_trace()) return detail::run_op1("stop_gradient", {x});
  return x.defined() && x.requires_grad() ? x.detach() : x;
}

}  // namespace tessera
