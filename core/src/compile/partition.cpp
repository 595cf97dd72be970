// SPDX-License-Identifier: Apache-2.0
#include "compile/partition.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <span>

#include "compile/assign.hpp"
#include "compile/driver.hpp"
#include "compile/estimate.hpp"
#include "compile/recompute.hpp"
#include "compile/trials.hpp"
#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "plan/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

// A node that is computed element by element again runs inside the kernel of its reader: it neither writes its result nor,
// mostly, reads more than that kernel reads anyway. This is the part of its time as a kernel of its own that is left;
// `evaluate` prices what comes out exactly.
constexpr double kFusedPart = 0.125;

const PartitionOptions kNoPartitioner;  // only what the program itself wants to be computed again is

// The joint graph as a partitioner sees it. Arrays are by node or value id.
class Problem {
 public:
  // `last`: the stage up to which plans are compiled to see what they cost.
  Problem(Graph& g, const std::vector<Assignment>& assignment, const CompileOptions& options, int64_t workspaces,
          EvaluatedPlans& evaluated, Stage last)
      : g_(g),
        options_(options),
        request_(options.partition ? *options.partition : kNoPartitioner),
        workspaces_(workspaces),
        evaluated_(evaluated),
        last_(last) {
    const size_t nodes = g.num_nodes(), values = g.num_values();
    rules_.assign(nodes, TSR_PARTITION_SAVE);
    seconds_.assign(nodes, 0);
    in_forward_.assign(nodes, 0);
    in_backward_.assign(nodes, 0);
    is_view_.assign(nodes, 0);
    bytes_.assign(values, 0);
    find_halves();
    find_rules();
    find_costs(assignment);
    find_bytes();
  }

  PartitionPlan choose() {
    tsr_partition p = table();
    if (!request_.partitioner) {
      for (const tsr_id n : nodes_of(g_, 0)) p.in_backward[n] |= rules_[n] == TSR_PARTITION_RECOMPUTE;
      return plan_of(p);
    }
    const Factory& f = *request_.partitioner;
    f.call("partition", [&] { return f.as<tsr_partitioner>().partition(f.self, g_.handle(), request_.options.view(), &p); });
    check(p.in_backward);
    if (last_ == Stage::kKernels) return asked_plan_of(p);
    return plan_of(p);
  }

  void front(const std::function<void(const PartitionPlan&)>& each) {
    const Factory& f = *request_.partitioner;
    const auto& table_of = f.as<tsr_partitioner>();
    if (!table_of.front) return each(choose());
    struct Caller {
      Problem& problem;
      const std::function<void(const PartitionPlan&)>& each;
    } caller{*this, each};
    tsr_partition p = table();
    const auto each_plan = [](void* ctx, const tsr_partition* plan) {
      auto& c = *static_cast<Caller*>(ctx);
      c.each(c.problem.asked_plan_of(*plan));
    };
    f.call("front", [&] { return table_of.front(f.self, g_.handle(), request_.options.view(), &p, each_plan, &caller); });
  }

  // What runs again for a plan, views on the way included; by node id.
  std::vector<uint8_t> again(const uint8_t* in_backward) const {
    std::vector<uint8_t> out(g_.num_nodes(), 0);
    for (const tsr_id n : nodes_of(g_, 0)) {
      if (rules_[n] == TSR_PARTITION_MAY || rules_[n] == TSR_PARTITION_RECOMPUTE) out[n] = in_backward[n] != 0;
      if (rules_[n] != TSR_PARTITION_FREE) continue;
      const tsr_node& x = g_.node(n);
      out[n] = std::any_of(x.operands, x.operands + x.num_operands, [&](tsr_id v) {
        const tsr_id def = v == TSR_NONE ? TSR_NONE : g_.value(v).def_node;
        return def != TSR_NONE && out[def] != 0;
      });
    }
    return out;
  }

  const std::vector<uint8_t>& in_backward() const { return in_backward_; }

 private:
  bool late(tsr_id n) const { return rules_[n] == TSR_PARTITION_BACKWARD; }

  // What depends on the backward half belongs to it, and is marked so that no fused group straddles the cut.
  void find_halves() {
    g_.begin("partition");
    for (const tsr_id n : nodes_of(g_, 0)) {
      const tsr_node& x = g_.node(n);
      bool late = (x.marks & TSR_MARK_BACKWARD) != 0;
      for (uint32_t i = 0; !late && i < x.num_operands; ++i) {
        const tsr_id def = x.operands[i] == TSR_NONE ? TSR_NONE : g_.value(x.operands[i]).def_node;
        late = def != TSR_NONE && in_backward_[def] != 0;
      }
      in_backward_[n] = late;
      in_forward_[n] = !late;
      if (late) rules_[n] = TSR_PARTITION_BACKWARD;
      if (late && first_backward_ == TSR_NONE) first_backward_ = n;
      if (late) g_.set_marks(n, x.marks | TSR_MARK_BACKWARD);
    }
    g_.commit();
  }

  void find_rules() {
    for (const tsr_id n : nodes_of(g_, 0)) {
      if (late(n)) continue;
      const OpRecord& r = g_.record_of(n);
      const uint32_t marks = g_.node(n).marks;
      if (r.has(kConstant))
        rules_[n] = TSR_PARTITION_FREE;
      else if (!r.has(kPure) || r.has(kUnbacked) || r.has(kTransfer) || g_.node(n).num_regions > 0 || (marks & TSR_MARK_SAVE))
        rules_[n] = TSR_PARTITION_SAVE;
      else
        rules_[n] = (marks & TSR_MARK_CHECKPOINT) ? TSR_PARTITION_RECOMPUTE : TSR_PARTITION_MAY;
    }
  }

  // What the forward half needs for its own sake: outputs and effects.
  std::vector<uint8_t> needed() const {
    std::vector<uint8_t> out(g_.num_nodes(), 0);
    const tsr_region& body = g_.region(0);
    for (uint32_t i = 0; i < body.num_outputs; ++i)
      if (const tsr_id def = g_.value(body.outputs[i]).def_node; def != TSR_NONE) out[def] = 1;
    for (tsr_id n = body.last; n != TSR_NONE; n = g_.node(n).prev) {
      if (late(n)) continue;
      const tsr_node& x = g_.node(n);
      out[n] |= rules_[n] == TSR_PARTITION_SAVE;
      if (!out[n]) continue;
      for (uint32_t i = 0; i < x.num_operands; ++i)
        if (x.operands[i] != TSR_NONE && g_.value(x.operands[i]).def_node != TSR_NONE)
          out[g_.value(x.operands[i]).def_node] = 1;
    }
    return out;
  }

  void find_costs(const std::vector<Assignment>& assignment) {
    const auto plan = build_plan(g_, assignment, options_);
    const std::vector<int64_t> hints = hint_values(g_);
    const std::vector<uint8_t> forward = needed();
    const std::vector<StepCost> costs = step_costs(g_, *plan, hints, request_.partitioner ? &options_ : nullptr);
    std::map<tsr_device, double> seconds_of;
    for (size_t i = 0; i < costs.size(); ++i) {
      const Step& step = *plan->steps[i];
      const tsr_id n = step.node;
      if (step.kind == TSR_STEP_VIEW) {
        is_view_[n] = 1;
        if (rules_[n] == TSR_PARTITION_MAY || rules_[n] == TSR_PARTITION_RECOMPUTE) rules_[n] = TSR_PARTITION_FREE;
      }
      if (step.kind != TSR_STEP_KERNEL) continue;
      bind(n, costs[i]);
      double s = costs[i].seconds;
      step_seconds_ += s;
      seconds_of[step.device] += s;
      if (rules_[n] != TSR_PARTITION_MAY && rules_[n] != TSR_PARTITION_RECOMPUTE) continue;
      const bool fuses = step.backend && (step.backend->as<tsr_backend>().capabilities & TSR_CAP_FUSION) != 0;
      if (fuses && step.record->has(kElementwise)) s *= kFusedPart;
      seconds_[n] = forward[n] ? s : 0;  // what only the backward half reads runs once in either half
    }
    // Values are kept where most of the work is done: times and bytes have to be those of one machine.
    const auto busiest = std::max_element(seconds_of.begin(), seconds_of.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; });
    seconds_per_byte_ = seconds_per_byte(busiest == seconds_of.end() ? kCpu : busiest->first);
  }

  // An op of which nothing can be known is not computed again.
  void bind(tsr_id n, const StepCost& cost) {
    if (!cost.guessed || rules_[n] != TSR_PARTITION_MAY) return;
    rules_[n] = TSR_PARTITION_SAVE;
    if (unknown_.insert(g_.node(n).op).second)
      log_warning("op '" + std::string(g_.node(n).op) +
                  "' could not be run alone to measure it, and says nothing of its cost: " + g_.describe(n) +
                  " is not computed again (tsr_op_impl.cost tells its work)");
  }

  void find_bytes() {
    const std::vector<int64_t> hints = hint_values(g_);
    std::vector<uint8_t> stays(g_.num_values(), 0);  // an output, or what an output is a view of
    const tsr_region& body = g_.region(0);
    for (uint32_t i = 0; i < body.num_outputs; ++i) stays[body.outputs[i]] = 1;
    for (tsr_id n = body.last; n != TSR_NONE; n = g_.node(n).prev)
      if (is_view_[n] && g_.node(n).operands[0] != TSR_NONE) stays[g_.node(n).operands[0]] |= stays[g_.node(n).results[0]];
    for (const tsr_id n : nodes_of(g_, 0)) {
      if (rules_[n] == TSR_PARTITION_FREE || is_view_[n]) continue;
      for (uint32_t i = 0; i < g_.node(n).num_results; ++i) {
        const tsr_id v = g_.node(n).results[i];
        if (stays[v]) continue;
        const tsr_type& t = *g_.value(v).type;
        int64_t elements = 1;
        for (uint32_t k = 0; k < t.rank; ++k) elements *= std::max<int64_t>(0, hint_size(g_, t.sizes[k], hints));
        bytes_[v] = storage_bytes(t.dtype, elements);
      }
    }
  }

  tsr_partition table() {
    tsr_partition p{};
    p.struct_size = sizeof p;
    p.budget_bytes = request_.bytes;
    p.budget_fraction = request_.fraction;
    forward_out_ = in_forward_;
    backward_out_ = in_backward_;
    p.in_forward = forward_out_.data();
    p.in_backward = backward_out_.data();
    p.num_nodes = in_forward_.size();
    p.first_backward = first_backward_;
    p.feasible = 1;
    p.bound_gap = -1;
    p.rules = rules_.data();
    p.seconds = seconds_.data();
    p.bytes = bytes_.data();
    p.num_values = bytes_.size();
    p.step_seconds = step_seconds_;
    p.seconds_per_byte = seconds_per_byte_;
    p.peak_bytes = -1;
    p.host = this;
    p.evaluate = [](void* host, const uint8_t* in_backward, int64_t* peak, double* seconds) noexcept {
      return guarded([&] {
        const Estimate e = static_cast<Problem*>(host)->evaluate(in_backward);
        if (peak) *peak = e.peak_bytes + static_cast<Problem*>(host)->workspaces_;
        if (seconds) *seconds = e.seconds;
      });
    };
    p.evaluate_all = [](void* host, size_t count, const uint8_t* const* in_backward, int64_t* peaks, double* seconds) noexcept {
      return guarded([&] {
        const std::vector<Estimate> all = static_cast<Problem*>(host)->evaluate({in_backward, count});
        for (size_t i = 0; i < count; ++i) {
          if (peaks) peaks[i] = all[i].peak_bytes + static_cast<Problem*>(host)->workspaces_;
          if (seconds) seconds[i] = all[i].seconds;
        }
      });
    };
    p.at_once = trials_at_once(options_, last_);
    return p;
  }

  std::string key_of(const std::vector<uint8_t>& again) const {
    std::string key;
    for (const tsr_id n : nodes_of(g_, 0)) key.push_back(again[n] ? '1' : '0');
    return key;
  }

  Estimate evaluate(const uint8_t* in_backward) { return evaluate({&in_backward, 1})[0]; }

  std::vector<Estimate> evaluate(std::span<const uint8_t* const> plans) {
    std::vector<std::string> keys, missing;
    for (const uint8_t* in_backward : plans) {
      check(in_backward);
      keys.push_back(key_of(again(in_backward)));
      if (!evaluated_.contains(keys.back()) && std::find(missing.begin(), missing.end(), keys.back()) == missing.end())
        missing.push_back(keys.back());
    }
    const std::vector<Estimate> found = estimate_trials(
        missing.size(), [&](size_t i) { return trial_of(missing[i]); }, options_, last_);
    for (size_t i = 0; i < found.size(); ++i) evaluated_[missing[i]] = found[i];
    std::vector<Estimate> out;
    for (const std::string& key : keys) out.push_back(evaluated_.at(key));
    return out;
  }

  Trial trial_of(const std::string& key) const {
    Trial t{g_.clone(), {}};
    // A copy has other ids and the same order.
    t.again.assign(t.graph->num_nodes(), 0);
    tsr_id to = t.graph->region(0).first;
    for (const char c : key) {
      t.again[to] = c == '1';
      to = t.graph->node(to).next;
    }
    return t;
  }

  void check(const uint8_t* in_backward) const {
    for (const tsr_id n : nodes_of(g_, 0)) {
      const bool no = (rules_[n] == TSR_PARTITION_SAVE && in_backward[n]) ||
                      (rules_[n] == TSR_PARTITION_RECOMPUTE && !in_backward[n]) ||
                      (rules_[n] == TSR_PARTITION_BACKWARD && !in_backward[n]);
      if (!no) continue;
      const Factory& f = *request_.partitioner;
      throw bug("TSR-A011",
                "plugin '" + f.plugin->id + "' (" + f.plugin->vendor + "): partitioner '" + f.name + "' decided that " +
                    g_.describe(n) +
                    (in_backward[n] ? " runs again, which it must not" : " does not run in the backward half, where it must"),
                "tsr_partition.rules says what may be decided of each node");
    }
  }

  // With what lowering says of it, whether or not the partitioner has asked for that.
  PartitionPlan asked_plan_of(tsr_partition p) {
    p.peak_bytes = evaluate(p.in_backward).peak_bytes + workspaces_;
    return plan_of(p);
  }

  PartitionPlan plan_of(const tsr_partition& p) const {
    PartitionPlan out;
    out.partitioner = request_.partitioner ? request_.partitioner->name : "the program";
    out.peak_bytes = p.peak_bytes;
    out.budget_bytes = p.budget_bytes;
    out.feasible = p.feasible != 0;
    out.recompute_seconds = p.recompute_seconds;
    out.step_seconds = step_seconds_;
    out.gap = p.bound_gap;
    const std::vector<uint8_t> again = this->again(p.in_backward);
    if (const auto at = evaluated_.find(key_of(again)); at != evaluated_.end()) out.predicted_seconds = at->second.seconds;
    std::vector<uint8_t> kept(g_.num_values(), 0), runs(g_.num_nodes(), 0);
    for (tsr_id n = g_.region(0).last; n != TSR_NONE; n = g_.node(n).prev) {
      const tsr_node& x = g_.node(n);
      if (!late(n) && !runs[n]) continue;
      for (uint32_t i = 0; i < x.num_operands; ++i) {
        const tsr_id def = x.operands[i] == TSR_NONE ? TSR_NONE : g_.value(x.operands[i]).def_node;
        if (def == TSR_NONE || late(def)) continue;
        if (again[def] || rules_[def] == TSR_PARTITION_FREE)
          runs[def] = 1;
        else
          kept[x.operands[i]] = 1;
      }
    }
    for (tsr_id v = 0; v < kept.size(); ++v)
      if (kept[v]) {
        out.saved.emplace_back(g_.value(v).name);
        out.saved_bytes += bytes_[v];
      }
    for (const tsr_id n : nodes_of(g_, 0))
      if (runs[n] && rules_[n] != TSR_PARTITION_FREE && g_.node(n).num_results > 0) {
        out.recomputed.emplace_back(g_.value(g_.node(n).results[0]).name);
        out.unfused_seconds += seconds_[n];
      }
    return out;
  }

  Graph& g_;
  const CompileOptions& options_;
  const PartitionOptions& request_;
  const int64_t workspaces_;
  EvaluatedPlans& evaluated_;
  const Stage last_;
  std::vector<uint8_t> rules_, is_view_, in_forward_, in_backward_, forward_out_, backward_out_;
  std::vector<double> seconds_;
  std::vector<int64_t> bytes_;
  tsr_id first_backward_ = TSR_NONE;
  double step_seconds_ = 0, seconds_per_byte_ = 0;
  std::set<std::string> unknown_;  // ops that a warning has named

 public:
  const uint8_t* chosen() const { return backward_out_.data(); }
};

}  // namespace

std::string PartitionPlan::line() const {
  char text[320];
  std::snprintf(text, sizeof text, "%s keeps %zu values, %s, and computes %zu nodes again in %.3f ms (%.2f %% of a step)",
                partitioner.c_str(), saved.size(), bytes_text(static_cast<double>(saved_bytes)).c_str(), recomputed.size(),
                recompute_seconds * 1e3, step_seconds > 0 ? 100 * recompute_seconds / step_seconds : 0);
  std::string out = text;
  if (peak_bytes >= 0) out += "; peak " + bytes_text(static_cast<double>(peak_bytes));
  if (predicted_seconds >= 0) {
    std::snprintf(text, sizeof text, "; a step takes about %.3f ms", predicted_seconds * 1e3);
    out += text;
  }
  if (gap >= 0) {
    std::snprintf(text, sizeof text, "; before fusion %.2f %% of a step, at most %.2f %% more than the best plan",
                  step_seconds > 0 ? 100 * unfused_seconds / step_seconds : 0, 100 * gap);
    out += text;
  }
  return out;
}

bool is_partitioned(const Graph& g, const CompileOptions& options) {
  uint32_t marks = 0, of_all = ~0U;
  for (const tsr_id n : nodes_of(g, 0)) marks |= g.node(n).marks, of_all &= g.node(n).marks;
  return ((marks & ~of_all) & TSR_MARK_BACKWARD) != 0 && (options.partition || (marks & TSR_MARK_CHECKPOINT) != 0);
}

bool partition(Graph& g, const std::vector<Assignment>& assignment, const CompileOptions& options, int64_t workspaces,
               EvaluatedPlans& evaluated, PartitionPlan& plan) {
  if (log_enabled(Artifact::kAotJointGraph)) log_write(Artifact::kAotJointGraph, print_graph(g, kPrintElideConstants));
  Problem problem(g, assignment, options, workspaces, evaluated, Stage::kPlan);
  plan = problem.choose();
  if (log_enabled(Artifact::kPartition)) {
    log_write(Artifact::kPartition, "@" + std::string(g.tables().name) + "  " + plan.line());
    if (!plan.recomputed.empty())
      log_write(Artifact::kPartition, 1, "@" + std::string(g.tables().name) + "  computed again: " + listed(plan.recomputed));
  }
  const bool changed = recompute(g, problem.again(problem.chosen()));
  if (log_enabled(Artifact::kAotGraphs)) log_write(Artifact::kAotGraphs, print_graph(g, kPrintElideConstants));
  return changed;
}

void partition_front(Graph& g, const std::vector<Assignment>& assignment, const CompileOptions& options,
                     const std::function<void(const PartitionPlan&)>& each) {
  EvaluatedPlans evaluated;
  Problem problem(g, assignment, options, 0, evaluated, Stage::kKernels);
  const PartitionOptions& asked = *options.partition;
  if (asked.bytes >= 0 || asked.fraction < 1)
    each(problem.choose());
  else
    problem.front(each);
}

}  // namespace tessera::core
