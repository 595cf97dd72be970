// SPDX-License-Identifier: Apache-2.0
#include "plan/assignment.hpp"

#include "ir/graph.hpp"

namespace tessera::core {

std::vector<int64_t> hint_values(const Graph& graph) {
  std::vector<int64_t> hints;
  for (const tsr_symbol& s : graph.sizes().symbols()) {
    const int64_t low = s.min > 2 ? s.min : (s.max < 2 ? s.max : 2);
    hints.push_back(s.hint >= s.min && s.hint <= s.max ? s.hint : low);
  }
  return hints;
}

int64_t hint_size(const Graph& graph, tsr_dim d, const std::vector<int64_t>& hints) { return graph.sizes().estimate(d, hints); }

}  // namespace tessera::core
