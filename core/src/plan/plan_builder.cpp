// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "plan/compile_options.hpp"
#include "plan/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

Plan::Plan(const Graph& g) : graph(&g), program(g.sizes()) {}

uint32_t Plan::arena_index(tsr_device d) const {
  return static_cast<uint32_t>(std::find(arena_devices.begin(), arena_devices.end(), d) - arena_devices.begin());
}

// Builds the steps of one region in program order, then the copies that its outputs and states need.
class PlanBuilder {
 public:
  PlanBuilder(Graph& g, tsr_id region, const std::vector<Assignment>& assignment, const CompileOptions& options)
      : g_(g), region_(region), assignment_(assignment), options_(options), plan_(new Plan(g)), p_(*plan_) {}

  // `uncomputed`: inputs whose values no kernel has computed.
  std::unique_ptr<Plan> build(const std::vector<uint8_t>& known, const std::vector<uint8_t>& uncomputed = {}) {
    for (uint32_t i = 0; i < uncomputed.size(); ++i)
      if (uncomputed[i]) uncomputed_.insert(g_.region(region_).inputs[i]);
    p_.region = region_;
    p_.nested = region_ != 0;
    p_.gets_sizes = !known.empty();
    p_.threads = options_.threads;
    p_.arena_max_bytes = options_.arena_max_bytes;
    p_.measure = options_.measure;
    p_.sync_faults = options_.sync_faults;
    p_.check_nan = options_.check_nan;
    p_.replaces_states = options_.replaces_states;
    for (size_t s = 0; s < known.size(); ++s)
      if (known[s]) p_.program.set_known(static_cast<uint32_t>(s), 0);
    inputs(known);
    for (const tsr_id n : nodes_of(g_, region_)) node(n);
    outputs();
    queues();
    relations(known);
    lifetimes();
    take_turns();
    return std::move(plan_);
  }

 private:
  // ------------------------------------------------------------------------------------------------------ slots

  uint32_t add_dims(const tsr_type& t) {
    const auto first = static_cast<uint32_t>(p_.dims.size());
    for (uint32_t k = 0; k < t.rank; ++k) p_.dims.push_back(p_.program.ref(t.sizes[k]));
    return first;
  }

  uint32_t add_slot(tsr_id value, tsr_device device, SlotKind kind, uint32_t index, uint32_t source = kNone) {
    const tsr_type& t = *g_.value(value).type;
    Slot s;
    s.value = value;
    s.dtype = t.dtype;
    s.rank = t.rank;
    s.dims = add_dims(t);
    s.device = device;
    s.kind = kind;
    s.index = index;
    s.source = source;
    s.section = section_;
    p_.slots.push_back(s);
    const auto id = static_cast<uint32_t>(p_.slots.size() - 1);
    if (kind == SlotKind::kStorage || kind == SlotKind::kCopy) {
      p_.slots[id].index = static_cast<uint32_t>(p_.storages.size());
      p_.storages.push_back({id, kNone});
      arena(device);
    }
    return id;
  }

  void arena(tsr_device d) {
    if (p_.arena_index(d) == p_.arena_devices.size()) p_.arena_devices.push_back(d);
  }

  void inputs(const std::vector<uint8_t>& known) {
    const tsr_region& r = g_.region(region_);
    for (uint32_t i = 0; i < r.num_inputs; ++i) {
      const tsr_value& v = g_.value(r.inputs[i]);
      InputSpec spec;
      spec.name = region_ == 0 ? g_.input_name(r.inputs[i]) : v.name;
      spec.kind = v.input_kind;
      spec.dtype = v.type->dtype;
      spec.rank = v.type->rank;
      spec.device = v.type->device;
      spec.sizes.assign(v.type->sizes, v.type->sizes + v.type->rank);
      if (v.type->strides) spec.strides.assign(v.type->strides, v.type->strides + v.type->rank);
      for (const tsr_dim s : spec.strides)
        if (TSR_DIM_IS_EXPR(s)) {
          spec.strides.clear();  // derived from symbolic sizes: any strides are taken, and kernels see those of the call
          break;
        }
      spec.writeback = region_ == 0 ? v.writeback : TSR_NONE;
      // A run that ends at a NaN leaves the states as they were.
      spec.donated = region_ == 0 && v.donated != 0 && !options_.check_nan;
      spec.given_up = region_ == 0 && v.donated != 0 && v.input_kind == TSR_INPUT_ARG && v.writeback == TSR_NONE;
      spec.read = v.num_uses > 0 || spec.writeback != TSR_NONE;
      p_.gives_away = p_.gives_away || (spec.donated && spec.writeback != TSR_NONE);
      for (const tsr_dim d : spec.sizes) spec.static_sizes = spec.static_sizes && !TSR_DIM_IS_EXPR(d);
      p_.inputs.push_back(std::move(spec));
      slot_of_[r.inputs[i]] = add_slot(r.inputs[i], v.type->device, SlotKind::kInput, i);
    }
    binds(known);
  }

  void binds(const std::vector<uint8_t>& known) {
    p_.facts = input_facts(g_, region_, known);
    for (const uint32_t s : p_.facts.symbols) p_.program.set_known(s, 0);
    for (const InputFacts::Dim& d : p_.facts.dims)
      p_.expected_.push_back(d.kind == InputFacts::Dim::kCheck ? p_.program.ref(d.size) : DimRef());
  }

  // ------------------------------------------------------------------------------------------------------ nodes

  Step& add_step(tsr_step_kind kind, tsr_id n) {
    p_.steps.push_back(std::make_unique<Step>());
    Step& s = *p_.steps.back();
    s.kind = kind;
    s.node = n;
    s.section = section_;
    if (n != TSR_NONE) s.record = &g_.record_of(n);
    return s;
  }

  // The slot with `source` as a kernel on `device` may read it; adds the copy step that the layout may need for that.
  uint32_t readable(uint32_t source, tsr_device device, bool strided, bool unaligned) {
    const Slot& s = p_.slots[source];
    uint32_t why = 0;
    if (s.device != device) {
      why = kCopyAlways;
    } else if (is_input_or_part(source)) {
      if (!strided) why |= kCopyStrided;
      if (!unaligned) why |= kCopyUnaligned;
    }
    if (why == 0) return source;
    if (why & kCopyUnaligned) p_.needs_alignment = true;
    const auto key = std::make_tuple(source, device, why);
    if (const auto it = copies_.find(key); it != copies_.end()) return it->second;
    return copies_[key] = add_copy(source, device, why, kNone);
  }

  // What may lie anywhere and have any strides, as far as the plan knows: a call's tensor, or a part of something. A view that
  // only gives other sizes to memory of the plan's own, whole, is neither: it is dense and aligned at all sizes.
  bool is_input_or_part(uint32_t slot) const {
    const SlotKind kind = p_.slots[slot].kind;
    return kind == SlotKind::kInput || (kind == SlotKind::kView && !whole_.count(slot));
  }

  uint32_t add_copy(uint32_t source, tsr_device device, uint32_t why, uint32_t target, tsr_id node = TSR_NONE) {
    const tsr_id value = p_.slots[source].value;
    const uint32_t slot = add_slot(value, device, SlotKind::kCopy, 0, source);
    Step& step = add_step(TSR_STEP_COPY, node != TSR_NONE ? node : g_.value(value).def_node);
    step.inputs = {source};
    step.outputs = {slot};
    step.copy = why;
    step.target = target;
    step.device = device;
    return slot;
  }

  uint32_t operand(tsr_id value, tsr_device device) {
    if (const auto it = slot_of_.find(value); it != slot_of_.end()) return it->second;
    // What has no slot yet is a constant: one copy per device, made now.
    const auto key = std::make_pair(value, device);
    if (const auto it = constant_slot_.find(key); it != constant_slot_.end()) return it->second;
    const tsr_tensor& t = *g_.attr(g_.value(value).def_node, "value")->tensor;
    Constant c;
    c.value = value;
    c.device = device;
    const int64_t bytes = checked_bytes(t.dtype, {t.sizes, t.rank}, core::device(device).name());
    if (device == kCpu && reinterpret_cast<uintptr_t>(t.data) % kAlignment == 0) {
      c.data = t.data;
    } else {
      p_.unplaced.push_back({p_.constants.size(), t.data, static_cast<size_t>(bytes)});
    }
    p_.constants.push_back(std::move(c));
    const uint32_t slot = add_slot(value, device, SlotKind::kConstant, static_cast<uint32_t>(p_.constants.size() - 1));
    p_.slots[slot].section = 0;
    return constant_slot_[key] = slot;
  }

  void node(tsr_id n) {
    const tsr_node& x = g_.node(n);
    bool computed = assignment_[n].kind != Assignment::kBackend ||
                    !(assignment_[n].backend->as<tsr_backend>().capabilities & TSR_CAP_NO_COMPUTE);
    for (uint32_t i = 0; i < x.num_operands; ++i) computed = computed && !uncomputed_.count(x.operands[i]);
    if (!computed)
      for (uint32_t i = 0; i < x.num_results; ++i) uncomputed_.insert(x.results[i]);
    switch (assignment_[n].kind) {
      case Assignment::kConstant: return;
      case Assignment::kView: return view(n);
      case Assignment::kControl: return control(n);
      case Assignment::kTransfer: return transfer(n);
      default: return kernel(n);
    }
  }

  // A constant is placed there once; what is there already stays.
  void transfer(tsr_id n) {
    const tsr_node& x = g_.node(n);
    const tsr_device target = g_.value(x.results[0]).type->device;
    const uint32_t source = operand(x.operands[0], target);
    if (p_.slots[source].device == target) {
      slot_of_[x.results[0]] = source;
      return;
    }
    const auto key = std::make_tuple(source, target, uint32_t{kCopyAlways});
    const auto it = copies_.find(key);
    slot_of_[x.results[0]] = it != copies_.end() ? it->second : copies_[key] = add_copy(source, target, kCopyAlways, kNone, n);
  }

  void view(tsr_id n) {
    const tsr_node& x = g_.node(n);
    uint32_t source = operand(x.operands[0], g_.value(x.results[0]).type->device);
    for (uint32_t i = 1; i < x.num_operands; ++i)
      if (x.operands[i] != TSR_NONE) operand(x.operands[i], kCpu);
    const Slot s = p_.slots[source];
    const bool own = s.kind == SlotKind::kStorage || s.kind == SlotKind::kConstant || whole_.count(source) != 0;
    if (is_input_or_part(source)) source = add_copy(source, s.device, kCopyForView, kNone);
    const uint32_t slot = add_slot(x.results[0], s.device, SlotKind::kView, 0, source);
    const std::string_view op = x.op;
    if (own && (op == "reshape" || op == "expand_dims" || op == "squeeze")) whole_.insert(slot);
    slot_of_[x.results[0]] = slot;
    note_dims(n);
    Step& step = add_step(TSR_STEP_VIEW, n);
    step.device = s.device;
    step.inputs = {source};
    step.outputs = {slot};
  }

  // Sizes in attributes and operand types that host callbacks read as numbers need slots.
  void note_dims(tsr_id n) {
    const tsr_node& x = g_.node(n);
    for (uint32_t i = 0; i < x.num_attrs; ++i) {
      if (x.attrs[i].kind == TSR_ATTR_DIM) p_.program.slot(x.attrs[i].i);
      if (x.attrs[i].kind == TSR_ATTR_DIMS)
        for (uint32_t k = 0; k < x.attrs[i].count; ++k) p_.program.slot(x.attrs[i].ints[k]);
    }
  }

  // Unbacked symbols of the results that no operand's type mentions, in order of first appearance. Only ops that say so define
  // any: `full {shape = [u0]}` uses a symbol that another node defines.
  std::vector<uint32_t> computed_symbols(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    std::vector<uint32_t> results, operands, out;
    if (!g_.record_of(n).has(kUnbacked) && !g_.record_of(n).has(kControl)) return out;
    if (g_.record_of(n).name == "fused") return out;  // none of its nodes does
    for (uint32_t i = 0; i < x.num_results; ++i) {
      const tsr_type& t = *g_.value(x.results[i]).type;
      for (uint32_t k = 0; k < t.rank; ++k) g_.sizes().collect_symbols(t.sizes[k], results);
    }
    for (uint32_t i = 0; i < x.num_operands; ++i) {
      if (x.operands[i] == TSR_NONE) continue;
      const tsr_type& t = *g_.value(x.operands[i]).type;
      for (uint32_t k = 0; k < t.rank; ++k) g_.sizes().collect_symbols(t.sizes[k], operands);
    }
    // A region may also give a size that was known before, without an operand that has it.
    const auto is_known = [&](uint32_t s) {
      return g_.record_of(n).has(kControl) && p_.program.known(s) != SizeProgram::kUnknown;
    };
    for (const uint32_t s : results)
      if (g_.sizes().symbols()[s].unbacked && std::find(operands.begin(), operands.end(), s) == operands.end() && !is_known(s))
        out.push_back(s);
    return out;
  }

  void begin_section(const std::vector<uint32_t>& symbols) {
    ++section_;
    p_.num_sections = section_ + 1;
    for (const uint32_t s : symbols)
      if (p_.program.known(s) == SizeProgram::kUnknown) p_.program.set_known(s, section_);
  }

  // Where a backend's kernel for `n` runs: the device of that kind which the node's values name, else the kind's first.
  tsr_device device_of(tsr_id n, const tsr_backend& backend) const {
    const tsr_node& x = g_.node(n);
    const auto each = [&](tsr_id v) { return v == TSR_NONE ? kNoDevice : g_.value(v).type->device; };
    // Nothing is computed, so nothing has to be moved: results lie where their types say.
    if (backend.capabilities & TSR_CAP_NO_COMPUTE) return x.num_results ? each(x.results[0]) : kCpu;
    tsr_device wanted = device_intern(backend.device ? backend.device : "cpu");
    const std::string& kind = core::device(wanted).kind();
    if (options_.device != kCpu && core::device(options_.device).kind() == kind) wanted = options_.device;
    for (uint32_t i = 0; i < x.num_results; ++i)
      if (core::device(each(x.results[i])).kind() == kind) return each(x.results[i]);
    for (uint32_t i = 0; i < x.num_operands; ++i)
      if (each(x.operands[i]) != kNoDevice && core::device(each(x.operands[i])).kind() == kind) return each(x.operands[i]);
    return wanted;
  }

  void kernel(tsr_id n) {
    const tsr_node& x = g_.node(n);
    const Assignment& a = assignment_[n];
    const bool host = a.kind != Assignment::kBackend;
    const uint64_t caps = host ? TSR_CAP_STRIDED_INPUTS | TSR_CAP_UNALIGNED : a.backend->as<tsr_backend>().capabilities;
    const tsr_device device = host ? kCpu : device_of(n, a.backend->as<tsr_backend>());
    const bool computes = !(caps & TSR_CAP_NO_COMPUTE);
    std::vector<uint32_t> in;
    for (uint32_t i = 0; i < x.num_operands; ++i) {
      if (x.operands[i] == TSR_NONE) {
        in.push_back(kNone);
        continue;
      }
      const uint32_t slot = operand(x.operands[i], device);
      in.push_back(computes ? readable(slot, device, caps & TSR_CAP_STRIDED_INPUTS, caps & TSR_CAP_UNALIGNED) : slot);
    }
    note_dims(n);
    const std::vector<uint32_t> symbols = computed_symbols(n);
    uint32_t sizes_step = kNone;
    if (!symbols.empty()) {
      Step& s = add_step(TSR_STEP_SECTION, n);
      sizes_step = static_cast<uint32_t>(p_.steps.size() - 1);
      s.backend = host ? nullptr : a.backend;
      s.device = device;
      s.inputs = in;
      s.symbols = symbols;
      begin_section(symbols);
    }
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < x.num_results; ++i) {
      out.push_back(add_slot(x.results[i], device, SlotKind::kStorage, 0));
      slot_of_[x.results[i]] = out.back();
    }
    Step& step = add_step(TSR_STEP_KERNEL, n);
    step.backend = host ? nullptr : a.backend;
    step.refusals = a.refusals;
    step.device = device;
    step.inputs = std::move(in);
    step.outputs = std::move(out);
    arena(device);
    if (sizes_step != kNone) p_.steps[sizes_step]->kernel_step = static_cast<uint32_t>(p_.steps.size() - 1);
  }

  void control(tsr_id n) {
    const tsr_node& x = g_.node(n);
    auto c = std::make_unique<ControlPlan>();
    const std::string_view op = x.op;
    const auto number = [&](const char* name) {
      const tsr_attr* a = g_.attr(n, name);
      return a ? static_cast<uint32_t>(a->i) : 0u;
    };
    if (op == "cond") {
      c->kind = ControlPlan::kCond;
    } else if (op == "while_loop") {
      c->kind = ControlPlan::kWhile;
      c->carried = number("carried");
    } else if (op == "scan") {
      c->kind = ControlPlan::kScan;
      c->carried = number("carried");
      c->scanned = number("scanned");
      c->reverse = number("reverse") != 0;
      c->length = p_.program.ref(g_.attr(n, "length")->i);
    } else if (op == "client_step" || op == "client_effect") {
      c->kind = ControlPlan::kClient;
      c->client_step = g_.attr(n, "step")->i;
      c->client_name = g_.attr(n, "name")->s;
      for (uint32_t i = 0; i < x.num_operands; ++i) c->predicate_unknown |= uncomputed_.count(x.operands[i]) != 0;
    } else {
      throw user_error("TSR-R024",
                       g_.describe(n) +
                           ": the host runs the control ops cond, while_loop, scan and client_step; it does not know '" +
                           std::string(op) + "'");
    }
    std::vector<uint32_t> in;
    for (uint32_t i = 0; i < x.num_operands; ++i) {
      const tsr_device d = g_.value(x.operands[i]).type->device;
      const uint32_t slot = operand(x.operands[i], d);
      // What a backend computed elsewhere comes to where the region expects it; where nothing is computed, nothing moves.
      const bool strided = c->kind != ControlPlan::kClient;  // a client is promised dense tensors
      in.push_back(uncomputed_.count(x.operands[i]) != 0 ? slot : readable(slot, d, strided, true));
    }
    if (op == "cond") c->predicate_unknown = uncomputed_.count(x.operands[0]) != 0;
    std::vector<uint8_t> uncomputed;
    for (uint32_t i = op == "cond" ? 1 : 0; i < x.num_operands; ++i)
      uncomputed.push_back(uncomputed_.count(x.operands[i]) != 0);
    std::vector<uint8_t> known(g_.sizes().symbols().size());
    for (uint32_t s = 0; s < known.size(); ++s) known[s] = p_.program.known(s) != SizeProgram::kUnknown;
    for (uint32_t i = 0; i < x.num_regions; ++i) {
      PlanBuilder nested(g_, x.regions[i], assignment_, options_);
      c->regions.push_back(nested.build(known, uncomputed));
      if (op == "while_loop" && i == 0)
        c->predicate_unknown = nested.uncomputed_.count(g_.region(x.regions[0]).outputs[0]) != 0;
    }
    const std::vector<uint32_t> symbols = computed_symbols(n);
    const uint32_t own_section = section_;
    if (!symbols.empty()) begin_section(symbols);
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < x.num_results; ++i) {
      out.push_back(add_slot(x.results[i], g_.value(x.results[i]).type->device, SlotKind::kDynamic, p_.num_dynamic++));
      slot_of_[x.results[i]] = out.back();
    }
    Step& step = add_step(TSR_STEP_CONTROL, n);
    step.section = own_section;
    step.control = std::move(c);
    step.inputs = std::move(in);
    step.outputs = std::move(out);
    step.symbols = symbols;
  }

  // ---------------------------------------------------------------------------------------------------- outputs

  void outputs() {
    const tsr_region& r = g_.region(region_);
    for (uint32_t j = 0; j < r.num_outputs; ++j) {
      const tsr_id v = r.outputs[j];
      const tsr_device wanted = g_.value(v).type->device;
      const uint32_t slot = operand(v, wanted);
      const Slot& s = p_.slots[slot];
      if (s.kind == SlotKind::kStorage && s.device == wanted && p_.storages[s.index].output == kNone) {
        p_.storages[s.index].output = j;
        p_.output_slots.push_back(slot);
      } else {
        const uint32_t copy = add_copy(slot, wanted, kCopyOutput | (s.device != wanted ? uint32_t{kCopyAlways} : 0u), j);
        p_.storages[p_.slots[copy].index].output = j;
        p_.output_slots.push_back(copy);
      }
    }
    for (uint32_t i = 0; i < p_.inputs.size(); ++i) {  // after every copy above has read the old values
      const uint32_t j = p_.inputs[i].writeback;
      if (j == TSR_NONE || r.outputs[j] == r.inputs[i]) continue;
      if (options_.replaces_states && g_.value(r.inputs[i]).donated) continue;
      Step& step = add_step(TSR_STEP_COPY, TSR_NONE);
      step.inputs = {p_.output_slots[j]};
      step.outputs = {slot_of_.at(r.inputs[i])};
      step.copy = kCopyWriteback;
      step.target = i;
      step.device = p_.inputs[i].device;
    }
  }

  // Devices with streams.
  void queues() {
    const auto add = [&](tsr_device d) {
      if (d != kCpu && p_.queue_of(d) == kNone) p_.queues.push_back(d);
    };
    for (const Slot& s : p_.slots) add(s.device);
    for (const auto& s : p_.steps) add(s->device);
  }

  // Every assumption is checked by the plan that learns the last of its symbols: those of the plan around it are in `known`.
  void relations(const std::vector<uint8_t>& known) {
    for (const Assumption& a : g_.sizes().assumptions()) {
      static const char* const kText[] = {"==", "!=", "<", "<=", ">", ">="};
      Plan::Relation r;
      r.relation = a.relation;
      r.section = std::max(p_.program.section_of(a.a), p_.program.section_of(a.b));
      if (r.section == SizeProgram::kUnknown) continue;  // about a symbol that this plan does not use
      std::vector<uint32_t> symbols;
      g_.sizes().collect_symbols(a.a, symbols);
      g_.sizes().collect_symbols(a.b, symbols);
      if (p_.nested && std::all_of(symbols.begin(), symbols.end(), [&](uint32_t s) { return known[s] != 0; })) continue;
      r.a = p_.program.ref(a.a);
      r.b = p_.program.ref(a.b);
      r.text = a.relation == TSR_DIVISIBLE ? g_.sizes().print(a.a) + " % " + g_.sizes().print(a.b) + " == 0"
                                           : g_.sizes().print(a.a) + " " + kText[a.relation] + " " + g_.sizes().print(a.b);
      r.why = a.why;
      p_.relations_.push_back(std::move(r));
    }
  }

  // Where one stream, or the host, runs all steps in their order. An executor wants every address before it begins.
  void take_turns() {
    const auto& in = p_.inputs;
    p_.takes_turns = !p_.nested && !options_.executor && p_.num_sections == 1 && p_.num_dynamic == 0 && p_.queues.size() < 2 &&
                     std::any_of(in.begin(), in.end(), [](const InputSpec& i) { return i.given_up; }) &&
                     std::none_of(in.begin(), in.end(), [](const InputSpec& i) { return i.writeback != TSR_NONE; });
  }

  // The last section that reads each slot, through views and copies.
  void lifetimes() {
    const auto use = [&](uint32_t slot, uint32_t section) {
      for (; slot != kNone; slot = p_.slots[slot].source)
        p_.slots[slot].last_section = std::max(p_.slots[slot].last_section, section);
    };
    for (const auto& s : p_.steps)
      for (const uint32_t in : s->inputs) use(in, s->section);
    for (const uint32_t slot : p_.output_slots) use(slot, p_.num_sections);  // beyond the end
  }

  Graph& g_;
  tsr_id region_;
  const std::vector<Assignment>& assignment_;
  const CompileOptions& options_;
  std::unique_ptr<Plan> plan_;
  Plan& p_;
  uint32_t section_ = 0;
  std::unordered_map<tsr_id, uint32_t> slot_of_;
  std::map<std::pair<tsr_id, tsr_device>, uint32_t> constant_slot_;
  std::map<std::tuple<uint32_t, tsr_device, uint32_t>, uint32_t> copies_;
  std::unordered_set<uint32_t> whole_;     // views of all of some memory of the plan's own, in order
  std::unordered_set<tsr_id> uncomputed_;  // results of backends that compute nothing, and what depends on them
};

std::unique_ptr<Plan> build_plan(Graph& graph, const std::vector<Assignment>& assignment, const CompileOptions& options) {
  return PlanBuilder(graph, 0, assignment, options).build({});
}

}  // namespace tessera::core
