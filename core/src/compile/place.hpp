// SPDX-License-Identifier: Apache-2.0
// Which device each node of a graph runs on.
#pragma once

#include <span>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// Whether a value lies elsewhere than on the host. In a graph of which none does, the order of the config's backends decides.
bool names_devices(const Graph& graph);

// Puts a graph that names no device on `device`, when that is not the host: its inputs and what is read of them cross at its
// beginning, its outputs at its end, and everything between them lies there, values that loops carry included. Then
// gives what is made of constants alone the device of whoever reads it, so that it is computed there, or crosses once. Throws
// TSR-I038 for a node with tensors on two devices, which names both; tensors of rank 0 on the host travel with a launch.
// TSR-R002: the graph names a device that nobody serves. Edits the graph in one transaction.
void place_on_devices(Graph& graph, tsr_device device = 0);
// Puts a graph that names no device on that of a call's tensors: input k lies there where `there` says so, the others cross,
// and the outputs stay there.
void move_to_device(Graph& graph, tsr_device device, std::span<const char> there);

}  // namespace tessera::core
