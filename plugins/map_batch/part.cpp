// SPDX-License-Identifier: Apache-2.0
#include "part.hpp"

#include <unordered_map>

namespace tessera::map_batch {

namespace t = tessera::sdk;

namespace {

class Chooser {
 public:
  Chooser(t::Graph g, int64_t items, int64_t min_rows) {
    for (const t::Node n : g.nodes()) {
      index_.emplace(n.id, nodes_.size());
      nodes_.push_back(n);
      rules_.push_back(rule_for(g, n, items));
      std::optional<Rule>& rule = rules_.back();
      if (rule && rule->rows > 0 && rule->rows < min_rows) rule.reset();
    }
    producers_.resize(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i)
      for (uint32_t o = 0; o < nodes_[i].num_operands(); ++o)
        if (nodes_[i].has_operand(o))
          if (const t::Node d = nodes_[i].operand(o).def()) producers_[i].push_back(index_.at(d.id));
  }

  Part run(bool anything) {
    if (!anything) drop_light();
    // Each round drops a node at least; a graph that needs many has no part that is worth much.
    for (int round = 0;; ++round) {
      drop_readers_of_all();
      const size_t blocker = first_blocker();
      if (blocker == nodes_.size()) break;
      if (round == kRounds) return {};
      drop_side_of(blocker);
    }
    drop_last_views();
    Part out;
    size_t last = 0;
    bool computes = false;  // views alone are not worth a loop
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!rules_[i]) continue;
      last = i;
      computes = computes || !nodes_[i].is("reshape");
    }
    if (!computes) return out;
    const std::vector<char> behind = depends([&](size_t i) { return rules_[i].has_value(); });
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (rules_[i]) {
        out.flops += rules_[i]->flops;
        out.members.push_back({nodes_[i], std::move(*rules_[i])});
      } else if (i < last && behind[i]) {
        out.readers.push_back(nodes_[i]);
      }
    }
    return out;
  }

 private:
  static constexpr int kRounds = 32;

  // Nodes that are one of `from` or depend on one.
  template <class From>
  std::vector<char> depends(From&& from) const {
    std::vector<char> out(nodes_.size());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      out[i] = from(i);
      for (const size_t p : producers_[i]) out[i] = out[i] || out[p];
    }
    return out;
  }
  // Nodes that are one of `to`, or that one depends on.
  template <class To>
  std::vector<char> leads(To&& to) const {
    std::vector<char> out(nodes_.size());
    for (size_t i = nodes_.size(); i-- > 0;) {
      out[i] = out[i] || to(i);
      if (out[i])
        for (const size_t p : producers_[i]) out[p] = 1;
    }
    return out;
  }
  bool heavy(size_t i) const { return rules_[i] && rules_[i]->flops > 0; }

  void drop_light() {
    const std::vector<char> after = depends([&](size_t i) { return heavy(i); }),
                            before = leads([&](size_t i) { return heavy(i); });
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!after[i] && !before[i]) rules_[i].reset();
  }

  // Who reads all items of a value that is computed inside. Where the value costs little, it is the one that is left out: often
  // its first dimension is no batch at all, as that of a mask with as many queries as go into items evenly.
  void drop_readers_of_all() {
    for (size_t i = 0; i < nodes_.size(); ++i)
      for (uint32_t o = 0; rules_[i] && o < nodes_[i].num_operands(); ++o) {
        if (rules_[i]->reads[o] == Read::kRows || !nodes_[i].has_operand(o)) continue;
        const t::Node d = nodes_[i].operand(o).def();
        if (!d || !rules_[index_.at(d.id)]) continue;
        const std::vector<char> before = leads([&](size_t x) { return x == index_.at(d.id); });
        bool light = true;
        for (size_t x = 0; x <= index_.at(d.id); ++x) light = light && !(before[x] && heavy(x));
        if (!light) {
          rules_[i].reset();
          continue;
        }
        for (size_t x = 0; x < nodes_.size(); ++x)
          if (before[x]) rules_[x].reset();
      }
  }

  // A reshape that nobody inside reads costs nothing outside.
  void drop_last_views() {
    std::vector<char> read(nodes_.size());
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (rules_[i] && !read[i] && nodes_[i].is("reshape")) rules_[i].reset();
      if (!rules_[i]) continue;
      for (const size_t p : producers_[i]) read[p] = 1;
    }
  }

  // The first node outside between two inside: it depends on one, and one depends on it.
  size_t first_blocker() const {
    const std::vector<char> after = depends([&](size_t i) { return rules_[i].has_value(); }),
                            before = leads([&](size_t i) { return rules_[i].has_value(); });
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!rules_[i] && after[i] && before[i]) return i;
    return nodes_.size();
  }
  void drop_side_of(size_t blocker) {
    const std::vector<char> after = depends([&](size_t i) { return i == blocker; }),
                            before = leads([&](size_t i) { return i == blocker; });
    double flops_after = 0, flops_before = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!rules_[i]) continue;
      if (after[i]) flops_after += rules_[i]->flops;
      if (before[i]) flops_before += rules_[i]->flops;
    }
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (flops_before <= flops_after ? before[i] : after[i]) rules_[i].reset();
  }

  std::vector<t::Node> nodes_;
  std::vector<std::optional<Rule>> rules_;  // of what is inside
  std::vector<std::vector<size_t>> producers_;
  std::unordered_map<tsr_id, size_t> index_;
};

}  // namespace

Part choose(t::Graph g, int64_t items, int64_t min_rows, bool anything) { return Chooser(g, items, min_rows).run(anything); }

}  // namespace tessera::map_batch
