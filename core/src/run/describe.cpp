// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/graph.hpp"
#include "memory/parallel.hpp"
#include "plan/layout.hpp"
#include "plugin/plugin_host.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
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
  if (p.slots[slot].kind == SlotKind::kCopy) name += "'";  // a copy of that value
  return name;
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

// A size that depends on symbols is that at their hints.
int64_t bytes_at_hints(const Plan& p, uint32_t slot, const std::vector<int64_t>& hints) {
  const Slot& s = p.slots[slot];
  const tsr_type& t = *p.graph->value(s.value).type;
  int64_t n = 1;
  for (uint32_t k = 0; k < t.rank; ++k)
    if (__builtin_mul_overflow(n, std::max<int64_t>(0, hint_size(*p.graph, t.sizes[k], hints)), &n)) return -1;
  return storage_bytes(s.dtype, n);
}

Json milliseconds(double seconds) { return seconds < 0 ? Json(nullptr) : Json(seconds * 1e3); }

Json describe_plan(const Plan& p) {
  Json out;
  const Graph& g = *p.graph;
  const std::vector<int64_t> hints = hint_values(g);
  const StepTable table(p);
  out["static"] = p.is_static;
  out["sections"] = p.num_sections;
  std::vector<uint8_t> active(p.steps.size(), !p.primary);
  if (p.primary)
    for (const Instruction& e : p.primary->program) active[e.step] = 1;
  // Of sizes that depend on symbols: at their hints, when a plan can be made for those.
  std::vector<std::shared_ptr<const SectionLayout>> layouts;
  try {
    layouts = layouts_at_hints(p, hints);
  } catch (const Error&) {}
  std::vector<uint8_t> at_hints(p.steps.size(), 0);
  for (const auto& l : layouts)
    for (const Instruction& e : l->program) at_hints[e.step] = 1;
  Json steps = Json::array();
  int64_t nested_arena = 0, nested_constants = 0;  // control steps run one after the other
  for (size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = *p.steps[i];
    const tsr_step& t = table.rows[i];
    // A conditional copy that this plan never makes is no step of it.
    if (s.kind == TSR_STEP_COPY && !active[i]) continue;
    Json row;
    row["index"] = steps.size();
    row["kind"] = kind_text(s);
    row["op"] = s.node == TSR_NONE ? Json(nullptr) : Json(t.op);
    // Of a copy that sizes decide about: whether the hints ask for it. Views of views rarely do.
    if (s.kind == TSR_STEP_COPY) row["at_hints"] = layouts.empty() ? Json(nullptr) : Json(at_hints[i] != 0);
    Json in = Json::array(), results = Json::array();
    int64_t bytes = 0;
    for (const uint32_t slot : s.inputs) in.push_back(slot_ref(p, slot));
    for (const uint32_t slot : s.outputs) {
      results.push_back(slot_ref(p, slot));
      bytes += std::max<int64_t>(0, bytes_at_hints(p, slot, hints));
    }
    row["results"] = std::move(results);
    row["operands"] = std::move(in);
    row["backend"] = t.backend;
    const char* const client = s.control ? s.control->client_name : nullptr;
    row["kernel"] = s.kernel.name ? Json(s.kernel.name) : client ? Json(client) : Json(nullptr);
    row["refusals"] = s.refusals.empty() ? Json(nullptr) : Json(s.refusals);
    row["device"] = device(s.device).name();
    row["section"] = s.section;
    row["bytes"] = bytes;
    row["workspace_bytes"] = t.workspace_bytes < 0 ? Json(nullptr) : Json(t.workspace_bytes);
    row["predicted_ms"] = milliseconds(t.predicted_seconds);
    row["measured_ms"] = milliseconds(t.measured_seconds);
    row["measured_runs"] = s.measured_runs.load(std::memory_order_relaxed);
    row["loc"] = nullptr;
    if (t.loc.file)
      row["loc"] =
          std::string(t.loc.file) + ":" + std::to_string(t.loc.line) + (t.loc.column ? ":" + std::to_string(t.loc.column) : "");
    if (s.control) {
      Json regions = Json::array();
      const bool map = s.control->kind == ControlPlan::kScan && s.control->carried == 0;  // one on each thread
      for (const auto& r : s.control->regions) {
        Json nested = describe_plan(*r);
        const Json& m = nested["memory"];
        if (m["arena_bytes"].is_number())
          nested_arena = std::max(nested_arena, m["arena_bytes"].get<int64_t>() * (map ? num_threads() : 1));
        nested_constants += m["constant_bytes"].get<int64_t>();
        regions.push_back(std::move(nested));
      }
      row["regions"] = std::move(regions);
    }
    steps.push_back(std::move(row));
  }
  out["steps"] = std::move(steps);
  Json memory;
  int64_t arena = nested_arena, output = 0, peak = nested_arena, constants = nested_constants;
  Json by_device = Json::object();
  if (nested_arena > 0) by_device[device(kCpu).name()] = nested_arena;
  for (size_t d = 0; d < p.arena_devices.size(); ++d) {
    int64_t bytes = 0;
    for (const auto& l : layouts) bytes += l->arena_bytes[d];
    arena += bytes;
    const std::string name = device(p.arena_devices[d]).name();
    by_device[name] = by_device.value(name, int64_t{0}) + bytes;
  }
  for (const auto& l : layouts) {
    output += l->output_bytes;
    peak += l->peak_bytes;
  }
  for (uint32_t slot = 0; slot < p.slots.size(); ++slot)
    if (p.slots[slot].kind == SlotKind::kConstant) constants += bytes_at_hints(p, slot, hints);
  const bool known = !layouts.empty();
  memory["arena_bytes"] = known ? Json(arena) : Json(nullptr);
  memory["arena_by_device"] = known ? by_device : Json(nullptr);
  memory["constant_bytes"] = constants;
  memory["kernel_bytes"] = p.with_nested(&Plan::held_bytes);
  memory["mapped_bytes"] = p.with_nested(&Plan::mapped_bytes);
  memory["output_bytes"] = known ? Json(output) : Json(nullptr);
  memory["peak_bytes"] = known ? Json(peak) : Json(nullptr);
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
  for (uint32_t i = 0; i < g.region(0).num_outputs; ++i)
    outputs.push_back({{"name", g.output_name(i)}, {"type", type_of(g, g.region(0).outputs[i])}});
  out["inputs"] = std::move(inputs);
  out["outputs"] = std::move(outputs);
  out["threads"] = plan_->threads > 0 ? plan_->threads : num_threads();
  out.update(describe_plan(*plan_));
  out["compile"] = {{"total_ms", times.total() * 1e3},
                    {"passes_ms", times.passes * 1e3},
                    {"assign_ms", times.assign * 1e3},
                    {"kernels_ms", times.kernels * 1e3},
                    {"pack_ms", plan_->with_nested(&Plan::pack_seconds) * 1e3}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);  // a name may be no UTF-8
}

}  // namespace tessera::core
