// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "cache/blob.hpp"
#include "compile/constant_forms.hpp"
#include "compile/layout.hpp"
#include "compile/options.hpp"
#include "compile/plan.hpp"
#include "compile/saved_kernels.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

Plan::Plan(const Graph& g) : graph(&g), program(g.sizes()) {}

uint32_t Plan::arena_index(tsr_device d) const {
  return static_cast<uint32_t>(std::find(arena_devices.begin(), arena_devices.end(), d) - arena_devices.begin());
}

// Builds the steps of one region in program order, then the copies that its outputs and states need, then the kernels.
class PlanBuilder {
 public:
  PlanBuilder(Graph& g, tsr_id region, const std::vector<Assignment>& assignment, const CompileOptions& options, bool kernels)
      : g_(g), region_(region), assignment_(assignment), options_(options), kernels_(kernels), plan_(new Plan(g)), p_(*plan_) {}

  // `uncomputed`: inputs whose values no kernel has computed.
  std::unique_ptr<Plan> build(const std::vector<uint8_t>& known, const std::vector<uint8_t>& uncomputed = {}) {
    for (uint32_t i = 0; i < uncomputed.size(); ++i)
      if (uncomputed[i]) uncomputed_.insert(g_.region(region_).inputs[i]);
    p_.region = region_;
    p_.nested = region_ != 0;
    p_.threads = options_.threads;
    p_.arena_max_bytes = options_.arena_max_bytes;
    p_.measure = options_.measure;
    for (size_t s = 0; s < known.size(); ++s)
      if (known[s]) p_.program.set_known(static_cast<uint32_t>(s), 0);
    inputs(known);
    const tsr_region& r = g_.region(region_);
    for (uint32_t j = 0; j < r.num_outputs; ++j) p_.output_names.emplace_back(g_.value(r.outputs[j]).name);
    for (const tsr_id n : nodes_of(g_, region_)) node(n);
    outputs();
    if (kernels_) {
      compile_all();
      place_constants();
    }
    relations(known);
    p_.program.finish();
    lifetimes();
    for (const Slot& s : p_.slots)
      for (uint32_t k = 0; k < s.rank; ++k) p_.is_static = p_.is_static && p_.dims[s.dims + k].slot < 0;
    p_.is_static = p_.is_static && p_.num_sections == 1;
    for (const auto& s : p_.steps)
      if (s->control && s->control->length.slot >= 0) p_.is_static = false;
    if (p_.is_static && p_.program.num_slots() > 0) {
      // Symbols that are mentioned without sizing a tensor (dim_value): dims still change from call to call, so kernels'
      // workspaces may too.
      p_.is_static = std::none_of(p_.inputs.begin(), p_.inputs.end(), [](const InputSpec& i) { return !i.static_sizes; });
      p_.is_static = p_.is_static && known.empty();
    }
    if (p_.is_static) {
      std::vector<InputLayout> dense(p_.inputs.size());
      for (size_t i = 0; i < dense.size(); ++i) {
        if (!p_.inputs[i].strides.empty())
          dense[i].strides = p_.inputs[i].strides.data();  // plain numbers: checked in inputs()
        dense[i].give_away = p_.inputs[i].donated && p_.inputs[i].writeback != TSR_NONE && !p_.nested;
      }
      std::vector<int64_t> dims(std::max<size_t>(1, p_.program.num_slots()), 0);
      p_.primary = make_layout(p_, 0, dims.data(), dense, nullptr);
      hand_to_executor();
      if (!p_.executor && kernels_) p_.fast_call = FastCall::make(p_);
    }
    return std::move(plan_);
  }

 private:
  // ------------------------------------------------------------------------------------------------------ slots

  uint32_t add_dims(const tsr_type& t) {
    const auto first = static_cast<uint32_t>(p_.dims.size());
    for (uint32_t k = 0; k < t.rank; ++k) p_.dims.push_back(p_.program.ref(t.sizes[k]));
    return first;
  }

  uint32_t add_slot(tsr_id value, tsr_device device, Home home, uint32_t index, uint32_t source = kNone) {
    const tsr_type& t = *g_.value(value).type;
    Slot s;
    s.value = value;
    s.dtype = t.dtype;
    s.rank = t.rank;
    s.dims = add_dims(t);
    s.device = device;
    s.home = home;
    s.index = index;
    s.source = source;
    s.section = section_;
    p_.slots.push_back(s);
    const auto id = static_cast<uint32_t>(p_.slots.size() - 1);
    if (home == Home::kStorage || home == Home::kCopy) {
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
      spec.name = v.name;
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
      spec.donated = region_ == 0 && v.donated != 0;
      spec.read = v.num_uses > 0 || spec.writeback != TSR_NONE;
      p_.gives_away = p_.gives_away || (spec.donated && spec.writeback != TSR_NONE);
      for (const tsr_dim d : spec.sizes) spec.static_sizes = spec.static_sizes && !TSR_DIM_IS_EXPR(d);
      p_.inputs.push_back(std::move(spec));
      slot_of_[r.inputs[i]] = add_slot(r.inputs[i], v.type->device, Home::kInput, i);
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
    } else if (s.home == Home::kInput || s.home == Home::kView) {
      if (!strided) why |= kCopyStrided;
      if (!unaligned) why |= kCopyUnaligned;
    }
    if (why == 0) return source;
    if (why & kCopyUnaligned) p_.needs_alignment = true;
    const auto key = std::make_tuple(source, device, why);
    if (const auto it = copies_.find(key); it != copies_.end()) return it->second;
    return copies_[key] = add_copy(source, device, why, kNone);
  }

  uint32_t add_copy(uint32_t source, tsr_device device, uint32_t why, uint32_t target) {
    const tsr_id value = p_.slots[source].value;
    const uint32_t slot = add_slot(value, device, Home::kCopy, 0, source);
    Step& step = add_step(TSR_STEP_COPY, g_.value(value).def_node);
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
    if (!kernels_ || (device == kCpu && reinterpret_cast<uintptr_t>(t.data) % kAlignment == 0)) {
      c.data = t.data;
    } else {
      unplaced_.push_back({p_.constants.size(), t.data, static_cast<size_t>(bytes)});
    }
    p_.constants.push_back(std::move(c));
    const uint32_t slot = add_slot(value, device, Home::kConstant, static_cast<uint32_t>(p_.constants.size() - 1));
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
      default: return kernel(n);
    }
  }

  void view(tsr_id n) {
    const tsr_node& x = g_.node(n);
    uint32_t source = operand(x.operands[0], kCpu);
    for (uint32_t i = 1; i < x.num_operands; ++i)
      if (x.operands[i] != TSR_NONE) operand(x.operands[i], kCpu);
    const Slot s = p_.slots[source];
    if (s.home == Home::kInput || s.home == Home::kView) source = add_copy(source, s.device, kCopyForView, kNone);
    const uint32_t slot = add_slot(x.results[0], s.device, Home::kView, 0, source);
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
    for (const uint32_t s : results)
      if (g_.sizes().symbols()[s].unbacked && std::find(operands.begin(), operands.end(), s) == operands.end())
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
    const tsr_device wanted = device_intern(backend.device ? backend.device : "cpu");
    const std::string& kind = core::device(wanted).kind();
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
      out.push_back(add_slot(x.results[i], device, Home::kStorage, 0));
      slot_of_[x.results[i]] = out.back();
    }
    Step& step = add_step(TSR_STEP_KERNEL, n);
    step.backend = host ? nullptr : a.backend;
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
    } else {
      throw user_error("TSR-R024", g_.describe(n) +
                                       ": the host runs the control ops cond, while_loop and scan; it does not know '" +
                                       std::string(op) + "'");
    }
    std::vector<uint32_t> in;
    for (uint32_t i = 0; i < x.num_operands; ++i) in.push_back(operand(x.operands[i], g_.value(x.operands[i]).type->device));
    if (op == "cond") c->predicate_unknown = uncomputed_.count(x.operands[0]) != 0;
    std::vector<uint8_t> uncomputed;
    for (uint32_t i = op == "cond" ? 1 : 0; i < x.num_operands; ++i)
      uncomputed.push_back(uncomputed_.count(x.operands[i]) != 0);
    std::vector<uint8_t> known(g_.sizes().symbols().size());
    for (uint32_t s = 0; s < known.size(); ++s) known[s] = p_.program.known(s) != SizeProgram::kUnknown;
    for (uint32_t i = 0; i < x.num_regions; ++i) {
      PlanBuilder nested(g_, x.regions[i], assignment_, options_, kernels_);
      c->regions.push_back(nested.build(known, uncomputed));
      if (op == "while_loop" && i == 0)
        c->predicate_unknown = nested.uncomputed_.count(g_.region(x.regions[0]).outputs[0]) != 0;
    }
    const std::vector<uint32_t> symbols = computed_symbols(n);
    const uint32_t own_section = section_;
    if (!symbols.empty()) begin_section(symbols);
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < x.num_results; ++i) {
      out.push_back(add_slot(x.results[i], g_.value(x.results[i]).type->device, Home::kDynamic, p_.num_dynamic++));
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
      if (s.home == Home::kStorage && s.device == wanted && p_.storages[s.index].output == kNone) {
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
      Step& step = add_step(TSR_STEP_COPY, TSR_NONE);
      step.inputs = {p_.output_slots[j]};
      step.outputs = {slot_of_.at(r.inputs[i])};
      step.copy = kCopyWriteback;
      step.target = i;
      step.device = p_.inputs[i].device;
    }
  }

  // ---------------------------------------------------------------------------------------------------- kernels

  struct Asked {  // what a backend is asked, and whether it has asked for slots in turn
    tsr_compile request{};
    SizeProgram* program = nullptr;
    bool any = false;
    PlanBuilder* builder = nullptr;
    const Step* step = nullptr;
  };

  // Constants that lie on another device, or not on 64 bytes, once it is known who reads them: what kernels have in a form of their own stays
  // where it is, and so does what is large and read by kernels that do not care.
  void place_constants() {
    constexpr size_t kWorthStaying = 64 << 10;
    enum : uint8_t { kRead = 1, kAligned = 2 };
    std::vector<uint8_t> needs(p_.slots.size());
    for (const auto& s : p_.steps) {
      const bool kernel = s->kind == TSR_STEP_KERNEL || s->kind == TSR_STEP_SECTION;
      const uint64_t caps = !kernel ? 0 : s->backend ? s->backend->as<tsr_backend>().capabilities : uint64_t{TSR_CAP_UNALIGNED};
      for (size_t i = 0; i < s->inputs.size(); ++i) {
        if (s->inputs[i] == kNone) continue;
        const bool unread = s->kind == TSR_STEP_KERNEL && i < 64 && (s->kernel.unread >> i & 1) != 0;
        if (unread) continue;
        needs[s->inputs[i]] |= caps & TSR_CAP_UNALIGNED ? uint8_t{kRead} : uint8_t{kRead | kAligned};
      }
    }
    for (const uint32_t slot : p_.output_slots) needs[slot] |= kRead | kAligned;
    std::vector<uint8_t> of_constant(p_.constants.size());
    for (size_t slot = 0; slot < p_.slots.size(); ++slot)
      if (p_.slots[slot].home == Home::kConstant) of_constant[p_.slots[slot].index] |= needs[slot];
    for (const Unplaced& u : unplaced_) {
      Constant& c = p_.constants[u.constant];
      const uint8_t need = of_constant[u.constant];
      const bool stays = c.device == kCpu && (need == 0 || (need == kRead && u.bytes > kWorthStaying));
      if (stays) {
        c.data = const_cast<void*>(u.data);
        continue;
      }
      c.owned = BufferRef(allocate_buffer(core::device(c.device), u.bytes));
      c.data = c.owned->data;
      const auto start = std::chrono::steady_clock::now();
      core::device(c.device).copy(c.data, u.data, u.bytes, TSR_COPY_TO_DEVICE);
      p_.pack_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  }

  // A constant in a kernel's own form: from the cache of this compile, or made now.
  const void* rearranged(const Step& s, tsr_id id, std::string_view form, size_t bytes,
                         tsr_error* (*fill)(void* fill_ctx, void* to), void* fill_ctx) {
    const tsr_id def = id < g_.num_values() ? g_.value(id).def_node : TSR_NONE;
    const tsr_attr* value = def == TSR_NONE ? nullptr : g_.attr(def, "value");
    if (!value || value->kind != TSR_ATTR_TENSOR)
      throw bug("TSR-B025", "a kernel of " + g_.describe(s.node) + " wants a form of something that is no constant");
    std::string key;
    std::shared_ptr<const Blob> form_of;
    if (options_.forms) form_of = options_.forms->find(*s.backend, *value->tensor, form, bytes, &key);
    if (!form_of) {
      const auto start = std::chrono::steady_clock::now();
      const std::shared_ptr<Blob> made = Blob::allocate(bytes);
      s.backend->check(fill(fill_ctx, made->fill()));
      p_.pack_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (!key.empty()) options_.forms->made(key, made);
      form_of = made;
    }
    if (form_of->mapped()) {
      p_.mapped_bytes += static_cast<int64_t>(bytes);
    } else {
      p_.form_bytes += static_cast<int64_t>(bytes);
      p_.held_bytes += static_cast<int64_t>(bytes);
      core::device(kCpu).count_allocated(static_cast<int64_t>(bytes));
    }
    p_.forms.push_back(form_of);
    return form_of->data();
  }

  void ask(const Step& s, Asked& asked) {
    asked.program = &p_.program;
    asked.request.struct_size = sizeof asked.request;
    asked.request.graph = g_.handle();
    asked.request.node = s.node;
    asked.request.device = s.device;
    asked.request.relaxed = options_.relaxed;
    asked.request.dim_slot = [](void* ctx, tsr_dim d) noexcept -> int32_t {
      auto& a = *static_cast<Asked*>(ctx);
      try {
        const int32_t slot = a.program->slot(d);
        a.any = a.any || slot >= 0;
        return slot;
      } catch (...) {
        return -1;  // out of memory; the plan is abandoned soon
      }
    };
    asked.request.ctx = &asked;
    asked.builder = this;
    asked.step = &s;
    asked.request.rearranged = [](void* ctx, tsr_id constant, const char* form, size_t bytes,
                                  tsr_error* (*fill)(void* fill_ctx, void* to), void* fill_ctx,
                                  const void** data) noexcept -> tsr_error* {
      auto& a = *static_cast<Asked*>(ctx);
      try {
        *data = a.builder->rearranged(*a.step, constant, form, bytes, fill, fill_ctx);
        return nullptr;
      } catch (...) {
        return current_exception_to_c();
      }
    };
  }

  // Each backend hears of all its kernels before it is asked for the first, but for those that the cache has.
  void compile_all() {
    std::vector<Asked> asked(p_.steps.size());  // they stay where they are: requests point to them
    std::vector<std::pair<const Factory*, std::vector<tsr_compile>>> told;
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      const Step& s = *p_.steps[i];
      if (s.kind != TSR_STEP_KERNEL || !s.backend) continue;
      ask(s, asked[i]);
      const tsr_backend& table = s.backend->as<tsr_backend>();
      if (!table.prepare || saved_bytes(table, s)) continue;
      auto it = std::find_if(told.begin(), told.end(), [&](const auto& t) { return t.first == s.backend; });
      if (it == told.end()) it = told.insert(told.end(), {s.backend, {}});
      it->second.push_back(asked[i].request);
    }
    for (const auto& [backend, requests] : told) {
      const tsr_backend& table = backend->as<tsr_backend>();
      try {
        backend->check(table.prepare(backend->self, requests.data(), requests.size(), sizeof(tsr_compile)));
      } catch (const Error& e) {
        throw Error(
            e.family(), e.code(),
            "backend '" + backend->name + "' cannot compile graph '" + std::string(g_.tables().name) + "': " + e.message(),
            e.hint());
      }
    }
    for (size_t i = 0; i < p_.steps.size(); ++i) compile(*p_.steps[i], asked[i]);
  }

  void compile(Step& s, Asked& asked) {
    if (s.kind != TSR_STEP_KERNEL || !s.backend) return;
    const tsr_backend& table = s.backend->as<tsr_backend>();
    s.kernel.struct_size = sizeof(tsr_kernel);
    s.kernel.in_place = -1;
    const int64_t begin = trace_details() ? trace_clock() : -1;
    try {
      if (!restored(table, s)) s.backend->check(table.compile(s.backend->self, &asked.request, &s.kernel));
    } catch (const Error& e) {
      throw Error(e.family(), e.code(),
                  "backend '" + s.backend->name + "' cannot compile " + g_.describe(s.node) + ": " + e.message(), e.hint());
    }
    if (begin >= 0) {
      TraceEvent event("kernel", begin);
      event.text("op", g_.node(s.node).op).text("backend", s.backend->name);
      if (s.kernel.name) event.text("kernel", s.kernel.name);
      event.since(begin).write();
    }
    if (s.kernel.pack_seconds > 0) p_.pack_seconds += s.kernel.pack_seconds;
    if (s.kernel.held_bytes > 0) {
      p_.held_bytes += s.kernel.held_bytes;
      device(s.device).count_allocated(s.kernel.held_bytes);
    }
    if (table.cost) s.predicted_seconds = table.cost(s.backend->self, g_.handle(), s.node);
    save(s, asked.any);
    if (!s.kernel.launch)
      throw bug("TSR-B022",
                "backend '" + s.backend->name + "' compiled " + g_.describe(s.node) + " to a kernel without a launch function",
                "report this to " + (s.backend->plugin ? s.backend->plugin->vendor : "the vendor"));
  }

  // Takes the kernel from a cache, when it holds one that its backend still reads.
  bool restored(const tsr_backend& table, Step& s) const {
    const std::string* bytes = saved_bytes(table, s);
    if (!bytes) return false;
    s.backend->check(table.deserialize(s.backend->self, bytes->data(), bytes->size(), &s.kernel));
    return true;
  }

  const std::string* saved_bytes(const tsr_backend& table, const Step& s) const {
    if (!options_.restore || !table.deserialize || log_enabled(Artifact::kOutputCode)) return nullptr;
    const auto at = options_.restore->bytes.find(s.node);
    return at == options_.restore->bytes.end() ? nullptr : &at->second;
  }

  void save(const Step& s, bool reads_dims) const {
    if (!options_.save || reads_dims || !s.kernel.serialize) return;
    std::string bytes;
    const auto alloc = [](void* ctx, size_t n) noexcept -> void* {
      auto& out = *static_cast<std::string*>(ctx);
      try {
        out.resize(n);
        return out.data();
      } catch (...) {
        return nullptr;
      }
    };
    s.backend->check(s.kernel.serialize(s.kernel.self, alloc, &bytes));
    options_.save->bytes[s.node] = std::move(bytes);
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

  // An executor takes whole static plans of its device without control flow; any other plan runs step by step.
  void hand_to_executor() {
    if (!options_.executor || !kernels_ || p_.nested) return;
    const tsr_executor& table = options_.executor->as<tsr_executor>();
    const std::string& kind = core::device(device_intern(table.device)).kind();
    for (const Exec& e : p_.primary->program) {
      const bool plain = e.kind == Exec::kLaunch || e.kind == Exec::kCopy;
      if (plain && core::device(p_.steps[e.step]->device).kind() == kind) continue;
      if (log_enabled(Artifact::kPerfHints))
        log_write(Artifact::kPerfHints, "executor '" + options_.executor->name + "' does not run graph '" +
                                            std::string(g_.tables().name) + "': " +
                                            (plain ? "a step runs on '" + core::device(p_.steps[e.step]->device).name() + "'"
                                                   : std::string("it has steps that only the host runs")));
      return;
    }
    p_.executor_table = std::make_unique<StepTable>(p_, true);
    options_.executor->check(table.prepare(options_.executor->self, &p_.executor_table->table, &p_.prepared));
    p_.executor = options_.executor;
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
  bool kernels_;
  std::unique_ptr<Plan> plan_;
  Plan& p_;
  uint32_t section_ = 0;
  std::unordered_map<tsr_id, uint32_t> slot_of_;
  std::map<std::pair<tsr_id, tsr_device>, uint32_t> constant_slot_;
  std::map<std::tuple<uint32_t, tsr_device, uint32_t>, uint32_t> copies_;
  struct Unplaced {
    size_t constant;  // of Plan::constants
    const void* data;
    size_t bytes;
  };
  std::vector<Unplaced> unplaced_;
  std::unordered_set<tsr_id> uncomputed_;  // results of backends that compute nothing, and what depends on them
};

std::unique_ptr<Plan> Plan::build(Graph& graph, tsr_id region, const std::vector<Assignment>& assignment,
                                  const CompileOptions& options, const std::vector<uint8_t>& known, bool kernels) {
  return PlanBuilder(graph, region, assignment, options, kernels).build(known);
}

}  // namespace tessera::core
