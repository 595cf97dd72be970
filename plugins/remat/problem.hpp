// SPDX-License-Identifier: Apache-2.0
// What to keep of a forward half for its backward half, as a problem on plain arrays: values, the nodes that give them, and
// what each node reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::remat {

struct Value {
  uint32_t node = 0;  // which gives it
  int64_t bytes = 0;  // that saving it takes; 0: it stays in memory anyway
  bool read = false;  // by the backward half
};

struct Node {
  int64_t cost = 0;  // of computing it once more, in picoseconds: integers, so that sums are exact
  bool must_save = false, must_recompute = false;
  bool cheap = false;            // element by element: fused with its reader, it costs next to nothing
  std::vector<uint32_t> inputs;  // values, each once
};

// Nodes stand in program order: a node reads values of earlier nodes only.
struct Problem {
  std::vector<Value> values;
  std::vector<Node> nodes;
};

// Which nodes run once more in the backward half, and what follows from it.
struct Plan {
  std::vector<uint8_t> recompute;  // by node
  std::vector<uint8_t> saved;      // by value
  int64_t saved_bytes = 0;
  int64_t cost = 0;  // picoseconds of the nodes that run once more
};

// Completes `plan.recompute`: what nobody in the backward half needs is not computed again, what cannot be computed again is
// saved, and the rest of the plan follows.
inline void complete(const Problem& p, Plan& plan) {
  plan.recompute.resize(p.nodes.size(), 0);
  plan.saved.assign(p.values.size(), 0);
  plan.saved_bytes = plan.cost = 0;
  std::vector<uint8_t> needed(p.values.size(), 0), run(p.nodes.size(), 0);
  for (size_t v = 0; v < p.values.size(); ++v)
    if (p.values[v].read) {
      needed[v] = 1;
      run[p.values[v].node] = 1;
    }
  for (size_t n = p.nodes.size(); n-- > 0;) {  // readers go before what they read
    const Node& node = p.nodes[n];
    plan.recompute[n] = run[n] && (plan.recompute[n] || node.must_recompute) && !node.must_save;
    if (!plan.recompute[n]) continue;
    plan.cost += node.cost;
    for (const uint32_t v : node.inputs) {
      needed[v] = 1;
      run[p.values[v].node] = 1;
    }
  }
  for (size_t v = 0; v < p.values.size(); ++v) {
    plan.saved[v] = needed[v] && !plan.recompute[p.values[v].node];
    if (plan.saved[v]) plan.saved_bytes += p.values[v].bytes;
  }
}

}  // namespace tessera::remat
