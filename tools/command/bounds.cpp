// SPDX-License-Identifier: Apache-2.0
#include "bounds.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "conformance/tolerance.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::command {
namespace {

double of_dtype(uint32_t t) {
  switch (t) {
    case TSR_F64: return 1e-12;
    case TSR_F32: return 1e-5;
    case TSR_F16: return 1e-2;
    case TSR_BF16: return 6e-2;
    default: return is_float(t) ? 0.5 : is_complex(t) ? 1e-5 : 0;
  }
}

// The distance of 1 to its neighbour; 0: not a type with known bounds.
double unit(uint32_t t) {
  switch (t) {
    case TSR_F64:
    case TSR_C128: return std::ldexp(1.0, -52);
    case TSR_F32:
    case TSR_C64: return std::ldexp(1.0, -23);
    case TSR_F16: return std::ldexp(1.0, -10);
    case TSR_BF16: return std::ldexp(1.0, -7);
    default: return 0;
  }
}

class Bounds {
 public:
  explicit Bounds(const tsr_tables& t) : t_(t) {}

  double of_output(tsr_id value) {
    const uint32_t dtype = type(value);
    seen_.clear();
    squares_ = 0;
    known_ = true;
    walk(value);
    const double most = of_dtype(dtype);
    constexpr double kMore = 4;
    return known_ ? std::min(most, kMore * std::sqrt(squares_)) : most;
  }

 private:
  const tsr_node& node(tsr_id n) const { return *TSR_AT(tsr_node, t_.nodes, t_.node_stride, n); }
  const tsr_value& value(tsr_id v) const { return *TSR_AT(tsr_value, t_.values, t_.value_stride, v); }
  uint32_t type(tsr_id v) const { return value(v).type->dtype; }

  void walk(tsr_id v) {
    std::vector<tsr_id> todo = {v};
    while (!todo.empty()) {
      const tsr_id n = value(todo.back()).def_node;
      todo.pop_back();
      if (n == TSR_NONE || !seen_.insert(n).second) continue;
      const tsr_node& x = node(n);
      if (x.num_regions > 0) known_ = false;  // how often its body runs is not known
      add(x);
      for (uint32_t i = 0; i < x.num_operands; ++i)
        if (x.operands[i] != TSR_NONE) todo.push_back(x.operands[i]);
    }
  }

  void add(const tsr_node& x) {
    static constexpr std::string_view kExact[] = {"reshape",   "transpose", "expand_dims", "squeeze", "broadcast_to", "slice",
                                                  "concat",    "gather",    "select",      "pad",     "constant",     "neg",
                                                  "embedding", "full",      "reverse",     "maximum", "minimum",      "relu"};
    if (x.num_results == 0 || std::find(std::begin(kExact), std::end(kExact), x.op) != std::end(kExact)) return;
    const uint32_t t = type(x.results[0]);
    if (!is_float(t) && !is_complex(t)) return;
    const double u = unit(t);
    if (u == 0) {
      known_ = false;
      return;
    }
    double ulps = 0.5;  // what is not in the table rounds once
    if (const conformance::Tolerance* row = conformance::tolerance_of(x.op, t)) {
      int64_t elements = 1, results = 1;
      if (x.num_operands > 0 && x.operands[0] != TSR_NONE) elements = count(x.operands[0]);
      results = count(x.results[0]);
      const double grown = row->growth * conformance::items_of(x.op, elements, results);
      ulps = t == TSR_F64 || t == TSR_C128  ? row->f64 + grown
             : t == TSR_F32 || t == TSR_C64 ? row->f32 + grown
                                            : 1 + row->steps + (row->f32 + grown) * unit(TSR_F32) / u;
    }
    squares_ += ulps * u * ulps * u;
  }

  // Symbolic sizes count as 64: they matter to the growth of sums alone.
  int64_t count(tsr_id v) const {
    const tsr_type& t = *value(v).type;
    double n = 1;
    for (uint32_t i = 0; i < t.rank; ++i) n *= TSR_DIM_IS_EXPR(t.sizes[i]) ? 64.0 : static_cast<double>(t.sizes[i]);
    return static_cast<int64_t>(std::min(n, 1e15));
  }

  const tsr_tables& t_;
  std::set<tsr_id> seen_;
  double squares_ = 0;
  bool known_ = true;
};

}  // namespace

std::vector<double> explained_errors(const tsr_tables& graph) {
  std::vector<double> out;
  const tsr_region& body = *TSR_AT(tsr_region, graph.regions, graph.region_stride, 0);
  Bounds bounds(graph);
  for (uint32_t i = 0; i < body.num_outputs; ++i) out.push_back(bounds.of_output(body.outputs[i]));
  return out;
}

}  // namespace tessera::command
