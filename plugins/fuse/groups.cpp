// SPDX-License-Identifier: Apache-2.0
#include "groups.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>

namespace tessera::passes {
namespace {

template <class T>
void add_once(std::vector<T>& list, const T& x) {
  if (std::find(list.begin(), list.end(), x) == list.end()) list.push_back(x);
}

}  // namespace

Groups::Groups(sdk::Graph g, tsr_id region, const FuseOptions& options, Copies copies, const Groups* before)
    : g_(g), options_(options), copies_(std::move(copies)), known_(before ? before->known_ : std::make_shared<Known>()) {
  read_nodes(region);
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    classify(i);
    Group group;
    group.items = {i};
    int calls = -1;
    if (ask_backend(i, before))
      if (const Trial& trial = try_group(group.items); trial.fit.why.empty()) {
        calls = group.heavy = trial.fit.calls;
        group.backend = claimed_[i];
      }
    calls_.push_back(calls);
    const bool alone = group.backend.empty() && !free_view(i) && !nodes_[i].is("constant");
    alone_.push_back((alone_.empty() ? 0 : alone_.back()) + alone);
    group_of_.push_back(i);
    rank_.push_back(i);
    by_rank_.push_back(i);
    groups_.push_back(std::move(group));
  }
}

void Groups::read_nodes(tsr_id region) {
  for (const sdk::Node& n : g_.nodes(region)) {
    if (n.id >= position_.size()) position_.resize(n.id + 1, kNone);
    position_[n.id] = static_cast<uint32_t>(nodes_.size());
    std::vector<uint32_t>& producers = producers_.emplace_back();
    std::vector<Operand>& operands = operands_.emplace_back(n.num_operands());
    for (uint32_t k = 0; k < n.num_operands(); ++k) {
      if (!n.has_operand(k)) continue;
      const sdk::Value v = n.operand(k);
      const uint32_t p = producer(v);
      if (p != kNone) add_once(producers, p);
      if (is_literal(v)) continue;
      operands[k] = {v.id, p, 0};
      if (p != kNone)
        while (nodes_[p].result(operands[k].result).id != v.id) ++operands[k].result;
    }
    nodes_.push_back(n);
  }
  for (const sdk::Node& n : nodes_) {
    std::vector<std::vector<uint32_t>>& users = users_.emplace_back(n.num_results());
    for (uint32_t k = 0; k < n.num_results(); ++k)
      for (const tsr_use& u : n.result(k).uses()) users[k].push_back(user(u));
  }
}

bool Groups::ask_backend(uint32_t item, const Groups* before) {
  const sdk::Node& n = nodes_[item];
  std::string& claimed = claimed_.emplace_back();
  if (before && n.id < before->position_.size() && before->position_[n.id] != kNone) {
    claimed = before->claimed_[before->position_[n.id]];
    return !claimed.empty();
  }
  uint64_t capabilities = 0;
  const std::string_view backend = g_.backend_of(n, &capabilities);
  if (backend.empty() || !(capabilities & TSR_CAP_FUSION)) return false;
  const auto [at, fresh] = known_->has_kernel.try_emplace(class_[item], false);
  if (fresh) at->second = kit::why_not(g_, n).empty();
  if (at->second) claimed = backend;
  return !claimed.empty();
}

void Groups::classify(uint32_t item) {
  std::string key = kit::structure_key(piece({item}), /*within_graph=*/true);
  if (key.empty()) key = "node " + std::to_string(nodes_[item].id);  // like no other
  key += std::to_string(nodes_[item].marks());
  const auto next = static_cast<uint32_t>(known_->classes.size());
  class_.push_back(known_->classes.try_emplace(std::move(key), next).first->second);
}

// Equal keys, equal pieces.
std::string Groups::key_of(const std::vector<uint32_t>& items) const {
  std::string key;
  key.reserve(items.size() * 24);
  const auto put = [&](uint32_t x) { key.append(reinterpret_cast<const char*>(&x), sizeof x); };
  const auto inside = [&](uint32_t item) -> uint32_t {
    const auto at = std::lower_bound(items.begin(), items.end(), item);
    return at != items.end() && *at == item ? static_cast<uint32_t>(at - items.begin()) : kNone;
  };
  std::vector<tsr_id> outside;  // what comes from elsewhere, in the order in which it is read
  for (const uint32_t i : items) {
    put(class_[i]);
    for (const Operand& o : operands_[i]) {
      if (o.value == TSR_NONE) {
        put(kNone);
      } else if (const uint32_t at = o.producer == kNone ? kNone : inside(o.producer); at != kNone) {
        put(2 * at);
        put(o.result);
      } else {
        const auto seen = std::find(outside.begin(), outside.end(), o.value);
        put(2 * static_cast<uint32_t>(seen - outside.begin()) + 1);
        if (seen == outside.end()) outside.push_back(o.value);
      }
    }
    for (const std::vector<uint32_t>& users : users_[i])
      put(std::any_of(users.begin(), users.end(), [&](uint32_t u) { return inside(u) == kNone; }));
  }
  return key;
}

const Groups::Trial& Groups::try_group(const std::vector<uint32_t>& items) const {
  const auto [at, fresh] = known_->trials.try_emplace(key_of(items));
  if (!fresh) return at->second;
  try {
    const kit::Piece p = piece(items);
    at->second.buffers = p.inputs.size() + p.outputs.size();
    if (items.size() == 1 || at->second.buffers <= options_.max_buffers) at->second.fit = known_->fits.of(p);
  } catch (...) {
    known_->trials.erase(at);
    throw;
  }
  return at->second;
}

uint32_t Groups::user(const tsr_use& u) const { return u.node < position_.size() ? position_[u.node] : kNone; }

uint32_t Groups::producer(sdk::Value v) const {
  const sdk::Node def = v.def();
  return def && def.id < position_.size() ? position_[def.id] : kNone;
}

bool is_free_view(const sdk::Node& n) { return n.is("reshape") || n.is("expand_dims") || n.is("squeeze"); }
bool Groups::free_view(uint32_t item) const { return is_free_view(nodes_[item]); }

bool Groups::is_fused(const Group& g) const {
  if (g.backend.empty() || g.items.size() < 2) return false;
  size_t work = 0, moving = 0;
  for (const uint32_t i : g.items) {
    if (free_view(i)) continue;
    ++moving;
    work += !g_.has_trait(nodes_[i].raw().op, "view");
  }
  return work > 0 && moving > 1;
}

kit::Piece Groups::piece(const std::vector<uint32_t>& items) const {
  kit::Piece p{g_, {}, {}, {}};
  const auto inside = [&](uint32_t item) { return item != kNone && std::binary_search(items.begin(), items.end(), item); };
  for (const uint32_t i : items) {
    const sdk::Node& n = nodes_[i];
    p.nodes.push_back(n);
    for (uint32_t k = 0; k < n.num_operands(); ++k) {
      if (!n.has_operand(k)) continue;
      const sdk::Value v = n.operand(k);
      if (!inside(producer(v)) && !is_literal(v)) add_once(p.inputs, v);
    }
    for (uint32_t k = 0; k < n.num_results(); ++k) {
      const sdk::Value v = n.result(k);
      for (const tsr_use& u : v.uses()) {
        if (inside(user(u))) continue;
        p.outputs.push_back(v);
        break;
      }
    }
  }
  return p;
}

template <class F>
bool Groups::any_predecessor(uint32_t group, F&& holds) const {
  for (const uint32_t i : groups_[group].items)
    for (const uint32_t p : producers_[i])
      if (group_of_[p] != group && holds(group_of_[p])) return true;
  return false;
}

bool Groups::may_join(uint32_t producer, uint32_t consumer) const {
  const auto copy = copies_.find(nodes_[consumer].id);
  if (copy == copies_.end()) return true;
  const auto other = copies_.find(nodes_[producer].id);
  return other != copies_.end() && other->second == copy->second;
}

bool Groups::between(uint32_t a, uint32_t b) const {
  // From b backwards, the first in order first: a layer's backward half reads what its forward half gives, and the way there is
  // found before all of the layers behind it are.
  std::vector<uint32_t> ranks;
  seen_.resize(groups_.size(), 0);
  ++visit_;
  const auto visit = [&](uint32_t p) {
    if (seen_[p] != visit_ && rank_[p] >= rank_[a]) {  // nothing of a leads to what comes before a
      ranks.push_back(rank_[p]);
      std::push_heap(ranks.begin(), ranks.end(), std::greater<>());
    }
    seen_[p] = visit_;
    return false;
  };
  any_predecessor(b, [&](uint32_t p) { return p != a && visit(p); });
  while (!ranks.empty()) {
    std::pop_heap(ranks.begin(), ranks.end(), std::greater<>());
    const uint32_t x = by_rank_[ranks.back()];
    ranks.pop_back();
    if (any_predecessor(x, [&](uint32_t p) { return p == a || visit(p); })) return true;
  }
  return false;
}

// The joined group takes the place that leaves what it needs before it and what needs it behind it. Only what stood between the
// two moves.
void Groups::rank_joined(uint32_t joined, uint32_t other) {
  const uint32_t first = std::min(rank_[joined], rank_[other]), last = std::max(rank_[joined], rank_[other]);
  std::vector<uint32_t> before, behind;
  std::vector<uint8_t> needs(last - first + 1, 0);  // by rank: needs the joined group
  const auto leads_behind = [&](uint32_t p) {
    return p == joined || (rank_[p] >= first && rank_[p] <= last && needs[rank_[p] - first]);
  };
  for (uint32_t r = first; r <= last; ++r) {
    const uint32_t x = by_rank_[r];
    if (x == joined || x == other) continue;
    needs[r - first] = any_predecessor(x, leads_behind);
    (needs[r - first] ? behind : before).push_back(x);
  }
  uint32_t r = first;
  const auto place = [&](uint32_t x) {
    by_rank_[r] = x;
    rank_[x] = r++;
  };
  for (const uint32_t x : before) place(x);
  place(other);  // empty now
  place(joined);
  for (const uint32_t x : behind) place(x);
}

bool Groups::is_late(uint32_t item) const { return nodes_[item].marked(TSR_MARK_BACKWARD); }

// The first nodes of the backward half may join the last ones of the forward half. Then the group runs where the halves meet,
// and nothing is kept longer than without it, but for what is small beside the group's own values:
//   what its forward nodes read is kept for the backward half in any case,
//   what they give is read by the backward half, or by small nodes that nothing else of the forward half depends on,
//   what its backward nodes read of their half is small, and so is all that comes before them there.
class BorderCheck {
 public:
  BorderCheck(const Groups& groups, const std::vector<uint32_t>& items) : groups_(groups), items_(items) {
    for (const uint32_t i : items)
      for (uint32_t k = 0; k < node(i).num_results(); ++k) largest_ = std::max(largest_, bytes(node(i).result(k)));
  }

  bool holds() {
    uint32_t last = 0;
    for (const uint32_t i : items_) {
      const bool late = groups_.is_late(i);
      if (late) last = i;
      for (uint32_t k = 0; k < node(i).num_operands(); ++k) {
        if (!node(i).has_operand(k)) continue;
        const sdk::Value v = node(i).operand(k);
        const uint32_t p = groups_.producer(v);
        if (p == kNone || inside(p) || is_literal(v)) continue;
        if (late ? groups_.is_late(p) && !is_small(p) : !is_kept(v)) return false;
      }
      if (!late && !ends_here(i)) return false;
    }
    for (uint32_t i = 0; i < last; ++i)
      if (groups_.is_late(i) && !inside(i) && !is_small(i)) return false;
    return true;
  }

 private:
  static constexpr double kSmall = 1.0 / 64;
  static constexpr size_t kLongestTail = 64;  // nodes

  const sdk::Node& node(uint32_t i) const { return groups_.nodes()[i]; }
  bool inside(uint32_t i) const { return std::binary_search(items_.begin(), items_.end(), i); }
  double bytes(sdk::Value v) const { return kit::bytes_at_hints(groups_.graph(), v.type()); }
  bool is_small(uint32_t i) const {
    if (node(i).is("constant") || groups_.free_view(i)) return true;
    double sum = 0;
    for (uint32_t k = 0; k < node(i).num_results(); ++k) sum += bytes(node(i).result(k));
    return sum <= kSmall * largest_;
  }
  // Read by the backward half, directly or through a view.
  bool is_kept(sdk::Value v) const {
    return std::any_of(v.uses().begin(), v.uses().end(), [&](const tsr_use& u) {
      const uint32_t user = groups_.user(u);
      return user != kNone && (groups_.is_late(user) || (groups_.free_view(user) && is_kept(node(user).result())));
    });
  }
  bool ends_here(uint32_t i) {
    for (uint32_t k = 0; k < node(i).num_results(); ++k)
      for (const tsr_use& u : node(i).result(k).uses()) {
        const uint32_t user = groups_.user(u);
        if (user == kNone || inside(user) || groups_.is_late(user)) continue;
        if (std::find(tail_.begin(), tail_.end(), user) != tail_.end()) continue;
        if (tail_.size() == kLongestTail || !is_small(user)) return false;
        tail_.push_back(user);
        if (!ends_here(user)) return false;
      }
    return true;
  }

  const Groups& groups_;
  const std::vector<uint32_t>& items_;
  double largest_ = 0;
  std::vector<uint32_t> tail_;  // of the forward half, behind the group
};

std::vector<uint32_t> Groups::joined_items(uint32_t a, uint32_t b) const {
  std::vector<uint32_t> items;
  std::merge(groups_[a].items.begin(), groups_[a].items.end(), groups_[b].items.begin(), groups_[b].items.end(),
             std::back_inserter(items));
  return items;
}

// What stands against a group of both, whatever computes it; empty: nothing.
std::string Groups::why_no_neighbours(uint32_t a, uint32_t b) const {
  if (between(a, b) || between(b, a)) return "another node needs the one and feeds the other";
  const std::vector<uint32_t> items = joined_items(a, b);
  const auto late = [&](uint32_t i) { return is_late(i); };
  if (std::any_of(items.begin(), items.end(), late) && !std::all_of(items.begin(), items.end(), late) &&
      !BorderCheck(*this, items).holds())
    return "one belongs to the forward half, the other to the backward half, and more would be kept in between";
  return {};
}

std::string Groups::why_not(uint32_t a, uint32_t b, int& heavy) const {
  if (groups_[a].items.size() + groups_[b].items.size() > options_.max_size)
    return "the group would have more than max_fusion_size = " + std::to_string(options_.max_size) + " nodes";
  if (std::string why = why_no_neighbours(a, b); !why.empty()) return why;
  const Trial& trial = try_group(joined_items(a, b));
  if (trial.buffers > options_.max_buffers)
    return "the group would have more than max_buffers = " + std::to_string(options_.max_buffers) + " inputs and outputs";
  const kit::Fit& fit = trial.fit;
  heavy = fit.calls;
  if (fit.why.empty() && heavy > groups_[a].heavy + groups_[b].heavy) return "an expensive op would be computed once per loop";
  return fit.why;
}

bool Groups::could_take(uint32_t b, const std::vector<uint32_t>& items) const {
  std::vector<uint32_t> all;
  std::merge(groups_[b].items.begin(), groups_[b].items.end(), items.begin(), items.end(), std::back_inserter(all));
  if (all.size() > options_.max_size) return false;
  int heavy = groups_[b].heavy;
  for (const uint32_t i : items) heavy += std::max(0, calls_[i]);
  const kit::Piece p = piece(all);
  const kit::Fit fit = known_->fits.of(p);
  return fit.why.empty() ? fit.calls <= heavy : kit::sweep_of(p).has_value();
}

void Groups::merge(uint32_t a, uint32_t b, int heavy) {
  if (groups_[b].items.front() < groups_[a].items.front()) std::swap(a, b);
  std::vector<uint32_t> items = joined_items(a, b);
  for (const uint32_t i : groups_[b].items) group_of_[i] = a;
  groups_[a].items = std::move(items);
  groups_[a].heavy = heavy;
  groups_[b].items.clear();
  groups_[b].backend.clear();
  rank_joined(a, b);
}

// What is computed again stands in front of its first reader. A group with a node from elsewhere, which it neither reads nor
// feeds, would compute it earlier, together with all that it is made of, and hold it until then: of every layer, as a row of
// such groups chains them. Neighbours have no more than a few nodes in between that are never fused, such as products.
bool Groups::computes_early(uint32_t a, uint32_t b) const {
  constexpr uint32_t kMostBetween = 3;
  const std::vector<uint32_t> items = joined_items(a, b);
  const auto again = [&](uint32_t i) { return nodes_[i].marked(TSR_MARK_RECOMPUTED); };
  if (std::none_of(items.begin(), items.end(), again)) return false;
  for (size_t k = 1; k < items.size(); ++k)
    if (group_of_[items[k - 1]] != group_of_[items[k]] && alone_[items[k]] - alone_[items[k - 1]] > kMostBetween) return true;
  return false;
}

bool Groups::join(uint32_t a, uint32_t b) {
  int heavy = 0;
  if (groups_[a].backend.empty() || groups_[a].backend != groups_[b].backend || !why_not(a, b, heavy).empty()) return false;
  merge(a, b, heavy);
  return true;
}

// The backward pass of a norm: gradients of rows, and those of weight and bias, which are summed across the same rows.
bool Groups::join_sweep(uint32_t a, uint32_t b) {
  const std::string backend = groups_[a].backend;
  if (backend.empty() || backend != groups_[b].backend || !why_no_neighbours(a, b).empty()) return false;
  if (groups_[a].items.size() + groups_[b].items.size() > options_.max_size) return false;
  if (!takes_sweep(joined_items(a, b), backend)) return false;
  merge(a, b, groups_[a].heavy + groups_[b].heavy);
  return true;
}

bool Groups::takes_sweep(const std::vector<uint32_t>& items, const std::string& backend) {
  const auto [at, fresh] = known_->taken.try_emplace(key_of(items) + "sweep " + backend, false);
  if (!fresh) return at->second;
  const kit::Piece p = piece(items);
  return at->second = p.inputs.size() + p.outputs.size() <= options_.max_buffers && kit::sweep_of(p) && ask(p, backend);
}

bool Groups::takes_parts(const std::vector<uint32_t>& items, const kit::Piece& p, const std::string& backend) {
  const auto [at, fresh] = known_->taken.try_emplace(key_of(items) + "parts " + backend, false);
  if (fresh) at->second = ask(p, backend);
  return at->second;
}

bool Groups::ask(const kit::Piece& p, const std::string& backend) {
  const sdk::Node fused = make_group(g_, p, backend);
  const bool taken = g_.backend_of(fused) == backend;
  g_.erase(fused);
  asked_ = true;
  return taken;
}

void Groups::join_parts() {
  constexpr double kMostBytes = 4 << 20;  // of one part: at the bandwidth of a GPU, about as long as a launch
  constexpr size_t kMostParts = 16, kMostBuffers = 112;
  const auto is_part = [&](uint32_t x) {
    if (groups_[x].backend.empty()) return false;
    const kit::Piece p = piece(groups_[x].items);
    double bytes = 0;
    for (const auto* list : {&p.inputs, &p.outputs})
      for (const sdk::Value& v : *list) bytes += kit::bytes_at_hints(g_, v.type());
    if (bytes > kMostBytes) return false;
    for (const uint32_t i : groups_[x].items) {
      const sdk::Node& n = nodes_[i];
      if (!n.is("constant") && !n.is("cast") && !g_.has_trait(n.raw().op, "elementwise")) return false;
    }
    return true;
  };
  std::map<std::string, uint32_t> open;  // by backend: the group that takes more parts
  std::set<std::string> refused;         // backends that take none
  size_t parts = 0;
  const std::vector<uint32_t> order = by_rank_;
  for (const uint32_t x : order) {
    if (groups_[x].items.empty() || !is_part(x)) continue;
    const std::string backend = groups_[x].backend;
    if (refused.count(backend)) continue;
    const auto at = open.find(backend);
    const auto begin_with = [&] {
      open[backend] = x;
      parts = 1;
    };
    if (at == open.end() || parts == kMostParts) {
      begin_with();
      continue;
    }
    const uint32_t a = at->second;
    const auto needs = [&](uint32_t p, uint32_t q) { return any_predecessor(p, [&](uint32_t from) { return from == q; }); };
    if (needs(x, a) || needs(a, x) || computes_early(a, x) || !why_no_neighbours(a, x).empty()) {
      begin_with();
      continue;
    }
    const kit::Piece p = piece(joined_items(a, x));
    if (p.inputs.size() + p.outputs.size() > kMostBuffers) {
      begin_with();
    } else if (!takes_parts(joined_items(a, x), p, backend)) {
      if (parts == 1) refused.insert(backend);
      begin_with();
    } else {
      const uint32_t first = groups_[a].items.front() < groups_[x].items.front() ? a : x;
      merge(a, x, groups_[a].heavy + groups_[x].heavy);
      open[backend] = first;
      ++parts;
    }
  }
}

void Groups::grow() {
  // Twice: what a small group could not take, the grown one may (a reduction that gives the group its loops).
  for (int round = 0; round < 2; ++round) {
    bool changed = false;
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (groups_[group_of_[i]].backend.empty()) continue;
      // The largest value first: it saves most.
      std::vector<std::pair<double, uint32_t>> edges;
      for (uint32_t k = 0; k < nodes_[i].num_operands(); ++k) {
        if (!nodes_[i].has_operand(k)) continue;
        const sdk::Value v = nodes_[i].operand(k);
        if (const uint32_t p = producer(v); p != kNone && !is_literal(v) && may_join(p, i))
          edges.emplace_back(-kit::bytes_at_hints(g_, v.type()), p);
      }
      std::sort(edges.begin(), edges.end());
      for (const auto& [bytes, p] : edges) {
        const uint32_t a = group_of_[p], b = group_of_[i];
        if (a == b || groups_[a].backend.empty() || groups_[a].backend != groups_[b].backend) continue;
        int heavy = 0;
        const std::string why = why_not(a, b, heavy);
        if (why.empty()) {
          merge(a, b, heavy);
          refused_.erase({p, i});
          changed = true;
        } else {
          refused_[{p, i}] = why;
        }
      }
    }
    if (!changed) break;
  }
  const std::map<std::pair<uint32_t, uint32_t>, std::string> refused = refused_;
  for (const auto& [edge, why] : refused)
    if (const uint32_t a = group_of_[edge.first], b = group_of_[edge.second]; a != b) join_sweep(a, b);
  if (!options_.horizontal) return;
  // Sideways: readers of one tensor.
  std::map<tsr_id, std::vector<uint32_t>> readers;
  for (uint32_t i = 0; i < nodes_.size(); ++i)
    for (uint32_t k = 0; k < nodes_[i].num_operands(); ++k)
      if (nodes_[i].has_operand(k) && !is_literal(nodes_[i].operand(k))) add_once(readers[nodes_[i].operand(k).id], i);
  for (const auto& [value, items] : readers)
    for (size_t a = 0; a < items.size(); ++a)
      for (size_t b = a + 1; b < items.size(); ++b) {
        const uint32_t x = group_of_[items[a]], y = group_of_[items[b]];
        // Small tensors (weights of one row) are not worth it.
        if (x == y || kit::bytes_at_hints(g_, g_.value(value).type()) < 4096 || computes_early(x, y)) continue;
        if (!join(x, y)) join_sweep(x, y);
      }
  join_parts();
}

std::vector<Groups::Refusal> Groups::refusals() const {
  std::vector<Refusal> out;
  for (const auto& [edge, why] : refused_)
    if (group_of_[edge.first] != group_of_[edge.second]) out.push_back({edge.first, edge.second, why});
  return out;
}

std::vector<uint32_t> Groups::order() const {
  std::vector<uint32_t> waiting(groups_.size(), 0);
  std::vector<std::vector<uint32_t>> after(groups_.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].items.empty()) continue;
    std::vector<uint32_t> before;
    any_predecessor(g, [&](uint32_t p) {
      add_once(before, p);
      return false;
    });
    for (const uint32_t p : before) after[p].push_back(g);
    waiting[g] = static_cast<uint32_t>(before.size());
  }
  const auto later = [&](uint32_t a, uint32_t b) { return groups_[a].items.front() > groups_[b].items.front(); };
  std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(later)> ready(later);
  for (uint32_t g = 0; g < groups_.size(); ++g)
    if (!groups_[g].items.empty() && waiting[g] == 0) ready.push(g);
  std::vector<uint32_t> out;
  while (!ready.empty()) {
    const uint32_t g = ready.top();
    ready.pop();
    out.insert(out.end(), groups_[g].items.begin(), groups_[g].items.end());
    for (const uint32_t n : after[g])
      if (--waiting[n] == 0) ready.push(n);
  }
  if (out.size() != nodes_.size()) throw sdk::Error(TSR_BUG, "TSR-B043", "groups of fused nodes need each other");
  return out;
}

}  // namespace tessera::passes
