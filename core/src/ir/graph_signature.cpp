// SPDX-License-Identifier: Apache-2.0
// The signature of a graph: its inputs, and what inputs and outputs are called outside of it.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ir/graph.hpp"
#include "ir/graph_undo.hpp"
#include "support/error.hpp"

namespace tessera::core {

tsr_id Graph::create_input(std::string_view name, const tsr_type& type, tsr_input_kind kind, const char* key) {
  require_edit();
  const tsr_id id = new_value(type, name);
  tsr_value& v = values_[id];
  tsr_region& r = regions_[0];
  v.input_kind = kind;
  v.def_index = r.num_inputs;
  v.key = key ? intern(key) : nullptr;
  auto* inputs = const_cast<tsr_id*>(r.inputs);
  if ((r.num_inputs & (r.num_inputs - 1)) == 0) {  // full: the array grows to the next power of two
    inputs = static_cast<tsr_id*>(allocate(std::max(1u, 2 * r.num_inputs) * sizeof(tsr_id), alignof(tsr_id)));
    std::copy(r.inputs, r.inputs + r.num_inputs, inputs);
  }
  inputs[r.num_inputs] = id;
  Undo u{Undo::kCreateInput};
  u.id = id;
  u.old = r.inputs;
  r.inputs = inputs;
  ++r.num_inputs;
  log(u);
  return id;
}

void Graph::set_state(tsr_id v, uint32_t writeback, bool donated) {
  require_edit();
  check_value(v);
  Undo u{Undo::kState};
  u.id = v;
  u.other = values_[v].writeback;
  u.index = values_[v].donated;
  u.count = values_[v].input_kind;
  values_[v].writeback = writeback;
  values_[v].donated = donated;
  // An argument or parameter that is written back is a state.
  const bool is_input = values_[v].input_kind == TSR_INPUT_ARG || values_[v].input_kind == TSR_INPUT_PARAM;
  if (writeback != TSR_NONE && is_input) values_[v].input_kind = TSR_INPUT_STATE;
  log(u);
}

void Graph::store_output_names(const char* const* names) {
  Undo u{Undo::kOutputNames};
  u.old = tables_.output_names;
  tables_.output_names = names;
  log(u);
}

void Graph::set_output_names(std::span<const char* const> given) {
  require_edit();
  if (given.size() != regions_[0].num_outputs)
    graph_misuse(std::to_string(given.size()) + " names for the " + std::to_string(regions_[0].num_outputs) +
                 " outputs of graph '" + tables_.name + "'");
  auto* names = static_cast<const char**>(allocate(given.size_bytes(), alignof(char*)));
  std::unordered_set<std::string_view> taken;
  for (size_t i = 0; i < given.size(); ++i) {
    names[i] = given[i] ? intern(given[i]) : nullptr;
    if (!names[i]) continue;
    if (!*names[i]) graph_misuse("the name of output " + std::to_string(i) + " is empty");
    if (!taken.insert(names[i]).second) graph_misuse("two outputs are called '" + std::string(names[i]) + "'");
  }
  store_output_names(names);
}

void Graph::name_outputs() {
  require_edit();
  const tsr_region& r = regions_[0];
  std::unordered_set<std::string_view> taken;
  for (uint32_t i = 0; i < r.num_outputs; ++i)
    if (const char* given = given_output_name(i)) taken.insert(given);
  auto* names = static_cast<const char**>(allocate(r.num_outputs * sizeof(char*), alignof(char*)));
  std::unordered_map<std::string_view, uint64_t> next;  // suffix, where a name is taken
  bool any = false;
  for (uint32_t i = 0; i < r.num_outputs; ++i) {
    names[i] = given_output_name(i);
    if (names[i]) continue;
    const std::string_view base = values_[r.outputs[i]].name;
    std::string name(base);
    if (taken.contains(base)) {
      uint64_t& n = next.try_emplace(base, 2).first->second;
      do name = std::string(base) + "_" + std::to_string(n++);
      while (taken.contains(name));
    }
    names[i] = intern(name);
    taken.insert(names[i]);
    any = true;
  }
  if (any) store_output_names(names);
}

void Graph::rename(std::string_view graph_name) {
  require_edit();
  Undo u{Undo::kGraphName};
  u.old = tables_.name;
  tables_.name = intern(graph_name);
  log(u);
}

}  // namespace tessera::core
