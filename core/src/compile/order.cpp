// SPDX-License-Identifier: Apache-2.0
#include "compile/order.hpp"

#include <vector>

#include "compile/place.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "memory/device.hpp"

namespace tessera::core {

namespace {

bool ends_at_the_caller(const Graph& g, tsr_id n) {
  const tsr_node& x = g.node(n);
  if (!g.record_of(n).has(kTransfer) || g.value(x.results[0]).type->device != kCpu) return false;
  for (const tsr_use& u : g.uses(x.results[0]))
    if (u.node != TSR_NONE) return false;
  return true;
}

}  // namespace

void order_transfers(Graph& g) {
  if (!names_devices(g)) return;
  std::vector<tsr_id> last;
  for (const tsr_id n : nodes_of(g, 0))
    if (ends_at_the_caller(g, n)) last.push_back(n);
  if (last.empty()) return;
  g.begin("order");
  try {
    for (const tsr_id n : last) g.move_node(n, TSR_NONE);
    g.commit();
  } catch (...) {
    if (g.in_transaction()) g.rollback();
    throw;
  }
}

}  // namespace tessera::core
