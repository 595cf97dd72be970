// SPDX-License-Identifier: Apache-2.0
#include "closure.hpp"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#include <cmath>
#include <limits>

namespace tessera::remat {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using Network = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS,
    boost::property<boost::vertex_index_t, long,
                    boost::property<boost::vertex_color_t, boost::default_color_type,
                                    boost::property<boost::vertex_distance_t, long,
                                                    boost::property<boost::vertex_predecessor_t, Traits::edge_descriptor>>>>,
    boost::property<boost::edge_capacity_t, int64_t,
                    boost::property<boost::edge_residual_capacity_t, int64_t,
                                    boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>>;

// Sums of finite capacities stay far below: costs are picoseconds of one step.
constexpr int64_t kForbidden = std::numeric_limits<int64_t>::max() / 16;

// One problem as a network. It is built once for cuts at many prices: only capacities change.
class Cuts {
 public:
  explicit Cuts(const Problem& p) : p_(p), first_node_(p.values.size()), net_(first_node_ + p.nodes.size() + 2) {
    // Vertices: values, then nodes, source, sink. What is on the source's side of the cut is true.
    const size_t source = this->source(), sink = source + 1;
    for (size_t v = 0; v < p.values.size(); ++v) {
      if (p.values[v].read) connect(source, v, kForbidden);
      of_values_.push_back(connect(v, first_node_ + p.values[v].node, 0));
    }
    for (size_t n = 0; n < p.nodes.size(); ++n) {
      of_nodes_.push_back(connect(first_node_ + n, sink, 0));
      for (const uint32_t v : p.nodes[n].inputs) connect(first_node_ + n, v, kForbidden);
    }
  }

  Plan at(const std::vector<int64_t>& price, const std::vector<int64_t>& cost, const std::vector<uint8_t>& keep) {
    const auto capacity = boost::get(boost::edge_capacity, net_);
    for (size_t v = 0; v < p_.values.size(); ++v) {
      const Node& node = p_.nodes[p_.values[v].node];
      capacity[of_values_[v]] = node.must_recompute && !node.must_save ? kForbidden : price[v];
    }
    for (size_t n = 0; n < p_.nodes.size(); ++n) {
      const bool kept = p_.nodes[n].must_save || (!keep.empty() && keep[n] && !p_.nodes[n].must_recompute);
      // A node that costs nothing still costs something more than not running it.
      capacity[of_nodes_[n]] = kept ? kForbidden : std::max<int64_t>(cost[n], 1);
    }
    boost::boykov_kolmogorov_max_flow(net_, source(), source() + 1);
    const auto color = boost::get(boost::vertex_color, net_);
    const auto source_side = boost::get(color, source());
    Plan plan;
    plan.recompute.resize(p_.nodes.size());
    for (size_t n = 0; n < p_.nodes.size(); ++n) plan.recompute[n] = boost::get(color, first_node_ + n) == source_side;
    complete(p_, plan);
    return plan;
  }

  // Prices are `per_byte` times the bytes, costs those of the problem.
  Plan at(double per_byte, const std::vector<uint8_t>& keep) {
    std::vector<int64_t> price, cost;
    for (const Value& v : p_.values)
      price.push_back(static_cast<int64_t>(std::min(std::llround(per_byte * static_cast<double>(v.bytes)), 1LL << 52)));
    for (const Node& n : p_.nodes) cost.push_back(n.cost);
    return at(price, cost, keep);
  }

 private:
  size_t source() const { return first_node_ + p_.nodes.size(); }

  Traits::edge_descriptor connect(size_t from, size_t to, int64_t capacity) {
    const auto there = boost::add_edge(from, to, net_).first, back = boost::add_edge(to, from, net_).first;
    boost::put(boost::edge_capacity, net_, there, capacity);
    boost::put(boost::edge_capacity, net_, back, int64_t{0});
    boost::put(boost::edge_reverse, net_, there, back);
    boost::put(boost::edge_reverse, net_, back, there);
    return there;
  }

  const Problem& p_;
  const size_t first_node_;
  Network net_;
  std::vector<Traits::edge_descriptor> of_values_, of_nodes_;
};

}  // namespace

Plan minimum_closure(const Problem& p, const std::vector<int64_t>& price, const std::vector<int64_t>& cost,
                     const std::vector<uint8_t>& keep) {
  return Cuts(p).at(price, cost, keep);
}

Plan minimum_closure(const Problem& p, double per_byte, const std::vector<uint8_t>& keep) { return Cuts(p).at(per_byte, keep); }

double lagrangian(const Plan& plan, double per_byte) {
  return static_cast<double>(plan.cost) + per_byte * static_cast<double>(plan.saved_bytes);
}

double Hull::bound(int64_t bytes) const {
  double best = 0;
  for (size_t i = 0; i < prices.size(); ++i) best = std::max(best, values[i] - prices[i] * static_cast<double>(bytes));
  return best;
}

namespace {

class HullSearch {
 public:
  HullSearch(const Problem& p, size_t most, const std::vector<uint8_t>& keep) : p_(p), most_(most), keep_(keep), cuts_(p) {}

  Hull run() {
    const Plan first = cut(0);
    // Above this price no saving of a byte is worth any recomputation that there is.
    double all = 1;
    for (const Node& n : p_.nodes) all += static_cast<double>(n.cost);
    const Plan last = cut(all);
    hull_.plans = {first};
    between(first, last);
    if (last.saved_bytes < first.saved_bytes) hull_.plans.push_back(last);
    return std::move(hull_);
  }

 private:
  Plan cut(double price) {
    Plan plan = cuts_.at(price, keep_);
    hull_.prices.push_back(price);
    // Rounding of a price to picoseconds moves the value by half of one per value at most.
    hull_.values.push_back(lagrangian(plan, price) - 0.5 * static_cast<double>(p_.values.size()) -
                           static_cast<double>(p_.nodes.size()));
    return plan;
  }

  // Two points of the hull name a price at which both cost the same: a cut there finds one below the line between them, or
  // none.
  void between(const Plan& a, const Plan& b) {
    if (hull_.plans.size() + 1 >= most_ || b.saved_bytes >= a.saved_bytes || b.cost <= a.cost) return;
    const double price = static_cast<double>(b.cost - a.cost) / static_cast<double>(a.saved_bytes - b.saved_bytes);
    const Plan middle = cut(price);
    const double slack = 1 + 1e-9 * lagrangian(a, price) + static_cast<double>(p_.values.size() + p_.nodes.size());
    if (lagrangian(middle, price) >= lagrangian(a, price) - slack) return;
    between(a, middle);
    hull_.plans.push_back(middle);
    between(middle, b);
  }

  const Problem& p_;
  const size_t most_;
  const std::vector<uint8_t>& keep_;
  Cuts cuts_;
  Hull hull_;
};

}  // namespace

Hull lower_hull(const Problem& p, size_t most, const std::vector<uint8_t>& keep) { return HullSearch(p, most, keep).run(); }

}  // namespace tessera::remat
