// SPDX-License-Identifier: Apache-2.0
#include "custom_gradient.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/dtypes.hpp"

namespace tessera::frontends {
namespace {

struct Counts {
  uint32_t results, inputs;
};
Counts counts_of(const tsr_attr* attrs, uint32_t num_attrs, uint32_t num_operands, const char* op) {
  const int64_t results = sdk::need_attr(attrs, num_attrs, "results", op).as_int();
  const int64_t inputs = sdk::need_attr(attrs, num_attrs, "inputs", op).as_int();
  if (results < 1 || inputs < 1 || results > num_operands || inputs > num_operands - results)
    throw sdk::Error(TSR_USER, "TSR-I025",
                     "cpp.custom_gradient: " + std::to_string(results) + " results and " + std::to_string(inputs) +
                         " inputs among " + std::to_string(num_operands) + " args",
                     "record the op through tessera::custom_gradient");
  return {static_cast<uint32_t>(results), static_cast<uint32_t>(inputs)};
}

tsr_error* infer(void*, const tsr_call* call, tsr_type* results, uint32_t capacity, uint32_t* num_results) noexcept {
  return sdk::guarded([&] {
    const Counts n = counts_of(call->attrs, call->num_attrs, call->num_operands, call->op);
    const auto wrong = [&](const std::string& what) {
      throw sdk::Error(TSR_USER, "TSR-I025", "cpp.custom_gradient: " + what, "record the op through tessera::custom_gradient");
    };
    if (n.results > capacity) wrong("too many results");
    uint32_t gradients = 0;
    for (uint32_t i = 0; i < call->num_operands; ++i) {
      if (!call->operands[i]) wrong("an arg is left out");
      if (i >= n.results && i < n.results + n.inputs) gradients += is_float(call->operands[i]->dtype);
    }
    if (call->num_regions != 1 || call->regions[0].num_outputs != gradients ||
        call->regions[0].num_inputs != call->num_operands - n.inputs)
      wrong(
          "its region does not take the cotangents and the args behind the inputs, or does not return one gradient per "
          "floating-point input");
    for (uint32_t i = 0; i < n.results; ++i) results[i] = *call->operands[i];
    *num_results = n.results;
  });
}

// What is left of it where nobody differentiates: its first args.
tsr_error* decompose(void*, tsr_graph* g, tsr_id node, tsr_id* replacements) noexcept {
  return sdk::guarded([&] {
    const sdk::Node n{g, node};
    std::copy_n(n.raw().operands, n.num_results(), replacements);
  });
}

// The cotangent of a result that nothing differentiated depends on.
tsr_id zeros(const sdk::Graph& graph, const sdk::Graph::At& at, const tsr_type type) {
  alignas(16) std::array<char, 16> bytes{};
  tsr_tensor t{};
  t.data = bytes.data();
  t.dtype = type.dtype;
  t.flags = TSR_TENSOR_CONTIGUOUS;
  const sdk::Value zero = graph.constant(at, t);
  if (type.rank == 0) return zero.id;
  const std::vector<tsr_dim> sizes(type.sizes, type.sizes + type.rank);
  return graph.op(at, "full", {zero}, {sdk::attr_dims("shape", sizes)}).id;
}

// Writes the nodes of the region at the end of the node's own, on the cotangents and what the forward function has saved.
tsr_error* grad(void*, tsr_graph* g, tsr_id node, const tsr_id* grad_results, tsr_id* grad_operands) noexcept {
  return sdk::guarded([&] {
    const sdk::Graph graph(g);
    const sdk::Node n{g, node};
    const Counts count = counts_of(n.raw().attrs, n.raw().num_attrs, n.num_operands(), "cpp.custom_gradient");
    const std::vector<tsr_id> operands(n.raw().operands, n.raw().operands + n.num_operands());
    std::fill_n(grad_operands, operands.size(), TSR_NONE);
    const tsr_id region = n.regions()[0];
    const sdk::Graph::At at{n.raw().parent, TSR_NONE, n.raw().loc};

    std::vector<std::pair<tsr_id, tsr_id>> outside;  // a value of the region, and what stands for it
    const auto stands_for = [&](tsr_id v) {
      if (v == TSR_NONE) return v;
      for (auto k = outside.rbegin(); k != outside.rend(); ++k)
        if (k->first == v) return k->second;
      throw sdk::Error(TSR_BUG, "TSR-B039", "cpp.custom_gradient: a value of the region is not defined in it");
    };
    const std::vector<tsr_id> inputs(graph.inputs(region).begin(), graph.inputs(region).end());
    for (uint32_t i = 0; i < inputs.size(); ++i) {
      tsr_id v = i < count.results ? grad_results[i] : operands[count.inputs + i];
      if (v == TSR_NONE) v = zeros(graph, at, *graph.value(operands[i]).raw().type);
      outside.emplace_back(inputs[i], v);
    }
    std::vector<tsr_id> inner;
    for (const sdk::Node k : graph.nodes(region)) inner.push_back(k.id);
    for (const tsr_id id : inner) {
      const sdk::Node k{g, id};
      if (!k.regions().empty())
        throw sdk::Error(TSR_USER, "TSR-A023",
                         std::string("custom_gradient: the function of the gradient uses '") + std::string(k.op()) + "'",
                         "cond, while_loop and scan cannot stand in it: use where(), or operations without regions");
      std::vector<sdk::Value> given;
      for (uint32_t i = 0; i < k.num_operands(); ++i) given.push_back(graph.value(stands_for(k.raw().operands[i])));
      const std::vector<tsr_attr> attrs(k.attrs().begin(), k.attrs().end());
      const std::string op(k.op());
      const std::vector<tsr_id> results(k.raw().results, k.raw().results + k.num_results());
      const sdk::Node made = graph.create(at, op.c_str(), given, attrs);
      for (uint32_t i = 0; i < results.size(); ++i) outside.emplace_back(results[i], made.raw().results[i]);
    }
    const std::vector<tsr_id> outputs(graph.outputs(region).begin(), graph.outputs(region).end());
    size_t next = 0;
    for (uint32_t i = count.results; i < count.results + count.inputs; ++i)
      if (is_float(graph.value(operands[i]).raw().type->dtype)) grad_operands[i] = stands_for(outputs[next++]);
  });
}

}  // namespace

tsr_op_impl custom_gradient() {
  tsr_op_impl i{};
  i.op = "custom_gradient";
  i.infer = infer;
  i.decompose = decompose;
  i.grad = grad;
  return i;
}

}  // namespace tessera::frontends
