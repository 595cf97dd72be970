// SPDX-License-Identifier: Apache-2.0
#include "compile/kernel_key.hpp"

#include <unordered_map>
#include <utility>

#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"

namespace tessera::core {

namespace {

class Key {
 public:
  Key(const Graph& g, const std::vector<uint8_t>& is_view, const std::vector<int64_t>& hints)
      : g_(g), is_view_(is_view), hints_(hints) {}

  std::string of(tsr_id n) {
    node(n);
    return std::move(out_);
  }

 private:
  void number(uint32_t k) {
    out_ += '%';
    append_int(out_, k);
  }
  void type(tsr_id v) {
    const tsr_type& t = *g_.value(v).type;
    append_type(out_, &g_.sizes(), t);
    for (uint32_t k = 0; k < t.rank; ++k)
      if (TSR_DIM_IS_EXPR(t.sizes[k])) {
        out_ += '=';
        append_int(out_, hint_size(g_, t.sizes[k], hints_));
      }
  }
  void bring(tsr_id v) {
    if (v == TSR_NONE || numbers_.contains(v)) return;
    const tsr_id def = g_.value(v).def_node;
    if (def != TSR_NONE && (is_view_[def] || g_.record_of(def).has(kConstant))) return node(def);
    name(v);
    out_ += ": ";
    type(v);
    out_ += ' ';
  }
  void name(tsr_id v) {
    const auto k = static_cast<uint32_t>(numbers_.size());
    numbers_.emplace(v, k);
    number(k);
  }

  void node(tsr_id n) {
    const tsr_node& x = g_.node(n);
    for (uint32_t i = 0; i < x.num_operands; ++i) bring(x.operands[i]);
    for (uint32_t i = 0; i < x.num_results; ++i) name(x.results[i]);
    out_ += " = ";
    out_ += x.op;
    for (uint32_t i = 0; i < x.num_operands; ++i) {
      out_ += ' ';
      if (x.operands[i] == TSR_NONE)
        out_ += '_';
      else
        number(numbers_.at(x.operands[i]));
    }
    for (uint32_t i = 0; i < x.num_attrs; ++i) {
      out_ += ' ';
      append_attr(out_, &g_.sizes(), x.attrs[i], kPrintElideConstants);
    }
    for (uint32_t i = 0; i < x.num_regions; ++i) {
      const tsr_region& r = g_.region(x.regions[i]);
      out_ += " {";
      for (uint32_t k = 0; k < r.num_inputs; ++k) {
        name(r.inputs[k]);
        out_ += ": ";
        type(r.inputs[k]);
        out_ += ' ';
      }
      for (const tsr_id inner : nodes_of(g_, x.regions[i])) node(inner);
      out_ += "return";
      for (uint32_t k = 0; k < r.num_outputs; ++k) {
        out_ += ' ';
        number(numbers_.at(r.outputs[k]));
      }
      out_ += '}';
    }
    for (uint32_t i = 0; i < x.num_results; ++i) {
      out_ += " : ";
      type(x.results[i]);
    }
    out_ += '\n';
  }

  const Graph& g_;
  const std::vector<uint8_t>& is_view_;
  const std::vector<int64_t>& hints_;
  std::unordered_map<tsr_id, uint32_t> numbers_;
  std::string out_;
};

}  // namespace

std::string kernel_key(const Graph& graph, tsr_id node, const std::vector<uint8_t>& is_view,
                       const std::vector<int64_t>& hints) {
  return Key(graph, is_view, hints).of(node);
}

}  // namespace tessera::core
