// SPDX-License-Identifier: Apache-2.0
// The edits of a graph: each checks its arguments, writes one step into the journal and touches what it changed.
#include <algorithm>
#include <cstring>

#include "ir/broadcast.hpp"
#include "ir/graph.hpp"
#include "ir/graph_undo.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"

namespace tessera::core {

tsr_id Graph::create_node(const NodeSpec& spec, tsr_id region, tsr_id before) {
  require_edit();
  const OpRecord& rec = ops_->get(spec.op);
  if (region >= regions_.size() || !regions_[region].alive) graph_misuse("no live region with id " + std::to_string(region));
  if (before != TSR_NONE) {
    check_node(before);
    if (nodes_[before].parent != region) graph_misuse("the insertion point is in another region");
  }
  for (tsr_id v : spec.operands)
    if (v != TSR_NONE) check_value(v);
  for (size_t i = 0; i < spec.regions.size(); ++i) {
    const tsr_id r = spec.regions[i];
    bool free = r != 0 && r < regions_.size() && regions_[r].alive && regions_[r].parent_node == TSR_NONE;
    for (size_t k = 0; k < i; ++k) free &= spec.regions[k] != r;
    // Nor may the node stand in what it is about to own.
    for (tsr_id outer = region; free;) {
      free = outer != r;
      const tsr_id owner = regions_[outer].parent_node;
      if (owner == TSR_NONE) break;
      outer = nodes_[owner].parent;
    }
    if (!free) graph_misuse("region " + std::to_string(r) + " is not free to become part of '" + rec.name + "'");
  }

  if (!spec.typed && spec.result_types.empty())
    if (const auto other = widened(*this, rec, spec, region, before)) return create_node(*other, region, before);

  // Attributes go into the graph's memory first, so that inference sees what the node will hold.
  const std::vector<tsr_attr> complete = complete_attrs(rec, spec.attrs);
  auto* attrs = static_cast<tsr_attr*>(allocate(complete.size() * sizeof(tsr_attr), alignof(tsr_attr)));
  for (size_t i = 0; i < complete.size(); ++i) attrs[i] = copy_attr(complete[i]);

  std::vector<tsr_type> inferred;
  const std::vector<tsr_type>* types = &spec.result_types;
  if (!spec.typed && spec.result_types.empty()) {
    std::vector<const tsr_type*> operand_types;
    operand_types.reserve(spec.operands.size());
    for (tsr_id v : spec.operands) operand_types.push_back(v == TSR_NONE ? nullptr : values_[v].type);
    std::vector<std::vector<const tsr_type*>> region_types(2 * spec.regions.size());
    std::vector<tsr_signature> signatures(spec.regions.size());
    for (size_t i = 0; i < spec.regions.size(); ++i) {
      const tsr_region& r = regions_[spec.regions[i]];
      for (uint32_t k = 0; k < r.num_inputs; ++k) region_types[2 * i].push_back(values_[r.inputs[k]].type);
      for (uint32_t k = 0; k < r.num_outputs; ++k) region_types[2 * i + 1].push_back(values_[r.outputs[k]].type);
      signatures[i] = {region_types[2 * i].data(), r.num_inputs, r.num_outputs, region_types[2 * i + 1].data()};
    }
    tsr_call call{};
    call.struct_size = sizeof call;
    call.graph = handle();
    call.op = rec.name.c_str();
    call.operands = operand_types.data();
    call.num_operands = static_cast<uint32_t>(operand_types.size());
    call.attrs = attrs;
    call.num_attrs = static_cast<uint32_t>(complete.size());
    call.regions = signatures.data();
    call.num_regions = static_cast<uint32_t>(signatures.size());
    const Sizes::Checkpoint before_inference = sizes_.checkpoint();
    try {
      inferred = infer(*this, rec, call);
    } catch (...) {
      sizes_.restore(before_inference);  // a node that was refused leaves no assumptions behind
      throw;
    }
    if (sizes_.assumptions().size() > before_inference.assumptions)
      sizes_.place_assumptions(
          before_inference.assumptions,
          (spec.loc.file ? spec.loc.file + (":" + std::to_string(spec.loc.line)) + " in " : "in ") + rec.name);
    types = &inferred;
  }

  const tsr_id id = static_cast<tsr_id>(nodes_.size());
  tsr_node n{};
  n.op = rec.name.c_str();
  n.op_index = rec.index;
  n.alive = 1;
  n.num_operands = static_cast<uint32_t>(spec.operands.size());
  auto* operands = static_cast<tsr_id*>(allocate(spec.operands.size() * sizeof(tsr_id), alignof(tsr_id)));
  std::copy(spec.operands.begin(), spec.operands.end(), operands);
  n.operands = operands;
  n.attrs = attrs;
  n.num_attrs = static_cast<uint32_t>(complete.size());
  n.num_regions = static_cast<uint32_t>(spec.regions.size());
  auto* owned = static_cast<tsr_id*>(allocate(spec.regions.size() * sizeof(tsr_id), alignof(tsr_id)));
  std::copy(spec.regions.begin(), spec.regions.end(), owned);
  n.regions = owned;
  n.parent = region;
  n.loc = spec.loc;
  if (n.loc.file) n.loc.file = intern(n.loc.file);
  n.author = author_;
  n.marks = spec.marks | marks_of_new_;
  n.num_results = static_cast<uint32_t>(types->size());
  auto* results = static_cast<tsr_id*>(allocate(types->size() * sizeof(tsr_id), alignof(tsr_id)));
  n.results = results;
  nodes_.push_back(n);
  for (uint32_t i = 0; i < n.num_results; ++i) {
    results[i] =
        new_value((*types)[i], i < spec.result_names.size() ? std::string_view(spec.result_names[i]) : std::string_view());
    tsr_value& v = values_[results[i]];
    v.def_node = id;
    v.def_index = i;
    v.region = region;
  }
  node_slots_.push_back(new_slots(n.num_operands));
  for (uint32_t i = 0; i < n.num_operands; ++i) add_use(operands[i], {id, i});
  for (tsr_id r : spec.regions) {
    regions_[r].parent_node = id;
    for (uint32_t k = 0; k < regions_[r].num_inputs; ++k) values_[regions_[r].inputs[k]].input_kind = TSR_INPUT_BLOCK;
  }
  link(id, before);
  ++live_nodes_;
  Undo u{Undo::kCreateNode};
  u.id = id;
  log(u);
  edited_.push_back(id);
  if (listener_) listener_->created(id);
  return id;
}

// Marks a node with its results and everything nested in it; names are freed or taken back.
void Graph::revive(tsr_id n, bool alive) {
  tsr_node& x = nodes_[n];
  x.alive = alive;
  live_nodes_ += alive ? 1 : -1;
  auto mark = [&](tsr_id v) {
    values_[v].alive = alive;
    if (alive)
      take_name(v);
    else
      release_name(v);
  };
  for (uint32_t i = 0; i < x.num_results; ++i) mark(x.results[i]);
  for (uint32_t i = 0; i < x.num_regions; ++i) {
    tsr_region& r = regions_[x.regions[i]];
    r.alive = alive;
    for (uint32_t k = 0; k < r.num_inputs; ++k) mark(r.inputs[k]);
    for (tsr_id m = r.first; m != TSR_NONE; m = nodes_[m].next) revive(m, alive);
  }
}

void Graph::erase_node(tsr_id n) {
  require_edit();
  check_node(n);
  const tsr_node& x = nodes_[n];
  for (uint32_t i = 0; i < x.num_results; ++i)
    if (!uses_[x.results[i]].empty())
      graph_misuse("cannot erase " + describe(n) + ": %" + values_[x.results[i]].name + " still has " +
                   std::to_string(uses_[x.results[i]].size()) + " uses");
  if (listener_) listener_->erased(n);
  for (uint32_t i = 0; i < x.num_operands; ++i) remove_use(x.operands[i], {n, i});
  Undo u{Undo::kEraseNode};
  u.id = n;
  u.other = x.next;
  unlink(n);
  revive(n, false);
  log(u);
}

void Graph::move_node(tsr_id n, tsr_id before) {
  require_edit();
  check_node(n);
  if (before != TSR_NONE) {
    check_node(before);
    if (nodes_[before].parent != nodes_[n].parent) graph_misuse("a node moves within its region only");
  }
  if (before == n || nodes_[n].next == before) return;
  Undo u{Undo::kMove};
  u.id = n;
  u.other = nodes_[n].next;
  u.author = nodes_[n].author;
  unlink(n);
  link(n, before);
  log(u);
  touch(n);
}

void Graph::set_operand(tsr_id n, uint32_t index, tsr_id v) {
  require_edit();
  check_node(n);
  if (index >= nodes_[n].num_operands) graph_misuse(describe(n) + " has no operand " + std::to_string(index));
  if (v != TSR_NONE) check_value(v);
  // The array was allocated by create_node; only the table's view of it is const.
  tsr_id& slot = const_cast<tsr_id*>(nodes_[n].operands)[index];
  if (slot == v) return;
  Undo u{Undo::kOperand};
  u.id = n;
  u.index = index;
  u.other = slot;
  u.author = nodes_[n].author;
  remove_use(slot, {n, index});
  slot = v;
  add_use(v, {n, index});
  log(u);
  touch(n);
  lost_use(u.other);
}

void Graph::set_attr(tsr_id n, const tsr_attr& a) {
  require_edit();
  check_node(n);
  const OpRecord& rec = record_of(n);
  std::vector<tsr_attr> given(nodes_[n].attrs, nodes_[n].attrs + nodes_[n].num_attrs);
  bool found = false;
  for (tsr_attr& g : given)
    if (std::strcmp(g.name, a.name) == 0) {
      g = a;
      found = true;
    }
  if (!found) given.push_back(a);
  const std::vector<tsr_attr> complete = complete_attrs(rec, given);
  auto* attrs = static_cast<tsr_attr*>(allocate(complete.size() * sizeof(tsr_attr), alignof(tsr_attr)));
  for (size_t i = 0; i < complete.size(); ++i) {
    const bool changed = std::strcmp(complete[i].name, a.name) == 0;
    attrs[i] = complete[i];
    if (changed) attrs[i] = copy_attr(complete[i]);
  }
  Undo u{Undo::kAttrs};
  u.id = n;
  u.old = nodes_[n].attrs;
  u.count = nodes_[n].num_attrs;
  u.author = nodes_[n].author;
  nodes_[n].attrs = attrs;
  nodes_[n].num_attrs = static_cast<uint32_t>(complete.size());
  log(u);
  touch(n);
}

void Graph::set_marks(tsr_id n, uint32_t marks) {
  require_edit();
  check_node(n);
  if (marks & ~TSR_MARK_ALL) graph_misuse("unknown marks " + std::to_string(marks) + " for " + describe(n));
  if (nodes_[n].marks == marks) return;
  Undo u{Undo::kMarks};
  u.id = n;
  u.index = nodes_[n].marks;
  u.author = nodes_[n].author;
  nodes_[n].marks = marks;
  log(u);
  touch(n);
}

void Graph::replace_uses(tsr_id from, tsr_id to) {
  require_edit();
  check_value(from);
  check_value(to);
  if (from == to) return;
  const tsr_type &a = *values_[from].type, &b = *values_[to].type;
  bool agree = a.dtype == b.dtype && a.rank == b.rank && a.device == b.device;
  for (uint32_t i = 0; agree && i < a.rank; ++i) agree = sizes_.compare(TSR_EQ, a.sizes[i], b.sizes[i]) == TSR_TRUE;
  if (!agree)
    graph_misuse("cannot replace %" + std::string(values_[from].name) + " of type " + print_type(*this, a) + " by %" +
                 values_[to].name + " of type " + print_type(*this, b));
  if (values_[from].region != values_[to].region) graph_misuse("cannot replace a value by one of another region");
  // From the back, where removing one leaves the others where they are.
  while (!uses_[from].empty()) {
    const tsr_use use = uses_[from].back();
    if (use.node != TSR_NONE) {
      set_operand(use.node, use.operand, to);
      continue;
    }
    const tsr_region& r = regions_[values_[from].region];
    std::vector<tsr_id> outputs(r.outputs, r.outputs + r.num_outputs);
    std::replace(outputs.begin(), outputs.end(), from, to);
    set_outputs(values_[from].region, outputs);
  }
}

void Graph::replace_node(tsr_id n, std::span<const tsr_id> values, tsr_id made_from) {
  require_edit();
  check_node(n);
  const std::span<const tsr_id> results(nodes_[n].results, nodes_[n].num_results);
  if (values.size() != results.size())
    graph_misuse("cannot replace " + describe(n) + " by " + std::to_string(values.size()) + " values, it has " +
                 std::to_string(results.size()) + " results");
  for (size_t i = 0; i < values.size(); ++i) replace_uses(results[i], values[i]);
  erase_node(n);
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] >= made_from && find_value(values_[results[i]].name) == TSR_NONE)
      set_name(values[i], values_[results[i]].name);
}

void Graph::set_type(tsr_id v, const tsr_type& t) {
  require_edit();
  check_value(v);
  Undo u{Undo::kType};
  u.id = v;
  u.old = values_[v].type;
  const tsr_id def = values_[v].def_node;
  if (def != TSR_NONE) u.author = nodes_[def].author;
  values_[v].type = intern_type(t);
  log(u);
  if (def != TSR_NONE) touch(def);
  for (const tsr_use& use : uses_[v])
    if (use.node != TSR_NONE) edited_.push_back(use.node);
  touch_owner(values_[v].region);
}

void Graph::set_name(tsr_id v, std::string_view name) {
  require_edit();
  check_value(v);
  if (name == values_[v].name) return;
  tsr_value& value = values_[v];
  if (tables_.output_names && value.region == 0 && value.def_node == TSR_NONE && !value.key) {
    // The signature has its names: outside of the graph the input goes on being called as it was.
    Undo key{Undo::kKey};
    key.id = v;
    value.key = value.name;
    log(key);
  }
  Undo u{Undo::kName};
  u.id = v;
  u.old = values_[v].name;
  release_name(v);
  values_[v].name = unique_name(name);
  take_name(v);
  log(u);
}

tsr_id Graph::create_region(std::span<const tsr_type> input_types, std::span<const std::string> names) {
  require_edit();
  const tsr_id id = static_cast<tsr_id>(regions_.size());
  tsr_region r{};
  r.parent_node = r.first = r.last = TSR_NONE;
  r.alive = 1;
  r.num_inputs = static_cast<uint32_t>(input_types.size());
  auto* inputs = static_cast<tsr_id*>(allocate(input_types.size() * sizeof(tsr_id), alignof(tsr_id)));
  r.inputs = inputs;
  regions_.push_back(r);
  output_slots_.push_back(nullptr);
  for (size_t i = 0; i < input_types.size(); ++i) {
    inputs[i] = new_value(input_types[i], i < names.size() ? std::string_view(names[i]) : std::string_view());
    tsr_value& v = values_[inputs[i]];
    v.region = id;
    v.def_index = static_cast<uint32_t>(i);
    v.input_kind = TSR_INPUT_BLOCK;
  }
  Undo u{Undo::kCreateRegion};
  u.id = id;
  log(u);
  return id;
}

void Graph::set_outputs(tsr_id region, std::span<const tsr_id> values) {
  require_edit();
  if (region >= regions_.size() || !regions_[region].alive) graph_misuse("no live region with id " + std::to_string(region));
  for (tsr_id v : values) {
    check_value(v);
    if (values_[v].region != region)
      graph_misuse("%" + std::string(values_[v].name) + " cannot be an output of region " + std::to_string(region) +
                   ": it belongs to another");
  }
  tsr_region& r = regions_[region];
  if (region == 0 && tables_.output_names && values.size() != r.num_outputs) {
    auto* names = static_cast<const char**>(allocate(values.size() * sizeof(char*), alignof(char*)));
    for (size_t i = 0; i < values.size(); ++i) names[i] = i < r.num_outputs ? tables_.output_names[i] : nullptr;
    store_output_names(names);
  }
  Undo u{Undo::kOutputs};
  u.id = region;
  u.old = r.outputs;
  u.count = r.num_outputs;
  for (uint32_t i = 0; i < r.num_outputs; ++i) remove_use(r.outputs[i], {TSR_NONE, i});
  output_slots_[region] = new_slots(values.size());
  auto* outputs = static_cast<tsr_id*>(allocate(values.size_bytes(), alignof(tsr_id)));
  std::copy(values.begin(), values.end(), outputs);
  r.outputs = outputs;
  r.num_outputs = static_cast<uint32_t>(values.size());
  for (uint32_t i = 0; i < r.num_outputs; ++i) add_use(outputs[i], {TSR_NONE, i});
  log(u);
  touch_owner(region);
  for (uint32_t i = 0; i < u.count; ++i) lost_use(static_cast<const tsr_id*>(u.old)[i]);
}

}  // namespace tessera::core
