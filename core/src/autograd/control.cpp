// SPDX-License-Identifier: Apache-2.0
#include "autograd/control.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "autograd/turns.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

using Ids = std::vector<tsr_id>;

tsr_attr plain_attr(const char* name, uint32_t kind, int64_t i) {
  tsr_attr a{};
  a.name = name;
  a.kind = kind;
  a.i = i;
  return a;
}

class ControlBuilder {
 public:
  ControlBuilder(Graph& g, tsr_id node, std::span<const tsr_id> of_results, const std::function<bool(tsr_id)>& wanted,
                 tsr_id before)
      : g_(g), node_(node), before_(before), parent_(g.node(node).parent), of_results_(of_results.begin(), of_results.end()) {
    const tsr_node& n = g.node(node);
    operands_.assign(n.operands, n.operands + n.num_operands);
    for (const tsr_id v : operands_) wanted_.push_back(v != TSR_NONE && is_float(type(v).dtype) && wanted(v));
    out_.of_operands.assign(operands_.size(), TSR_NONE);
  }

  // The regions of both branches get the seeds as further arguments, and return the gradients of what is wanted.
  ControlGradient cond() {
    Ids args(operands_.begin() + 1, operands_.end()), seeds, wanted;
    std::vector<uint32_t> seeded;
    for (uint32_t r = 0; r < of_results_.size(); ++r)
      if (of_results_[r] != TSR_NONE) seeded.push_back(r), seeds.push_back(of_results_[r]);
    NodeSpec spec;
    spec.op = "cond";
    spec.operands = operands_;
    spec.operands.insert(spec.operands.end(), seeds.begin(), seeds.end());
    spec.loc = g_.node(node_).loc;
    for (uint32_t branch = 0; branch < 2; ++branch) {
      const tsr_id region = make_region(args, seeds);
      const Ids inputs = inputs_of(region);
      const Ids results = copy_body(g_.node(node_).regions[branch], {inputs.data(), args.size()}, region);
      Ids outputs, targets;
      for (const uint32_t r : seeded) outputs.push_back(results[r]);
      for (size_t i = 0; i < args.size(); ++i)
        if (wanted_[i + 1]) targets.push_back(inputs[i]);
      g_.set_outputs(region,
                     ask(region, outputs, {inputs.begin() + static_cast<std::ptrdiff_t>(args.size()), inputs.end()}, targets));
      spec.regions.push_back(region);
    }
    const tsr_id made = g_.create_node(spec, parent_, before_);
    uint32_t next = 0;
    for (size_t i = 1; i < operands_.size(); ++i)
      if (wanted_[i]) out_.of_operands[i] = g_.node(made).results[next++];
    return std::move(out_);
  }

  // A while_loop of so many turns. Its second region is that of the scan, which reads no slices.
  Ids loop(int64_t turns) {
    const tsr_id body = g_.node(node_).regions[1];
    const tsr_id region = make_region(inputs_of(body), {});
    g_.set_outputs(region, copy_body(body, inputs_of(region), region));
    NodeSpec spec;
    spec.op = "scan";
    spec.operands = operands_;
    spec.attrs = {*g_.attr(node_, "carried"), plain_attr("scanned", TSR_ATTR_INT, 0), plain_attr("reverse", TSR_ATTR_BOOL, 0),
                  plain_attr("length", TSR_ATTR_DIM, turns)};
    spec.regions = {region};
    spec.loc = g_.node(node_).loc;
    const tsr_id made = g_.create_node(spec, parent_, before_);
    return {g_.node(made).results, g_.node(made).results + g_.node(made).num_results};
  }

  // One scan keeps the carried values of each turn; another goes the other way over them, and carries their gradients and the
  // sums of those of invariants.
  ControlGradient scan() {
    const auto carried = static_cast<size_t>(g_.attr(node_, "carried")->i),
               scanned = static_cast<size_t>(g_.attr(node_, "scanned")->i);
    const auto begin = [&](size_t i) { return operands_.begin() + static_cast<std::ptrdiff_t>(i); };
    const Ids start(begin(0), begin(carried)), slices(begin(carried), begin(carried + scanned)),
        fixed(begin(carried + scanned), operands_.end());
    const Ids stacked = carried_of_turns(carried, scanned);
    const tsr_id body = g_.node(node_).regions[0];

    Ids sums, sums_of, moving, of_slices;  // gradients: of carried values, of invariants; what is scanned: with what is seeded
    std::vector<size_t> floats;            // carried values that have gradients
    for (size_t i = 0; i < carried; ++i)
      if (is_float(type(start[i]).dtype)) {
        floats.push_back(i);
        sums.push_back(of_results_[i] != TSR_NONE ? of_results_[i] : zeros(start[i], before_, parent_));
      }
    std::vector<size_t> wanted_fixed, wanted_slices, seeded;
    for (size_t i = 0; i < fixed.size(); ++i)
      if (wanted_[carried + scanned + i]) wanted_fixed.push_back(i), sums.push_back(zeros(fixed[i], before_, parent_));
    for (size_t i = 0; i < scanned; ++i)
      if (wanted_[carried + i]) wanted_slices.push_back(i);
    Ids given = stacked;
    given.insert(given.end(), slices.begin(), slices.end());
    for (size_t r = carried; r < of_results_.size(); ++r)
      if (of_results_[r] != TSR_NONE) seeded.push_back(r), given.push_back(of_results_[r]);

    std::vector<tsr_type> types;
    for (const tsr_id v : sums) types.push_back(type(v));
    for (const tsr_id v : given) types.push_back(slice_of(type(v)));
    for (const tsr_id v : fixed) types.push_back(type(v));
    const tsr_id region = g_.create_region(types);
    const Ids in = inputs_of(region);
    const size_t at_carried = sums.size(), at_slices = at_carried + carried, at_seeds = at_slices + scanned,
                 at_fixed = at_carried + given.size();
    Ids args(in.begin() + static_cast<std::ptrdiff_t>(at_carried), in.begin() + static_cast<std::ptrdiff_t>(at_seeds));
    args.insert(args.end(), in.begin() + static_cast<std::ptrdiff_t>(at_fixed), in.end());
    const Ids results = copy_body(body, args, region);
    Ids outputs, seeds, targets;
    for (size_t k = 0; k < floats.size(); ++k) outputs.push_back(results[floats[k]]), seeds.push_back(in[k]);
    for (size_t k = 0; k < seeded.size(); ++k) outputs.push_back(results[seeded[k]]), seeds.push_back(in[at_seeds + k]);
    for (const size_t i : floats) targets.push_back(in[at_carried + i]);
    for (const size_t i : wanted_fixed) targets.push_back(in[at_fixed + i]);
    for (const size_t i : wanted_slices) targets.push_back(in[at_slices + i]);
    Ids found = ask(region, outputs, seeds, targets);
    for (size_t k = 0; k < wanted_fixed.size(); ++k) {
      tsr_id& sum = found[floats.size() + k];
      NodeSpec add;
      add.op = "add";
      add.operands = {in[floats.size() + k], sum};
      sum = g_.node(g_.create_node(add, region)).results[0];
    }
    g_.set_outputs(region, found);

    NodeSpec spec;
    spec.op = "scan";
    spec.operands = sums;
    spec.operands.insert(spec.operands.end(), given.begin(), given.end());
    spec.operands.insert(spec.operands.end(), fixed.begin(), fixed.end());
    spec.regions = {region};
    spec.attrs = scan_attrs(sums.size(), given.size(), g_.attr(node_, "reverse")->i == 0);
    spec.loc = g_.node(node_).loc;
    const tsr_id made = g_.create_node(spec, parent_, before_);
    const auto result = [&](size_t i) { return g_.node(made).results[i]; };
    for (size_t k = 0; k < floats.size(); ++k) out_.of_operands[floats[k]] = result(k);
    for (size_t k = 0; k < wanted_fixed.size(); ++k)
      out_.of_operands[carried + scanned + wanted_fixed[k]] = result(floats.size() + k);
    for (size_t k = 0; k < wanted_slices.size(); ++k) out_.of_operands[carried + wanted_slices[k]] = result(sums.size() + k);
    return std::move(out_);
  }

 private:
  const tsr_type& type(tsr_id v) const { return *g_.value(v).type; }
  Ids inputs_of(tsr_id region) const {
    return {g_.region(region).inputs, g_.region(region).inputs + g_.region(region).num_inputs};
  }
  static tsr_type slice_of(tsr_type t) {
    --t.rank;
    ++t.sizes;
    t.strides = nullptr;
    return t;
  }

  tsr_id make_region(const Ids& args, const Ids& more) {
    std::vector<tsr_type> types;
    for (const tsr_id v : args) types.push_back(type(v));
    for (const tsr_id v : more) types.push_back(type(v));
    return g_.create_region(types);
  }

  // Copies what region `from` computes of `inputs` to the end of region `to`. Returns its outputs there.
  Ids copy_body(tsr_id from, std::span<const tsr_id> inputs, tsr_id to) {
    std::unordered_map<tsr_id, tsr_id> there;
    for (uint32_t i = 0; i < g_.region(from).num_inputs; ++i) there[g_.region(from).inputs[i]] = inputs[i];
    for (tsr_id n = g_.region(from).first; n != TSR_NONE; n = g_.node(n).next) {
      const tsr_node x = g_.node(n);
      NodeSpec spec;
      spec.op = x.op;
      for (uint32_t i = 0; i < x.num_operands; ++i)
        spec.operands.push_back(x.operands[i] == TSR_NONE ? TSR_NONE : there.at(x.operands[i]));
      spec.attrs.assign(x.attrs, x.attrs + x.num_attrs);
      for (uint32_t i = 0; i < x.num_regions; ++i) {
        const Ids inner = inputs_of(x.regions[i]);
        const tsr_id region = make_region(inner, {});
        g_.set_outputs(region, copy_body(x.regions[i], inputs_of(region), region));
        spec.regions.push_back(region);
      }
      for (uint32_t i = 0; i < x.num_results; ++i) {
        spec.result_types.push_back(type(x.results[i]));
        spec.result_names.emplace_back(g_.value(x.results[i]).name);
      }
      spec.typed = true;
      spec.loc = x.loc;
      const tsr_id copy = g_.create_node(spec, to);
      for (uint32_t i = 0; i < x.num_results; ++i) there[g_.node(n).results[i]] = g_.node(copy).results[i];
    }
    Ids out;
    for (uint32_t i = 0; i < g_.region(from).num_outputs; ++i) out.push_back(there.at(g_.region(from).outputs[i]));
    return out;
  }

  // A `grad` node at the end of the region.
  Ids ask(tsr_id region, const Ids& outputs, const Ids& seeds, const Ids& targets) {
    NodeSpec spec;
    spec.op = "grad";
    for (const Ids* list : {&outputs, &seeds, &targets}) spec.operands.insert(spec.operands.end(), list->begin(), list->end());
    spec.attrs = {plain_attr("outputs", TSR_ATTR_INT, static_cast<int64_t>(outputs.size())),
                  plain_attr("seeded", TSR_ATTR_BOOL, 1)};
    spec.loc = g_.node(node_).loc;
    const tsr_id made = g_.create_node(spec, region);
    out_.regions.push_back(region);
    return {g_.node(made).results, g_.node(made).results + g_.node(made).num_results};
  }

  std::vector<tsr_attr> scan_attrs(size_t carried, size_t scanned, bool reverse) const {
    return {plain_attr("carried", TSR_ATTR_INT, static_cast<int64_t>(carried)),
            plain_attr("scanned", TSR_ATTR_INT, static_cast<int64_t>(scanned)),
            plain_attr("reverse", TSR_ATTR_BOOL, reverse ? 1 : 0), *g_.attr(node_, "length")};
  }

  // The carried values as each turn of the forward scan gets them, stacked.
  Ids carried_of_turns(size_t carried, size_t scanned) {
    const tsr_id body = g_.node(node_).regions[0];
    const tsr_id region = make_region(inputs_of(body), {});
    const Ids in = inputs_of(region);
    Ids results = copy_body(body, in, region);
    results.resize(carried);
    results.insert(results.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(carried));
    g_.set_outputs(region, results);
    NodeSpec spec;
    spec.op = "scan";
    spec.operands = operands_;
    spec.attrs = scan_attrs(carried, scanned, g_.attr(node_, "reverse")->i != 0);
    spec.regions = {region};
    spec.loc = g_.node(node_).loc;
    const tsr_id made = g_.create_node(spec, parent_, before_);
    return {g_.node(made).results + carried, g_.node(made).results + 2 * carried};
  }

  tsr_id zeros(tsr_id like, tsr_id before, tsr_id region) {
    const tsr_type t = type(like);
    alignas(16) char data[16] = {};
    tsr_tensor zero{};
    zero.data = data;
    zero.dtype = t.dtype;
    zero.flags = TSR_TENSOR_CONTIGUOUS;
    tsr_attr value = plain_attr("value", TSR_ATTR_TENSOR, 0);
    value.tensor = &zero;
    NodeSpec scalar;
    scalar.op = "constant";
    scalar.attrs = {value};
    const tsr_id made = g_.node(g_.create_node(scalar, region, before)).results[0];
    if (t.rank == 0) return made;
    tsr_attr shape = plain_attr("shape", TSR_ATTR_DIMS, 0);
    shape.count = t.rank;
    shape.ints = t.sizes;
    NodeSpec full;
    full.op = "full";
    full.operands = {made};
    full.attrs = {shape};
    return g_.node(g_.create_node(full, region, before)).results[0];
  }

  Graph& g_;
  const tsr_id node_, before_, parent_;
  const Ids of_results_;
  Ids operands_;
  std::vector<bool> wanted_;
  ControlGradient out_;
};

// Sizes of results that are those of the operands and of the regions' results.
bool has_data_sizes(const Graph& g, tsr_id node) {
  const tsr_node& n = g.node(node);
  const auto depends = [&](tsr_id v) {
    const tsr_type& t = *g.value(v).type;
    return std::any_of(t.sizes, t.sizes + t.rank, [&](tsr_dim d) { return g.sizes().is_unbacked(d); });
  };
  if (std::any_of(n.results, n.results + n.num_results, depends)) return true;
  for (uint32_t k = 0; k < n.num_regions; ++k) {
    const tsr_region& r = g.region(n.regions[k]);
    if (std::any_of(r.inputs, r.inputs + r.num_inputs, depends) || std::any_of(r.outputs, r.outputs + r.num_outputs, depends))
      return true;
  }
  return false;
}

}  // namespace

std::optional<std::vector<tsr_id>> scan_of_loop(Graph& g, tsr_id node) {
  const tsr_node& n = g.node(node);
  if (std::strcmp(n.op, "while_loop") != 0 || has_data_sizes(g, node) || n.num_results != g.attr(node, "carried")->i)
    return std::nullopt;
  const std::optional<int64_t> turns = number_of_turns(g, node);
  if (!turns) return std::nullopt;
  return ControlBuilder(
             g, node, {}, [](tsr_id) { return false; }, node)
      .loop(*turns);
}

std::optional<ControlGradient> build_control_gradient(Graph& g, tsr_id node, std::span<const tsr_id> of_results,
                                                      const std::function<bool(tsr_id)>& wanted, tsr_id before) {
  const bool is_cond = std::strcmp(g.node(node).op, "cond") == 0, is_scan = std::strcmp(g.node(node).op, "scan") == 0;
  if ((!is_cond && !is_scan) || has_data_sizes(g, node)) return std::nullopt;
  ControlBuilder build(g, node, of_results, wanted, before);
  return is_cond ? build.cond() : build.scan();
}

}  // namespace tessera::core
