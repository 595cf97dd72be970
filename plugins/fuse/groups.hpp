// SPDX-License-Identifier: Apache-2.0
// Which nodes go together. A group grows along its values (a producer joins its consumer) and, last, sideways (two groups that
// read the same tensor). Every step is tried by lowering the joined group: what the kit can express as one kernel, with no
// expensive op computed more often than before, is joined; the reason of a refusal is kept for the hints. Rows of a tensor and
// sums across them are no single kernel; they are joined where their backend, asked, takes both in one sweep. So are small
// elementwise groups that have nothing to do with each other, as the updates of parameters: what those cost is their launches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/kit/fit.hpp"
#include "tessera/kit/gpu/parts.hpp"
#include "tessera/kit/hints.hpp"
#include "tessera/kit/lower.hpp"
#include "tessera/plugin.hpp"

namespace tessera::passes {

inline constexpr uint32_t kNone = 0xffffffffu;  // no position

// A constant of one element: a group has its own, and reads nothing for it.
inline bool is_literal(sdk::Value v) {
  const sdk::Node def = v.def();
  return def && def.is("constant") && v.type().elements() == 1;
}

struct FuseOptions {
  size_t max_size = 64, max_buffers = 48;
  bool horizontal = true;
};

// Nodes that were made for one group, with its number: they join what reads them, and not what they read.
using Copies = std::map<tsr_id, uint32_t>;

struct Group {
  std::vector<uint32_t> items;  // positions in Groups::nodes, ascending
  std::string backend;          // empty: never fused
  int heavy = 0;                // calls of functions per element, over all loops
};

class Groups {
 public:
  // `before`: of the same region, in front of what made the copies; what was found of its nodes and groups is not asked again.
  Groups(sdk::Graph g, tsr_id region, const FuseOptions& options, Copies copies = {}, const Groups* before = nullptr);
  // The graph must be as it was when this was made.
  void grow();

  const std::vector<sdk::Node>& nodes() const { return nodes_; }
  const std::vector<Group>& groups() const { return groups_; }  // emptied ones have no items
  const sdk::Graph& graph() const { return g_; }
  // Positions; kNone: not of this region's nodes.
  uint32_t producer(sdk::Value v) const;
  uint32_t user(const tsr_use& u) const;
  uint32_t group_of(uint32_t item) const { return group_of_[item]; }
  int calls(uint32_t item) const { return calls_[item]; }  // of functions, per element; -1: no kernel of the kit's computes it
  bool free_view(uint32_t item) const;
  bool is_late(uint32_t item) const;  // of the backward half
  // Worth a kernel of its own: more than one node, and not views alone.
  bool is_fused(const Group& g) const;
  kit::Piece piece(const std::vector<uint32_t>& items) const;
  // Whether one kernel could compute group b and these nodes of others, no call of a function more often than before.
  bool could_take(uint32_t b, const std::vector<uint32_t>& items) const;
  // All nodes, each group's in a row, every value before its uses.
  std::vector<uint32_t> order() const;
  // Producer and consumer that could not be joined, and why.
  struct Refusal {
    uint32_t producer, consumer;
    std::string why;
  };
  std::vector<Refusal> refusals() const;
  // Whether a backend was asked about a group: then the graph was edited, though the group was taken back.
  bool asked() const { return asked_; }

 private:
  // An operand. Looked up once: a group is tried with each of its neighbours.
  struct Operand {
    tsr_id value = TSR_NONE;  // TSR_NONE: left out, or a literal
    uint32_t producer = kNone, result = 0;
  };
  // What is known of a group that was tried: layers repeat, and with them the trials.
  struct Trial {
    kit::Fit fit;
    size_t buffers = 0;
  };
  // What was found so far, whichever nodes the groups are of.
  struct Known {
    kit::FitCache fits;
    std::unordered_map<std::string, uint32_t> classes;  // of nodes: they do the same to operands of the same types
    std::unordered_map<uint32_t, bool> has_kernel;      // by class: whether the kit can express it
    std::unordered_map<std::string, Trial> trials;      // by key_of()
    std::unordered_map<std::string, bool> taken;        // by key_of(), kind of group and backend
  };
  void read_nodes(tsr_id region);
  bool ask_backend(uint32_t item, const Groups* before);
  void classify(uint32_t item);
  std::string key_of(const std::vector<uint32_t>& items) const;
  const Trial& try_group(const std::vector<uint32_t>& items) const;
  bool may_join(uint32_t producer, uint32_t consumer) const;
  bool between(uint32_t a, uint32_t b) const;  // is there a path from a to b through another group?
  // Whether a group that gives what this one reads holds; each may be asked about several times.
  template <class F>
  bool any_predecessor(uint32_t group, F&& holds) const;
  bool computes_early(uint32_t a, uint32_t b) const;
  bool join(uint32_t a, uint32_t b);
  bool join_sweep(uint32_t a, uint32_t b);
  void join_parts();
  bool ask(const kit::Piece& p, const std::string& backend);
  bool takes_parts(const std::vector<uint32_t>& items, const kit::Piece& p, const std::string& backend);
  bool takes_sweep(const std::vector<uint32_t>& items, const std::string& backend);
  void merge(uint32_t a, uint32_t b, int heavy);
  std::string why_no_neighbours(uint32_t a, uint32_t b) const;
  std::vector<uint32_t> joined_items(uint32_t a, uint32_t b) const;
  void rank_joined(uint32_t joined, uint32_t other);
  std::string why_not(uint32_t a, uint32_t b, int& heavy) const;

  sdk::Graph g_;
  FuseOptions options_;
  Copies copies_;
  const std::shared_ptr<Known> known_;
  std::vector<sdk::Node> nodes_;
  std::vector<uint32_t> position_;                // of a node, by its id
  std::vector<std::vector<uint32_t>> producers_;  // by position: of its operands
  std::vector<std::vector<Operand>> operands_;
  std::vector<std::vector<std::vector<uint32_t>>> users_;  // by position and result; kNone: outside of this region
  std::vector<uint32_t> class_;       // by position
  std::vector<std::string> claimed_;  // by position: the backend that could fuse it, or empty
  mutable std::vector<uint32_t> seen_;  // by group: number of the last visit
  mutable uint32_t visit_ = 0;
  std::vector<Group> groups_;
  std::vector<uint32_t> group_of_;
  std::vector<int> calls_;       // by position
  std::vector<uint32_t> alone_;  // by position: how many nodes up to there are never fused
  // A group comes after all that it needs: its rank. Positions do not say that: a group that spans many nodes is behind some of
  // what stands before its last one.
  std::vector<uint32_t> rank_, by_rank_;
  std::map<std::pair<uint32_t, uint32_t>, std::string> refused_;  // by the items whose edge was tried
  bool asked_ = false;
};

// A node like n, of these operands, at the end of a region or in front of a node.
sdk::Node copy_node(sdk::Graph g, sdk::Node n, const std::vector<tsr_id>& operands, tsr_id region, tsr_id before);
// A `fused` node behind the group's last node, with copies of its nodes as the body. Nobody uses it yet.
sdk::Node make_group(sdk::Graph g, const kit::Piece& piece, const std::string& backend);
// Lets it take the place of the group's nodes. Those stay whose results others read as well.
void replace_by_group(sdk::Graph g, const kit::Piece& piece, sdk::Node fused);
// Both. The nodes must stand in a row, or in a chain of single readers.
sdk::Node form(sdk::Graph g, const kit::Piece& piece, const std::string& backend);

// A view that the core takes as it is: of dense memory these are other sizes, and no bytes move.
bool is_free_view(const sdk::Node& n);
// Whether both belong to the forward half, or both to the backward half. A group of nodes of both would move the place where
// the halves meet, and with it what is kept in memory in between.
inline bool same_half(const sdk::Node& a, const sdk::Node& b) { return ((a.marks() ^ b.marks()) & TSR_MARK_BACKWARD) == 0; }

// Groups of attention with the program that modifies its scores, in one region. True: the graph was edited.
bool fuse_attention(sdk::Graph g, tsr_id region, const FuseOptions& options);
// Groups of a product or convolution and what follows it, in one region. `through_views`: reshapes may stand in between, and
// attention may take the transpose behind it along. `operand_views`: products take along the views that their operands are.
// True: the graph was edited.
bool fuse_epilogues(sdk::Graph g, tsr_id region, bool through_views, bool operand_views);
// Convolutions whose tensors have their channels last, where the backend takes such a group. True: the graph was edited.
bool channels_last(sdk::Graph g, tsr_id region);
// Products of narrow floats with constants whose columns are no multiple of `multiple`: they compute some more, and a slice
// follows. True: the graph was edited.
bool pad_columns(sdk::Graph g, tsr_id region, int64_t multiple);

}  // namespace tessera::passes
