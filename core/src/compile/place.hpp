// SPDX-License-Identifier: Apache-2.0
// Which device each node of a graph runs on.
#pragma once

namespace tessera::core {

class Graph;

// Whether a value lies elsewhere than on the host. In a graph of which none does, the order of the config's backends decides.
bool names_devices(const Graph& graph);

// Gives what is made of constants alone the device of whoever reads it, so that it is computed there, or crosses once. Throws
// TSR-I038 for a node with tensors on two devices, which names both; tensors of rank 0 on the host travel with a launch. Edits
// the graph in one transaction.
void place_on_devices(Graph& graph);

}  // namespace tessera::core
