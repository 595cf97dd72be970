// SPDX-License-Identifier: Apache-2.0
#include "chain.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "closure.hpp"

namespace tessera::remat {

namespace {

constexpr size_t kLongest = 12;          // separators from one that is kept to the next
constexpr size_t kEnumerated = 11;       // nodes to decide of which all subsets are tried
constexpr size_t kMostNodes = 64;        // to decide in one segment
constexpr size_t kCuts = 8;              // of a segment with more nodes than that
constexpr size_t kWays = 48;             // to divide a segment that are kept
constexpr size_t kLabels = 128;          // of what the segments from one separator on need
constexpr size_t kSimulations = 60'000;  // altogether: beyond, segments are as short as they can be

// One way to divide a segment: which of the nodes to decide run again, and what follows from it.
struct Way {
  uint64_t again = 0;  // by node to decide
  int64_t kept = 0, peak = 0, cost = 0;
};

// The nodes of the forward half from one separator to the next, with the stretch of the backward half that reads them.
class Segment {
 public:
  struct Forward {
    uint32_t node;
    int64_t cost;
    std::vector<uint32_t> reads, writes;  // values of the segment
    int decided = -1;                     // its bit
    bool again = false;                   // in every plan: computed again
    bool fuses = false;
  };
  struct Backward {
    std::vector<uint32_t> reads;
    bool fuses = false;
    int64_t during = 0, before = 0;  // bytes of the backward half's own values
  };

  const std::vector<uint32_t>& decided() const { return decided_; }

  void add(Forward f) {
    if (f.decided == 0) {
      f.decided = static_cast<int>(decided_.size());
      decided_.push_back(f.node);
    }
    for (const uint32_t v : f.writes) writer_[v] = static_cast<uint32_t>(forward_.size());
    forward_.push_back(std::move(f));
  }
  void add(Backward b) { backward_.push_back(std::move(b)); }
  uint32_t add_value(int64_t bytes) {
    bytes_.push_back(bytes);
    writer_.push_back(0);
    return static_cast<uint32_t>(bytes_.size() - 1);
  }

  // Equal texts: equal ways.
  std::string signature() const {
    std::string s;
    const auto put = [&](int64_t x) { s.append(reinterpret_cast<const char*>(&x), sizeof x); };
    const auto list = [&](const std::vector<uint32_t>& l) {
      put(static_cast<int64_t>(l.size()));
      for (const uint32_t v : l) put(v);
    };
    for (const int64_t b : bytes_) put(b);
    for (const Forward& f : forward_) {
      put(f.cost);
      put(f.decided);
      put(f.again);
      put(f.fuses);
      list(f.reads);
      list(f.writes);
    }
    put(-1);
    for (const Backward& b : backward_) {
      put(b.during);
      put(b.before);
      put(b.fuses);
      list(b.reads);
    }
    return s;
  }

  Way simulate(uint64_t again) {
    const size_t values = bytes_.size();
    first_.assign(values, kNever);  // step that writes a copy
    last_.assign(values, kNever);
    copied_.assign(forward_.size(), 0);
    made_.assign(values, 0);
    in_memory_.assign(values, 0);
    own_.clear();
    Stretches stretches;
    Item item;
    const auto reads = [&](const std::vector<uint32_t>& list, int32_t t) {
      for (const uint32_t v : list) {
        last_[v] = t;
        if (!Stretches::inside(made_[v], stretches.now())) in_memory_[v] = 1;
      }
    };
    Way way;
    for (const Backward& b : backward_) {
      missing_.clear();
      for (const uint32_t v : b.reads) need(v, again);
      std::sort(missing_.begin(), missing_.end());
      for (const uint32_t f : missing_) {
        const auto t = static_cast<int32_t>(own_.size());
        own_.push_back(b.before);
        way.cost += forward_[f].cost;
        item.fuses = forward_[f].fuses;
        stretches.begin(item, true);
        reads(forward_[f].reads, t);
        for (const uint32_t v : forward_[f].writes) {
          first_[v] = last_[v] = t;
          made_[v] = stretches.now();
          in_memory_[v] = !item.fuses;
        }
      }
      const auto t = static_cast<int32_t>(own_.size());
      own_.push_back(b.during);
      item.fuses = b.fuses;
      stretches.begin(item, true);
      reads(b.reads, t);
    }
    change_.assign(own_.size() + 1, 0);
    for (uint32_t v = 0; v < values; ++v) {
      if (last_[v] == kNever || !in_memory_[v]) continue;
      const bool copy = runs_again(writer_[v], again);
      if (!copy) way.kept += bytes_[v];
      change_[static_cast<size_t>(copy ? first_[v] : 0)] += bytes_[v];
      change_[static_cast<size_t>(last_[v]) + 1] -= bytes_[v];
    }
    int64_t now = 0;
    for (size_t t = 0; t < own_.size(); ++t) {
      now += change_[t];
      way.peak = std::max(way.peak, now + own_[t]);
    }
    // What the segment keeps for later segments alone, such as its last value, is in memory as long as they run backward.
    way.kept += always_;
    way.again = again;
    return way;
  }
  void keep_for_others(int64_t bytes) { always_ += bytes; }

  // The ways of which none is better in everything, by ascending cost.
  std::vector<Way> ways(size_t* simulations) {
    std::vector<Way> found;
    const size_t n = decided_.size();
    if (n <= kEnumerated) {
      for (uint64_t bits = 0; bits < uint64_t{1} << n; ++bits) found.push_back(simulate(bits));
    } else {
      for (const uint64_t bits : cuts()) {
        found.push_back(simulate(bits));
        for (size_t k = 0; k < n; ++k) found.push_back(simulate(bits ^ uint64_t{1} << k));
      }
    }
    *simulations += found.size();
    std::sort(found.begin(), found.end(), [](const Way& a, const Way& b) {
      if (a.cost != b.cost) return a.cost < b.cost;
      if (a.kept != b.kept) return a.kept < b.kept;
      return a.peak < b.peak;
    });
    std::vector<Way> best;
    for (const Way& w : found)
      if (std::none_of(best.begin(), best.end(), [&](const Way& b) { return b.kept <= w.kept && b.peak <= w.peak; }))
        best.push_back(w);
    if (best.size() <= kWays) return best;
    std::vector<Way> thinned;
    for (size_t k = 0; k < kWays; ++k) thinned.push_back(best[k * (best.size() - 1) / (kWays - 1)]);
    return thinned;
  }

 private:
  static constexpr int32_t kNever = -1;

  bool runs_again(uint32_t f, uint64_t again) const {
    const Forward& x = forward_[f];
    return x.again || (x.decided >= 0 && (again >> x.decided & 1));
  }
  void need(uint32_t v, uint64_t again) {
    const uint32_t f = writer_[v];
    if (copied_[f] || !runs_again(f, again)) return;
    copied_[f] = 1;
    missing_.push_back(f);
    for (const uint32_t u : forward_[f].reads) need(u, again);
  }

  // Subsets on the hull of (kept, cost), which do not know of the peak.
  std::vector<uint64_t> cuts() const {
    Problem sub;
    std::vector<uint8_t> read(bytes_.size(), 0);
    for (const Backward& b : backward_)
      for (const uint32_t v : b.reads) read[v] = 1;
    std::vector<uint32_t> value(bytes_.size(), 0);
    for (size_t f = 0; f < forward_.size(); ++f) {
      Node node;
      node.cost = forward_[f].cost;
      node.must_recompute = forward_[f].again;
      node.must_save = !forward_[f].again && forward_[f].decided < 0;
      for (const uint32_t v : forward_[f].reads) node.inputs.push_back(value[v]);
      for (const uint32_t v : forward_[f].writes) {
        value[v] = static_cast<uint32_t>(sub.values.size());
        sub.values.push_back({static_cast<uint32_t>(f), bytes_[v], read[v] != 0});
      }
      sub.nodes.push_back(std::move(node));
    }
    std::vector<uint64_t> out;
    for (const Plan& plan : lower_hull(sub, kCuts).plans) {
      uint64_t bits = 0;
      for (size_t f = 0; f < forward_.size(); ++f)
        if (forward_[f].decided >= 0 && plan.recompute[f]) bits |= uint64_t{1} << forward_[f].decided;
      out.push_back(bits);
    }
    return out;
  }

  std::vector<uint32_t> decided_;
  std::vector<Forward> forward_;
  std::vector<Backward> backward_;
  std::vector<int64_t> bytes_;    // by value of the segment
  std::vector<uint32_t> writer_;  // by value: index of `forward_`
  int64_t always_ = 0;
  // Of one simulation.
  std::vector<int32_t> first_, last_;
  std::vector<uint8_t> copied_, in_memory_;
  std::vector<int32_t> made_;
  std::vector<int64_t> own_, change_;
  std::vector<uint32_t> missing_;
};

class Chain {
 public:
  Chain(const Problem& p, const Schedule& s, const Separators& separators) : p_(p), s_(s), separators_(separators) {
    find_backward();
    find_begins();
  }

  std::vector<Plan> run(size_t most) {
    const size_t last = separators_.nodes.size() + 1;  // boundaries 0 and `last` are the ends of the forward half
    labels_.assign(last + 1, {});
    labels_[last] = {{0, 0, 0, 0, 0}};
    for (size_t i = last; i-- > 0;) {
      std::vector<Label> found;
      for (size_t j = i + 1; j <= std::min(last, i + kLongest); ++j) {
        if (j > i + 1 && simulations_ > kSimulations) break;
        const uint32_t k = ways_of(i, j);
        if (k == kNone) break;
        const std::vector<Way>& ways = solved_[k];
        for (uint32_t w = 0; w < ways.size(); ++w)
          for (uint32_t l = 0; l < labels_[j].size(); ++l) {
            const Label& later = labels_[j][l];
            found.push_back({std::max(later.bytes + ways[w].kept, ways[w].peak), later.cost + ways[w].cost,
                             static_cast<uint32_t>(j), w, l});
          }
      }
      labels_[i] = best_of(std::move(found), kLabels);
      if (labels_[i].empty()) return {};
    }
    std::vector<Plan> plans;
    for (const Label& l : best_of(labels_[0], most)) plans.push_back(plan_of(l));
    return plans;
  }

 private:
  static constexpr uint32_t kNone = 0xffffffffu;

  // Of the segments from a boundary on.
  struct Label {
    int64_t bytes;  // that they need, besides what earlier segments keep
    int64_t cost;
    uint32_t next;  // boundary where the first of them ends
    uint32_t way, label;
  };

  static std::vector<Label> best_of(std::vector<Label> found, size_t most) {
    std::sort(found.begin(), found.end(),
              [](const Label& a, const Label& b) { return a.cost != b.cost ? a.cost < b.cost : a.bytes < b.bytes; });
    std::vector<Label> best;
    for (const Label& l : found)
      if (best.empty() || l.bytes < best.back().bytes) best.push_back(l);
    if (best.size() <= most) return best;
    // By bytes, evenly.
    std::vector<Label> thinned;
    const double first = static_cast<double>(best.front().bytes), last = static_cast<double>(best.back().bytes);
    for (size_t k = 0; k < best.size(); ++k) {
      const double due = first + (last - first) * static_cast<double>(thinned.size()) / static_cast<double>(most - 1);
      if (static_cast<double>(best[k].bytes) <= due || k + 1 == best.size()) thinned.push_back(best[k]);
    }
    return thinned;
  }

  // The backward half's own values, which no plan changes, and who reads what.
  void find_backward() {
    last_.assign(s_.bytes.size(), 0);
    readers_.assign(s_.bytes.size(), {});
    std::vector<uint32_t> written(s_.bytes.size(), kNone);
    // As if nothing were computed again in between: copies that do not fuse come with products, which do not either.
    Stretches stretches;
    std::vector<int32_t> made(s_.bytes.size(), 0);
    std::vector<uint8_t> in_memory(s_.bytes.size(), 0);
    for (uint32_t i = 0; i < s_.items.size(); ++i) {
      if (!s_.items[i].backward) continue;
      stretches.begin(s_.items[i], true);
      for (const uint32_t v : s_.items[i].reads) {
        last_[v] = i;
        readers_[v].push_back(i);
        if (!Stretches::inside(made[v], stretches.now())) in_memory[v] = 1;
      }
      for (const uint32_t v : s_.items[i].writes) {
        written[v] = i;
        made[v] = stretches.now();
        in_memory[v] = !s_.items[i].fuses;
      }
    }
    std::vector<int64_t> change(s_.items.size() + 1, 0);
    before_.assign(s_.items.size(), 0);
    during_.assign(s_.items.size(), 0);
    for (uint32_t v = 0; v < s_.bytes.size(); ++v) {
      if (written[v] == kNone || !in_memory[v]) continue;
      change[written[v]] += s_.bytes[v];
      change[std::max(last_[v], written[v]) + 1] -= s_.bytes[v];
      during_[written[v]] -= s_.bytes[v];
    }
    int64_t now = 0;
    for (size_t i = 0; i < s_.items.size(); ++i) {
      now += change[i];
      before_[i] = now + during_[i];  // less what it writes itself
      during_[i] = now;
    }
  }

  // Where the backward half comes to what lies before each boundary. The value at the boundary itself may be read earlier.
  void find_begins() {
    const size_t last = separators_.nodes.size() + 1;
    begins_.assign(last + 1, static_cast<uint32_t>(s_.items.size()));
    uint32_t n = 0, begin = begins_[0];
    for (size_t j = 1; j <= last; ++j) {
      const uint32_t to = j < last ? separators_.nodes[j - 1] : static_cast<uint32_t>(p_.nodes.size());
      for (; n < to; ++n)
        if (s_.item_of[n] != kNoItem && !separators_.anywhere[n])
          for (const uint32_t v : s_.items[s_.item_of[n]].writes)
            if (!readers_[v].empty()) begin = std::min(begin, readers_[v].front());
      begins_[j] = begin;
    }
    begins_[last] = 0;
  }

  // Number of the segment's ways in `solved_`; kNone: it is too long.
  uint32_t ways_of(size_t i, size_t j) {
    Segment s = segment(i, j);
    if (s.decided().size() > kMostNodes || (s.decided().size() > kEnumerated && j > i + 4)) return kNone;
    const auto [at, fresh] = known_.try_emplace(s.signature(), static_cast<uint32_t>(solved_.size()));
    if (fresh) solved_.push_back(s.ways(&simulations_));
    return at->second;
  }

  std::pair<uint32_t, uint32_t> nodes_of(size_t i, size_t j) const {
    const uint32_t from = i == 0 ? 0 : separators_.nodes[i - 1] + 1;
    const uint32_t to = j > separators_.nodes.size() ? static_cast<uint32_t>(p_.nodes.size()) : separators_.nodes[j - 1] + 1;
    return {from, to};
  }

  Segment segment(size_t i, size_t j) const {
    const auto [from, to] = nodes_of(i, j);
    Segment out;
    std::unordered_map<uint32_t, uint32_t> value;  // of the schedule to the segment's
    for (uint32_t n = from; n < to; ++n)
      if (s_.item_of[n] != kNoItem)
        for (const uint32_t v : s_.items[s_.item_of[n]].writes) value.emplace(v, out.add_value(s_.bytes[v]));
    const uint32_t boundary = j <= separators_.nodes.size() ? separators_.nodes[j - 1] : kNone;
    const uint32_t first = begins_[j], end = begins_[i];
    for (uint32_t n = from; n < to; ++n) {
      if (s_.item_of[n] == kNoItem) continue;
      const Item& item = s_.items[s_.item_of[n]];
      Segment::Forward f;
      f.node = n;
      f.cost = p_.nodes[n].cost;
      f.fuses = item.fuses;
      for (const uint32_t v : item.reads)
        if (const auto at = value.find(v); at != value.end()) f.reads.push_back(at->second);
      int64_t others = 0;
      for (const uint32_t v : item.writes) {
        f.writes.push_back(value.at(v));
        const auto inside = [first, end](uint32_t r) { return r >= first && r < end; };
        if ((n == boundary || separators_.anywhere[n]) && std::none_of(readers_[v].begin(), readers_[v].end(), inside))
          others += s_.bytes[v];
      }
      const bool free = p_.nodes[n].must_recompute && !p_.nodes[n].must_save;
      f.again = free;
      const bool fixed = p_.nodes[n].must_save || free || n == boundary || separators_.anywhere[n];
      f.decided = fixed ? -1 : 0;
      out.keep_for_others(others);
      out.add(std::move(f));
    }
    for (uint32_t b = first; b < end; ++b) {
      const Item& item = s_.items[b];
      if (!item.backward) continue;
      Segment::Backward x;
      for (const uint32_t v : item.reads)
        if (const auto at = value.find(v); at != value.end()) x.reads.push_back(at->second);
      x.fuses = item.fuses;
      x.during = during_[b];
      x.before = before_[b];
      out.add(std::move(x));
    }
    return out;
  }

  Plan plan_of(const Label& first) {
    Plan plan;
    plan.recompute.assign(p_.nodes.size(), 0);
    const Label* l = &first;
    for (size_t i = 0; i <= separators_.nodes.size();) {
      const Segment s = segment(i, l->next);
      const Way& way = solved_[known_.at(s.signature())][l->way];
      for (size_t k = 0; k < s.decided().size(); ++k) plan.recompute[s.decided()[k]] = way.again >> k & 1;
      i = l->next;
      l = &labels_[i][l->label];
    }
    complete(p_, plan);
    return plan;
  }

  const Problem& p_;
  const Schedule& s_;
  const Separators& separators_;
  std::vector<uint32_t> last_;                  // by value: last item of the backward half that reads it
  std::vector<std::vector<uint32_t>> readers_;  // by value: those items
  std::vector<int64_t> before_, during_;        // by item: bytes of the backward half's own values
  std::vector<uint32_t> begins_;                // by boundary: item
  std::vector<std::vector<Label>> labels_;      // by boundary
  std::unordered_map<std::string, uint32_t> known_;
  std::vector<std::vector<Way>> solved_;
  size_t simulations_ = 0;
};

}  // namespace

std::vector<Plan> chain_plans(const Problem& problem, const Schedule& schedule, const Separators& separators, size_t most) {
  return Chain(problem, schedule, separators).run(most);
}

}  // namespace tessera::remat
