// SPDX-License-Identifier: Apache-2.0
// What the log artifacts output_code, compute_dependencies and perf_hints say about a new executable.
#include <map>
#include <nlohmann/json.hpp>

#include "ir/graph.hpp"
#include "log/log.hpp"
#include "run/executable.hpp"
#include "trace/debug_folder.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

using Json = nlohmann::ordered_json;

std::string word(const Json& row, const char* key) {
  const auto at = row.find(key);
  return at != row.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::string names(const Json& list) {
  std::string out;
  for (const Json& n : list) out += (out.empty() ? "" : ", ") + (n.is_null() ? std::string("_") : n.get<std::string>());
  return out;
}

// One assignment per step: "%y = eager.add(%a, %b)".
void append_code(std::string& out, const Json& plan, const std::string& indent) {
  for (const Json& s : plan["steps"]) {
    const std::string kernel = word(s, "kernel"), results = names(s["results"]);
    out += "\n" + indent + (results.empty() ? "" : results + " = ") +
           (kernel.empty() ? word(s, "kind") + " " + word(s, "op") : kernel) + "(" + names(s["operands"]) + ")";
    out += "  # " + word(s, "backend") + " on " + word(s, "device");
    if (!s["loc"].is_null()) out += ", " + word(s, "loc");
    if (s.contains("regions"))
      for (const Json& region : s["regions"]) {
        out += "\n" + indent + "  {";
        append_code(out, region, indent + "    ");
        out += "\n" + indent + "  }";
      }
  }
}

std::string dependencies(const Json& plan) {
  std::map<std::string, int64_t> writer;
  std::string out;
  for (const Json& s : plan["steps"]) {
    const int64_t index = s["index"];
    std::string from;
    for (const Json& n : s["operands"])
      if (n.is_string())
        if (const auto at = writer.find(n.get<std::string>()); at != writer.end())
          from += (from.empty() ? "" : ", ") + std::to_string(at->second);
    out += "\n  step " + std::to_string(index) + " " + word(s, "op") + (from.empty() ? " needs no other" : " needs " + from);
    for (const Json& n : s["results"])
      if (n.is_string()) writer[n.get<std::string>()] = index;
  }
  return out;
}

}  // namespace

void Executable::log_plan(DebugFolder* debug) const {
  if (log_enabled(Artifact::kPlan))
    log_write(Artifact::kPlan, "plan of " + std::string(graph_->tables().name) + "\n" + plan_text());
  if (trace_enabled() && !trace_details()) return;  // single ops and constants come in thousands
  const bool code = log_enabled(Artifact::kOutputCode) || debug, order = log_enabled(Artifact::kComputeDependencies),
             hints = log_enabled(Artifact::kPerfHints);
  if (!code && !order && !hints) return;
  const Json plan = Json::parse(describe_json());
  const std::string name = plan["graph"];
  if (code) {
    std::string text = "code of " + name + ": " + std::to_string(plan["steps"].size()) + " steps";
    append_code(text, plan, "  ");
    if (debug) debug->calls(text);
    const LogCapture not_as_code;
    log_write(Artifact::kOutputCode, text);
  }
  if (order) log_write(Artifact::kComputeDependencies, "dependencies of " + name + dependencies(plan));
  if (!hints) return;
  std::string copies;
  for (const Json& s : plan["steps"])
    if (word(s, "kind") == "copy")
      copies += "\n  " + names(s["operands"]) + ", " + std::to_string(s["bytes"].get<int64_t>()) + " bytes";
  if (!copies.empty()) log_write(Artifact::kPerfHints, "every call of " + name + " copies" + copies);
}

}  // namespace tessera::core
