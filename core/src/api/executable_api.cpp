// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "api/api.hpp"
#include "compile/driver.hpp"
#include "compile/pair.hpp"
#include "compile/partition.hpp"
#include "graph_cache/cached.hpp"
#include "ir/graph.hpp"
#include "run/executable.hpp"
#include "trace/diagram.hpp"
#include "trace/trace.hpp"
#include "trace/trace_graph.hpp"

namespace tessera::core::api {

namespace {

Executable& of(tsr_executable* e) { return *reinterpret_cast<Executable*>(&required(e, "executable")); }

tsr_error* compile(tsr_context* c, tsr_graph* g, const char* backends, bool with_passes, tsr_executable** out) noexcept {
  return guarded([&] {
    std::unique_ptr<Graph> graph(&Graph::from(&required(g, "graph")));  // consumed whatever happens
    required(out, "the executable to be returned");
    const auto& context = required(c, "context").context;
    const CompileOptions options = compile_options(context, context->config(), backends);
    const std::vector<BoundPass> passes = with_passes ? context->pipeline(context->config()) : std::vector<BoundPass>();
    auto executable = traced_compile({"graph", graph->tables().name, {}, {}}, [&] {
      if (with_passes && trace_details()) trace_graph(*graph, "input");
      return compile_cached(std::move(graph), {*context, context->config(), passes, options});
    });
    *out = reinterpret_cast<tsr_executable*>(executable.release());
  });
}

tsr_error* memory_plans(tsr_context* c, tsr_graph* g, char** json) noexcept {
  return guarded([&] {
    std::unique_ptr<Graph> graph(&Graph::from(&required(g, "graph")));  // consumed whatever happens
    const auto& context = required(c, "context").context;
    const Config& config = context->config();
    const PassLists passes{{}, context->pipeline(config), context->joint_pipeline(config), pass_options_of(config)};
    nlohmann::ordered_json plans = nlohmann::ordered_json::array();
    const CompileOptions options = compile_options(context, config, nullptr);
    const auto find = is_pair(*graph) ? partition_plans_of_pair : partition_plans;
    for (const PartitionPlan& p : find(std::move(graph), passes, options))
      plans.push_back(
          {{"partitioner", p.partitioner},
           {"saved_values", p.saved.size()},
           {"saved_bytes", p.saved_bytes},
           {"peak_bytes", p.peak_bytes < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(p.peak_bytes)},
           {"budget_bytes", p.budget_bytes < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(p.budget_bytes)},
           {"feasible", p.feasible},
           {"recompute_ms", p.recompute_seconds * 1e3},
           {"unfused_ms", p.unfused_seconds * 1e3},
           {"step_ms", p.step_seconds * 1e3},
           {"predicted_ms",
            p.predicted_seconds < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(p.predicted_seconds * 1e3)},
           {"gap", p.gap < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(p.gap)},
           {"recomputed", p.recomputed},
           {"saved", p.saved}});
    required(json, "the text to be returned") = to_c_string(plans.dump());
  });
}

tsr_error* run(tsr_executable* e, tsr_tensor_handle* const* inputs, size_t num_inputs, tsr_tensor_handle** outputs,
               size_t num_outputs) noexcept {
  return guarded([&] {
    if (num_inputs > 0) required(inputs, "inputs");
    if (num_outputs > 0) required(outputs, "outputs");
    of(e).run({inputs, num_inputs}, {outputs, num_outputs});
  });
}

tsr_error* diagram(tsr_executable* e, const char* path) noexcept {
  return guarded([&] {
    const std::filesystem::path asked = &required(path, "the path");
    const bool drawn = asked.extension() == ".svg";
    std::filesystem::path dot = asked;
    if (drawn) dot += ".dot";
    std::ofstream out(dot, std::ios::binary);
    out << of(e).diagram();
    out.close();
    if (!out) throw environment_error("TSR-E010", "cannot write '" + dot.string() + "'", "choose a folder that can be written");
    if (!drawn) return;
    if (const std::string why = draw_diagram(dot.string(), asked.string()); !why.empty())
      throw environment_error("TSR-E014", "cannot draw '" + asked.string() + "': " + why,
                              "its text is in '" + dot.string() + "'; by hand: " + kDrawByHand);
    std::error_code none;
    std::filesystem::remove(dot, none);
  });
}

}  // namespace

void executable_functions(tsr_api& t) {
  t.compile = [](tsr_context* c, tsr_graph* g, const char* backends, tsr_executable** out) noexcept {
    return compile(c, g, backends, false, out);
  };
  t.compile_model = [](tsr_context* c, tsr_graph* g, tsr_executable** out) noexcept {
    return compile(c, g, nullptr, true, out);
  };
  t.executable_destroy = [](tsr_executable* e) noexcept { delete reinterpret_cast<Executable*>(e); };
  t.run = run;
  t.memory_plans = memory_plans;
  t.run_raw = [](tsr_executable* e, const tsr_raw_call* call) noexcept {
    return guarded([&] {
      const tsr_raw_call& c = required(call, "the call");
      if (c.num_inputs > 0) required(c.inputs, "inputs");
      if (c.num_outputs > 0 && !c.output) refuse_null("the callback for outputs");
      of(e).run_raw(c);
    });
  };
  t.executable_describe = [](tsr_executable* e, char** json) noexcept {
    return guarded([&] { required(json, "the text to be returned") = to_c_string(of(e).describe_json()); });
  };
  t.executable_plan = [](tsr_executable* e, char** text) noexcept {
    return guarded([&] { required(text, "the text to be returned") = to_c_string(of(e).plan_text()); });
  };
  t.executable_diagram = diagram;
  t.executable_graph = [](const tsr_executable* e) noexcept -> const tsr_tables* {
    return e ? &reinterpret_cast<const Executable*>(e)->graph().tables() : nullptr;
  };
}

}  // namespace tessera::core::api
