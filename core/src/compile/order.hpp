// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tessera::core {

class Graph;

// Nodes run in program order, except for a copy to the host that only the caller reads: it comes last, because the host waits
// for it, and everything else is queued by then. Edits the graph in one transaction.
void order_transfers(Graph& graph);

}  // namespace tessera::core
