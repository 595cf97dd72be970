// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tessera::core {

class Graph;

// Writes "graph": the text form with locations, large constants elided. `stage`: see docs/trace.md. Only when trace_details().
void trace_graph(const Graph& graph, const char* stage, std::string_view pass = {});

}  // namespace tessera::core
