// SPDX-License-Identifier: Apache-2.0
#include "plan/plan_kernels.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cache/blob.hpp"
#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "plan/assignment.hpp"
#include "plan/compile_options.hpp"
#include "plan/constant_forms.hpp"
#include "plan/device_constants.hpp"
#include "plan/plan.hpp"
#include "plan/saved_kernels.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "trace/trace.hpp"

namespace tessera::core {
namespace {

std::function<bool()> names_hold_of(ConstantForms* forms) {
  if (!forms) return {};
  return [forms] { return forms->names_hold(); };
}

class KernelCompiler {
 public:
  KernelCompiler(Graph& g, Plan& plan, const CompileOptions& options) : g_(g), p_(plan), options_(options) {}

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
      end_if_interrupted();
      const tsr_backend& table = backend->as<tsr_backend>();
      try {
        backend->call("prepare", [&table, self = backend->self, &r = requests] {
          return table.prepare(self, r.data(), r.size(), sizeof(tsr_compile));
        });
      } catch (const Error& e) {
        throw KernelError(
            e, "backend '" + backend->name + "' cannot compile graph '" + std::string(g_.tables().name) + "': " + e.message(),
            *backend, TSR_NONE);
      }
    }
    for (size_t i = 0; i < p_.steps.size(); ++i) compile(*p_.steps[i], asked[i]);
  }

 private:
  struct Asked {  // what a backend is asked, and whether it has asked for slots in turn
    tsr_compile request{};
    SizeProgram* program = nullptr;
    bool any = false;
    KernelCompiler* compiler = nullptr;
    const Step* step = nullptr;
  };

  // A constant in a kernel's own form: from the cache of this compile, or made now. For a kernel on a device it lies there,
  // once for all kernels that want the same.
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
    if (s.device != kCpu) {
      const auto start = std::chrono::steady_clock::now();
      const HostConstant on_host{form_of->data(), bytes, key.empty() ? "" : "form " + key};
      auto placed = place_constants(core::device(s.device), {on_host}, names_hold_of(options_.forms));
      p_.placed_forms.push_back(std::move(placed.front()));
      p_.pack_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      return p_.placed_forms.back()->data;
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
    asked.request.unfrozen = options_.unfrozen ? 1 : 0;
    asked.request.tune = options_.tune;
    asked.request.tune_seconds = options_.tune_seconds;
    asked.request.dim_hint = [](void* ctx, tsr_dim d) noexcept -> int64_t {
      auto& a = *static_cast<Asked*>(ctx);
      try {
        return hint_size(a.compiler->g_, d, a.compiler->hints_);
      } catch (...) {
        return -1;
      }
    };
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
    asked.compiler = this;
    asked.step = &s;
    asked.request.rearranged = [](void* ctx, tsr_id constant, const char* form, size_t bytes,
                                  tsr_error* (*fill)(void* fill_ctx, void* to), void* fill_ctx,
                                  const void** data) noexcept -> tsr_error* {
      auto& a = *static_cast<Asked*>(ctx);
      try {
        *data = a.compiler->rearranged(*a.step, constant, form, bytes, fill, fill_ctx);
        return nullptr;
      } catch (...) {
        return current_exception_to_c();
      }
    };
  }

  void compile(Step& s, Asked& asked) {
    if (s.kind != TSR_STEP_KERNEL || !s.backend) return;
    end_if_interrupted();
    const tsr_backend& table = s.backend->as<tsr_backend>();
    s.kernel.struct_size = sizeof(tsr_kernel);
    s.kernel.in_place = -1;
    const int64_t begin = trace_details() ? trace_clock() : -1;
    try {
      if (!restored(table, s))
        s.backend->call("compile", [&] { return table.compile(s.backend->self, &asked.request, &s.kernel); });
    } catch (const Error& e) {
      throw KernelError(e, "backend '" + s.backend->name + "' cannot compile " + g_.describe(s.node) + ": " + e.message(),
                        *s.backend, s.node);
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
    if (table.cost)
      s.predicted_seconds = s.backend->call("cost", [&] { return table.cost(s.backend->self, g_.handle(), s.node); });
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
    s.backend->call("deserialize", [&] { return table.deserialize(s.backend->self, bytes->data(), bytes->size(), &s.kernel); });
    return true;
  }

  const std::string* saved_bytes(const tsr_backend& table, const Step& s) const {
    if (!options_.restore || !table.deserialize || log_enabled(Artifact::kKernelCode)) return nullptr;
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
    s.backend->call("serialize", [&] { return s.kernel.serialize(s.kernel.self, alloc, &bytes); });
    options_.save->bytes[s.node] = std::move(bytes);
  }

  Graph& g_;
  Plan& p_;
  const CompileOptions& options_;
  std::vector<int64_t> hints_ = hint_values(g_);
};

// `forms`: what is known of constants already; may be null.
void place_constants_of(Plan& plan, ConstantForms* forms) {
  constexpr size_t kWorthStaying = 64 << 10;
  enum : uint8_t { kRead = 1, kAligned = 2 };
  std::vector<uint8_t> needs(plan.slots.size());
  for (const auto& s : plan.steps) {
    const bool kernel = s->kind == TSR_STEP_KERNEL || s->kind == TSR_STEP_SECTION;
    const uint64_t caps = !kernel ? 0 : s->backend ? s->backend->as<tsr_backend>().capabilities : uint64_t{TSR_CAP_UNALIGNED};
    for (size_t i = 0; i < s->inputs.size(); ++i) {
      if (s->inputs[i] == kNone) continue;
      const bool unread = s->kind == TSR_STEP_KERNEL && i < 64 && (s->kernel.unread >> i & 1) != 0;
      if (unread) continue;
      const bool unaligned =
          (caps & TSR_CAP_UNALIGNED) || (s->kind == TSR_STEP_KERNEL && i < 64 && (s->kernel.unaligned >> i & 1) != 0);
      needs[s->inputs[i]] |= unaligned ? uint8_t{kRead} : uint8_t{kRead | kAligned};
    }
  }
  for (const uint32_t slot : plan.output_slots) needs[slot] |= kRead | kAligned;
  std::vector<uint8_t> of_constant(plan.constants.size());
  for (size_t slot = 0; slot < plan.slots.size(); ++slot)
    if (plan.slots[slot].kind == SlotKind::kConstant) of_constant[plan.slots[slot].index] |= needs[slot];
  const auto start = std::chrono::steady_clock::now();
  bool moved = false;
  std::map<tsr_device, std::pair<std::vector<HostConstant>, std::vector<uint32_t>>> of_device;  // with their numbers
  for (const UnplacedConstant& u : std::exchange(plan.unplaced, {})) {
    Constant& c = plan.constants[u.constant];
    const uint8_t need = of_constant[u.constant];
    const bool stays = c.device == kCpu && (need == 0 || (need == kRead && u.bytes > kWorthStaying));
    if (stays) {
      c.data = const_cast<void*>(u.data);
      continue;
    }
    moved = true;
    if (c.device == kCpu) {
      c.owned = BufferRef(allocate_buffer(core::device(kCpu), u.bytes));
      std::memcpy(c.owned->data, u.data, u.bytes);
      c.data = c.owned->data;
      continue;
    }
    auto& [constants, numbers] = of_device[c.device];
    constants.push_back({u.data, u.bytes, forms ? forms->digest({static_cast<const char*>(u.data), u.bytes}) : ""});
    numbers.push_back(u.constant);
  }
  for (auto& [id, of_one] : of_device) {
    std::vector<BufferRef> placed = place_constants(core::device(id), std::move(of_one.first), names_hold_of(forms));
    for (size_t i = 0; i < placed.size(); ++i) {
      Constant& c = plan.constants[of_one.second[i]];
      c.owned = std::move(placed[i]);
      c.data = c.owned->data;
    }
  }
  if (moved) plan.pack_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What a fault of a kernel costs the caller: states whose memory the call may have written by then.
std::string lost_by_faults(const Plan& plan) {
  std::string names;
  size_t count = 0;
  for (const InputSpec& in : plan.inputs) {
    if (plan.nested || !in.donated || in.writeback == kNone) continue;
    names += (count++ > 0 ? ", '" : " '") + in.name + "'";
  }
  if (count == 0) return {};
  return (count > 1 ? "the donated states" : "the donated state") + names + " of the call " + (count > 1 ? "are" : "is") +
         " lost";
}

}  // namespace

void drop_copies(Plan& plan) {
  constexpr uint32_t kForKernels = kCopyStrided | kCopyUnaligned;
  const auto said = [](uint64_t bits, size_t i) { return i < 64 && (bits >> i & 1) != 0; };
  std::vector<Step*> copy_of(plan.slots.size());
  for (const auto& s : plan.steps)
    if (s->kind == TSR_STEP_COPY && s->copy != 0 && (s->copy & ~kForKernels) == 0) copy_of[s->outputs[0]] = s.get();
  std::vector<uint32_t> needed(plan.slots.size());  // CopyReason, by those who read the copy
  for (const auto& s : plan.steps) {
    const tsr_kernel* k = s->kind == TSR_STEP_KERNEL    ? &s->kernel
                          : s->kind == TSR_STEP_SECTION ? &plan.steps[s->kernel_step]->kernel
                                                        : nullptr;
    for (size_t i = 0; i < s->inputs.size(); ++i) {
      const uint32_t slot = s->inputs[i];
      if (slot == kNone || !copy_of[slot]) continue;
      uint32_t why = copy_of[slot]->copy;
      if (k && said(k->strided, i)) why &= ~uint32_t{kCopyStrided};
      if (k && said(k->unaligned, i)) why &= ~uint32_t{kCopyUnaligned};
      needed[slot] |= why;
      if (why == 0) s->inputs[i] = copy_of[slot]->inputs[0];
    }
  }
  for (const uint32_t slot : plan.output_slots) needed[slot] |= kForKernels;
  plan.needs_alignment = false;
  std::vector<uint32_t> number(plan.steps.size());
  std::vector<std::unique_ptr<Step>> kept;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    std::unique_ptr<Step>& s = plan.steps[i];
    number[i] = static_cast<uint32_t>(kept.size());
    if (s->kind == TSR_STEP_COPY) {
      if (copy_of[s->outputs[0]] == s.get() && (s->copy &= needed[s->outputs[0]]) == 0) continue;
      plan.needs_alignment = plan.needs_alignment || (s->copy & kCopyUnaligned) != 0;
    }
    kept.push_back(std::move(s));
  }
  plan.steps = std::move(kept);
  for (const auto& s : plan.steps)
    if (s->kernel_step != kNone) s->kernel_step = number[s->kernel_step];
}

void compile_kernels(Graph& g, Plan& plan, const CompileOptions& options) {
  for (const auto& s : plan.steps)
    if (s->control)
      for (const auto& region : s->control->regions) compile_kernels(g, *region, options);
  // A kernel on a device reports faults by a number.
  const std::string lost = lost_by_faults(plan);
  for (const auto& s : plan.steps)
    if (s->kind == TSR_STEP_KERNEL && s->device != kCpu) s->site = register_site(g.describe(s->node), lost);
  KernelCompiler(g, plan, options).compile_all();
  drop_copies(plan);
  place_constants_of(plan, options.forms);
}

}  // namespace tessera::core
