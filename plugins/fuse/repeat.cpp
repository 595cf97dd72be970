// SPDX-License-Identifier: Apache-2.0
#include "repeat.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace tessera::passes {
namespace {

constexpr size_t kMostNodes = 8;       // that are computed twice for one value, besides those that leave their group
constexpr double kLeastBytes = 65536;  // of a value: below, a launch hides it

// How a group computes a value itself: nodes of the group that gives it, by position, and what they read.
struct Chain {
  std::set<uint32_t> nodes;
  size_t repeated = 0;  // of them
  std::set<tsr_id> reads;
};

// A value that a group is to compute itself.
struct Found {
  uint32_t item, first_reader;
  Chain chain;
};

class Repeats {
 public:
  Repeats(sdk::Graph g, const Groups& groups) : g_(g), groups_(groups) {}

  Copies run() {
    for (uint32_t b = 0; b < groups_.groups().size(); ++b)
      if (!groups_.groups()[b].backend.empty()) reader(b);
    // What nobody reads any more, from the end on: the readers of a node come first.
    for (auto at = repeated_.rbegin(); at != repeated_.rend(); ++at)
      if (groups_.nodes()[*at].result().num_uses() == 0) g_.erase(groups_.nodes()[*at]);
    return std::move(made_);
  }

 private:
  const sdk::Node& node(uint32_t i) const { return groups_.nodes()[i]; }
  const std::string& backend_of(uint32_t i) const { return groups_.groups()[groups_.group_of(i)].backend; }
  double bytes(tsr_id v) const { return kit::bytes_at_hints(g_, g_.value(v).type()); }

  bool is_cheap(uint32_t i) const {
    const sdk::Node& n = node(i);
    if (n.num_results() != 1 || groups_.calls(i) < 0 || (groups_.calls(i) > 0 && !moved_.count(i))) return false;
    return is_free_view(n) || n.is("cast") || n.is("broadcast_to") || g_.has_trait(n.raw().op, "elementwise");
  }

  // Values of other groups that group b reads, in program order: one that stays read may end the chain of a later one.
  void reader(uint32_t b) {
    const Group& group = groups_.groups()[b];
    reads_.clear();
    std::vector<uint32_t> from;
    for (const sdk::Value& v : groups_.piece(group.items).inputs) {
      reads_.insert(v.id);
      const uint32_t p = groups_.producer(v);
      if (p != kNone && bytes(v.id) >= kLeastBytes && backend_of(p) == group.backend) from.push_back(p);
    }
    std::sort(from.begin(), from.end());
    copies_.clear();
    find_moved(b, from);
    std::vector<Found> found;
    for (const uint32_t p : from) {
      const sdk::Value v = node(p).result();
      const uint32_t first = first_reader(v, b, group.backend), a = groups_.group_of(p);
      Chain chain;
      if (first == kNone || !is_cheap(p) || !deeper(v, a, chain) || traffic(chain, a) >= saved(v, a, b)) continue;
      const auto is_view = [&](uint32_t i) { return is_free_view(node(i)); };
      if (std::all_of(chain.nodes.begin(), chain.nodes.end(), is_view)) continue;  // it moves no bytes where it is
      if (!groups_.could_take(b, {chain.nodes.begin(), chain.nodes.end()})) continue;
      reads_.erase(v.id);
      reads_.insert(chain.reads.begin(), chain.reads.end());
      found.push_back({p, first, std::move(chain)});
    }
    keep_calls_single(found, b);
    for (const Found& f : found) {
      const sdk::Value v = node(f.item).result();
      note(v, group, f.chain);
      const sdk::Value own = copy(f.chain, f.item, f.first_reader, b);
      const std::vector<tsr_use> uses(v.uses().begin(), v.uses().end());
      for (const tsr_use& u : uses) {
        const uint32_t user = groups_.user(u);
        if (user != kNone && groups_.group_of(user) == b) g_.set_operand(node(user), u.operand, own);
      }
    }
  }

  // A node with calls of functions goes along only where nothing is left that needs it: each of its readers goes along, or is
  // in the group and reads the copy.
  void keep_calls_single(std::vector<Found>& found, uint32_t b) const {
    for (size_t before = found.size() + 1; before != found.size();) {
      before = found.size();
      std::set<uint32_t> going, values;
      for (const Found& f : found) {
        going.insert(f.chain.nodes.begin(), f.chain.nodes.end());
        values.insert(f.item);
      }
      const auto stays = [&](uint32_t i) {
        const auto uses = node(i).result().uses();
        return std::any_of(uses.begin(), uses.end(), [&](const tsr_use& u) {
          const uint32_t user = groups_.user(u);
          return user == kNone || (groups_.group_of(user) == b ? !values.count(i) : !going.count(user));
        });
      };
      std::erase_if(found, [&](const Found& f) {
        return std::any_of(f.chain.nodes.begin(), f.chain.nodes.end(),
                           [&](uint32_t i) { return groups_.calls(i) > 0 && stays(i); });
      });
    }
  }

  // Nodes of the groups that give these values, which nobody but group b needs.
  void find_moved(uint32_t b, const std::vector<uint32_t>& from) {
    moved_.clear();
    std::set<uint32_t> givers;
    for (const uint32_t p : from) givers.insert(groups_.group_of(p));
    for (const uint32_t a : givers) {
      const std::vector<uint32_t>& items = groups_.groups()[a].items;
      for (auto at = items.rbegin(); at != items.rend(); ++at) {
        const auto uses = node(*at).num_results() == 1 ? node(*at).result().uses() : std::span<const tsr_use>();
        const bool only = std::all_of(uses.begin(), uses.end(), [&](const tsr_use& u) {
          const uint32_t user = groups_.user(u);
          return user != kNone && (groups_.group_of(user) == b || moved_.count(user));
        });
        if (only && !uses.empty()) moved_.insert(*at);
      }
    }
  }

  // Of v in group b; kNone if v is kept in any case, or it would be in another half of the program.
  uint32_t first_reader(sdk::Value v, uint32_t b, const std::string& backend) const {
    uint32_t first = kNone;
    for (const tsr_use& u : v.uses()) {
      const uint32_t user = groups_.user(u);
      if (user == kNone || backend_of(user) != backend) return kNone;
      if (groups_.group_of(user) != b) continue;
      if (!same_half(v.def(), node(user))) return kNone;
      first = std::min(first, user);
    }
    return first;
  }

  // Memory traffic of v: it is read by group b and, if nobody else does, written for it.
  double saved(sdk::Value v, uint32_t a, uint32_t b) const {
    const auto uses = v.uses();
    const bool only = std::all_of(uses.begin(), uses.end(), [&](const tsr_use& u) {
      const uint32_t reader = groups_.group_of(groups_.user(u));
      return reader == a || reader == b;
    });
    return (only ? 2 : 1) * bytes(v.id);
  }

  // Memory traffic for what the chain reads and the reader does not read anyway; group a would have to write some of it first.
  double traffic(const Chain& chain, uint32_t a) const {
    double sum = 0;
    for (const tsr_id id : chain.reads)
      if (!reads_.count(id)) sum += bytes(id) * (is_written(g_.value(id), a) ? 1 : 2);
    return sum;
  }

  bool is_written(sdk::Value v, uint32_t a) const {
    const uint32_t p = groups_.producer(v);
    if (p == kNone || groups_.group_of(p) != a) return true;
    const auto uses = v.uses();
    return std::any_of(uses.begin(), uses.end(), [&](const tsr_use& u) {
      const uint32_t user = groups_.user(u);
      return user == kNone || groups_.group_of(user) != a;
    });
  }

  // Adds v's node and the cheapest way to its operands. False: too long.
  bool deeper(sdk::Value v, uint32_t a, Chain& chain) const {
    const uint32_t p = groups_.producer(v);
    if (chain.nodes.insert(p).second && !moved_.count(p) && ++chain.repeated > kMostNodes) return false;
    const sdk::Node& n = node(p);
    for (uint32_t k = 0; k < n.num_operands(); ++k) {
      if (!n.has_operand(k) || is_literal(n.operand(k))) continue;
      const sdk::Value u = n.operand(k);
      const uint32_t q = groups_.producer(u);
      if (chain.reads.count(u.id) || (q != kNone && chain.nodes.count(q))) continue;
      Chain here = chain;
      here.reads.insert(u.id);
      if (!reads_.count(u.id) && q != kNone && groups_.group_of(q) == a && is_cheap(q) && same_half(node(q), n)) {
        Chain below = chain;
        if (deeper(u, a, below) && traffic(below, a) < traffic(here, a)) here = std::move(below);
      }
      chain = std::move(here);
    }
    return true;
  }

  // Copies of a chain's nodes in front of a node; those that stand before it already are taken.
  sdk::Value copy(const Chain& chain, uint32_t last, uint32_t before, uint32_t group) {
    std::map<tsr_id, tsr_id> own;
    for (const uint32_t i : chain.nodes) {
      const auto at = copies_.find(i);
      if (at != copies_.end() && at->second.first <= before) {
        own[node(i).result().id] = at->second.second;
        continue;
      }
      const tsr_node raw = node(i).raw();
      std::vector<tsr_id> operands(raw.operands, raw.operands + raw.num_operands);
      for (tsr_id& id : operands)
        if (const auto mine = own.find(id); mine != own.end()) id = mine->second;
      const sdk::Node made = copy_node(g_, node(i), operands, raw.parent, node(before).id);
      own[node(i).result().id] = made.result().id;
      copies_[i] = {before, made.result().id};
      made_[made.id] = group;
      repeated_.insert(i);
    }
    return g_.value(own.at(node(last).result().id));
  }

  void note(sdk::Value v, const Group& group, const Chain& chain) const {
    if (!sdk::log_enabled("fusion")) return;
    sdk::log("fusion", group.backend + ": %" + std::string(v.name()) + " = " + std::string(v.def().op()) +
                           " is computed in the group that reads it, by " + std::to_string(chain.nodes.size()) +
                           (chain.repeated ? " nodes once more" : " nodes that leave theirs"));
  }

  sdk::Graph g_;
  const Groups& groups_;
  std::set<tsr_id> reads_;                                   // by the group at hand
  std::map<uint32_t, std::pair<uint32_t, tsr_id>> copies_;  // of nodes, for it: in front of which node, and the result
  std::set<uint32_t> moved_;                                // nodes that nobody but it needs
  std::set<uint32_t> repeated_;                             // nodes that were copied
  Copies made_;
};

}  // namespace

Copies repeat_cheap(sdk::Graph g, const Groups& groups) { return Repeats(g, groups).run(); }

}  // namespace tessera::passes
