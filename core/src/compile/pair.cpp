// SPDX-License-Identifier: Apache-2.0
#include "compile/pair.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "compile/estimate.hpp"
#include "compile/partition.hpp"
#include "compile/recompute.hpp"
#include "ir/graph.hpp"
#include "ir/graph_part.hpp"
#include "ir/records.hpp"
#include "plugin/plugin_host.hpp"
#include "run/executable.hpp"
#include "run/saved_values.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

bool is_tangent(const Graph& g, tsr_id n) { return std::strcmp(g.node(n).op, "tangent") == 0; }

class PairCompiler {
 public:
  PairCompiler(std::unique_ptr<Graph> graph, const PassLists& passes, const CompileOptions& options)
      : passes_(passes), options_(options), c_{std::move(graph), options, {}, {}, {}} {}

  std::unique_ptr<Executable> run() {
    if (c_.graph->in_transaction()) c_.graph->commit();
    take_cotangents();
    const PartitionOptions* asked = options_.partition.get();
    const bool bounded = asked && (asked->bytes >= 0 || asked->fraction < 1);
    const std::unique_ptr<Graph> joint = bounded ? c_.graph->clone() : nullptr;
    int64_t budget = -1;
    for (int attempt = 1;; ++attempt) {
      try {
        run_joint_stages(c_, passes_);
      } catch (const Error& e) {
        if (attempt == 1 || e.code() != "TSR-A010") throw;
        refuse(budget);
      }
      if (attempt == 1) budget = c_.budget_bytes;
      Graph& g = *c_.graph;
      g.begin("pair");
      find_late();
      g.commit();
      copy_what_is_free();
      std::unique_ptr<Executable> forward = split();
      if (budget < 0) return forward;
      // The halves are laid out apart, and only their kernels know their workspaces: what comes on top of the plan of the whole
      // is taken from its budget.
      const int64_t peak = peak_of_pair(*forward);
      if (peak <= budget) return forward;
      smallest_ = smallest_ < 0 ? peak : std::min(smallest_, peak);
      if (attempt == kAttempts) refuse(budget);
      PartitionOptions less = *c_.options.partition;
      less.bytes = std::max<int64_t>(0, c_.budget_bytes - (peak - budget));
      c_.options.partition = std::make_shared<const PartitionOptions>(std::move(less));
      c_.options.failed.clear();  // nodes get other ids
      c_.graph = joint->clone();
    }
  }

 private:
  // The ops become inputs of the joint graph, and what depends on them belongs to the backward half.
  void take_cotangents() {
    Graph& g = *c_.graph;
    num_inputs_ = g.region(0).num_inputs;
    g.begin("pair");
    try {
      std::vector<tsr_id> asked;
      for (const tsr_id n : nodes_of(g, 0))
        if (is_tangent(g, n)) asked.push_back(n);
      for (const tsr_id n : asked) {
        const tsr_type type = *g.value(g.node(n).results[0]).type;
        const tsr_id input = g.create_input("cotangent", type);
        g.replace_node(n, {&input, 1}, static_cast<tsr_id>(g.num_values()));
      }
      find_late();
      const tsr_region& body = g.region(0);
      for (uint32_t i = 0; i < body.num_outputs; ++i) of_backward_.push_back(is_late(body.outputs[i]));
      g.commit();
    } catch (...) {
      if (g.in_transaction()) g.rollback();
      throw;
    }
  }

  // Arena and outputs of either half at the hints of symbols, and what is kept for the other one.
  static int64_t peak_of_pair(const Executable& forward) {
    const BackwardHalf& half = *forward.backward;
    const Graph& g = forward.graph();
    const std::vector<int64_t> hints = hint_values(g);
    int64_t kept = 0;
    for (const uint32_t k : half.kept) {
      const tsr_type& t = *g.value(g.region(0).outputs[k]).type;
      int64_t elements = 1;
      for (uint32_t d = 0; d < t.rank; ++d) elements *= std::max<int64_t>(0, hint_size(g, t.sizes[d], hints));
      kept += storage_bytes(t.dtype, elements);
    }
    return std::max(peak_bytes_of_finished(g, forward.plan()),
                    kept + peak_bytes_of_finished(half.executable->graph(), half.executable->plan()));
  }

  [[noreturn]] void refuse(int64_t budget) const {
    const PartitionOptions& asked = *options_.partition;
    throw user_error("TSR-A010",
                     (asked.place.empty() ? "" : asked.place + ": ") + "graph @" + c_.graph->tables().name +
                         " does not fit the budget of " + std::to_string(budget) +
                         " bytes as a pair: the smallest peak that partitioner '" + asked.partitioner->name + "' finds is " +
                         std::to_string(smallest_) + " bytes (" + bytes_text(static_cast<double>(smallest_)) + ")",
                     "give partitioner.budget_bytes = " + std::to_string(smallest_) + " or more, or a smaller batch");
  }

  bool is_cotangent(tsr_id v) const {
    const tsr_value& x = c_.graph->value(v);
    return x.def_node == TSR_NONE && x.region == 0 && x.def_index >= num_inputs_;
  }
  bool is_late(tsr_id v) const {
    const tsr_id def = c_.graph->value(v).def_node;
    return def == TSR_NONE ? is_cotangent(v) : (c_.graph->node(def).marks & TSR_MARK_BACKWARD) != 0;
  }
  void find_late() {
    Graph& g = *c_.graph;
    for (const tsr_id n : nodes_of(g, 0)) {
      const tsr_node& x = g.node(n);
      if (std::any_of(x.operands, x.operands + x.num_operands, [&](tsr_id v) { return v != TSR_NONE && is_late(v); }))
        g.set_marks(n, x.marks | TSR_MARK_BACKWARD);
    }
  }

  // Each half has constants and views of its own: what is kept are roots.
  void copy_what_is_free() {
    const Graph& g = *c_.graph;
    std::vector<uint8_t> again(g.num_nodes(), 0);
    for (const tsr_id n : nodes_of(g, 0)) {
      if (g.node(n).marks & TSR_MARK_BACKWARD) continue;
      again[n] = g.record_of(n).has(kConstant) || (n < c_.assignment.size() && c_.assignment[n].kind == Assignment::kView);
    }
    recompute(*c_.graph, again);
  }

  // So that whoever sees the forward half alone knows it for a part of a training step, as the other half is by its own marks:
  // a backend that decides by the whole graph must decide alike for both, or a value that is computed again has other bits.
  void mark_what_leaves(const std::vector<tsr_id>& outputs) {
    Graph& g = *c_.graph;
    g.begin("pair");
    for (const tsr_id v : outputs)
      if (const tsr_id def = g.value(v).def_node; def != TSR_NONE) g.set_marks(def, g.node(def).marks | TSR_MARK_SAVE);
    g.commit();
  }

  std::unique_ptr<Executable> split() {
    const Graph& g = *c_.graph;
    const tsr_region& body = g.region(0);
    const std::vector<tsr_id> inputs(body.inputs, body.inputs + num_inputs_);
    const std::vector<tsr_id> cotangents(body.inputs + num_inputs_, body.inputs + body.num_inputs);
    std::vector<tsr_id> results, gradients, kept, read;
    for (uint32_t i = 0; i < body.num_outputs; ++i) (of_backward_[i] ? gradients : results).push_back(body.outputs[i]);
    const auto reads = [&](tsr_id v) {
      if (v == TSR_NONE || is_late(v)) return;
      std::vector<tsr_id>& list = g.value(v).def_node == TSR_NONE ? read : kept;
      if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
    };
    for (const tsr_id n : nodes_of(g, 0))
      if (g.node(n).marks & TSR_MARK_BACKWARD)
        for (uint32_t i = 0; i < g.node(n).num_operands; ++i) reads(g.node(n).operands[i]);
    for (const tsr_id v : gradients) reads(v);

    auto half = std::make_unique<BackwardHalf>();
    half->num_results = static_cast<uint32_t>(results.size());
    half->num_cotangents = static_cast<uint32_t>(cotangents.size());
    std::vector<tsr_id> forward_outputs = results, backward_inputs = kept;
    for (const tsr_id v : kept) {
      auto at = std::find(forward_outputs.begin(), forward_outputs.end(), v);
      if (at == forward_outputs.end()) at = forward_outputs.insert(forward_outputs.end(), v);
      half->kept.push_back(static_cast<uint32_t>(at - forward_outputs.begin()));
    }
    for (const tsr_id v : read) half->inputs.push_back(g.value(v).def_index);
    backward_inputs.insert(backward_inputs.end(), read.begin(), read.end());
    backward_inputs.insert(backward_inputs.end(), cotangents.begin(), cotangents.end());

    mark_what_leaves(forward_outputs);
    const std::string name = g.tables().name;
    CompileOptions options = options_;
    options.partition = nullptr;
    half->executable = compile_graph(graph_part(g, name + "_backward", backward_inputs, gradients), options);
    std::unique_ptr<Executable> forward = compile_graph(graph_part(g, name, inputs, forward_outputs), options);
    forward->backward = std::move(half);
    return forward;
  }

  static constexpr int kAttempts = 5;
  const PassLists& passes_;
  const CompileOptions& options_;
  Compilation c_;
  int64_t smallest_ = -1;             // of the peaks of the pairs that were above the budget
  uint32_t num_inputs_ = 0;           // those after them are cotangents
  std::vector<uint8_t> of_backward_;  // by output
};

}  // namespace

bool is_pair(const Graph& g) {
  for (const tsr_id n : nodes_of(g, 0))
    if (is_tangent(g, n)) return true;
  return false;
}

std::unique_ptr<Executable> compile_pair(std::unique_ptr<Graph> graph, const PassLists& passes, const CompileOptions& options) {
  return PairCompiler(std::move(graph), passes, options).run();
}

}  // namespace tessera::core
