// SPDX-License-Identifier: Apache-2.0
// The graph: SSA over tensors, stored as the plain-data tables of abi.h, so that plugins read it without a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/constant_source.hpp"
#include "ir/name_table.hpp"
#include "ir/sizes.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class ImportCall;
class OpRegistry;
struct OpRecord;

struct NodeSpec {  // the C++ form of tsr_node_desc
  std::string_view op;
  std::vector<tsr_id> operands;
  std::vector<tsr_attr> attrs;
  std::vector<tsr_id> regions;
  std::vector<tsr_type> result_types;  // empty: inferred (unless `typed`)
  bool typed = false;                  // result_types is complete, even when empty; still checked by the verifier, not here
  tsr_loc loc{};
  std::vector<std::string> result_names;
  uint32_t marks = 0;  // TSR_MARK_*, besides those of a MarksScope
};

// Owned by one thread at a time. Ids are stable; erased nodes and values stay in the tables with alive == 0 until compact().
// Every edit outside a transaction throws TSR-B001, except on a graph that was never handed out (building is a transaction
// from construction until the first commit).
class Graph {
 public:
  Graph(const OpRegistry& ops, std::string_view name);
  ~Graph();
  Graph(const Graph&) = delete;
  std::unique_ptr<Graph> clone() const;  // live nodes only, ids renumbered in program order
  // For a capture that goes on after a graph break: takes back inputs, nodes and outputs, as if newly made; sizes stay
  // (symbols, expressions, assumptions), so that handles of sizes that host code holds keep their meaning. Only while the graph
  // is built.
  void restart();

  static Graph& from(tsr_graph* g) { return *reinterpret_cast<Graph*>(g); }
  static const Graph& from(const tsr_graph* g) { return *reinterpret_cast<const Graph*>(g); }
  tsr_graph* handle() { return reinterpret_cast<tsr_graph*>(this); }

  // ---- reading
  const tsr_tables& tables() const {  // a live view: its address is stable, its pointers are not
    sync_tables();
    return tables_;
  }
  const OpRegistry& ops() const { return *ops_; }
  const OpRecord& record_of(tsr_id node) const;
  const tsr_node& node(tsr_id n) const { return nodes_[n]; }
  const tsr_value& value(tsr_id v) const { return values_[v]; }
  const tsr_region& region(tsr_id r) const { return regions_[r]; }
  size_t num_nodes() const { return nodes_.size(); }  // dead ones included
  size_t num_values() const { return values_.size(); }
  size_t num_regions() const { return regions_.size(); }
  size_t num_live_nodes() const { return live_nodes_; }
  std::span<const tsr_use> uses(tsr_id v) const { return uses_[v]; }
  // Where this operand stands in the uses of its value. Meaningless for an omitted operand.
  uint32_t use_index(tsr_id node, uint32_t operand) const { return node_slots_[node][operand]; }
  uint32_t output_use_index(tsr_id region, uint32_t output) const { return output_slots_[region][output]; }
  tsr_id find_value(std::string_view name) const;  // TSR_NONE when there is none
  const char* output_name(uint32_t index) const;   // outside of the graph: the one that was given, or that of its value
  const char* given_output_name(uint32_t index) const { return tables_.output_names ? tables_.output_names[index] : nullptr; }
  // What an input is called outside of the graph: its key, or its name.
  const char* input_name(tsr_id value) const { return values_[value].key ? values_[value].key : values_[value].name; }
  Sizes& sizes() { return sizes_; }
  const Sizes& sizes() const { return sizes_; }
  const tsr_attr* attr(tsr_id node, std::string_view name) const;  // null when it has none
  // Text of a node for messages: "%3 = add (mlp.cpp:12)".
  std::string describe(tsr_id node) const;
  // All the problems that a plugin's misuse caused are TSR-B errors; wrong shapes and dtypes are TSR-I errors.

  // ---- building and editing (ids are checked)
  tsr_id create_node(const NodeSpec& spec, tsr_id region = 0, tsr_id before = TSR_NONE);
  void erase_node(tsr_id node);
  void move_node(tsr_id node, tsr_id before);
  void set_operand(tsr_id node, uint32_t index, tsr_id value);
  void set_attr(tsr_id node, const tsr_attr& attr);
  void set_marks(tsr_id node, uint32_t marks);
  // Marks of the nodes that are made from now on; see MarksScope.
  uint32_t set_marks_of_new(uint32_t marks) { return std::exchange(marks_of_new_, marks); }
  void replace_uses(tsr_id old_value, tsr_id new_value);
  // Replaces the results of `node`, in order, and erases it. Values with ids from `made_from` on were made for this: they take
  // over the names, so that outputs are called after an expansion what they were before.
  void replace_node(tsr_id node, std::span<const tsr_id> values, tsr_id made_from);
  void set_type(tsr_id value, const tsr_type& type);
  void set_name(tsr_id value, std::string_view name);
  tsr_id create_region(std::span<const tsr_type> input_types, std::span<const std::string> names = {});
  // The graph's own outputs keep their names by number; further ones are called as their values.
  void set_outputs(tsr_id region, std::span<const tsr_id> values);
  tsr_id create_input(std::string_view name, const tsr_type& type, tsr_input_kind kind = TSR_INPUT_ARG,
                      const char* key = nullptr);
  void set_state(tsr_id value, uint32_t writeback, bool donated);
  // The names of the outputs outside of the graph (tsr_tables.output_names), one for each; null: as its value.
  void set_output_names(std::span<const char* const> names);
  // Gives every output that has no name that of its value, with a suffix where another output has it: from here on no pass
  // changes it.
  void name_outputs();
  void rename(std::string_view graph_name);

  // ---- transactions: edits are journaled under an author. They nest: an inner commit keeps its edits in the outer one, an
  // inner rollback takes back its own alone.
  void begin(std::string_view author);
  // The outermost one checks the edited nodes (verifier.hpp: verify_nodes) and forgets the journal. When the check fails, it
  // rolls back and throws.
  void commit();
  // Restores everything that can be read of the graph, symbols and assumptions included, and hands the ids out again. Names
  // that are made unique later may get other suffixes than they would have.
  void rollback();
  bool in_transaction() const { return !marks_.empty(); }
  bool changed() const;  // since begin: edits, symbols or assumptions; false outside a transaction
  const std::vector<tsr_id>& edited() const { return edited_; }

  // ---- memory that lives as long as the graph
  void* allocate(size_t bytes, size_t align = 16);
  const char* intern(std::string_view s);
  tsr_dim* copy_dims(std::span<const tsr_dim> dims);
  tsr_type make_type(tsr_dtype dtype, std::span<const tsr_dim> sizes, tsr_device device = 0);
  // Scratch: reset by commit, rollback and reset_scratch.
  void* scratch(size_t bytes);
  void reset_scratch();
  // Keeps something alive as long as the graph (a mapping behind constants).
  void keep(std::shared_ptr<const void> owner) { owners_.push_back(std::move(owner)); }
  // What was given to keep() under this address, or made for a large constant that begins there; null: neither.
  std::shared_ptr<const void> owner_of(const void* p) const;
  ConstantSources& sources() { return sources_; }
  const ConstantSources& sources() const { return sources_; }

  // ---- the call that the graph is imported for; null: none. Borrowed while the import lasts.
  void set_import_call(ImportCall* call) { import_call_ = call; }
  ImportCall* import_call() { return import_call_; }

  // ---- events for the rewrite driver
  struct Listener {
    virtual ~Listener() = default;
    virtual void created(tsr_id) {}
    virtual void erased(tsr_id) {}
    virtual void modified(tsr_id) {}
    virtual void unused(tsr_id /*node*/) {}  // a result of this node has lost a use
  };
  Listener* set_listener(Listener* l) { return std::exchange(listener_, l); }  // the one before

 private:
  friend struct GraphTestAccess;  // negative tests of the verifier break graphs on purpose
  struct Undo;
  struct Mark {  // where a transaction began
    size_t journal, edited;
    Sizes::Checkpoint sizes;
    const char* author;
    uint32_t next_anonymous;
  };
  void revive(tsr_id node, bool alive);
  void log(const Undo& u);
  const tsr_type* intern_type(const tsr_type& t);
  tsr_attr copy_attr(const tsr_attr& a);
  tsr_id new_value(const tsr_type& type, std::string_view name);
  void store_output_names(const char* const* names);
  const char* unique_name(std::string_view base);
  void take_name(tsr_id value);
  void release_name(tsr_id value);
  void link(tsr_id node, tsr_id before);
  void unlink(tsr_id node);
  void add_use(tsr_id value, tsr_use use);
  void remove_use(tsr_id value, tsr_use use);
  uint32_t& use_slot(tsr_id value, tsr_use use);
  uint32_t* new_slots(size_t count) { return static_cast<uint32_t*>(allocate(count * sizeof(uint32_t), alignof(uint32_t))); }
  void lost_use(tsr_id value);
  void touch(tsr_id node);
  void touch_owner(tsr_id region);
  void require_edit() const;
  void check_node(tsr_id node) const;
  void check_value(tsr_id value) const;
  void sync_tables() const;
  void undo(const Undo& u);
  void drop_values(size_t count);
  void close();

  const OpRegistry* ops_;
  Sizes sizes_;
  std::pmr::monotonic_buffer_resource memory_;
  std::unique_ptr<std::pmr::monotonic_buffer_resource> scratch_;
  mutable tsr_tables tables_{};
  std::vector<tsr_node> nodes_;
  std::vector<tsr_value> values_;
  std::vector<tsr_region> regions_;
  std::vector<std::vector<tsr_use>> uses_;
  // Per node and operand, per region and output: the index in the uses of the value, so that removing a use takes constant
  // time.
  std::vector<uint32_t*> node_slots_, output_slots_;
  NameTable names_;
  std::unordered_map<std::string_view, uint32_t> next_suffix_;
  std::unordered_set<std::string_view> strings_;
  std::unordered_map<std::string, const tsr_type*> types_;
  std::vector<Undo> journal_;
  std::vector<tsr_id> edited_;
  std::vector<Mark> marks_;
  std::vector<std::shared_ptr<const void>> owners_;
  std::unordered_map<const void*, size_t> held_;  // large constants that lie in memory which lives as long as this graph: bytes
  ConstantSources sources_;
  ImportCall* import_call_ = nullptr;
  Listener* listener_ = nullptr;
  const char* author_ = nullptr;
  size_t live_nodes_ = 0;
  uint32_t marks_of_new_ = 0;
  uint32_t next_anonymous_ = 0;
  bool share_constants_ = false;  // while clone() copies into this graph
};

// While it lives, nodes that are made have these marks: those of the node that they stand for, or those of the half that they
// belong to. The innermost scope holds.
class MarksScope {
 public:
  MarksScope(Graph& g, uint32_t marks) : g_(g), before_(g.set_marks_of_new(marks)) {}
  ~MarksScope() { g_.set_marks_of_new(before_); }
  MarksScope(const MarksScope&) = delete;

 private:
  Graph& g_;
  uint32_t before_;
};

// Iterates the live nodes of a region in program order: for (tsr_id n : nodes_of(g, 0)). Do not erase `n` while on it.
struct NodeRange {
  const Graph* g;
  tsr_id first;
  struct Iterator {
    const Graph* g;
    tsr_id id;
    tsr_id operator*() const { return id; }
    Iterator& operator++() {
      id = g->node(id).next;
      return *this;
    }
    bool operator!=(const Iterator& o) const { return id != o.id; }
  };
  Iterator begin() const { return {g, first}; }
  Iterator end() const { return {g, TSR_NONE}; }
};
inline NodeRange nodes_of(const Graph& g, tsr_id region) { return {&g, g.region(region).first}; }

bool same_type(const tsr_type& a, const tsr_type& b);  // dtype, sizes, strides, device; sizes by handle
int64_t tensor_bytes(tsr_dtype dtype, int64_t elements);

}  // namespace tessera::core
