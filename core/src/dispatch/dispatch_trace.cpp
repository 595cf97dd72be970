// SPDX-License-Identifier: Apache-2.0
// Dispatch as traces record it: docs/trace.md.
#include <nlohmann/json.hpp>

#include "dispatch/events.hpp"
#include "trace/trace.hpp"
#include "trace/trace_graph.hpp"

namespace tessera::core {

namespace {

TraceEvent about(const char* event, const Frame& frame) {
  TraceEvent e(event);
  e.text("name", frame.name()).text("loc", frame.place());
  return e;
}

class DispatchTrace final : public DispatchListener {
  bool wants_reasons() const override { return trace_enabled(); }
  bool wants_guards() const override { return trace_enabled(); }

  void recompiling(const RecompileEvent& e) override {
    if (!trace_enabled()) return;
    nlohmann::ordered_json reasons = nlohmann::ordered_json::array();
    for (const MissReason& r : e.reasons) reasons.push_back({{"entry", r.entry.text()}, {"guards", full_texts(r.guards)}});
    TraceEvent line = about("recompile", e.frame);
    line.text("entry", e.next.text());
    line.json("reasons", reasons.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    if (!e.advice.empty()) line.text("advice", e.advice);
    line.write();
  }

  void capture_ended(const CaptureEvent& e) override {
    if (!trace_enabled()) return;
    const auto passed = static_cast<int64_t>(e.seconds * 1e9);
    TraceEvent("phase", trace_clock() - passed).text("name", "capture").real("us", e.seconds * 1e6).write();
    if (e.graph && trace_details()) trace_graph(*e.graph, "captured");
  }

  void compiled(const CompiledEvent& e) override {
    if (trace_enabled()) TraceEvent("guards").text("entry", e.id.text()).texts("guards", full_texts(e.guards)).write();
  }

  void limit_hit(const LimitEvent& e) override {
    if (!trace_enabled()) return;
    about("limit", e.frame).text("key", e.key).number("limit", e.limit).text("reason", e.last_reason).write();
  }

  void graph_break(const GraphBreakEvent& e) override {
    if (!trace_enabled()) return;
    about("graph_break", e.frame)
        .text("entry", e.id.text())
        .text("code", e.code)
        .text("place", e.place)
        .text("what", e.what)
        .text("why", e.why)
        .text("hint", e.hint)
        .text("after", e.after)
        .text("continues_as", e.next)
        .write();
  }

  void fallback(const FallbackEvent& e) override {
    if (trace_enabled()) about("fallback", e.frame).text("why", e.why).write();
  }
};

}  // namespace

std::shared_ptr<DispatchListener> make_dispatch_trace() { return std::make_shared<DispatchTrace>(); }

}  // namespace tessera::core
