// SPDX-License-Identifier: Apache-2.0
// A graph as a picture: text for Graphviz. What it shows is in docs/debug_folder.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::core {

class Graph;

// Where a node runs. Both are empty for constants and control flow, whose nested nodes have places of their own, and for nodes
// of a fused group, which run where the group does.
struct Placement {
  std::string_view backend;  // "cpu"; "host"; "view": nowhere, its result is its operand's memory
  std::string_view kernel;   // "cpu.add"; empty: not compiled yet
};

// The graph in the language of Graphviz (DOT), UTF-8. `placements` by node id; nodes beyond its end are nowhere.
std::string graph_diagram(const Graph& graph, const std::vector<Placement>& placements);

// Draws a file of DOT text as SVG with Graphviz's `dot`, a child process that may take `seconds`. "" or why there is no such
// file, for a message: "'dot' is not installed (apt-get install graphviz)". Nothing is left of a picture that is not finished.
std::string draw_diagram(const std::string& dot_file, const std::string& svg_file, double seconds = 20);

inline constexpr const char* kDrawByHand = "dot -Tsvg -O FILE.dot";

}  // namespace tessera::core
