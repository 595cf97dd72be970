// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "compile/executable.hpp"
#include "compile/layout.hpp"
#include "ir/graph.hpp"
#include "plugin/plugin_host.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

using Json = nlohmann::ordered_json;

std::string type_of(const Graph& g, tsr_id value) {
  const tsr_type& t = *g.value(value).type;
  std::string s(dtype_name(t.dtype));
  s += '[';
  for (uint32_t k = 0; k < t.rank; ++k) s += (k ? ", " : "") + g.sizes().print(t.sizes[k]);
  s += ']';
  if (t.device != kCpu) s += "@" + device(t.device).name();
  return s;
}

Json slot_ref(const Plan& p, uint32_t slot) {
  if (slot == kNone) return nullptr;
  std::string name = "%" + std::string(p.graph->value(p.slots[slot].value).name);
  if (p.slots[slot].home == Home::kCopy) name += "'";  // a copy of that value
  return name;
}

// Bytes of a dense tensor, or null while they depend on the sizes of a call.
Json slot_bytes(const Plan& p, uint32_t slot) {
  const Slot& s = p.slots[slot];
  int64_t n = 1;
  for (uint32_t k = 0; k < s.rank; ++k) {
    if (p.dims_of(slot)[k].slot >= 0) return nullptr;
    n *= p.dims_of(slot)[k].number;
  }
  return storage_bytes(s.dtype, n);
}

const char* kind_text(const Step& s) {
  switch (s.kind) {
    case TSR_STEP_KERNEL: return "kernel";
    case TSR_STEP_VIEW: return "view";
    case TSR_STEP_COPY: return "copy";
    case TSR_STEP_SECTION: return "section";
    case TSR_STEP_CONTROL: return "control";
  }
  return "?";
}

Json describe_plan(const Plan& p) {
  Json out;
  const Graph& g = *p.graph;
  out["static"] = p.is_static;
  out["sections"] = p.num_sections;
  std::vector<uint8_t> active(p.steps.size(), !p.primary);
  std::vector<int64_t> workspace(p.steps.size(), -1);
  if (p.primary)
    for (const Exec& e : p.primary->program) {
      active[e.step] = 1;
      workspace[e.step] = e.workspace_bytes;
    }
  Json steps = Json::array();
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = *p.steps[i];
    // A conditional copy that this plan never makes is no step of it.
    if (s.kind == TSR_STEP_COPY && !active[i]) continue;
    Json row;
    row["kind"] = kind_text(s);
    row["node"] = s.node == TSR_NONE ? Json(nullptr) : Json(g.describe(s.node));
    row["op"] = s.node == TSR_NONE ? Json(nullptr) : Json(g.node(s.node).op);
    row["backend"] = s.kind == TSR_STEP_KERNEL && s.backend ? s.backend->name : "host";
    row["kernel"] = s.kernel.name ? Json(s.kernel.name) : Json(nullptr);
    row["device"] = device(s.device).name();
    row["section"] = s.section;
    Json in = Json::array(), outputs = Json::array(), bytes = Json::array();
    for (const uint32_t slot : s.inputs) in.push_back(slot_ref(p, slot));
    for (const uint32_t slot : s.outputs) {
      outputs.push_back(slot_ref(p, slot));
      bytes.push_back(slot_bytes(p, slot));
    }
    row["inputs"] = std::move(in);
    row["outputs"] = std::move(outputs);
    row["bytes"] = std::move(bytes);
    row["workspace"] = p.primary ? Json(std::max<int64_t>(0, workspace[i])) : s.kernel.workspace ? Json(nullptr) : Json(0);
    const int64_t runs = s.measured_runs.load(std::memory_order_relaxed);
    row["measured_seconds"] =
        runs ? Json(static_cast<double>(s.measured_ns.load(std::memory_order_relaxed)) * 1e-9 / static_cast<double>(runs)) : Json(nullptr);
    if (s.node != TSR_NONE && g.node(s.node).loc.file)
      row["location"] = std::string(g.node(s.node).loc.file) + ":" + std::to_string(g.node(s.node).loc.line);
    if (s.control) {
      Json regions = Json::array();
      for (const auto& r : s.control->regions) regions.push_back(describe_plan(*r));
      row["regions"] = std::move(regions);
    }
    steps.push_back(std::move(row));
  }
  out["steps"] = std::move(steps);
  Json memory;
  if (p.primary) {
    int64_t arena = 0;
    Json by_device = Json::object();
    for (size_t d = 0; d < p.arena_devices.size(); ++d) {
      arena += p.primary->arena_bytes[d];
      by_device[device(p.arena_devices[d]).name()] = p.primary->arena_bytes[d];
    }
    memory["arena_bytes"] = arena;
    memory["arena_by_device"] = std::move(by_device);
    memory["output_bytes"] = p.primary->output_bytes;
    memory["peak_bytes"] = arena + p.primary->output_bytes;
  } else {
    for (const char* k : {"arena_bytes", "arena_by_device", "output_bytes", "peak_bytes"}) memory[k] = nullptr;
  }
  int64_t constants = 0;
  for (const Slot& s : p.slots)
    if (s.home == Home::kConstant) constants += slot_bytes(p, static_cast<uint32_t>(&s - p.slots.data())).get<int64_t>();
  memory["constant_bytes"] = constants;
  out["memory"] = std::move(memory);
  return out;
}

}  // namespace

std::string Executable::describe_json() const {
  const Graph& g = *graph_;
  Json out;
  out["graph"] = g.tables().name;
  Json inputs = Json::array(), outputs = Json::array();
  for (const tsr_id v : std::span(g.region(0).inputs, g.region(0).num_inputs)) {
    const tsr_value& value = g.value(v);
    Json i;
    i["name"] = value.name;
    i["type"] = type_of(g, v);
    i["kind"] = value.input_kind == TSR_INPUT_PARAM ? "param" : value.input_kind == TSR_INPUT_STATE ? "state" : "arg";
    i["key"] = value.key ? Json(value.key) : Json(nullptr);
    i["writeback"] = value.writeback == TSR_NONE ? Json(nullptr) : Json(value.writeback);
    i["donated"] = value.donated != 0;
    inputs.push_back(std::move(i));
  }
  for (const tsr_id v : std::span(g.region(0).outputs, g.region(0).num_outputs))
    outputs.push_back({{"name", g.value(v).name}, {"type", type_of(g, v)}});
  out["inputs"] = std::move(inputs);
  out["outputs"] = std::move(outputs);
  out.update(describe_plan(*plan_));
  out["compile_seconds"] = {{"passes", times.passes}, {"assign", times.assign}, {"kernels", times.kernels}, {"total", times.total()}};
  return out.dump();
}

}  // namespace tessera::core
