// SPDX-License-Identifier: Apache-2.0
// Transactions of a graph: commit checks what was edited, rollback undoes the journal backwards; restart empties a graph that
// is being built.
#include <algorithm>

#include "ir/graph.hpp"
#include "ir/graph_undo.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"

namespace tessera::core {

void Graph::begin(std::string_view author) {
  marks_.push_back({journal_.size(), edited_.size(), sizes_.checkpoint(), author_, next_anonymous_});
  author_ = intern(author);
}

bool Graph::changed() const {
  if (marks_.empty()) return false;
  const Mark& m = marks_.back();
  const Sizes::Checkpoint now = sizes_.checkpoint();
  return journal_.size() > m.journal || now.symbols != m.sizes.symbols || now.assumptions != m.sizes.assumptions;
}

void Graph::commit() {
  if (marks_.empty()) graph_misuse("commit without a transaction");
  if (marks_.size() > 1) {
    author_ = marks_.back().author;
    marks_.pop_back();
    return;
  }
  std::sort(edited_.begin(), edited_.end());
  edited_.erase(std::unique(edited_.begin(), edited_.end()), edited_.end());
  std::erase_if(edited_, [&](tsr_id n) { return !nodes_[n].alive; });
  try {
    verify_nodes(*this, edited_);
  } catch (...) {
    rollback();
    throw;
  }
  close();
}

// Forgets the outermost transaction.
void Graph::close() {
  marks_.clear();
  journal_.clear();
  edited_.clear();
  author_ = nullptr;
  reset_scratch();
}

void Graph::rollback() {
  if (marks_.empty()) graph_misuse("rollback without a transaction");
  const Mark m = marks_.back();
  while (journal_.size() > m.journal) {
    undo(journal_.back());
    journal_.pop_back();
  }
  sizes_.restore(m.sizes);
  next_anonymous_ = m.next_anonymous;
  if (marks_.size() == 1) return close();
  edited_.resize(m.edited);
  author_ = m.author;
  marks_.pop_back();
}

// Undone in reverse order, what an edit has created is the tail of its table, and is dropped there.
void Graph::undo(const Undo& u) {
  switch (u.kind) {
    case Undo::kCreateNode: {
      const tsr_node& n = nodes_[u.id];
      for (uint32_t i = 0; i < n.num_operands; ++i) remove_use(n.operands[i], {u.id, i});
      for (uint32_t i = 0; i < n.num_regions; ++i) regions_[n.regions[i]].parent_node = TSR_NONE;
      unlink(u.id);
      --live_nodes_;
      drop_values(n.num_results);
      nodes_.pop_back();
      node_slots_.pop_back();
      break;
    }
    case Undo::kEraseNode: {
      revive(u.id, true);
      link(u.id, u.other);
      const tsr_node& n = nodes_[u.id];
      for (uint32_t i = 0; i < n.num_operands; ++i) add_use(n.operands[i], {u.id, i});
      break;
    }
    case Undo::kMove:
      unlink(u.id);
      link(u.id, u.other);
      nodes_[u.id].author = u.author;
      break;
    case Undo::kOperand: {
      tsr_id& slot = const_cast<tsr_id*>(nodes_[u.id].operands)[u.index];
      remove_use(slot, {u.id, u.index});
      slot = u.other;
      add_use(slot, {u.id, u.index});
      nodes_[u.id].author = u.author;
      break;
    }
    case Undo::kAttrs:
      nodes_[u.id].attrs = static_cast<const tsr_attr*>(u.old);
      nodes_[u.id].num_attrs = u.count;
      nodes_[u.id].author = u.author;
      break;
    case Undo::kMarks:
      nodes_[u.id].marks = u.index;
      nodes_[u.id].author = u.author;
      break;
    case Undo::kType:
      values_[u.id].type = static_cast<const tsr_type*>(u.old);
      if (values_[u.id].def_node != TSR_NONE) nodes_[values_[u.id].def_node].author = u.author;
      break;
    case Undo::kName:
      release_name(u.id);
      values_[u.id].name = static_cast<const char*>(u.old);
      take_name(u.id);
      break;
    case Undo::kKey: values_[u.id].key = nullptr; break;
    case Undo::kCreateRegion:
      drop_values(regions_[u.id].num_inputs);
      regions_.pop_back();
      output_slots_.pop_back();
      break;
    case Undo::kOutputs: {
      tsr_region& r = regions_[u.id];
      for (uint32_t i = 0; i < r.num_outputs; ++i) remove_use(r.outputs[i], {TSR_NONE, i});
      r.outputs = static_cast<const tsr_id*>(u.old);
      r.num_outputs = u.count;
      output_slots_[u.id] = new_slots(u.count);
      for (uint32_t i = 0; i < r.num_outputs; ++i) add_use(r.outputs[i], {TSR_NONE, i});
      break;
    }
    case Undo::kCreateInput: {
      tsr_region& r = regions_[0];
      r.inputs = static_cast<const tsr_id*>(u.old);
      --r.num_inputs;
      drop_values(1);
      break;
    }
    case Undo::kState:
      values_[u.id].writeback = u.other;
      values_[u.id].donated = u.index;
      values_[u.id].input_kind = u.count;
      break;
    case Undo::kOutputNames: tables_.output_names = static_cast<const char* const*>(u.old); break;
    case Undo::kGraphName: tables_.name = static_cast<const char*>(u.old); break;
  }
}

void Graph::drop_values(size_t count) {
  for (; count > 0; --count) {
    const tsr_id v = static_cast<tsr_id>(values_.size() - 1);
    if (values_[v].alive) release_name(v);
    values_.pop_back();
    uses_.pop_back();
  }
}

void Graph::restart() {
  require_edit();
  if (marks_.size() != 1) graph_misuse("a graph can only start again while it is built, outside of other transactions");
  nodes_.clear();
  values_.clear();
  regions_.clear();
  uses_.clear();
  node_slots_.clear();
  output_slots_.clear();
  names_ = NameTable();
  next_suffix_.clear();
  journal_.clear();
  edited_.clear();
  owners_.clear();
  held_.clear();
  sources_ = {};
  tables_.output_names = nullptr;
  marks_.back() = {0, 0, sizes_.checkpoint(), marks_.back().author, 0};
  live_nodes_ = 0;
  next_anonymous_ = 0;
  create_region({});
  journal_.clear();  // as in the constructor
}

}  // namespace tessera::core
