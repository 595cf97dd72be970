// SPDX-License-Identifier: Apache-2.0
// Dispatch as logs and warnings show it. The texts are documented in docs/recompiles.md.
#include <algorithm>
#include <span>

#include "dispatch/events.hpp"
#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"

namespace tessera::core {

namespace {

// "\n  x.size(0): s0, at least 2, 8 in this call" per size of an input that is a symbol.
std::string symbols_of_inputs(const Graph& g) {
  std::string out;
  for (const tsr_id v : std::span(g.region(0).inputs, g.region(0).num_inputs)) {
    const tsr_value& value = g.value(v);
    for (uint32_t d = 0; d < value.type->rank; ++d) {
      const tsr_dim size = value.type->sizes[d];
      if (!TSR_DIM_IS_EXPR(size) || g.sizes().exprs()[TSR_DIM_EXPR_ID(size)].op != TSR_DIM_SYMBOL) continue;
      const tsr_symbol& s = g.sizes().symbols()[g.sizes().exprs()[TSR_DIM_EXPR_ID(size)].symbol];
      out += "\n  " + std::string(value.name) + ".size(" + std::to_string(d) + "): " + s.name + ", at least " +
             std::to_string(s.min);
      if (s.max != INT64_MAX) out += ", at most " + std::to_string(s.max);
      if (s.unbacked) out += ", never guarded on";
      if (s.hint >= 0) out += ", " + std::to_string(s.hint) + " in this call";
    }
  }
  return out;
}

class DispatchLog final : public DispatchListener {
  bool wants_reasons() const override {
    return log_enabled(Artifact::kRecompiles) || log_enabled(Artifact::kRecompilesVerbose);
  }
  bool wants_guards() const override { return log_enabled(Artifact::kGuards); }

  void recompiling(const RecompileEvent& e) override {
    std::string text = "Recompiling function " + e.frame.name() + " in " + e.frame.place() +
                       "\n    triggered by the following guard failure(s):";
    std::string all = text;
    for (const MissReason& r : e.reasons) {
      if (r.guards.empty()) continue;
      const std::string id = "\n    - " + r.entry.text() + ": ";
      text += id + r.guards.front().text;
      for (const GuardText& g : r.guards) all += id + g.full();
    }
    if (!e.advice.empty()) all += "\n    " + e.advice;
    log_write(Artifact::kRecompiles, text);
    log_write(Artifact::kRecompilesVerbose, all);
  }

  void capture_ended(const CaptureEvent& e) override {
    if (!e.graph) return;
    if (log_enabled(Artifact::kGraph)) log_write(Artifact::kGraph, print_graph(*e.graph));
    if (log_enabled(Artifact::kGraphCode))
      log_write(Artifact::kGraphCode, "const tessera::embed::Graph graph = context.parse(R\"tsr(\n" + print_graph(*e.graph) +
                                          ")tsr\", \"" + e.frame.name() + "\");");
    if (log_enabled(Artifact::kDynamic))
      if (const std::string text = symbols_of_inputs(*e.graph); !text.empty())
        log_write(Artifact::kDynamic,
                  e.frame.name() + " " + e.id.text() + " (" + e.frame.place() + ") takes as symbols" + text);
  }

  void compiled(const CompiledEvent& e) override {
    if (!log_enabled(Artifact::kGuards)) return;
    std::string text = "guards of " + e.frame.name() + " " + e.id.text() + " (" + e.frame.place() + ")";
    for (const GuardText& g : e.guards) text += "\n  " + g.full();
    log_write(Artifact::kGuards, text);
  }

  void limit_hit(const LimitEvent& e) override {
    log_warning(std::string("tessera hit config.") + e.key + " (" + std::to_string(e.limit) + ")\n   function: '" +
                e.frame.name() + "' (" + e.frame.place() + ")\n   last reason: " + e.last_reason +
                "\nTo log all recompilation reasons, use TESSERA_LOGS=\"recompiles\".\nTo diagnose recompilation issues, see "
                "docs/recompiles.md");
  }

  void redefined(const RedefinedEvent& e) override {
    log_write(Artifact::kPerfHints, std::to_string(e.count) + " compiled functions '" + e.frame.name() +
                                        "' have been made at " + e.frame.place() +
                                        ", and each compiles for itself: make it once and keep it (docs/recompiles.md, \"One "
                                        "function, made again and again\")");
  }

  void graph_break(const GraphBreakEvent& e) override {
    if (!log_enabled(Artifact::kGraphBreaks)) return;
    std::string text = "Graph break in " + e.frame.name() + " at " + e.place + " [" + e.code + "]\n    " + e.what;
    if (!e.why.empty()) text += "\n    why: " + e.why;
    for (size_t at = 0; at < e.hint.size();) {
      const size_t end = std::min(e.hint.find('\n', at), e.hint.size());
      text += "\n    fix: " + e.hint.substr(at, end - at);
      at = end + 1;
    }
    if (!e.after.empty()) text += "\n    after: " + e.after;
    if (!e.next.empty()) text += "\n    continues as: " + e.next;
    text += "\n    more: docs/graph_breaks.md";
    log_write(Artifact::kGraphBreaks, text);
  }
};

}  // namespace

std::shared_ptr<DispatchListener> make_dispatch_log() { return std::make_shared<DispatchLog>(); }

}  // namespace tessera::core
