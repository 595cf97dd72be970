// SPDX-License-Identifier: Apache-2.0
#include "profitability.hpp"

#include <algorithm>
#include <string_view>

#include "tessera/kit/hints.hpp"

namespace cpu {

namespace sdk = tessera::sdk;
namespace kit = tessera::kit;

namespace {

// Of kernels that run one op each: what starting one costs, bytes per second from the last-level cache or beyond, and what an
// elementary function costs per element.
constexpr double kLaunch = 0.3e-6, kBandwidth = 12e9, kFunction = 1e-9;
constexpr double kShare = 0.5;       // of that time, what generated kernels save by fusion and by vector functions
constexpr double kIterations = 100;  // of a loop, where nothing says how many

constexpr int64_t kUnknown = 64;  // of a size that nothing tells

// Computes functions, as most composites do: more than moving elements and adding them up.
bool calls_functions(const sdk::Graph& g, const sdk::Node& n) {
  const char* const op = n.raw().op;
  if (g.has_trait(op, "quick") || g.has_trait(op, "rearranges") || g.has_trait(op, "view")) return false;
  return g.has_trait(op, "elementwise") || g.has_trait(op, "composite");
}

struct Count {
  const sdk::Graph& g;
  bool (*has_own_kernel)(const sdk::Node&);
  double enough;
  Profitability& out;

  static double trip_count(const sdk::Node& n) {
    if (n.is("cond")) return 1;
    const sdk::Attr length = n.find("length");
    return length && !TSR_DIM_IS_EXPR(length.as_int()) ? static_cast<double>(length.as_int()) : kIterations;
  }

  // Counts one region; false: enough.
  bool region(tsr_id r, double times) {
    for (const sdk::Node& n : g.nodes(r)) {
      if (n.is("constant") || g.has_trait(n.raw().op, "view") || has_own_kernel(n)) continue;
      if (!n.regions().empty()) {  // a group counts as its nodes: what is decided before fusing holds behind it
        const double inside = n.is("fused") ? times : times * trip_count(n);
        for (const tsr_id inner : n.regions())
          if (!region(inner, inside)) return false;
        continue;
      }
      if (!out.first) out.first = n;
      double seconds = kLaunch;
      for (uint32_t i = 0; i < n.num_operands(); ++i)
        if (n.has_operand(i)) seconds += kit::bytes_at_hints(g, n.operand(i).type(), kUnknown) / kBandwidth;
      for (uint32_t i = 0; i < n.num_results(); ++i)
        seconds += kit::bytes_at_hints(g, n.result(i).type(), kUnknown) / kBandwidth;
      if (n.num_results() > 0 && calls_functions(g, n))
        seconds += kit::elements_at_hints(g, n.result().type(), kUnknown) * kFunction;
      out.saved_seconds += times * seconds * kShare;
      if (out.saved_seconds >= enough) return false;
    }
    return true;
  }
};

}  // namespace

Profitability predict_profitability(sdk::Graph g, int64_t calls, bool (*has_own_kernel)(const sdk::Node&)) {
  Profitability out;
  if (calls == 0) return out;
  Count count{g, has_own_kernel, Profitability::kCompileSeconds / static_cast<double>(calls), out};
  out.pays = !count.region(0, 1);
  return out;
}

}  // namespace cpu
