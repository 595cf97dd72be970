// SPDX-License-Identifier: Apache-2.0
#include "exact.hpp"

#include <algorithm>
#include <cstring>

#include "conformance/tolerance.hpp"
#include "support/error.hpp"

namespace tessera::test {

using namespace core;

std::vector<uint8_t> exact_values(const Graph& g) {
  std::vector<uint8_t> exact(g.num_values(), 0);
  for (uint32_t i = 0; i < g.region(0).num_inputs; ++i) exact[g.region(0).inputs[i]] = 1;
  for (tsr_id n = g.region(0).first; n != TSR_NONE; n = g.node(n).next) {
    const tsr_node& x = g.node(n);
    // Of a sequence that is not sorted, which drawn ones seldom are, searchsorted promises nothing.
    bool all = x.num_regions == 0 && std::strcmp(x.op, "searchsorted") != 0;
    for (uint32_t i = 0; i < x.num_operands; ++i) all = all && (x.operands[i] == TSR_NONE || exact[x.operands[i]]);
    for (uint32_t i = 0; i < x.num_results; ++i) {
      const uint32_t dtype = g.value(x.results[i]).type->dtype;
      bool rounds = conformance::tolerance_of(x.op, dtype) != nullptr;
      // Casts and comparisons of what such an op has computed inside are its results too.
      for (uint32_t k = 0; k < x.num_operands && !rounds; ++k)
        rounds = x.operands[k] != TSR_NONE && dtype != g.value(x.operands[k]).type->dtype &&
                 conformance::tolerance_of(x.op, g.value(x.operands[k]).type->dtype);
      exact[x.results[i]] = all && !rounds;
    }
  }
  return exact;
}

bool other_sizes(const Graph& g, std::vector<int64_t>& symbols, std::mt19937_64& random) {
  const Sizes& s = g.sizes();
  for (int attempt = 0; attempt < 40; ++attempt) {
    std::vector<int64_t> v = symbols;
    for (size_t i = 0; i < v.size(); ++i) {
      const tsr_symbol& x = s.symbols()[i];
      if (!x.unbacked) v[i] = std::clamp<int64_t>(v[i] + static_cast<int64_t>(random() % 12) - 3, x.min, x.max);
    }
    if (v == symbols) continue;
    try {
      bool fits = true;
      for (const Assumption& a : s.assumptions())
        fits = fits && Sizes::holds(a.relation, s.evaluate(a.a, v), s.evaluate(a.b, v));
      for (tsr_id x = 0; fits && x < g.num_values(); ++x)
        for (uint32_t k = 0; g.value(x).alive && k < g.value(x).type->rank; ++k) {
          const int64_t size = s.evaluate(g.value(x).type->sizes[k], v);
          fits = fits && size >= 0 && size < 1000;
        }
      if (!fits) continue;
      symbols = v;
      return true;
    } catch (const Error&) {  // it overflows
    }
  }
  return false;
}

}  // namespace tessera::test
