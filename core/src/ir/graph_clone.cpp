// SPDX-License-Identifier: Apache-2.0
// A copy of a graph with the same sizes and names; big constants are shared.
#include "ir/graph.hpp"

namespace tessera::core {

namespace {
struct Cloner {
  const Graph& from;
  Graph& to;
  std::vector<tsr_id> values;

  explicit Cloner(const Graph& f, Graph& t) : from(f), to(t), values(f.num_values(), TSR_NONE) {}

  void body(tsr_id region, tsr_id target) {
    for (tsr_id n : nodes_of(from, region)) node(n, target);
    std::vector<tsr_id> outputs;
    const tsr_region& r = from.region(region);
    for (uint32_t i = 0; i < r.num_outputs; ++i) outputs.push_back(values[r.outputs[i]]);
    to.set_outputs(target, outputs);
  }

  void node(tsr_id n, tsr_id target) {
    const tsr_node& x = from.node(n);
    NodeSpec s;
    s.op = x.op;
    for (uint32_t i = 0; i < x.num_operands; ++i)
      s.operands.push_back(x.operands[i] == TSR_NONE ? TSR_NONE : values[x.operands[i]]);
    s.attrs.assign(x.attrs, x.attrs + x.num_attrs);
    s.loc = x.loc;
    s.marks = x.marks;
    s.typed = true;
    for (uint32_t i = 0; i < x.num_results; ++i) {
      s.result_types.push_back(*from.value(x.results[i]).type);
      s.result_names.emplace_back(from.value(x.results[i]).name);
    }
    for (uint32_t i = 0; i < x.num_regions; ++i) {
      const tsr_region& r = from.region(x.regions[i]);
      std::vector<tsr_type> types;
      std::vector<std::string> names;
      for (uint32_t k = 0; k < r.num_inputs; ++k) {
        types.push_back(*from.value(r.inputs[k]).type);
        names.emplace_back(from.value(r.inputs[k]).name);
      }
      const tsr_id copy = to.create_region(types, names);
      for (uint32_t k = 0; k < r.num_inputs; ++k) values[r.inputs[k]] = to.region(copy).inputs[k];
      body(x.regions[i], copy);
      s.regions.push_back(copy);
    }
    const tsr_id made = to.create_node(s, target);
    for (uint32_t i = 0; i < x.num_results; ++i) values[x.results[i]] = to.node(made).results[i];
  }
};
}  // namespace

std::unique_ptr<Graph> Graph::clone() const {
  auto g = std::make_unique<Graph>(*ops_, tables_.name);
  g->sizes_.~Sizes();
  new (&g->sizes_) Sizes(sizes_);  // handles keep their meaning: sizes need no renaming
  g->owners_ = owners_;
  g->sources_ = sources_;
  g->share_constants_ = true;
  Cloner c(*this, *g);
  const tsr_region& r = regions_[0];
  for (uint32_t i = 0; i < r.num_inputs; ++i) {
    const tsr_value& v = values_[r.inputs[i]];
    c.values[r.inputs[i]] = g->create_input(v.name, *v.type, static_cast<tsr_input_kind>(v.input_kind), v.key);
    g->set_state(c.values[r.inputs[i]], v.writeback, v.donated != 0);
  }
  c.body(0, 0);
  if (tables_.output_names) g->set_output_names({tables_.output_names, r.num_outputs});
  for (tsr_id n = 0; n < g->nodes_.size(); ++n) g->nodes_[n].author = "clone";
  g->share_constants_ = false;
  g->close();  // a copy of a checked graph needs no check
  return g;
}

}  // namespace tessera::core
