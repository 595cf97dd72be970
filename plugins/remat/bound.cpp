// SPDX-License-Identifier: Apache-2.0
#include "bound.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <queue>
#include <utility>

namespace tessera::remat {

namespace {

constexpr uint32_t kNone = 0xffffffffu;
constexpr size_t kMostSteps = 400;  // of one state; more are joined to what neither of two beats
constexpr size_t kMostStates = 64;
constexpr uint32_t kWindow = 64;  // nodes that a place in the backward half may wait for a value

// A place on the main path of the backward half.
struct Place {
  uint32_t item;
  int64_t own = 0;                // bytes of gradients that it reads
  std::vector<uint32_t> forward;  // values of the forward half that it reads
};

class Search {
 public:
  Search(const Problem& p, const Schedule& s, bool products) : p_(p), s_(s) {
    find_writers();
    if (products) find_path();
    find_levels();
    find_claims();
    insert_places();
  }

  Bound run() {
    std::map<std::vector<uint32_t>, Steps> states;  // by values that are needed, apart from those that backward reads
    states[{}] = {{0, 0}};
    for (uint32_t n = static_cast<uint32_t>(p_.nodes.size()); n-- > 0;) {
      std::map<std::vector<uint32_t>, Steps> next;
      for (auto& [needed, steps] : states) step(n, needed, std::move(steps), next);
      if (next.size() > kMostStates) return {};
      states = std::move(next);
      for (const int64_t own : at_node_[n])
        for (auto& [needed, steps] : states) raise(steps, own);
    }
    Steps all;
    for (auto& [needed, steps] : states) all.insert(all.end(), steps.begin(), steps.end());
    std::sort(all.begin(), all.end(), is_before);
    return {pareto(all)};
  }

 private:
  using Steps = std::vector<Bound::Step>;
  struct Claim {  // bytes that are in memory at every place up to a level
    int64_t bytes;
    uint32_t level;
  };

  static bool is_before(const Bound::Step& a, const Bound::Step& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.peak < b.peak;
  }

  // Of steps in order.
  static Steps pareto(const Steps& found) {
    Steps best;
    for (const Bound::Step& x : found)
      if (best.empty() || x.peak < best.back().peak) best.push_back(x);
    while (best.size() > kMostSteps) {
      Steps joined;
      for (size_t i = 0; i < best.size(); i += 2) joined.push_back({best[std::min(i + 1, best.size() - 1)].peak, best[i].cost});
      best = std::move(joined);
    }
    return best;
  }

  static void raise(Steps& steps, int64_t peak) {
    for (Bound::Step& x : steps) x.peak = std::max(x.peak, peak);
    Steps best;
    for (const Bound::Step& x : steps)  // costs rise
      if (best.empty() || x.peak < best.back().peak) best.push_back(x);
    steps = std::move(best);
  }

  void step(uint32_t n, const std::vector<uint32_t>& needed, Steps steps, std::map<std::vector<uint32_t>, Steps>& next) const {
    const Node& node = p_.nodes[n];
    std::vector<uint32_t> rest;
    bool run = false;
    int64_t bytes = 0;
    for (const uint32_t v : needed)
      if (p_.values[v].node != n) rest.push_back(v);
    for (const uint32_t v : values_of_[n])
      if (p_.values[v].read || std::binary_search(needed.begin(), needed.end(), v)) {
        run = true;
        bytes += counted_[v];
      }
    if (!run) return merge(next[std::move(rest)], std::move(steps));
    if (!node.must_save) {
      std::vector<uint32_t> more = rest;
      for (const uint32_t v : node.inputs)
        if (!p_.values[v].read && std::find(more.begin(), more.end(), v) == more.end()) more.push_back(v);
      std::sort(more.begin(), more.end());
      Steps again = steps;
      for (Bound::Step& x : again) x.cost += node.cost;
      merge(next[std::move(more)], std::move(again));
    }
    if (node.must_save || !node.must_recompute) {
      for (Bound::Step& x : steps) x.peak += bytes;
      merge(next[std::move(rest)], std::move(steps));
    }
  }

  static void merge(Steps& into, Steps steps) {
    if (into.empty()) {
      into = std::move(steps);
      return;
    }
    Steps both;
    both.reserve(into.size() + steps.size());
    std::merge(into.begin(), into.end(), steps.begin(), steps.end(), std::back_inserter(both), is_before);
    into = pareto(both);
  }

  void find_writers() {
    values_of_.resize(p_.nodes.size());
    readers_of_.resize(p_.values.size());
    for (uint32_t v = 0; v < p_.values.size(); ++v) values_of_[p_.values[v].node].push_back(v);
    for (uint32_t n = 0; n < p_.nodes.size(); ++n)
      for (const uint32_t v : p_.nodes[n].inputs) readers_of_[v].push_back(n);
    writer_.assign(s_.bytes.size(), kNone);
    for (uint32_t i = 0; i < s_.items.size(); ++i)
      for (const uint32_t v : s_.items[i].writes) writer_[v] = i;
    level_.assign(s_.items.size(), 0);
    on_path_.assign(s_.items.size(), 0);
  }
  bool is_gradient(uint32_t v) const { return writer_[v] != kNone && s_.items[writer_[v]].backward; }

  // From the last product of the backward half, always to the last one that it depends on.
  void find_path() {
    uint32_t at = kNone;
    for (uint32_t i = 0; i < s_.items.size(); ++i)
      if (s_.items[i].backward && s_.items[i].product) at = i;
    std::vector<uint32_t> seen(s_.items.size(), kNone);  // from which place
    while (at != kNone) {
      places_.push_back(place_of(at));
      on_path_[at] = 1;
      std::priority_queue<uint32_t> ancestors({}, {at});
      uint32_t before = kNone;
      while (!ancestors.empty() && before == kNone) {
        const uint32_t i = ancestors.top();
        ancestors.pop();
        if (i != at && s_.items[i].product) before = i;
        for (const uint32_t v : s_.items[i].reads)
          if (is_gradient(v) && std::exchange(seen[writer_[v]], at) != at) ancestors.push(writer_[v]);
      }
      at = before;
    }
    std::reverse(places_.begin(), places_.end());
  }

  Place place_of(uint32_t i) const {
    Place out{i, 0, {}};
    int64_t sum = 0, most = 0;
    for (const uint32_t v : s_.items[i].reads) {
      if (!is_gradient(v)) {
        if (v < p_.values.size()) out.forward.push_back(v);
      } else if (s_.items[writer_[v]].product) {
        sum += s_.bytes[v];
      } else {
        most = std::max(most, certain(v, 8));
      }
    }
    out.own = std::max(sum, most);
    return out;
  }

  // Bytes that are in memory for a gradient's reader even where nodes that are no products run inside of it.
  int64_t certain(uint32_t v, int depth) const {
    const Item& item = s_.items[writer_[v]];
    if (item.product) return s_.bytes[v];
    int64_t most = 0;
    if (depth > 0)
      for (const uint32_t u : item.reads)
        if (is_gradient(u)) most = std::max(most, certain(u, depth - 1));
    return std::min(most, s_.bytes[v]);
  }

  // Of an item: how many places of the path it is, or depends on.
  void find_levels() {
    uint32_t place = 0;
    for (uint32_t i = 0; i < s_.items.size(); ++i) {
      const Item& item = s_.items[i];
      if (!item.backward) continue;
      for (const uint32_t v : item.reads)
        if (is_gradient(v)) level_[i] = std::max(level_[i], level_[writer_[v]]);
      if (on_path_[i]) level_[i] = std::max(level_[i], ++place);
    }
    // What an item reads is in memory up to its level. Where it could run earlier, and what it gives is read at a higher level,
    // the smaller one of the two is in memory up to there: for one value that it reads.
    read_.assign(s_.bytes.size(), {0, 0});
    direct_.assign(s_.bytes.size(), 0);
    read_on_path_.assign(s_.bytes.size(), 0);
    for (uint32_t i = static_cast<uint32_t>(s_.items.size()); i-- > 0;) {
      const Item& item = s_.items[i];
      if (!item.backward) continue;
      Claim later{0, 0};
      if (!item.product)
        for (const uint32_t w : item.writes)
          if (!s_.outputs[w] && !read_on_path_[w] && read_[w].level > later.level) later = read_[w];
      uint32_t widest = kNone;
      for (const uint32_t v : item.reads)
        if (widest == kNone || s_.bytes[v] > s_.bytes[widest]) widest = v;
      for (const uint32_t v : item.reads) {
        Claim c{s_.bytes[v], level_[i]};
        if (v == widest && later.level > c.level && 2 * later.bytes >= c.bytes)
          c = {std::min(later.bytes, c.bytes), later.level};
        if (c.level > read_[v].level || (c.level == read_[v].level && c.bytes > read_[v].bytes)) read_[v] = c;
        direct_[v] = 1;
        if (on_path_[i]) read_on_path_[v] = 1;
      }
    }
  }

  // A value that backward does not read is kept for nodes that run again only. When such a node has run before a place, what it
  // gives is in memory there, else what it reads: the smaller one is, in any case, for one value that it reads.
  void find_claims() {
    claim_.assign(p_.values.size(), {0, kNone});
    std::vector<uint8_t> forced(p_.values.size(), 0);
    for (uint32_t v = static_cast<uint32_t>(p_.values.size()); v-- > 0;) {
      if (direct_[v]) {
        claim_[v] = {std::min(read_[v].bytes, p_.values[v].bytes), read_[v].level};
        forced[v] = read_on_path_[v];
        continue;
      }
      Claim least{p_.values[v].bytes, kNone};
      bool first = true;
      for (const uint32_t n : readers_of_[v]) {
        Claim c{0, 0};
        if (chosen_input(n) == v)
          for (const uint32_t w : values_of_[n])
            if (!forced[w] && claim_[w].bytes > c.bytes) c = claim_[w];
        if (first || c.level < least.level) least.level = c.level;
        least.bytes = std::min(least.bytes, c.bytes);
        first = false;
      }
      if (first || least.bytes == 0) least = {0, 0};
      claim_[v] = least;
    }
  }
  uint32_t chosen_input(uint32_t n) const {
    for (const uint32_t v : p_.nodes[n].inputs)
      if (!direct_[v] && p_.values[v].bytes > 0) return v;
    return kNone;
  }

  // Each place stands behind values that may be gone there, and before values that are not. Those that are far from where their
  // place is count nothing.
  void insert_places() {
    at_node_.assign(p_.nodes.size(), {});
    counted_.assign(p_.values.size(), 0);
    const auto places = static_cast<uint32_t>(places_.size());
    std::vector<uint32_t> due(places + 1, 0);  // the node at which a place could stand for the first time
    uint32_t reached = 0;
    for (uint32_t n = static_cast<uint32_t>(p_.nodes.size()); n-- > 0;)
      for (const uint32_t v : values_of_[n])
        for (; p_.values[v].bytes > 0 && direct_[v] && reached < claim_[v].level; ++reached) due[reached + 1] = n;
    // The lowest node whose value the place waits for.
    std::vector<uint32_t> behind(places + 1, kNone);
    for (uint32_t n = 0; n < p_.nodes.size(); ++n)
      for (const uint32_t v : values_of_[n]) {
        if (p_.values[v].bytes == 0 || !direct_[v]) continue;
        for (uint32_t j = claim_[v].level + 1; j <= reached; ++j) {
          if (n + kWindow < due[j]) continue;  // too far
          if (due[j] < n) break;               // not reached yet: values from here on come before it
          if (behind[j] == kNone) behind[j] = n;
        }
      }
    std::vector<uint32_t> stands(places + 1, kNone);
    uint32_t last = static_cast<uint32_t>(p_.nodes.size());
    for (uint32_t j = 1; j <= reached; ++j) {
      const uint32_t n =
          behind[j] != kNone ? behind[j] : std::min<uint32_t>(due[j] + 1, static_cast<uint32_t>(p_.nodes.size()) - 1);
      last = stands[j] = std::min(last, n);
      insert(j, stands[j]);
      uint32_t late = stands[j];  // again behind what it reads of the forward half
      for (const uint32_t v : places_[j - 1].forward)
        if (p_.values[v].bytes > 0 && p_.values[v].node + kWindow >= stands[j]) late = std::min(late, p_.values[v].node);
      if (late < stands[j]) insert(j, late);
    }
    // What is kept counts where it is in memory at every place so far.
    for (uint32_t v = 0; v < p_.values.size(); ++v) {
      const uint32_t n = p_.values[v].node;
      uint32_t so_far = 0;
      while (so_far < reached && stands_before(so_far + 1, n, stands)) ++so_far;
      if (so_far == 0)
        counted_[v] = p_.values[v].bytes;
      else if (claim_[v].bytes > 0 && claim_[v].level != kNone && claim_[v].level >= so_far)
        counted_[v] = claim_[v].bytes;
    }
  }
  // Whether place j stands at a later node than n, and so is met before it in descending order of nodes.
  static bool stands_before(uint32_t j, uint32_t n, const std::vector<uint32_t>& stands) {
    return stands[j] != kNone && stands[j] > n;
  }
  void insert(uint32_t j, uint32_t n) {
    const Place& place = places_[j - 1];
    int64_t own = place.own;
    for (const uint32_t v : place.forward)
      if (p_.values[v].node >= n) own += p_.values[v].bytes;  // met by now, and in memory whether or not it was kept
    at_node_[n].push_back(own);
  }

  const Problem& p_;
  const Schedule& s_;
  std::vector<std::vector<uint32_t>> values_of_, readers_of_;  // by node; by value: nodes
  std::vector<uint32_t> writer_;                               // by value of the schedule: item
  std::vector<Place> places_;                                  // in the order of the backward half
  std::vector<uint32_t> level_;                                // by item
  std::vector<uint8_t> on_path_;                               // by item
  std::vector<Claim> read_;                     // by value of the schedule: what its readers in the backward half say
  std::vector<uint8_t> direct_, read_on_path_;  // by value of the schedule: it is read in the backward half, at a place
  std::vector<Claim> claim_;                    // by value
  std::vector<int64_t> counted_;                // by value: bytes that keeping it adds
  std::vector<std::vector<int64_t>> at_node_;   // places that stand behind a node: what they read
};

}  // namespace

int64_t Bound::at(int64_t peak) const {
  for (const Step& s : steps)
    if (s.peak <= peak) return s.cost;
  return steps.empty() ? 0 : steps.back().cost;
}

Bound lower_bound(const Problem& problem, const Schedule& schedule, bool products) {
  return Search(problem, schedule, products).run();
}

}  // namespace tessera::remat
