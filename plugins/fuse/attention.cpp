// SPDX-License-Identifier: Apache-2.0
// Attention whose scores are modified: a product of queries and keys, a program of its results element by element, softmax over
// keys, and a product with the values; or the op `attention` with the program that its mask is made of. Where the backend takes
// such a group, no tensor as large as the scores exists. What the program reads that is smaller than the scores of one head
// stays outside, as an operand of the group: new values of it compile nothing.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>

#include "groups.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::passes {
namespace {

constexpr size_t kMostVisited = 512;  // nodes before a softmax that are looked at

bool one_element(sdk::Value v) { return v.def() && v.def().is("constant") && v.type().elements() == 1; }
bool is_literal_of(sdk::Value v, double x) {
  if (!one_element(v) || !is_float(v.type().dtype())) return false;
  return load_as<double>(v.type().dtype(), v.def().attr("value").as_tensor().data, 0) == x;
}
bool contracts(const sdk::Node& n) { return n.is("matmul") || n.is("dot_general"); }
std::string named(const sdk::Node& n) { return "%" + std::string(n.result().name()) + " = " + std::string(n.op()); }

class Attention {
 public:
  Attention(sdk::Graph g, tsr_id region, const FuseOptions& options) : g_(g), region_(region), options_(options) {}

  // True: the graph was edited.
  bool run() {
    std::vector<sdk::Node> heads;
    // What `recognise` found before gradients were taken is the op `attention` here, or its gradient. Of the rest, the backward
    // half reads the weights, or computes them again; where it does, nothing would keep the original from being fused, and the
    // bits would depend on what is kept.
    bool trains = false;
    for (const sdk::Node& n : g_.nodes(region_)) trains = trains || n.marked(TSR_MARK_BACKWARD);
    for (const sdk::Node& n : g_.nodes(region_))
      if ((n.is("softmax") && !trains) || (n.is("attention") && n.has_operand(3))) heads.push_back(n);
    bool changed = false;
    for (const sdk::Node& n : heads) {
      nodes_.clear(), core_.clear(), guard_.clear(), seen_.clear(), pulled_.clear();
      first_ = last_ = sdk::Node{g_.handle(), TSR_NONE};
      const std::string why = n.is("softmax") ? from_softmax(n) : from_mask(n);
      if (why.empty())
        changed = true;
      else if (first_ && last_)
        hint(n, why);
      changed = changed || tried_;
    }
    return changed;
  }

 private:
  // ---- what belongs to it

  // Is it computed element by element, or only other places of its operand?
  bool moves_or_computes(const sdk::Node& n) const {
    if (n.num_results() != 1 || !n.regions().empty() || n.is("constant")) return false;
    static constexpr std::string_view traits[] = {"elementwise", "view", "rearranges"};
    return n.num_operands() == 0 || n.is("full") ||
           std::any_of(std::begin(traits), std::end(traits), [&](std::string_view x) { return g_.has_trait(n.raw().op, x); });
  }
  bool of_backend(const sdk::Node& n) const { return g_.backend_of(n) == backend_; }
  bool here(const sdk::Node& n) const { return n && n.raw().parent == last_.raw().parent && same_half(n, last_); }

  // Calls of functions per element; -1: no kernel of its own.
  int calls(const sdk::Node& n) {
    try {
      const kit::Fit fit = fits_.of(kit::piece_of(g_, n).piece);
      return fit.why.empty() ? fit.calls : -1;
    } catch (const kit::Unfit&) {
      return -1;
    }
  }

  // As many elements as what softmax reads, and the same queries and keys.
  bool makes_scores(sdk::Type t) const {
    const sdk::Type x = softmax_.operand(0).type();
    return t.rank() >= 2 && t.size(-1) == x.size(-1) && t.size(-2) == x.size(-2) && kit::elements_at_hints(g_, t) == scores_;
  }

  // Nodes whose values depend on the scores: those of `core_`. Returns whether v does.
  bool depends(sdk::Value v) {
    const sdk::Node n = v.def();
    if (!here(n)) return false;
    if (const auto at = seen_.find(n.id); at != seen_.end()) return at->second;
    if (seen_.size() > kMostVisited) return false;
    bool any = false;
    if (contracts(n)) {
      if (!first_ && makes_scores(n.result().type())) first_ = n;
      any = n == first_;
    } else if (moves_or_computes(n)) {
      for (uint32_t i = 0; i < n.num_operands(); ++i) any = (n.has_operand(i) && depends(n.operand(i))) || any;
      if (any) core_.insert(n.id);
    }
    seen_[n.id] = any;
    return any;
  }

  // What makes an operand that is as large as the scores of a head, or that is made of positions alone. An expensive value is
  // not computed more often than now.
  bool pulls(sdk::Value v) {
    const sdk::Node n = v.def();
    if (!here(n) || core_.count(n.id)) return false;
    if (const auto at = pulled_.find(n.id); at != pulled_.end()) return at->second;
    return pulled_[n.id] = decide(v, n);
  }
  bool decide(sdk::Value v, const sdk::Node& n) {
    if (pulled_.size() > kMostVisited || !moves_or_computes(n) || !of_backend(n)) return false;
    const double elements = kit::elements_at_hints(g_, v.type());
    if ((elements < head_ || elements > scores_) && !of_positions(n)) return false;
    const int k = calls(n);
    return k == 0 || (k > 0 && elements == scores_ && v.num_uses() == 1);
  }
  bool of_positions(const sdk::Node& n) {
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i) && !one_element(n.operand(i)) && !pulls(n.operand(i))) return false;
    return true;
  }

  // The views that repeat heads of keys or values, and what transposes them: the backend may read a head where it lies.
  bool repeats(sdk::Value v) const {
    bool any = false;
    for (sdk::Node n = v.def(); here(n); n = n.operand(0).def()) {
      if (n.is("broadcast_to")) any = true;
      if (!n.is("transpose") && !n.is("reshape") && !n.is("broadcast_to") && !n.is("expand_dims")) break;
      if (any && (n.is("expand_dims") || n.is("reshape"))) return true;
    }
    return false;
  }
  void gather_views(sdk::Value v) {
    std::vector<sdk::Node> views;
    bool wide = false;
    for (sdk::Node n = v.def(); n; n = n.operand(0).def()) {
      views.push_back(n);
      if (wide) break;
      wide = n.is("broadcast_to");
    }
    for (size_t i = views.size(); i-- > 0;)
      if (std::find(nodes_.begin(), nodes_.end(), views[i]) == nodes_.end()) nodes_.push_back(views[i]);
  }

  // Operands first.
  void gather(const sdk::Node& n, bool with_operands) {
    if (std::find(nodes_.begin(), nodes_.end(), n) != nodes_.end()) return;
    if (with_repeats_ && contracts(n) && repeats(n.operand(1))) gather_views(n.operand(1));
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      if (!n.has_operand(i) || !n.operand(i).def()) continue;
      const bool program = !contracts(n) && !(n.is("attention") && i < 3);
      if (core_.count(n.operand(i).def().id) || (with_operands && program && pulls(n.operand(i))))
        gather(n.operand(i).def(), with_operands);
    }
    nodes_.push_back(n);
  }

  kit::Piece piece() const {
    kit::Piece p{g_, nodes_, {}, {last_.result()}};
    // What the program of the scores takes along may be read by the product before it as well: that reads it from outside.
    for (auto at = nodes_.begin(); at != nodes_.end(); ++at)
      for (uint32_t i = 0; i < at->num_operands(); ++i) {
        if (!at->has_operand(i)) continue;
        const sdk::Value v = at->operand(i);
        const bool inside = v.def() && std::find(nodes_.begin(), at, v.def()) != at;
        if (inside || (!contracts(*at) && one_element(v))) continue;
        if (std::find(p.inputs.begin(), p.inputs.end(), v) == p.inputs.end()) p.inputs.push_back(v);
      }
    return p;
  }

  // ---- the two forms. Empty: a group took their place; else why not.

  std::string from_softmax(const sdk::Node& softmax) {
    softmax_ = softmax;
    const sdk::Value x = softmax.operand(0);
    if (const std::string why = behind(softmax); !why.empty() || !last_)
      return why.empty() ? "no product reads its weights" : why;
    if (!takes_groups(last_)) return "the backend of " + named(last_) + " takes no groups";
    const sdk::Type t = x.type();
    if (t.rank() < 2) return "scores have dimensions of queries and keys";
    scores_ = kit::elements_at_hints(g_, t);
    head_ = elements({t.size(-2), t.size(-1)});
    if (!depends(x) || !first_) return "softmax reads no product's results";
    const int64_t axis = softmax.attr("axis").as_int();
    if (axis != -1 && axis != static_cast<int64_t>(t.rank()) - 1) return "softmax is not over the last dimension";
    core_.insert(first_.id);
    for (const tsr_id id : core_) {
      const sdk::Node n = g_.node(id);
      for (const tsr_use& u : n.result().uses()) {
        const bool inside = u.node != TSR_NONE && (core_.count(u.node) || u.node == softmax.id || guard_.count(u.node));
        if (!inside) return "the scores " + named(n) + " are read elsewhere too";
      }
      if (!of_backend(n)) return named(n) + " is left to another backend";
    }
    for (const tsr_id id : guard_) core_.insert(id);
    core_.insert(softmax.id);
    core_.insert(last_.id);
    if (!of_backend(softmax)) return named(softmax) + " is left to another backend";
    return replace();
  }

  std::string from_mask(const sdk::Node& whole) {
    softmax_ = first_ = last_ = whole;
    if (!takes_groups(whole)) return "the backend takes no groups";
    const sdk::Type q = whole.operand(0).type(), k = whole.operand(1).type();
    head_ = elements({q.size(-2), k.size(-2)});
    scores_ = head_;
    for (uint32_t i = 0; i + 2 < q.rank(); ++i) scores_ *= elements({q.size(i)});
    core_.insert(whole.id);
    if (!pulls(whole.operand(3))) {
      first_ = sdk::Node{g_.handle(), TSR_NONE};  // nothing to say: the mask is an operand
      return "its mask is given";
    }
    return replace();
  }

  // From softmax to the second product, with what guards queries that see no key.
  std::string behind(const sdk::Node& softmax) {
    last_ = softmax;  // for here()
    sdk::Value w = softmax.result();
    std::vector<sdk::Node> users = users_of(w);
    const auto only = [&](const char* op) {
      for (const sdk::Node& n : users)
        if (n.is(op)) return n;
      return sdk::Node{g_.handle(), TSR_NONE};
    };
    if (const sdk::Node pick = only("select"); pick && pick.operand(2) == w && is_literal_of(pick.operand(1), 0)) {
      const sdk::Node cond = pick.operand(0).def();
      if (cond && cond.is("is_nan") && cond.operand(0) == w && users.size() == 2 && w.num_uses() == 2 &&
          cond.result().num_uses() == 1) {
        guard_ = {pick.id, cond.id};
      } else if (cond && cond.is("eq") && w.num_uses() == 1 && cond.result().num_uses() == 1 &&
                 is_literal_of(cond.operand(1), -HUGE_VAL)) {
        const sdk::Node top = cond.operand(0).def();
        if (here(top) && top.is("reduce_max") && top.operand(0) == softmax.operand(0) && top.result().num_uses() == 1)
          guard_ = {pick.id, cond.id, top.id};
      }
      if (!guard_.empty()) {
        w = pick.result();
        users = users_of(w);
      }
    }
    last_ = sdk::Node{g_.handle(), TSR_NONE};
    for (const sdk::Node& n : users)
      if (contracts(n) && n.operand(0) == w && n.raw().parent == softmax.raw().parent) last_ = n;
    if (last_) {
      first_ = last_;  // worth a hint
      if (users.size() > 1 || w.num_uses() > 1) return "its weights are read elsewhere too";
      first_ = sdk::Node{g_.handle(), TSR_NONE};
      return {};
    }
    // Something between them: worth saying where a product follows.
    for (const sdk::Node& n : users)
      if (n.num_results() > 0)
        for (const sdk::Node& next : users_of(n.result()))
          if (contracts(next)) {
            first_ = last_ = next;
            return named(n) + " stands between softmax and the product";
          }
    return {};
  }
  std::vector<sdk::Node> users_of(sdk::Value v) const {  // without the graph's results
    std::vector<sdk::Node> out;
    for (const tsr_use& u : v.uses())
      if (u.node != TSR_NONE && std::none_of(out.begin(), out.end(), [&](const sdk::Node& n) { return n.id == u.node; }))
        out.push_back(g_.node(u.node));
    return out;
  }

  bool takes_groups(const sdk::Node& n) {
    uint64_t capabilities = 0;
    backend_ = g_.backend_of(n, &capabilities);
    return !backend_.empty() && (capabilities & TSR_CAP_FUSION);
  }
  double elements(std::initializer_list<tsr_dim> sizes) const {
    tsr_type t{};
    t.rank = static_cast<uint32_t>(sizes.size());
    t.sizes = sizes.begin();
    return kit::elements_at_hints(g_, {&t});
  }

  std::string replace() {
    // What the backend takes, the most first.
    for (const auto& [with_operands, with_repeats] : {std::pair{true, true}, {true, false}, {false, false}}) {
      nodes_.clear();
      with_repeats_ = with_repeats;
      gather(last_, with_operands);
      if (last_ == softmax_ && nodes_.size() < 2) break;  // a mask that stays outside
      if (nodes_.size() > options_.max_size) continue;
      const kit::Piece p = piece();
      if (p.inputs.size() + 1 > options_.max_buffers) continue;
      tried_ = true;
      const sdk::Node fused = make_group(g_, p, backend_);
      if (g_.backend_of(fused) != backend_) {
        g_.erase(fused);
        continue;
      }
      if (sdk::log_enabled("fusion")) {
        std::string names;
        for (const sdk::Node& n : p.nodes) names += (names.empty() ? "" : ", ") + std::string(n.op());
        sdk::log("fusion", backend_ + ": attention of " + std::to_string(p.nodes.size()) +
                               " nodes, without a tensor of scores (" + names + ")");
      }
      const std::string name(last_.result().name());
      g_.replace_uses(last_.result(), fused.result());
      for (size_t i = nodes_.size(); i-- > 0;)  // others may read what only makes operands
        if (nodes_[i].result().num_uses() == 0) g_.erase(nodes_[i]);
      g_.set_name(fused.result(), name.c_str());
      return {};
    }
    return "backend '" + backend_ + "' does not take the group";
  }

  void hint(const sdk::Node& n, const std::string& why) const {
    if (!sdk::log_enabled("perf_hints") && !sdk::log_enabled("fusion", 1)) return;
    const double bytes = 2 * kit::bytes_at_hints(g_, n.result().type());
    const std::string text = "fuse: attention around " + named(n) + " stays in parts: " + why;
    if (bytes >= 65536) sdk::log("perf_hints", text);
    sdk::log("fusion", text, 1);
  }

  sdk::Graph g_;
  tsr_id region_;
  FuseOptions options_;
  kit::FitCache fits_;
  std::string backend_;
  sdk::Node softmax_, first_, last_;  // `first_`, `last_`: the products, or the op
  double scores_ = 0, head_ = 0;      // elements of all scores, and of those of one head
  std::set<tsr_id> core_, guard_;     // nodes that belong to it
  std::map<tsr_id, bool> seen_, pulled_;
  std::vector<sdk::Node> nodes_;
  bool tried_ = false, with_repeats_ = false;
};

}  // namespace

bool fuse_attention(sdk::Graph g, tsr_id region, const FuseOptions& options) { return Attention(g, region, options).run(); }

}  // namespace tessera::passes
