// SPDX-License-Identifier: Apache-2.0
#include "compile/show.hpp"

#include "ir/graph.hpp"
#include "plan/placements.hpp"
#include "run/executable.hpp"
#include "trace/debug_folder.hpp"
#include "trace/trace.hpp"
#include "trace/trace_graph.hpp"

namespace tessera::core {

bool ShowHook::before(Stage stage, Compilation& c) {
  if (stage != Stage::kPlan) return true;
  if (trace_details()) trace_graph(*c.graph, "final");
  if (c.options.debug) c.options.debug->final_graph(*c.graph, placements(*c.graph, c.assignment));
  return true;
}

void ShowHook::after(Stage stage, Compilation& c) {
  if (stage == Stage::kAutograd && trace_details()) trace_graph(*c.graph, "joint");
  if (stage != Stage::kExecutable) return;
  const Executable& e = *c.executable;
  if (trace_details()) TraceEvent("steps").json("executable", e.describe_json()).write();
  if (c.options.debug) c.options.debug->planned(e.plan_text(), e.diagram());
  e.log_plan(c.options.debug);
}

}  // namespace tessera::core
