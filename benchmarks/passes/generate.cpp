// SPDX-License-Identifier: Apache-2.0
#include "generate.hpp"

#include <random>
#include <string>
#include <vector>

#include "ir/records.hpp"
#include "tessera/plugin.hpp"

namespace tessera::bench {
namespace {

using core::Graph;
using core::NodeSpec;

class Generator {
 public:
  Generator(const core::OpRegistry& ops, size_t nodes, uint64_t seed)
      : graph_(std::make_unique<Graph>(ops, "generated")), g_(*graph_), nodes_(nodes), random_(seed) {}

  std::unique_ptr<Graph> run() {
    batch_ = g_.sizes().symbol("s0", 1, 4096, false, 16);
    const tsr_dim wide[] = {batch_, kWidth}, square[] = {kWidth, kWidth}, vector[] = {kWidth};
    rows_ = g_.make_type(TSR_F32, wide);
    value_ = g_.create_input("x", rows_);
    for (int i = 0; i < 8; ++i) {
      const std::string n = std::to_string(i);
      weights_.push_back(g_.create_input("w" + n, g_.make_type(TSR_F32, square), TSR_INPUT_PARAM, ("w" + n).c_str()));
      biases_.push_back(g_.create_input("b" + n, g_.make_type(TSR_F32, vector), TSR_INPUT_PARAM, ("b" + n).c_str()));
    }
    hub_ = op("tanh", {value_});
    recent_.assign(4, hub_);
    while (g_.num_live_nodes() + kLongest < nodes_) block();
    while (g_.num_live_nodes() < nodes_) value_ = op("tanh", {value_});
    g_.set_outputs(0, {&value_, 1});
    g_.commit();
    return std::move(graph_);
  }

 private:
  static constexpr int64_t kWidth = 64;
  static constexpr size_t kLongest = 24;  // nodes of the longest block

  uint64_t below(uint64_t n) { return random_() % n; }

  tsr_id op(const char* name, std::vector<tsr_id> operands, std::vector<tsr_attr> attrs = {}) {
    NodeSpec s;
    s.op = name;
    s.operands = std::move(operands);
    s.attrs = std::move(attrs);
    s.loc = {"model.py", static_cast<uint32_t>(g_.num_nodes() / 8), 0};
    return g_.node(g_.create_node(s)).results[0];
  }
  tsr_id scalar(float v) {
    tsr_tensor t{};
    t.data = &v;
    t.dtype = TSR_F32;
    return op("constant", {}, {sdk::attr_tensor("value", t)});
  }
  tsr_id transpose(tsr_id x) {
    const int64_t perm[] = {1, 0};
    return op("transpose", {x}, {sdk::attr_ints("perm", perm)});
  }
  tsr_id reshape(tsr_id x, std::vector<tsr_dim> shape) { return op("reshape", {x}, {sdk::attr_dims("shape", shape)}); }
  tsr_id cast(tsr_id x, tsr_dtype to) { return op("cast", {x}, {sdk::attr_dtype("dtype", to)}); }

  // x @ w + b, residual, activation: what stays.
  void layer() {
    const size_t k = below(weights_.size());
    const int64_t one[] = {1}, zero[] = {0};
    tsr_id y =
        op("dot_general", {value_, weights_[k]}, {sdk::attr_ints("lhs_contract", one), sdk::attr_ints("rhs_contract", zero)});
    y = op("add", {y, biases_[k]});
    if (below(2))
      y = op("gelu", {y});
    else
      y = op("mul", {y, op("sigmoid", {y})});
    if (below(3) == 0) y = op("layer_norm", {y, biases_[k], biases_[(k + 1) % biases_.size()]});
    value_ = op("add", {value_, y});
    recent_[below(recent_.size())] = value_;
  }
  void identity() {
    switch (below(5)) {
      case 0: value_ = op("mul", {value_, scalar(1.0f)}); break;
      case 1: value_ = op("sub", {value_, scalar(0.0f)}); break;
      case 2: value_ = op("neg", {op("neg", {value_})}); break;
      case 3: value_ = op("maximum", {value_, value_}); break;
      default: value_ = op("mul", {op("add", {scalar(0.5f), value_}), scalar(2.0f)}); break;  // a constant to move
    }
  }
  void chain() {
    switch (below(3)) {
      case 0: value_ = transpose(transpose(value_)); break;
      case 1:
        value_ = reshape(reshape(reshape(value_, {batch_, 8, kWidth / 8}), {g_.sizes().mul(batch_, 8), kWidth / 8}),
                         {batch_, kWidth});
        break;
      default: value_ = cast(cast(value_, TSR_F64), TSR_F32); break;
    }
  }
  void duplicate() {
    const tsr_id a = recent_[below(recent_.size())], b = recent_[below(recent_.size())];
    const tsr_id first = op("tanh", {op("mul", {op("add", {a, b}), hub_})});
    const tsr_id second = op("tanh", {op("mul", {hub_, op("add", {b, a})})});
    value_ = op("add", {value_, op("mul", {first, second})});
  }
  void dead() {
    tsr_id x = recent_[below(recent_.size())];
    for (uint64_t k = 1 + below(5); k > 0; --k)
      x = below(2) ? op("exp", {x}) : op("add", {x, scalar(static_cast<float>(below(4)))});
  }
  void block() {
    layer();
    if (below(2)) identity();
    if (below(3) == 0) chain();
    if (below(3) == 0) duplicate();
    if (below(3) == 0) dead();
    value_ = op("add", {value_, hub_});
  }

  std::unique_ptr<Graph> graph_;
  Graph& g_;
  size_t nodes_;
  std::mt19937_64 random_;
  tsr_dim batch_ = 0;
  tsr_type rows_{};
  tsr_id value_ = TSR_NONE, hub_ = TSR_NONE;
  std::vector<tsr_id> weights_, biases_, recent_;
};

}  // namespace

std::unique_ptr<Graph> transformer_like(const core::OpRegistry& ops, size_t nodes, uint64_t seed) {
  return Generator(ops, nodes, seed).run();
}

}  // namespace tessera::bench
