// SPDX-License-Identifier: Apache-2.0
#include "compile/pair.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "compile/estimate.hpp"
#include "compile/known_kernels.hpp"
#include "compile/pair_sizes.hpp"
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

  std::vector<PartitionPlan> plans() {
    take_cotangents();
    if (const PartitionOptions* asked = options_.partition.get()) c_.options.partition = of_halves(*asked, asked->fraction);
    return partition_plans(std::move(c_.graph), passes_, c_.options);
  }

  std::unique_ptr<Executable> run() {
    take_cotangents();
    const PartitionOptions* asked = options_.partition.get();
    const bool bounded = asked && (asked->bytes >= 0 || asked->fraction < 1), share = bounded && asked->bytes < 0;
    const std::unique_ptr<Graph> joint = bounded ? c_.graph->clone() : nullptr;
    // A share is one of what is known of the halves, kernels included: those of the plan that is fastest are compiled first.
    if (bounded) c_.options.partition = of_halves(*asked, share ? 1 : asked->fraction);
    int64_t budget = -1;
    for (int attempt = 1;; ++attempt) {
      try {
        run_joint_stages(c_, passes_);
      } catch (const Error& e) {
        if (attempt == 1 || e.code() != "TSR-A010") throw;
        refuse(budget);
      }
      if (attempt == 1) budget = c_.budget_bytes;
      std::unique_ptr<Executable> forward = compile(split(*c_.graph, c_.assignment));
      if (!bounded || (share && attempt > 1)) return forward;
      const bool news = learn(*forward);
      const int64_t peak = peak_of_pair(*forward);
      if (!share) {
        if (peak <= budget) return forward;
        smallest_ = smallest_ < 0 ? peak : std::min(smallest_, peak);
        if (attempt == kAttempts) refuse(budget);
      }
      // With what is known of kernels, plans have other peaks. Where nothing new is known and the halves still take more than
      // the plan of them, that is taken from its budget.
      PartitionOptions next = *of_halves(*asked, asked->fraction);
      if (!share) next.bytes = news ? c_.options.partition->bytes : std::max<int64_t>(0, c_.budget_bytes - (peak - budget));
      c_.options.partition = std::make_shared<const PartitionOptions>(std::move(next));
      c_.options.failed.clear();  // nodes get other ids
      c_.graph = joint->clone();
    }
  }

 private:
  // The ops become inputs of the joint graph, and what depends on them belongs to the backward half.
  void take_cotangents() {
    Graph& g = *c_.graph;
    if (g.in_transaction()) g.commit();
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
      find_late(g);
      const tsr_region& body = g.region(0);
      for (uint32_t i = 0; i < body.num_outputs; ++i) of_backward_.push_back(is_late(g, body.outputs[i]));
      g.commit();
    } catch (...) {
      if (g.in_transaction()) g.rollback();
      throw;
    }
  }

  // The larger of the peaks of the halves; that of the second one includes what is kept for it.
  static int64_t peak_of_pair(const Executable& forward) {
    const Executable& back = *forward.backward->executable;
    return std::max(peak_bytes_of_finished(forward.graph(), forward.plan()), peak_bytes_of_finished(back.graph(), back.plan()));
  }

  bool learn(const Executable& forward) {
    const Executable& back = *forward.backward->executable;
    const bool of_forward = known_.learn(forward.graph(), forward.plan());
    return known_.learn(back.graph(), back.plan()) || of_forward;
  }

  // What a plan of the joint graph costs is what its two halves cost.
  std::shared_ptr<const PartitionOptions> of_halves(const PartitionOptions& asked, double fraction) {
    auto out = std::make_shared<PartitionOptions>(asked);
    out->fraction = fraction;
    out->split = [this](std::unique_ptr<Graph> g, CompileOptions& options) {
      options.known = &known_;
      Halves halves = split(*g, assign_again(*g, options));
      std::vector<std::unique_ptr<Graph>> programs;
      programs.push_back(std::move(halves.forward));
      programs.push_back(std::move(halves.backward));
      return programs;
    };
    return out;
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

  bool is_cotangent(const Graph& g, tsr_id v) const {
    const tsr_value& x = g.value(v);
    return x.def_node == TSR_NONE && x.region == 0 && x.def_index >= num_inputs_;
  }
  bool is_late(const Graph& g, tsr_id v) const {
    const tsr_id def = g.value(v).def_node;
    return def == TSR_NONE ? is_cotangent(g, v) : (g.node(def).marks & TSR_MARK_BACKWARD) != 0;
  }
  void find_late(Graph& g) const {
    for (const tsr_id n : nodes_of(g, 0)) {
      const tsr_node& x = g.node(n);
      if (std::any_of(x.operands, x.operands + x.num_operands, [&](tsr_id v) { return v != TSR_NONE && is_late(g, v); }))
        g.set_marks(n, x.marks | TSR_MARK_BACKWARD);
    }
  }

  // Each half has constants and views of its own: what is kept are roots.
  static void copy_what_is_free(Graph& g, const std::vector<Assignment>& assignment) {
    std::vector<uint8_t> again(g.num_nodes(), 0);
    for (const tsr_id n : nodes_of(g, 0)) {
      if (g.node(n).marks & TSR_MARK_BACKWARD) continue;
      again[n] = g.record_of(n).has(kConstant) || (n < assignment.size() && assignment[n].kind == Assignment::kView);
    }
    recompute(g, again);
  }

  // So that whoever sees the forward half alone knows it for a part of a training step, as the other half is by its own marks:
  // a backend that decides by the whole graph must decide alike for both, or a value that is computed again has other bits.
  static void mark_what_leaves(Graph& g, const std::vector<tsr_id>& outputs) {
    g.begin("pair");
    for (const tsr_id v : outputs)
      if (const tsr_id def = g.value(v).def_node; def != TSR_NONE) g.set_marks(def, g.node(def).marks | TSR_MARK_SAVE);
    g.commit();
  }

  struct Halves {
    std::unique_ptr<Graph> forward, backward;
    std::unique_ptr<BackwardHalf> half;  // without its executable
  };

  Halves split(Graph& g, const std::vector<Assignment>& assignment) const {
    g.begin("pair");
    find_late(g);
    g.commit();
    copy_what_is_free(g, assignment);
    const tsr_region& body = g.region(0);
    const std::vector<tsr_id> inputs(body.inputs, body.inputs + num_inputs_);
    const std::vector<tsr_id> cotangents(body.inputs + num_inputs_, body.inputs + body.num_inputs);
    std::vector<tsr_id> results, gradients, kept, read;
    for (uint32_t i = 0; i < body.num_outputs; ++i) (of_backward_[i] ? gradients : results).push_back(body.outputs[i]);
    const auto reads = [&](tsr_id v) {
      if (v == TSR_NONE || is_late(g, v)) return;
      std::vector<tsr_id>& list = g.value(v).def_node == TSR_NONE ? read : kept;
      if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
    };
    for (const tsr_id n : nodes_of(g, 0))
      if (g.node(n).marks & TSR_MARK_BACKWARD)
        for (uint32_t i = 0; i < g.node(n).num_operands; ++i) reads(g.node(n).operands[i]);
    for (const tsr_id v : gradients) reads(v);
    const auto inputs_of_backward = [&] {
      std::vector<tsr_id> all = kept;
      all.insert(all.end(), read.begin(), read.end());
      all.insert(all.end(), cotangents.begin(), cotangents.end());
      return all;
    };
    const std::string name = g.tables().name;
    if (!g.sizes().symbols().empty())
      for (const tsr_id v : values_for_sizes(*graph_part(g, name, inputs_of_backward(), gradients), g)) reads(v);

    Halves out;
    out.half = std::make_unique<BackwardHalf>();
    out.half->num_results = static_cast<uint32_t>(results.size());
    out.half->num_cotangents = static_cast<uint32_t>(cotangents.size());
    std::vector<tsr_id> forward_outputs = results;
    for (const tsr_id v : kept) {
      auto at = std::find(forward_outputs.begin(), forward_outputs.end(), v);
      if (at == forward_outputs.end()) at = forward_outputs.insert(forward_outputs.end(), v);
      out.half->kept.push_back(static_cast<uint32_t>(at - forward_outputs.begin()));
    }
    for (const tsr_id v : read) out.half->inputs.push_back(g.value(v).def_index);

    mark_what_leaves(g, forward_outputs);
    out.backward = graph_part(g, name + "_backward", inputs_of_backward(), gradients);
    out.forward = graph_part(g, name, inputs, forward_outputs);
    // What is kept goes while the backward half runs.
    Graph& back = *out.backward;
    back.begin("pair");
    for (size_t k = 0; k < kept.size(); ++k) back.set_state(back.region(0).inputs[k], TSR_NONE, true);
    back.commit();
    return out;
  }

  std::unique_ptr<Executable> compile(Halves halves) const {
    CompileOptions options = options_;
    options.partition = nullptr;
    halves.half->executable = compile_graph(std::move(halves.backward), options);
    std::unique_ptr<Executable> forward = compile_graph(std::move(halves.forward), options);
    forward->backward = std::move(halves.half);
    return forward;
  }

  static constexpr int kAttempts = 5;
  const PassLists& passes_;
  const CompileOptions& options_;
  Compilation c_;
  KnownKernels known_;                // of the pairs that were compiled
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

std::vector<PartitionPlan> partition_plans_of_pair(std::unique_ptr<Graph> graph, const PassLists& passes,
                                                   const CompileOptions& options) {
  return PairCompiler(std::move(graph), passes, options).plans();
}

}  // namespace tessera::core
