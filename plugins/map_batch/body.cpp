// SPDX-License-Identifier: Apache-2.0
#include "body.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "along.hpp"

namespace tessera::map_batch {

namespace t = tessera::sdk;

namespace {

class Builder {
 public:
  Builder(t::Graph g, const Part& part, int64_t items) : g_(g), part_(part), along_(part), items_(items) {
    for (const Part::Member& m : part.members) inside_.insert(m.node.id);
  }

  void run() {
    collect();
    make_region();
    make_body();
    replace();
  }

 private:
  bool is_inside(t::Node n) const { return n && inside_.count(n.id) > 0; }
  // Sizes of an item: [rows of an item, rest..].
  std::vector<tsr_dim> item_sizes(t::Type type) const {
    std::vector<tsr_dim> out(type.sizes().begin(), type.sizes().end());
    out[0] /= items_;
    return out;
  }
  tsr_type item_type(t::Type type, const std::vector<tsr_dim>& sizes) const {
    tsr_type out = *type.p;
    out.sizes = sizes.data();
    return out;
  }

  // What comes from outside, slices first, and what goes there.
  void collect() {
    std::set<tsr_id> is_slice, is_whole;
    for (const Part::Member& m : part_.members) {
      for (uint32_t i = 0; i < m.node.num_operands(); ++i) {
        if (!m.node.has_operand(i)) continue;
        const t::Value v = m.node.operand(i);
        if (is_inside(v.def())) continue;
        if (m.rule.reads[i] == Read::kRows) {
          if (is_slice.insert(v.id).second) slices_.push_back(v);
        } else {
          collect_whole(v, is_whole);
        }
      }
      for (uint32_t i = 0; i < m.node.num_results(); ++i) {
        const auto uses = m.node.result(i).uses();
        if (std::any_of(uses.begin(), uses.end(),
                        [&](const tsr_use& u) { return u.node == TSR_NONE || !inside_.count(u.node); }))
          results_.push_back(m.node.result(i));
      }
    }
  }

  // Constants come along, and what is as cheap to make again.
  void collect_whole(t::Value v, std::set<tsr_id>& known) {
    const t::Node n = v.def();
    if ((n && n.is("constant")) || !known.insert(v.id).second) return;
    if (!along_.takes(v)) return whole_.push_back(v);
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i)) collect_whole(n.operand(i), known);
  }

  void make_region() {
    std::vector<std::vector<tsr_dim>> sizes;
    std::vector<tsr_type> types;
    sizes.reserve(slices_.size());
    for (const t::Value& v : slices_) {
      sizes.push_back(item_sizes(v.type()));
      types.push_back(item_type(v.type(), sizes.back()));
    }
    for (const t::Value& v : whole_) types.push_back(*v.type().p);
    std::vector<const tsr_type*> pointers;
    for (const tsr_type& type : types) pointers.push_back(&type);
    t::check(g_.api().region_create(g_.handle(), pointers.data(), static_cast<uint32_t>(pointers.size()), &region_));
    for (size_t i = 0; i < slices_.size(); ++i) {
      slice_of_[slices_[i].id] = g_.value(g_.inputs(region_)[i]);
      name(slice_of_[slices_[i].id], slices_[i]);
    }
    for (size_t i = 0; i < whole_.size(); ++i) {
      whole_of_[whole_[i].id] = g_.value(g_.inputs(region_)[slices_.size() + i]);
      name(whole_of_[whole_[i].id], whole_[i]);
    }
  }
  void name(t::Value v, t::Value after) const { g_.set_name(v, std::string(after.name()).c_str()); }

  t::Value whole(t::Value v) {
    if (const auto at = whole_of_.find(v.id); at != whole_of_.end()) return at->second;
    const t::Node c = v.def();  // a constant, or what comes along: the region has one of its own
    std::vector<t::Value> operands;
    for (uint32_t i = 0; i < c.num_operands(); ++i) operands.push_back(c.has_operand(i) ? whole(c.operand(i)) : g_.none());
    const t::Value made = g_.create({region_, TSR_NONE, c.raw().loc}, c.raw().op, operands, c.attrs()).result();
    names_.emplace_back(made, v.name());
    copied_.push_back(c);
    return whole_of_[v.id] = made;
  }

  void make_body() {
    for (const Part::Member& m : part_.members) {
      std::vector<t::Value> operands;
      for (uint32_t i = 0; i < m.node.num_operands(); ++i) {
        if (!m.node.has_operand(i)) {
          operands.push_back(g_.none());
          continue;
        }
        const t::Value v = m.node.operand(i);
        operands.push_back(is_inside(v.def())               ? item_of_.at(v.id)
                           : m.rule.reads[i] == Read::kRows ? slice_of_.at(v.id)
                                                            : whole(v));
      }
      const ItemAttrs attrs(m.node, items_);
      const t::Node made = g_.create({region_, TSR_NONE, m.node.raw().loc}, m.node.raw().op, operands, attrs.get());
      for (uint32_t i = 0; i < m.node.num_results(); ++i) {
        const auto to = made.result(i).type().sizes();
        const std::vector<tsr_dim> expected = item_sizes(m.node.result(i).type());
        if (!std::equal(to.begin(), to.end(), expected.begin(), expected.end()))
          throw t::Error(TSR_BUG, "TSR-B002", "op '" + std::string(m.node.op()) + "' for one item gives " + g_.print(made));
        names_.emplace_back(made.result(i), m.node.result(i).name());
        item_of_[m.node.result(i).id] = made.result(i);
      }
    }
    std::vector<tsr_id> outputs;
    for (const t::Value& v : results_) outputs.push_back(item_of_.at(v.id).id);
    t::check(g_.api().region_set_outputs(g_.handle(), region_, outputs.data(), static_cast<uint32_t>(outputs.size())));
  }

  t::Value reshape(const t::Graph::At& at, t::Value v, const std::vector<tsr_dim>& shape) const {
    return g_.op(at, "reshape", {v}, {t::attr_dims("shape", shape)});
  }

  void replace() {
    const t::Node last = part_.members.back().node;
    const t::Graph::At at{last.raw().parent, last.raw().next, last.raw().loc};
    std::vector<t::Value> operands;
    for (const t::Value& v : slices_) {
      std::vector<tsr_dim> shape = item_sizes(v.type());
      shape.insert(shape.begin(), items_);
      operands.push_back(reshape(at, v, shape));
    }
    operands.insert(operands.end(), whole_.begin(), whole_.end());
    const std::vector<tsr_attr> attrs = {
        t::attr_int("carried", 0), t::attr_int("scanned", static_cast<int64_t>(slices_.size())), t::attr_dim("length", items_)};
    const t::Node scan = g_.create(at, "scan", operands, attrs, std::span<const tsr_id>(&region_, 1));
    for (uint32_t i = 0; i < results_.size(); ++i) {
      const auto sizes = results_[i].type().sizes();
      const t::Value whole = reshape(at, scan.result(i), {sizes.begin(), sizes.end()});
      names_.emplace_back(whole, results_[i].name());
      g_.replace_uses(results_[i], whole);
    }
    for (const t::Node& n : part_.readers) t::check(g_.api().node_move(g_.handle(), n.id, at.before));
    for (auto m = part_.members.rbegin(); m != part_.members.rend(); ++m) g_.erase(m->node);
    for (auto c = copied_.rbegin(); c != copied_.rend(); ++c)
      if (c->result().num_uses() == 0) g_.erase(*c);
    // What readers outside know keeps its name; an item's value has it with a number then.
    for (auto n = names_.rbegin(); n != names_.rend(); ++n) g_.set_name(n->first, n->second.c_str());
  }

  t::Graph g_;
  const Part& part_;
  Along along_;
  int64_t items_;
  std::set<tsr_id> inside_;
  std::vector<t::Value> slices_, whole_, results_;
  std::map<tsr_id, t::Value> slice_of_, whole_of_, item_of_;  // of the region, by values outside
  std::vector<t::Node> copied_;                               // that the region has too, operands first
  std::vector<std::pair<t::Value, std::string>> names_;       // given when the old nodes are gone
  tsr_id region_ = TSR_NONE;
};

}  // namespace

void map_part(t::Graph g, const Part& part, int64_t items) { Builder(g, part, items).run(); }

}  // namespace tessera::map_batch
