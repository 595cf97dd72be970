// SPDX-License-Identifier: Apache-2.0
#include "autograd/expand.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/control.hpp"
#include "autograd/parts.hpp"
#include "ir/body.hpp"
#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

bool is_op(const Graph& g, tsr_id node, const char* op) { return std::strcmp(g.node(node).op, op) == 0; }

bool carries_gradient(const Graph& g, tsr_id value) { return is_float(g.value(value).type->dtype); }

// Values of one region that have some property; values made later have it only once they are added.
class ValueSet {
 public:
  void add(tsr_id v) {
    if (v >= has_.size()) has_.resize(v + 1);
    has_[v] = 1;
  }
  bool has(tsr_id v) const { return v < has_.size() && has_[v] != 0; }

 private:
  std::vector<uint8_t> has_;
};

void expand_in(Graph& g, tsr_id region);

// Expands one `grad` node.
class GradientOf {
 public:
  GradientOf(Graph& g, tsr_id node) : g_(g), node_(node), region_(g.node(node).parent) {
    const tsr_node& n = g.node(node);
    const auto outputs = static_cast<uint32_t>(g.attr(node, "outputs")->i);
    const bool seeded = g.attr(node, "seeded")->i != 0;
    const std::span<const tsr_id> all(n.operands, n.num_operands);
    outputs_.assign(all.begin(), all.begin() + outputs);
    if (seeded) seeds_.assign(all.begin() + outputs, all.begin() + 2 * outputs);
    wanted_.assign(all.begin() + (seeded ? 2 : 1) * outputs, all.end());
  }

  void run() {
    for (const tsr_id w : wanted_) check_wanted(w);
    const MarksScope backward(g_, TSR_MARK_BACKWARD);
    const tsr_id last_forward = g_.node(node_).prev;
    find_active(last_forward);
    const auto made_from = static_cast<tsr_id>(g_.num_values());
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (active_.has(outputs_[i])) accumulate(outputs_[i], seeds_.empty() ? filled(outputs_[i], 1) : seeds_[i]);
    for (tsr_id n = last_forward; n != TSR_NONE;) n = step_back(n);
    std::vector<tsr_id> gradients;
    for (const tsr_id w : wanted_) {
      const tsr_id found = gradient(w);
      gradients.push_back(found == TSR_NONE ? filled(w, 0) : found);
    }
    g_.replace_node(node_, gradients, made_from);
  }

 private:
  void check_wanted(tsr_id w) const {
    const tsr_id def = g_.value(w).def_node;
    if (def == TSR_NONE || is_op(g_, def, "leaf")) return;
    throw user_error("TSR-A002",
                     "gradient with respect to %" + std::string(g_.value(w).name) + " in " + g_.describe(node_) +
                         ": it is the result of " + g_.describe(def) + ", expected an input or the result of 'leaf'",
                     "write %x1 = leaf %x, use %x1 from there on, and ask for the gradient with respect to %x1");
  }

  // A node is active when it depends on a wanted value through numbers that have gradients.
  bool is_active(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    if (is_op(g_, n, "stop_gradient")) return false;
    return std::any_of(x.operands, x.operands + x.num_operands, [&](tsr_id v) { return v != TSR_NONE && active_.has(v); });
  }
  void add_active(tsr_id n) {
    const tsr_node& x = g_.node(n);
    if (!is_active(n)) return;
    for (uint32_t i = 0; i < x.num_results; ++i)
      if (carries_gradient(g_, x.results[i])) active_.add(x.results[i]);
  }
  void find_active(tsr_id last) {
    for (const tsr_id w : wanted_) active_.add(w);
    if (last == TSR_NONE) return;
    for (tsr_id n = g_.region(region_).first;; n = g_.node(n).next) {
      add_active(n);
      if (n == last) break;
    }
  }

  // Propagates the gradients of the node's results to its operands. Returns the node that comes next on the way back.
  tsr_id step_back(tsr_id n) {
    std::vector<tsr_id> of_results;
    bool any = false;
    for (uint32_t i = 0; i < g_.node(n).num_results; ++i) {
      of_results.push_back(gradient(g_.node(n).results[i]));
      any |= of_results.back() != TSR_NONE;
    }
    if (!any || !is_active(n)) return g_.node(n).prev;
    const OpRecord& record = g_.record_of(n);
    if (!record.grad_body && !(record.impl && record.impl->grad))
      return g_.node(n).num_regions > 0 ? through_regions(n, of_results) : decompose(n, of_results);
    const auto first_new = static_cast<tsr_id>(g_.num_nodes());
    const std::vector<tsr_id> of_operands = build_grad(g_, n, of_results);
    // Rules add nodes at the end of the region; what reads the gradients may stand before that.
    for (auto k = first_new; k < g_.num_nodes(); ++k)
      if (g_.node(k).alive && g_.node(k).parent == region_) g_.move_node(k, node_);
    if (leaves_out(n, of_operands)) return decompose(n, of_results);
    for (size_t i = 0; i < of_operands.size(); ++i) {
      const tsr_id operand = g_.node(n).operands[i];
      if (operand != TSR_NONE && of_operands[i] != TSR_NONE && active_.has(operand)) accumulate(operand, of_operands[i]);
    }
    return g_.node(n).prev;
  }

  tsr_id through_regions(tsr_id n, std::span<const tsr_id> of_results) {
    if (is_op(g_, n, "while_loop")) {
      const tsr_id before = g_.node(n).prev;
      const auto made_from = static_cast<tsr_id>(g_.num_values());
      if (const std::optional<std::vector<tsr_id>> scan = scan_of_loop(g_, n))
        return take_place(n, before, *scan, made_from, of_results);
    }
    const auto wanted = [&](tsr_id v) { return active_.has(v); };
    const std::optional<ControlGradient> found = build_control_gradient(g_, n, of_results, wanted, node_);
    if (!found) no_gradient(n);
    for (const tsr_id region : found->regions) expand_in(g_, region);
    for (size_t i = 0; i < found->of_operands.size(); ++i) {
      const tsr_id operand = g_.node(n).operands[i];
      if (found->of_operands[i] != TSR_NONE && active_.has(operand)) accumulate(operand, found->of_operands[i]);
    }
    return g_.node(n).prev;
  }

  // A composite's rule may leave out an operand that is rarely differentiated (the class weights of cross_entropy). That is no
  // zero: the decomposition has the gradient. Ops that work element by element leave out what is zero (floor, sign), and so do
  // ops that have no other meaning than their gradient.
  bool leaves_out(tsr_id n, std::span<const tsr_id> of_operands) const {
    const OpRecord& record = g_.record_of(n);
    if (record.has(kElementwise) || record.has(kAutograd) ||
        !(record.decompose_body || (record.impl && record.impl->decompose)))
      return false;
    for (size_t i = 0; i < of_operands.size(); ++i) {
      const tsr_id operand = g_.node(n).operands[i];
      if (operand != TSR_NONE && of_operands[i] == TSR_NONE && active_.has(operand)) return true;
    }
    return false;
  }

  // The gradient of an op without a rule is that of its decomposition, which takes the op's place.
  tsr_id decompose(tsr_id n, std::span<const tsr_id> of_results) {
    const OpRecord& record = g_.record_of(n);
    if (!record.decompose_body && !(record.impl && record.impl->decompose)) no_gradient(n);
    const tsr_id before = g_.node(n).prev;
    const auto made_from = static_cast<tsr_id>(g_.num_values());
    const std::vector<tsr_id> replacements = build_decomposition(g_, n);
    return take_place(n, before, replacements, made_from, of_results);
  }

  // Nodes that stand between `before` and the node give its results from now on. Returns the last of them.
  tsr_id take_place(tsr_id n, tsr_id before, const std::vector<tsr_id>& replacements, tsr_id made_from,
                    std::span<const tsr_id> of_results) {
    const tsr_id next = g_.node(n).next;
    const std::vector<tsr_id> results(g_.node(n).results, g_.node(n).results + g_.node(n).num_results);
    const std::vector<tsr_id> gradients(of_results.begin(), of_results.end());
    for (tsr_id& o : outputs_)
      for (size_t i = 0; i < results.size(); ++i)
        if (o == results[i]) o = replacements[i];
    g_.replace_node(n, replacements, made_from);
    for (size_t i = 0; i < results.size(); ++i) {
      std::replace(gradients_.begin(), gradients_.end(), results[i], replacements[i]);
      for (auto& [value, parts] : parts_) parts.replace(results[i], replacements[i]);
    }
    for (tsr_id k = before == TSR_NONE ? g_.region(region_).first : g_.node(before).next; k != next; k = g_.node(k).next)
      add_active(k);
    for (size_t i = 0; i < replacements.size(); ++i)
      if (gradients[i] != TSR_NONE && active_.has(replacements[i])) accumulate(replacements[i], gradients[i]);
    return g_.node(next).prev;  // `next` exists: the `grad` node comes last
  }

  [[noreturn]] void no_gradient(tsr_id n) const {
    throw user_error(
        "TSR-A001",
        "no gradient of " + g_.describe(n) + ", which " + g_.describe(node_) + " leads through: op '" + g_.node(n).op +
            "' has neither a gradient rule nor a decomposition",
        is_op(g_, n, "while_loop")
            ? "a while_loop has a gradient where it counts from one constant to another; use scan, or put stop_gradient behind "
              "it"
            : "if this value is not to be differentiated, put stop_gradient behind it; an op of your own gets a gradient "
              "by `grad { .. }` in its record");
  }

  // Everything that contributes to it has been met.
  tsr_id gradient(tsr_id value) {
    if (const auto held = parts_.extract(value); !held.empty())
      for (const tsr_id part : held.mapped().release()) add(value, part);
    return value < gradients_.size() ? gradients_[value] : TSR_NONE;
  }

  void accumulate(tsr_id value, tsr_id contribution) {
    const auto held = parts_.try_emplace(value).first;
    const std::optional<tsr_id> whole =
        held->second.take(g_, contribution) ? held->second.joined(g_, node_) : std::optional(contribution);
    if (held->second.empty()) parts_.erase(held);
    if (whole) add(value, *whole);
  }

  void add(tsr_id value, tsr_id contribution) {
    if (value >= gradients_.size()) gradients_.resize(value + 1, TSR_NONE);
    tsr_id& sum = gradients_[value];
    if (sum == TSR_NONE) {
      sum = contribution;
      return;
    }
    NodeSpec add;
    add.op = "add";
    add.operands = {sum, contribution};
    add.loc = g_.node(node_).loc;
    sum = g_.node(g_.create_node(add, region_, node_)).results[0];
  }

  // A tensor of the value's type, every element `number`.
  tsr_id filled(tsr_id value, double number) {
    const tsr_type type = *g_.value(value).type;
    alignas(16) char data[16] = {};
    store_from(type.dtype, data, 0, number);
    tsr_tensor t{};
    t.data = data;
    t.dtype = type.dtype;
    t.flags = TSR_TENSOR_CONTIGUOUS;
    tsr_attr attr{};
    attr.name = "value";
    attr.kind = TSR_ATTR_TENSOR;
    attr.tensor = &t;
    NodeSpec spec;
    spec.op = "constant";
    spec.attrs = {attr};
    spec.loc = g_.node(node_).loc;
    const tsr_id scalar = g_.node(g_.create_node(spec, region_, node_)).results[0];
    if (type.rank == 0) return scalar;
    tsr_attr shape{};
    shape.name = "shape";
    shape.kind = TSR_ATTR_DIMS;
    shape.count = type.rank;
    shape.ints = type.sizes;
    NodeSpec full;
    full.op = "full";
    full.operands = {scalar};
    full.attrs = {shape};
    full.loc = spec.loc;
    return g_.node(g_.create_node(full, region_, node_)).results[0];
  }

  Graph& g_;
  const tsr_id node_, region_;
  std::vector<tsr_id> outputs_, seeds_, wanted_;
  ValueSet active_;
  std::vector<tsr_id> gradients_;  // by value; TSR_NONE: zero so far
  std::unordered_map<tsr_id, Parts> parts_;
};

// What was needed until here only: a leaf and a stopped gradient are their operand, and an op that has no other meaning than
// its gradient is its decomposition.
void drop_markers(Graph& g, tsr_id region) {
  for (tsr_id n = g.region(region).first; n != TSR_NONE;) {
    const tsr_id next = g.node(n).next;
    if (is_op(g, n, "leaf") || is_op(g, n, "stop_gradient")) {
      const tsr_id operand = g.node(n).operands[0];
      g.replace_node(n, {&operand, 1}, static_cast<tsr_id>(g.num_values()));
    } else if (const OpRecord& record = g.record_of(n); record.has(kAutograd) && record.can_decompose()) {
      const auto made_from = static_cast<tsr_id>(g.num_values());
      g.replace_node(n, build_decomposition(g, n), made_from);
    }
    n = next;
  }
}

// What depends on the backward half belongs to it: gradients of gradients, an optimiser's update.
void mark_what_follows(Graph& g, tsr_id region) {
  for (const tsr_id n : nodes_of(g, region)) {
    const tsr_node& x = g.node(n);
    const bool follows = std::any_of(x.operands, x.operands + x.num_operands, [&](tsr_id v) {
      const tsr_id def = v == TSR_NONE ? TSR_NONE : g.value(v).def_node;
      return def != TSR_NONE && (g.node(def).marks & TSR_MARK_BACKWARD) != 0;
    });
    if (follows) g.set_marks(n, x.marks | TSR_MARK_BACKWARD);
  }
}

// A graph has few `grad` nodes: finding them by looking at all nodes takes less time than any pass does.
void expand_in(Graph& g, tsr_id region) {
  for (tsr_id n = g.region(region).first; n != TSR_NONE;) {
    const tsr_node x = g.node(n);
    for (uint32_t i = 0; i < x.num_regions; ++i) expand_in(g, x.regions[i]);
    const tsr_id next = x.next;
    if (is_op(g, n, "grad")) GradientOf(g, n).run();
    n = next;
  }
  drop_markers(g, region);
  mark_what_follows(g, region);
}

}  // namespace

bool has_gradients(const Graph& g) {
  for (tsr_id n = 0; n < g.num_nodes(); ++n)
    if (g.node(n).alive && g.record_of(n).has(kAutograd)) return true;
  return false;
}

void expand_gradients(Graph& g) {
  if (g.in_transaction()) g.commit();
  g.begin("autograd");
  try {
    expand_in(g, 0);
    g.commit();
  } catch (...) {
    if (g.in_transaction()) g.rollback();  // a commit that failed has rolled back
    throw;
  }
}

}  // namespace tessera::core
