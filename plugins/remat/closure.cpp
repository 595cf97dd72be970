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

void connect(Network& net, size_t from, size_t to, int64_t capacity) {
  if (capacity <= 0) return;
  const auto there = boost::add_edge(from, to, net).first, back = boost::add_edge(to, from, net).first;
  boost::put(boost::edge_capacity, net, there, capacity);
  boost::put(boost::edge_capacity, net, back, int64_t{0});
  boost::put(boost::edge_reverse, net, there, back);
  boost::put(boost::edge_reverse, net, back, there);
}

}  // namespace

Plan minimum_closure(const Problem& p, const std::vector<int64_t>& price, const std::vector<int64_t>& cost,
                     const std::vector<uint8_t>& keep) {
  // Vertices: values, then nodes, source, sink. What is on the source's side of the cut is true.
  const size_t first_node = p.values.size(), source = first_node + p.nodes.size(), sink = source + 1;
  Network net(sink + 1);
  for (size_t v = 0; v < p.values.size(); ++v) {
    if (p.values[v].read) connect(net, source, v, kForbidden);
    const Node& node = p.nodes[p.values[v].node];
    connect(net, v, first_node + p.values[v].node, node.must_recompute && !node.must_save ? kForbidden : price[v]);
  }
  for (size_t n = 0; n < p.nodes.size(); ++n) {
    const bool kept = p.nodes[n].must_save || (!keep.empty() && keep[n] && !p.nodes[n].must_recompute);
    // A node that costs nothing still costs something more than not running it.
    connect(net, first_node + n, sink, kept ? kForbidden : std::max<int64_t>(cost[n], 1));
    for (const uint32_t v : p.nodes[n].inputs) connect(net, first_node + n, v, kForbidden);
  }
  boost::boykov_kolmogorov_max_flow(net, source, sink);
  const auto color = boost::get(boost::vertex_color, net);
  const auto source_side = boost::get(color, source);
  Plan plan;
  plan.recompute.resize(p.nodes.size());
  for (size_t n = 0; n < p.nodes.size(); ++n) plan.recompute[n] = boost::get(color, first_node + n) == source_side;
  complete(p, plan);
  return plan;
}

Plan minimum_closure(const Problem& p, double per_byte, const std::vector<uint8_t>& keep) {
  std::vector<int64_t> price, cost;
  for (const Value& v : p.values)
    price.push_back(static_cast<int64_t>(std::min(std::llround(per_byte * static_cast<double>(v.bytes)), 1LL << 52)));
  for (const Node& n : p.nodes) cost.push_back(n.cost);
  return minimum_closure(p, price, cost, keep);
}

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
  HullSearch(const Problem& p, size_t most, const std::vector<uint8_t>& keep) : p_(p), most_(most), keep_(keep) {}

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
    Plan plan = minimum_closure(p_, price, keep_);
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
  Hull hull_;
};

}  // namespace

Hull lower_hull(const Problem& p, size_t most, const std::vector<uint8_t>& keep) { return HullSearch(p, most, keep).run(); }

}  // namespace tessera::remat
