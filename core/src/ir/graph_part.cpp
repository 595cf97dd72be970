// SPDX-License-Identifier: Apache-2.0
#include "ir/graph_part.hpp"

#include <algorithm>
#include <deque>
#include <new>
#include <vector>

#include "ir/graph.hpp"
#include "ir/graph_undo.hpp"
#include "ir/records.hpp"

namespace tessera::core {

namespace {

class Part {
 public:
  Part(const Graph& from, std::string_view name)
      : from_(from), to_(std::make_unique<Graph>(from.ops(), name)), values_(from.num_values(), TSR_NONE) {
    Sizes& sizes = to_->sizes();
    sizes.~Sizes();
    new (&sizes) Sizes(from.sizes());
    to_->sources() = from.sources();
  }

  std::unique_ptr<Graph> run(std::span<const tsr_id> inputs, std::span<const tsr_id> outputs) {
    for (const tsr_id v : inputs) {
      const tsr_value& x = from_.value(v);
      const bool own = x.def_node == TSR_NONE;
      values_[v] = to_->create_input(x.name, *x.type, own ? static_cast<tsr_input_kind>(x.input_kind) : TSR_INPUT_ARG,
                                     own ? x.key : nullptr);
    }
    const std::vector<uint8_t> needed = find_needed(outputs);
    for (const tsr_id n : nodes_of(from_, 0))
      if (needed[n]) node(n, 0);
    std::vector<tsr_id> made;
    for (const tsr_id v : outputs) made.push_back(copy_of(v));
    to_->set_outputs(0, made);
    to_->commit();
    return std::move(to_);
  }

  std::unique_ptr<Graph> side_by_side(std::span<const tsr_id> nodes, const std::vector<uint8_t>& is_view) {
    keep_marks_ = false;
    std::vector<tsr_id> made;
    for (const tsr_id n : nodes) {
      std::fill(values_.begin(), values_.end(), TSR_NONE);
      const tsr_node& x = from_.node(n);
      for (uint32_t i = 0; i < x.num_operands; ++i) bring(x.operands[i], is_view);
      node(n, 0);
      for (uint32_t i = 0; i < x.num_results; ++i) made.push_back(values_[x.results[i]]);
    }
    to_->set_outputs(0, made);
    to_->commit();
    return std::move(to_);
  }

 private:
  // A constant as itself, a view with what it is a view of, anything else as an argument.
  void bring(tsr_id v, const std::vector<uint8_t>& is_view) {
    if (v == TSR_NONE || values_[v] != TSR_NONE) return;
    const tsr_id def = from_.value(v).def_node;
    if (def == TSR_NONE || !(is_view[def] || from_.record_of(def).has(kConstant))) {
      values_[v] = to_->create_input("x", *from_.value(v).type, TSR_INPUT_ARG, nullptr);
      return;
    }
    for (uint32_t i = 0; i < from_.node(def).num_operands; ++i) bring(from_.node(def).operands[i], is_view);
    node(def, 0);
  }

  std::vector<uint8_t> find_needed(std::span<const tsr_id> outputs) const {
    std::vector<uint8_t> needed(from_.num_nodes(), 0);
    const auto need = [&](tsr_id v) {
      if (v != TSR_NONE && values_[v] == TSR_NONE && from_.value(v).def_node != TSR_NONE) needed[from_.value(v).def_node] = 1;
    };
    for (const tsr_id v : outputs) need(v);
    for (tsr_id n = from_.region(0).last; n != TSR_NONE; n = from_.node(n).prev)
      if (needed[n])
        for (uint32_t i = 0; i < from_.node(n).num_operands; ++i) need(from_.node(n).operands[i]);
    return needed;
  }

  tsr_id copy_of(tsr_id v) const {
    if (v == TSR_NONE) return TSR_NONE;
    if (values_[v] == TSR_NONE) graph_misuse("%" + std::string(from_.value(v).name) + " is not part of what was asked for");
    return values_[v];
  }

  void node(tsr_id n, tsr_id region) {
    const tsr_node& x = from_.node(n);
    NodeSpec s;
    s.op = x.op;
    for (uint32_t i = 0; i < x.num_operands; ++i) s.operands.push_back(copy_of(x.operands[i]));
    s.loc = x.loc;
    s.marks = keep_marks_ ? x.marks : 0;
    s.typed = true;
    std::deque<tsr_tensor> tensors;
    for (uint32_t i = 0; i < x.num_attrs; ++i) {
      tsr_attr a = x.attrs[i];
      if (a.kind == TSR_ATTR_TENSOR)
        if (auto owner = from_.owner_of(a.tensor->data)) {
          to_->keep(std::move(owner));
          tensors.push_back(*a.tensor);
          tensors.back().flags |= TSR_TENSOR_KEPT;
          a.tensor = &tensors.back();
        }
      s.attrs.push_back(a);
    }
    for (uint32_t i = 0; i < x.num_results; ++i) {
      s.result_types.push_back(*from_.value(x.results[i]).type);
      s.result_names.emplace_back(from_.value(x.results[i]).name);
    }
    for (uint32_t i = 0; i < x.num_regions; ++i) s.regions.push_back(nested(x.regions[i]));
    const tsr_id made = to_->create_node(s, region);
    for (uint32_t i = 0; i < x.num_results; ++i) values_[x.results[i]] = to_->node(made).results[i];
  }

  tsr_id nested(tsr_id region) {
    const tsr_region& r = from_.region(region);
    std::vector<tsr_type> types;
    std::vector<std::string> names;
    for (uint32_t k = 0; k < r.num_inputs; ++k) {
      types.push_back(*from_.value(r.inputs[k]).type);
      names.emplace_back(from_.value(r.inputs[k]).name);
    }
    const tsr_id copy = to_->create_region(types, names);
    for (uint32_t k = 0; k < r.num_inputs; ++k) values_[r.inputs[k]] = to_->region(copy).inputs[k];
    for (const tsr_id n : nodes_of(from_, region)) node(n, copy);
    std::vector<tsr_id> outputs;
    for (uint32_t k = 0; k < r.num_outputs; ++k) outputs.push_back(copy_of(r.outputs[k]));
    to_->set_outputs(copy, outputs);
    return copy;
  }

  const Graph& from_;
  std::unique_ptr<Graph> to_;
  std::vector<tsr_id> values_;  // by value of the graph: its copy
  bool keep_marks_ = true;
};

}  // namespace

std::unique_ptr<Graph> graph_part(const Graph& graph, std::string_view name, std::span<const tsr_id> inputs,
                                  std::span<const tsr_id> outputs) {
  return Part(graph, name).run(inputs, outputs);
}

std::unique_ptr<Graph> graph_of_nodes(const Graph& graph, std::string_view name, std::span<const tsr_id> nodes,
                                      const std::vector<uint8_t>& is_view) {
  return Part(graph, name).side_by_side(nodes, is_view);
}

}  // namespace tessera::core
