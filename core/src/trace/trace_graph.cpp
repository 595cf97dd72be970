// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_graph.hpp"

#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

void trace_graph(const Graph& graph, const char* stage, std::string_view pass) {
  TraceEvent e("graph");
  e.text("stage", stage);
  if (!pass.empty()) e.text("pass", pass);
  e.text("name", graph.tables().name)
      .number("nodes", static_cast<int64_t>(graph.num_live_nodes()))
      .text("text", print_graph(graph, kPrintLocations | kPrintElideConstants))
      .write();
}

}  // namespace tessera::core
