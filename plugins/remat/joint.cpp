// SPDX-License-Identifier: Apache-2.0
#include "joint.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <tessera/dtypes.hpp>

namespace tessera::remat {

namespace {

constexpr uint32_t kNone = 0xffffffffu;

class Lists {
 public:
  Lists(sdk::Graph g, const sdk::Options& options) : g_(g) {
    read(options, "save", save_);
    read(options, "recompute", recompute_);
    for (const std::string& s : save_)
      if (std::find(recompute_.begin(), recompute_.end(), s) != recompute_.end())
        throw sdk::Error(TSR_USER, "TSR-A012", "[remat] names '" + s + "' in both 'save' and 'recompute'",
                         "remove one of them");
  }
  bool saves(const sdk::Node& n) const { return names(save_, n); }
  bool recomputes(const sdk::Node& n) const { return names(recompute_, n); }

 private:
  void read(const sdk::Options& options, const char* key, std::vector<std::string>& out) const {
    const tsr_option* o = options.find(key);
    for (uint32_t i = 0; o && i < o->count; ++i) {
      const std::string name = o->strings[i];
      if (name.empty() || (name[0] != '%' && !g_.api().op_traits(g_.handle(), name.c_str())))
        throw sdk::Error(TSR_USER, "TSR-A012",
                         std::string("[remat] ") + key + " names the op '" + name + "', which no loaded op set defines",
                         "`tessera ops` lists the ops; a value is named as %name");
      if (name[0] == '%' && !has_value(name.substr(1)))
        throw sdk::Error(
            TSR_USER, "TSR-A012",
            std::string("[remat] ") + key + " names the value '" + name + "', which graph @" + g_.tables().name + " has not",
            "TESSERA_LOGS=aot_joint_graph prints the graph");
      out.push_back(name);
    }
  }
  bool has_value(const std::string& name) const {
    for (const sdk::Node& n : g_.nodes())
      for (uint32_t i = 0; i < n.num_results(); ++i)
        if (n.result(i).name() == name) return true;
    return false;
  }
  static bool names(const std::vector<std::string>& list, const sdk::Node& n) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& s) {
      if (s[0] != '%') return n.op() == s;
      for (uint32_t i = 0; i < n.num_results(); ++i)
        if (n.result(i).name() == std::string_view(s).substr(1)) return true;
      return false;
    });
  }
  sdk::Graph g_;
  std::vector<std::string> save_, recompute_;
};

// An op that is not named here counts as one that a kernel may compute together with others.
bool is_product(const sdk::Node& n) {
  return n.is("linear") || n.is("matmul") || n.is("dot_general") || n.is("conv") || n.is("attention") ||
         n.is("attention_lse") || n.is("attention_backward") || n.is("attention_y_backward");
}

class Maker {
 public:
  Maker(sdk::Graph g, const tsr_partition& p, const sdk::Options& options) : g_(g), p_(p), lists_(g, options) {
    value_.assign(g.num_value_slots(), kNone);
    root_.assign(g.num_value_slots(), kNone);
  }

  Joint run() {
    for (const sdk::Node& n : g_.nodes())
      if (p_.rules[n.id] != TSR_PARTITION_BACKWARD && (p_.rules[n.id] != TSR_PARTITION_FREE || n.num_operands() > 0))
        forward(n);
    for (const sdk::Node& n : g_.nodes())
      if (p_.rules[n.id] == TSR_PARTITION_BACKWARD)
        for (uint32_t i = 0; i < n.num_results(); ++i) add_value(n.result(i));
    for (const sdk::Node& n : g_.nodes()) schedule(n);
    const bool late = is_pair();
    for (const tsr_id v : g_.outputs()) {
      if (root_[v] == kNone || std::exchange(out_.schedule.outputs[root_[v]], 1)) continue;
      const sdk::Type type = g_.value(v).type();
      if (!late && type.is_static()) out_.output_bytes += storage_bytes(type.dtype(), type.elements());
    }
    return std::move(out_);
  }

 private:
  // The last inputs of a pair are its cotangents, which only the backward half reads.
  bool is_pair() const {
    const auto inputs = g_.inputs();
    if (inputs.empty()) return false;
    const sdk::Value last = g_.value(inputs[inputs.size() - 1]);
    bool read = false, early = false;
    for (const tsr_use& u : last.uses())
      if (u.node != TSR_NONE) (p_.rules[u.node] == TSR_PARTITION_BACKWARD ? read : early) = true;
    return read && !early && last.raw().input_kind == TSR_INPUT_ARG;
  }
  bool fuses(const sdk::Node& n) const {
    uint64_t capabilities = 0;
    return n.regions().empty() && !g_.backend_of(n, &capabilities).empty() && (capabilities & TSR_CAP_FUSION) != 0;
  }
  bool is_view(const sdk::Node& n) const {
    return p_.rules[n.id] == TSR_PARTITION_FREE ||
           (p_.rules[n.id] == TSR_PARTITION_BACKWARD && g_.has_trait(n.raw().op, "view") && p_.bytes[n.result().id] == 0);
  }

  uint32_t add_value(const sdk::Value& v) {
    const auto id = static_cast<uint32_t>(out_.schedule.bytes.size());
    value_[v.id] = id;
    const sdk::Node n = v.def();
    root_[v.id] = is_view(n) && n.has_operand(0) ? root_[n.operand(0).id] : id;
    out_.schedule.bytes.push_back(p_.bytes[v.id]);
    out_.schedule.outputs.push_back(0);
    return id;
  }

  void forward(const sdk::Node& n) {
    Node node;
    const uint8_t rule = p_.rules[n.id];
    node.cost = static_cast<int64_t>(std::llround(p_.seconds[n.id] * kPicoseconds));
    node.must_save = rule == TSR_PARTITION_SAVE || (rule == TSR_PARTITION_MAY && lists_.saves(n));
    node.must_recompute =
        rule == TSR_PARTITION_RECOMPUTE || rule == TSR_PARTITION_FREE || (rule == TSR_PARTITION_MAY && lists_.recomputes(n));
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      const uint32_t v = n.has_operand(i) ? value_[n.operand(i).id] : kNone;
      if (v != kNone && std::find(node.inputs.begin(), node.inputs.end(), v) == node.inputs.end()) node.inputs.push_back(v);
    }
    const auto id = static_cast<uint32_t>(out_.problem.nodes.size());
    out_.problem.nodes.push_back(std::move(node));
    out_.nodes.push_back(n.id);
    out_.schedule.item_of.push_back(kNoItem);
    for (uint32_t i = 0; i < n.num_results(); ++i) {
      const sdk::Value v = n.result(i);
      add_value(v);
      bool read = false;
      for (const tsr_use& u : v.uses()) read |= u.node != TSR_NONE && p_.rules[u.node] == TSR_PARTITION_BACKWARD;
      out_.problem.values.push_back({id, p_.bytes[v.id], read});
    }
    problem_node_.resize(std::max<size_t>(problem_node_.size(), n.id + 1), kNone);
    problem_node_[n.id] = id;
  }

  void schedule(const sdk::Node& n) {
    Item item;
    item.backward = p_.rules[n.id] == TSR_PARTITION_BACKWARD;
    item.product = is_product(n);
    item.fuses = !item.product && fuses(n);
    if (is_view(n)) return;
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      const uint32_t v = n.has_operand(i) ? root_[n.operand(i).id] : kNone;
      if (v != kNone && std::find(item.reads.begin(), item.reads.end(), v) == item.reads.end()) item.reads.push_back(v);
    }
    for (uint32_t i = 0; i < n.num_results(); ++i)
      if (const uint32_t v = value_[n.result(i).id]; v != kNone) item.writes.push_back(v);
    if (!item.backward) {
      if (n.id >= problem_node_.size() || problem_node_[n.id] == kNone) return;
      item.node = problem_node_[n.id];
      out_.schedule.item_of[item.node] = static_cast<uint32_t>(out_.schedule.items.size());
    }
    out_.schedule.items.push_back(std::move(item));
  }

  sdk::Graph g_;
  const tsr_partition& p_;
  const Lists lists_;
  Joint out_;
  std::vector<uint32_t> value_, root_, problem_node_;
};

}  // namespace

Joint make_joint(sdk::Graph g, const tsr_partition& p, const sdk::Options& options) { return Maker(g, p, options).run(); }

void put(const Joint& joint, const Plan& plan, tsr_partition& p) {
  for (size_t k = 0; k < joint.nodes.size(); ++k) {
    const tsr_id n = joint.nodes[k];
    if (p.rules[n] == TSR_PARTITION_MAY) p.in_backward[n] = plan.recompute[k];
    if (p.rules[n] == TSR_PARTITION_RECOMPUTE) p.in_backward[n] = 1;
  }
  p.saved_bytes = plan.saved_bytes;
  p.recompute_seconds = static_cast<double>(plan.cost) / kPicoseconds;
}

}  // namespace tessera::remat
