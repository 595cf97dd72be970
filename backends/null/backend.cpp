// SPDX-License-Identifier: Apache-2.0
// The backend that compiles anything and computes nothing: compiler tests run on it without hardware, and what a run on it
// costs is the host's own overhead.
#include <limits>

#include "device.hpp"
#include "tessera/plugin.hpp"

namespace tessera::null_backend {

namespace {

namespace t = tessera::sdk;

// Multiplies non-negative numbers; stops at the largest int64_t.
int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t out;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}

class NullKernel : public t::Kernel {
 public:
  explicit NullKernel(const t::Compile& c) : name_(c.node().op()) {
    // The unbacked symbols that the results introduce, in order of first appearance; those of the operands are known.
    const t::Graph g = c.graph();
    const t::Node n = c.node();
    std::vector<uint32_t> known, seen;
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i))
        for (const tsr_dim d : n.operand(i).type().sizes()) collect(g, d, {}, known);
    for (uint32_t r = 0; r < n.num_results(); ++r)
      for (const tsr_dim d : n.result(r).type().sizes()) collect(g, d, known, seen);
    for (const uint32_t s : seen) limits_.push_back(TSR_AT(tsr_symbol, g.tables().symbols, g.tables().symbol_stride, s)->max);
    total_is_input_ = name_ == "dynamic_reshape";
  }

  std::string name() const override { return "null." + name_; }
  bool has_sizes() const override { return !limits_.empty(); }

  // An upper bound in place of the data-dependent size: every op of the standard set that selects yields at most one item per
  // element of its broadcast operands. A reshape keeps the number of elements: its first size takes all of them. What the data
  // alone bounds (dynamic_broadcast_to) gets the elements of the operand, too: any size would do.
  void sizes(const tsr_launch& l, std::span<int64_t> symbols) override {
    const uint32_t operands = std::min(l.num_inputs, name_ == "masked_select" ? 2u : 1u);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < operands; ++i) rank = std::max(rank, l.inputs[i].rank);
    int64_t bound = 1;
    for (uint32_t from_last = 1; from_last <= rank; ++from_last) {
      int64_t size = 1;
      for (uint32_t i = 0; i < operands; ++i)
        if (const tsr_tensor& x = l.inputs[i]; from_last <= x.rank && x.sizes[x.rank - from_last] != 1)
          size = x.sizes[x.rank - from_last];
      bound = saturating_mul(bound, size);
    }
    for (size_t i = 0; i < symbols.size(); ++i) {
      const int64_t limit = i < limits_.size() ? limits_[i] : std::numeric_limits<int64_t>::max();
      symbols[i] = std::min(total_is_input_ && i > 0 ? 1 : bound, limit);
    }
  }
  void launch(const tsr_launch&) override {}

 private:
  static void collect(const t::Graph& g, tsr_dim d, const std::vector<uint32_t>& known, std::vector<uint32_t>& seen) {
    if (!TSR_DIM_IS_EXPR(d)) return;
    const tsr_tables& tables = g.tables();
    const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, tables.exprs, tables.expr_stride, TSR_DIM_EXPR_ID(d));
    if (e.op != TSR_DIM_SYMBOL) {
      collect(g, e.lhs, known, seen);
      collect(g, e.rhs, known, seen);
    } else if (TSR_AT(tsr_symbol, tables.symbols, tables.symbol_stride, e.symbol)->unbacked &&
               std::find(known.begin(), known.end(), e.symbol) == known.end() &&
               std::find(seen.begin(), seen.end(), e.symbol) == seen.end()) {
      seen.push_back(e.symbol);
    }
  }

  std::string name_;
  std::vector<int64_t> limits_;
  bool total_is_input_ = false;
};

class NullBackend : public t::Backend {
 public:
  const char* device() const override { return "null"; }
  uint64_t capabilities() const override {
    return TSR_CAP_STRIDED_INPUTS | TSR_CAP_FUSION | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED | TSR_CAP_NO_COMPUTE;
  }
  t::Claim claim(t::Graph, t::Node) override { return t::yes(); }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override { return std::make_unique<NullKernel>(c); }
  double cost(t::Graph, t::Node) override { return 0; }
};

}  // namespace

}  // namespace tessera::null_backend

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_device("null", tessera::null_backend::device_count, tessera::null_backend::make_device());
  plugin.add_backend("null", std::make_unique<tessera::null_backend::NullBackend>());
}
