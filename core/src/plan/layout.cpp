// SPDX-License-Identifier: Apache-2.0
#include "plan/layout.hpp"

#include <algorithm>
#include <numeric>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "plan/arena.hpp"
#include "plan/pointwise.hpp"
#include "plan/view.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "tessera/caches.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

constexpr uint32_t kNever = 0xffffffffu;  // as a last use: beyond the section

class LayoutMaker {
 public:
  LayoutMaker(const Plan& plan, uint32_t section, const int64_t* dims, std::span<const InputLayout> inputs,
              std::shared_ptr<const SectionLayout> previous, const int64_t* bounds)
      : p_(plan),
        section_(section),
        dims_(dims),
        bounds_(bounds),
        inputs_(inputs),
        out_(std::make_shared<SectionLayout>()),
        l_(*out_) {
    l_.section = section;
    l_.bounded = bounds != nullptr;
    l_.previous = std::move(previous);
  }

  std::shared_ptr<const SectionLayout> make() {
    if (l_.previous) {
      l_.slots = l_.previous->slots;
      l_.storage_places = l_.previous->storage_places;
    } else {
      l_.slots.resize(p_.slots.size());
      l_.storage_places.resize(p_.storages.size(), {kNone, 0});
    }
    const size_t n = p_.storages.size();
    bytes_.assign(n, 0);
    room_.assign(n, 0);
    claim_.assign(n, kNone);
    parent_.resize(n);
    for (size_t s = 0; s < n; ++s) {
      parent_[s] = static_cast<uint32_t>(s);
      if (p_.slots[p_.storages[s].slot].section == section_) claim_[s] = p_.storages[s].output;
    }
    resolve();
    uses();
    merge_in_place();
    give_away();
    place();
    finish();
    end_dynamics();
    take_turns();
    order_queues();
    return out_;
  }

 private:
  // ------------------------------------------------------------------------------------------ addresses and active steps

  std::string name(uint32_t slot) const { return p_.graph->value(p_.slots[slot].value).name; }

  // Fills in sizes and row-major strides. The bytes are checked before the strides are computed: strides of sizes whose product
  // overflows have no value.
  Resolved& dense(uint32_t slot, int64_t* bytes = nullptr) {
    const Slot& s = p_.slots[slot];
    auto& numbers = l_.numbers.emplace_back(2 * size_t{s.rank});
    for (uint32_t k = 0; k < s.rank; ++k) numbers[k] = p_.dims_of(slot)[k].value(dims_);
    Resolved& r = l_.slots[slot];
    r = {};
    r.sizes = numbers.data();
    r.strides = numbers.data() + s.rank;
    const int64_t checked = slot_bytes(slot);
    if (bytes) *bytes = checked;
    dense_strides({numbers.data(), s.rank}, numbers.data() + s.rank);
    return r;
  }

  int64_t slot_bytes(uint32_t slot) const {
    const Slot& s = p_.slots[slot];
    const Resolved& r = l_.slots[slot];
    try {
      return checked_bytes(s.dtype, {r.sizes, s.rank}, device(s.device).name());
    } catch (const Error& e) {
      throw Error(e.family(), e.code(), "value %" + name(slot) + ": " + e.message(), e.hint());
    }
  }

  int64_t bytes_at(uint32_t slot, const int64_t* dims) const {
    const Slot& s = p_.slots[slot];
    std::vector<int64_t> sizes;
    for (uint32_t k = 0; k < s.rank; ++k) sizes.push_back(p_.dims_of(slot)[k].value(dims));
    return checked_bytes(s.dtype, sizes, device(s.device).name());
  }

  void own_storage(uint32_t slot) {
    const uint32_t storage = p_.slots[slot].index;
    Resolved& r = dense(slot, &bytes_[storage]);
    room_[storage] = bounds_ ? std::max(bytes_[storage], bytes_at(slot, bounds_)) : bytes_[storage];
    r.place = Resolved::kStorage;
    r.index = storage;
  }

  void resolve() {
    if (section_ == 0)
      for (uint32_t slot = 0; slot < p_.slots.size(); ++slot) {
        const Slot& s = p_.slots[slot];
        if (s.kind == SlotKind::kInput) {
          Resolved& r = dense(slot);
          r.place = Resolved::kRoot;
          r.index = p_.input_root(s.index);
          const InputLayout& in = inputs_[s.index];
          r.aligned = in.aligned;
          if (in.strides) {
            auto& strides = l_.numbers.emplace_back(in.strides, in.strides + s.rank);
            r.strides = strides.data();
            r.dense = is_dense(s.rank, r.sizes, r.strides);
          }
        } else if (s.kind == SlotKind::kConstant) {
          Resolved& r = dense(slot);
          r.place = Resolved::kFixed;
          r.index = s.index;
        }
      }
    for (uint32_t i = 0; i < p_.steps.size(); ++i) {
      const Step& step = *p_.steps[i];
      if (step.kind == TSR_STEP_CONTROL)
        for (const uint32_t slot : step.outputs)
          if (p_.slots[slot].section == section_) {
            Resolved& r = dense(slot);
            r.place = Resolved::kRoot;
            r.index = p_.dynamic_root(p_.slots[slot].index);
          }
      if (step.section == section_) resolve(i, step);
    }
  }

  void resolve(uint32_t i, const Step& step) {
    switch (step.kind) {
      case TSR_STEP_KERNEL: {
        for (const uint32_t slot : step.outputs) own_storage(slot);
        Instruction& e = emit(i, step, step.backend ? Instruction::kLaunch : Instruction::kCompute);
        if (!step.backend) e.call = runtime_call(step.node);
        workspace(step, e);
        return;
      }
      case TSR_STEP_SECTION: {
        const Step& kernel = *p_.steps[step.kernel_step];
        const bool host = !kernel.kernel.sizes && step.record->impl && step.record->impl->compute_sizes;
        Instruction& e = emit(i, step, host ? Instruction::kComputeSizes : Instruction::kSizes);
        if (host)
          e.call = runtime_call(step.node);
        else
          workspace(kernel, e);
        return;
      }
      case TSR_STEP_CONTROL: emit(i, step, Instruction::kControl); return;
      case TSR_STEP_VIEW: return view(step);
      case TSR_STEP_COPY: return copy(i, step);
    }
  }

  Instruction& emit(uint32_t i, const Step& step, Instruction::Kind kind) {
    Instruction& e = l_.program.emplace_back();
    e.kind = kind;
    e.step = i;
    e.inputs = step.inputs;
    if (kind != Instruction::kSizes && kind != Instruction::kComputeSizes) e.outputs = step.outputs;
    return e;
  }

  static int64_t workspace_bytes(const Step& step, const int64_t* dims, uint64_t strided) {
    const tsr_kernel& k = step.kernel;
    return step.backend->call(
        "workspace", [&] { return k.workspace_of ? k.workspace_of(k.self, dims, strided) : k.workspace(k.self, dims); });
  }
  // Bit i: input i is not dense. Calls that share offsets need not share this.
  uint64_t strided_inputs(const Step& step) const {
    if (bounds_) return ~uint64_t{0};
    uint64_t out = 0;
    for (size_t i = 0; i < std::min<size_t>(step.inputs.size(), 64); ++i)
      if (step.inputs[i] != kNone && !l_.slots[step.inputs[i]].dense) out |= uint64_t{1} << i;
    return out;
  }
  void workspace(const Step& step, Instruction& e) const {
    if (!step.kernel.launch) e.workspace_bytes = step.expected_workspace;
    if (!step.backend || !step.kernel.workspace) return;
    const uint64_t strided = strided_inputs(step);
    e.workspace_bytes = workspace_bytes(step, dims_, strided);
    if (bounds_ && e.workspace_bytes >= 0)
      e.workspace_bytes = std::max(e.workspace_bytes, workspace_bytes(step, bounds_, strided));
    if (e.workspace_bytes < 0)
      throw bug("TSR-B024", "backend '" + step.backend->name + "': " + p_.graph->describe(step.node) + " asks for " +
                                std::to_string(e.workspace_bytes) + " bytes of workspace");
  }

  const RuntimeCall* runtime_call(tsr_id node) {
    l_.calls.push_back(RuntimeCall::make(*p_.graph, node, [&](tsr_dim d) { return p_.program.at(d).value(dims_); }));
    return l_.calls.back().get();
  }

  void view(const Step& step) {
    const uint32_t source = step.inputs[0], slot = step.outputs[0];
    const Slot& s = p_.slots[slot];
    const RuntimeCall* call = runtime_call(step.node);
    dense(slot);
    auto& strides = l_.numbers.emplace_back(s.rank);
    int64_t offset = 0;
    const auto attempt = [&] {
      const Resolved& from = l_.slots[source];
      return try_view(*step.record, *call, {from.strides, p_.slots[source].rank}, {l_.slots[slot].sizes, s.rank}, s.dtype,
                      strides.data(), &offset) != ViewAnswer::kNo;
    };
    bool ok = attempt();
    if (!ok && p_.slots[source].kind == SlotKind::kCopy && !l_.slots[source].dense) {
      activate(source);
      ok = attempt();
    }
    if (!ok)
      throw bug(
          "TSR-B023",
          p_.graph->describe(step.node) + " calls itself a view of every dense operand, but is none of one with these sizes",
          "report this to the vendor of the op's plugin");
    const Resolved& from = l_.slots[source];
    Resolved& r = l_.slots[slot];
    const int64_t* sizes = r.sizes;
    r = from;
    r.sizes = sizes;
    r.strides = strides.data();
    r.offset += offset;
    r.dense = is_dense(s.rank, r.sizes, r.strides);
    r.aligned = from.aligned && offset % static_cast<int64_t>(kAlignment) == 0;
  }

  // Makes the copy slot real.
  void activate(uint32_t slot) {
    const auto at = std::find_if(p_.steps.begin(), p_.steps.end(),
                                 [&](const auto& s) { return s->kind == TSR_STEP_COPY && s->outputs[0] == slot; });
    own_storage(slot);
    emit(static_cast<uint32_t>(at - p_.steps.begin()), **at, Instruction::kCopy);
  }

  void copy(uint32_t i, const Step& step) {
    const uint32_t source = step.inputs[0], slot = step.outputs[0];
    if (step.copy & kCopyWriteback) {
      emit(i, step, Instruction::kCopy);
      return;
    }
    const Resolved from = l_.slots[source];
    bool active = step.copy & kCopyAlways;
    active = active || ((step.copy & kCopyStrided) && !from.dense);
    active = active || ((step.copy & kCopyUnaligned) && !from.aligned);
    if ((step.copy & kCopyOutput) && !active) active = !claim(step.target, source, from);
    if (active) {
      own_storage(slot);
      emit(i, step, Instruction::kCopy);
    } else {
      l_.slots[slot] = from;
      if (claim_.size() > p_.slots[slot].index) claim_[p_.slots[slot].index] = kNone;  // its own storage stays unused
    }
  }

  // Gives an output the memory that its value already lies in, when that is whole, dense and nobody else's.
  bool claim(uint32_t output, uint32_t source, const Resolved& from) {
    if (!from.dense || from.offset != 0) return false;
    if (from.place == Resolved::kStorage) {
      if (claim_[from.index] != kNone || bytes_[from.index] != slot_bytes(source)) return false;
      claim_[from.index] = output;
      return true;
    }
    if (from.place == Resolved::kRoot && from.index >= p_.dynamic_root(0) && from.index < p_.arena_root(0, 0)) {
      for (const auto& o : l_.outputs)
        if (o.root == from.index) return false;
      l_.outputs.push_back({output, from.index, 0});
      return true;
    }
    return false;
  }

  // ------------------------------------------------------------------------------------------------------- lifetimes

  void uses() {
    first_.assign(p_.storages.size(), kNever);
    last_.assign(p_.storages.size(), 0);
    input_last_.assign(p_.inputs.size(), 0);
    input_used_.assign(p_.inputs.size(), 0);
    const auto used = [&](uint32_t slot, uint32_t when) {
      const Resolved& r = l_.slots[slot];
      if (r.place == Resolved::kStorage) {
        first_[r.index] = std::min(first_[r.index], when);
        last_[r.index] = std::max(last_[r.index], when);
      } else if (r.place == Resolved::kRoot && r.index < p_.inputs.size()) {
        input_used_[r.index] = 1;
        input_last_[r.index] = std::max(input_last_[r.index], when);
      }
    };
    for (uint32_t t = 0; t < l_.program.size(); ++t) {
      const Instruction& e = l_.program[t];
      const bool writeback = e.kind == Instruction::kCopy && (p_.steps[e.step]->copy & kCopyWriteback);
      for (const uint32_t slot : e.inputs)
        if (slot != kNone) used(slot, t);
      if (!writeback)
        for (const uint32_t slot : e.outputs) used(slot, t);
    }
    for (uint32_t slot = 0; slot < p_.slots.size(); ++slot) {
      if (p_.slots[slot].last_section <= section_) continue;
      const Resolved& r = l_.slots[slot];
      if (r.place == Resolved::kStorage) last_[r.index] = kNever;
      if (r.place == Resolved::kRoot && r.index < p_.inputs.size()) {
        input_used_[r.index] = 1;
        input_last_[r.index] = kNever;
      }
    }
    for (size_t s = 0; s < claim_.size(); ++s)
      if (claim_[s] != kNone) last_[s] = kNever;
  }

  uint32_t find(uint32_t s) {
    while (parent_[s] != s) s = parent_[s] = parent_[parent_[s]];
    return s;
  }

  // The input that exec `t` may overwrite with its first output, if nothing else reads it; else kNone.
  uint32_t overwritable(const Instruction& e) const {
    if (e.kind != Instruction::kLaunch || e.outputs.empty()) return kNone;
    const int32_t k = p_.steps[e.step]->kernel.in_place;
    if (k < 0 || static_cast<size_t>(k) >= e.inputs.size() || e.inputs[static_cast<size_t>(k)] == kNone) return kNone;
    const uint32_t slot = e.inputs[static_cast<size_t>(k)];
    const Resolved& r = l_.slots[slot];
    if (!r.dense || r.offset != 0 || !r.aligned) return kNone;
    if (p_.slots[slot].dtype != p_.slots[e.outputs[0]].dtype &&
        dtype_bits(p_.slots[slot].dtype) != dtype_bits(p_.slots[e.outputs[0]].dtype))
      return kNone;
    if (slot_bytes(slot) != bytes_[l_.slots[e.outputs[0]].index]) return kNone;
    for (size_t i = 0; i < e.inputs.size(); ++i)  // the same memory through another operand would be read while it is written
      if (static_cast<int32_t>(i) != k && e.inputs[i] != kNone && l_.slots[e.inputs[i]].place == r.place &&
          l_.slots[e.inputs[i]].index == r.index)
        return kNone;
    return slot;
  }

  void merge_in_place() {
    for (uint32_t t = 0; t < l_.program.size(); ++t) {
      const Instruction& e = l_.program[t];
      const uint32_t slot = overwritable(e);
      if (slot == kNone || l_.slots[slot].place != Resolved::kStorage) continue;
      const uint32_t to = find(l_.slots[slot].index), from = l_.slots[e.outputs[0]].index;
      if (last_[to] != t || claim_[to] != kNone || bytes_[to] != bytes_[from]) continue;
      if (p_.slots[p_.storages[to].slot].device != p_.slots[p_.storages[from].slot].device) continue;
      parent_[from] = to;
      room_[to] = std::max(room_[to], room_[from]);
      last_[to] = last_[from];
      claim_[to] = claim_[from];
    }
  }

  // Outputs that are written back into a donated state are computed in the state's own memory, when its old value is dead by
  // then: the copy back falls away.
  void give_away() {
    given_.assign(p_.storages.size(), kNone);
    for (uint32_t i = 0; i < p_.inputs.size(); ++i) {
      const InputSpec& in = p_.inputs[i];
      if (!inputs_[i].give_away || in.writeback == TSR_NONE || inputs_[i].strides || !inputs_[i].aligned) continue;
      for (uint32_t s = 0; s < claim_.size(); ++s) {
        if (claim_[s] != in.writeback || find(s) != s || first_[s] == kNever) continue;
        if (p_.slots[p_.storages[s].slot].device != in.device || bytes_[s] != input_bytes(i)) break;
        const bool in_place = input_last_[i] == first_[s] && written_over(l_.program[first_[s]], i, s);
        const bool dead = !input_used_[i] || (input_last_[i] != kNever && input_last_[i] < first_[s]);
        if (in_place || (dead && section_ == 0 && p_.num_sections == 1)) given_[s] = i;
        break;
      }
    }
  }

  // Whether a step that reads input `i` last may write storage `s` where that lies.
  bool written_over(const Instruction& e, uint32_t i, uint32_t s) {
    const auto is_input = [&](uint32_t slot) {
      return slot != kNone && l_.slots[slot].place == Resolved::kRoot && l_.slots[slot].index == p_.input_root(i);
    };
    if (const uint32_t slot = overwritable(e); is_input(slot) && find(l_.slots[e.outputs[0]].index) == s) return true;
    const Step& step = *p_.steps[e.step];
    if (e.kind != Instruction::kLaunch || !(step.kernel.flags & TSR_KERNEL_POINTWISE) || step.node == TSR_NONE) return false;
    uint32_t output = 0, operand = 0, reads = 0;
    while (output < e.outputs.size() && find(l_.slots[e.outputs[output]].index) != s) ++output;
    for (uint32_t k = 0; k < e.inputs.size(); ++k)
      if (is_input(e.inputs[k])) {
        operand = k;
        ++reads;
      }
    if (output == e.outputs.size() || reads != 1) return false;
    const Resolved& r = l_.slots[e.inputs[operand]];
    return r.dense && r.offset == 0 && r.aligned && is_pointwise(*p_.graph, step.node, output, operand);
  }

  int64_t input_bytes(uint32_t i) const { return slot_bytes(i); }  // inputs have the first slots

  // --------------------------------------------------------------------------------------------------------- memory

  // Bytes of a plane, where the tensor consists of some: all dimensions behind the first two.
  int64_t period(uint32_t storage) const {
    const uint32_t slot = p_.storages[storage].slot;
    const Slot& s = p_.slots[slot];
    if (s.rank < 4 || bytes_[storage] == 0 || !device(s.device).host_accessible()) return 0;
    const int64_t* sizes = l_.slots[slot].sizes;  // none is 0, and their product is known to fit
    return bytes_[storage] / (sizes[0] * sizes[1]);
  }

  // The smallest arena, unless more keeps lines of memory with the cores that write them. In a large one they leave the caches
  // in between. What a loop repeats has an arena for each thread.
  int64_t arena(std::vector<ArenaItem>& items) const {
    if (p_.nested || p_.threads == 1) return plan_arena(items);
    static const int64_t most = std::clamp(cache_bytes(3, int64_t{16} << 20) / 4 * 3, int64_t{4} << 20, int64_t{32} << 20);
    const int64_t allowed = p_.arena_max_bytes == 0 ? most : std::min<int64_t>(most, p_.arena_max_bytes);
    return plan_arena_alike(items, allowed);
  }

  void place() {
    l_.arena_bytes.assign(p_.arena_devices.size(), 0);
    std::vector<std::vector<ArenaItem>> items(p_.arena_devices.size());
    std::vector<std::vector<std::pair<bool, uint32_t>>> owners(p_.arena_devices.size());  // workspace?, storage or exec
    for (uint32_t s = 0; s < p_.storages.size(); ++s) {
      if (find(s) != s || first_[s] == kNever || l_.storage_places[s].first != kNone) continue;
      if (given_[s] != kNone) {
        l_.storage_places[s] = {p_.input_root(given_[s]), 0};
        l_.outputs.push_back({claim_[s], p_.input_root(given_[s]), 0, first_[s]});
      } else if (claim_[s] != kNone) {
        l_.storage_places[s] = {p_.output_root(claim_[s]), 0};
        l_.outputs.push_back({claim_[s], p_.output_root(claim_[s]), bytes_[s]});
        l_.output_bytes += bytes_[s];
      } else {
        const uint32_t d = p_.arena_index(p_.slots[p_.storages[s].slot].device);
        items[d].push_back({room_[s], first_[s], last_[s], bounds_ ? 0 : period(s)});
        owners[d].emplace_back(false, s);
      }
    }
    for (uint32_t t = 0; t < l_.program.size(); ++t)
      if (l_.program[t].workspace_bytes > 0) {
        const uint32_t d = p_.arena_index(p_.steps[l_.program[t].step]->device);
        items[d].push_back({l_.program[t].workspace_bytes, t, t});
        owners[d].emplace_back(true, t);
      }
    for (uint32_t d = 0; d < items.size(); ++d) {
      if (items[d].empty()) continue;
      l_.arena_bytes[d] = arena(items[d]);
      if (p_.arena_max_bytes > 0 && l_.arena_bytes[d] > p_.arena_max_bytes)
        throw user_error("TSR-R025",
                         "the plan needs an arena of " + std::to_string(l_.arena_bytes[d]) + " bytes on device '" +
                             device(p_.arena_devices[d]).name() + "'; runtime.arena_max_bytes allows " +
                             std::to_string(p_.arena_max_bytes),
                         "raise runtime.arena_max_bytes, or use smaller sizes");
      for (size_t k = 0; k < items[d].size(); ++k) {
        const auto [is_workspace, id] = owners[d][k];
        if (is_workspace) {
          l_.program[id].workspace_root = p_.arena_root(section_, d);
          l_.program[id].workspace_offset = items[d][k].offset;
        } else {
          l_.storage_places[id] = {p_.arena_root(section_, d), items[d][k].offset};
        }
      }
    }
  }

  void finish() {
    for (Resolved& r : l_.slots)
      if (r.place == Resolved::kStorage) {
        const auto& [root, offset] = l_.storage_places[find(r.index)];
        r.place = Resolved::kRoot;
        r.index = root;
        r.offset += offset;
      }
    // A state whose output was computed in its own memory needs no copy back.
    std::erase_if(l_.program, [&](const Instruction& e) {
      const Step& s = *p_.steps[e.step];
      return e.kind == Instruction::kCopy && (s.copy & kCopyWriteback) &&
             l_.slots[e.inputs[0]].index == p_.input_root(s.target) && l_.slots[e.inputs[0]].place == Resolved::kRoot;
    });
  }

  // Results of control steps go with their last use, not with the call, and a client learns which inputs are done with.
  void end_dynamics() {
    if (p_.num_dynamic == 0) return;
    std::vector<uint32_t> last(p_.num_dynamic, kNone);
    const auto number = [&](uint32_t slot) {  // of the result whose memory the slot lies in
      const Resolved& r = l_.slots[slot];
      const bool dynamic =
          r.place == Resolved::kRoot && r.index >= p_.dynamic_root(0) && r.index < p_.arena_root(0, 0) && p_.num_dynamic > 0;
      return dynamic ? r.index - p_.dynamic_root(0) : kNone;
    };
    for (uint32_t t = 0; t < l_.program.size(); ++t)
      for (const auto* slots : {&l_.program[t].inputs, &l_.program[t].outputs})
        for (const uint32_t slot : *slots)
          if (slot != kNone && number(slot) != kNone) last[number(slot)] = t;
    for (uint32_t slot = 0; slot < p_.slots.size(); ++slot) {
      const uint32_t d = number(slot);
      if (d != kNone && (p_.slots[slot].last_section > section_ || p_.slots[slot].device != kCpu)) last[d] = kNone;
    }
    for (uint32_t d = 0; d < last.size(); ++d)
      if (last[d] != kNone) l_.program[last[d]].last_reads.push_back(d);
    if (p_.nested) return;  // inputs of a region are values of the plan around it
    for (uint32_t t = 0; t < l_.program.size(); ++t) {
      const Step& step = *p_.steps[l_.program[t].step];
      if (!step.control || step.control->kind != ControlPlan::kClient) continue;
      for (uint32_t i = 0; i < p_.inputs.size(); ++i)
        if (p_.inputs[i].writeback == TSR_NONE && (!input_used_[i] || (input_last_[i] != kNever && input_last_[i] < t)))
          l_.program[t].finished.push_back(i);
    }
  }

  // When outputs get their memory and inputs that are given up leave it, and what is in memory at most. Instructions have their
  // final numbers.
  void take_turns() {
    const size_t steps = l_.program.size();
    std::vector<int64_t> change(steps + 1, 0);
    const auto lives = [&](int64_t bytes, size_t first, size_t end) { change[first] += bytes, change[end] -= bytes; };
    if (!p_.takes_turns) {
      lives(l_.output_bytes, 0, steps);
      for (uint32_t i = 0; i < p_.inputs.size() && section_ == 0; ++i)
        if (p_.inputs[i].given_up) lives(input_bytes(i), 0, steps);
    } else {
      std::vector<uint32_t> first(p_.num_roots(), kNone), last(p_.num_roots(), kNone);
      for (uint32_t t = 0; t < steps; ++t)
        for (const auto* slots : {&l_.program[t].inputs, &l_.program[t].outputs})
          for (const uint32_t slot : *slots) {
            if (slot == kNone || l_.slots[slot].place != Resolved::kRoot) continue;
            uint32_t& begin = first[l_.slots[slot].index];
            begin = std::min(begin, t);
            last[l_.slots[slot].index] = t;
          }
      for (uint32_t k = 0; k < l_.outputs.size(); ++k) {
        const uint32_t t = first[l_.outputs[k].root];
        l_.outputs[k].in_turn = l_.outputs[k].bytes > 0 && t != kNone;
        if (l_.outputs[k].in_turn) l_.program[t].takes.push_back(k);
        lives(l_.outputs[k].bytes, t == kNone ? 0 : t, steps);
      }
      for (uint32_t i = 0; i < p_.inputs.size(); ++i) {
        if (!p_.inputs[i].given_up) continue;
        const uint32_t t = last[p_.input_root(i)];
        // Of the host's memory nobody knows when a device is done with it.
        const bool stays = t == kNone || (p_.inputs[i].device == kCpu && !p_.queues.empty());
        if (!stays) l_.program[t].leaves.push_back(i);
        lives(input_bytes(i), 0, stays ? steps : t + 1);
      }
    }
    int64_t now = 0, most = 0;
    for (const int64_t c : change) most = std::max(most, now += c);
    l_.peak_bytes = std::accumulate(l_.arena_bytes.begin(), l_.arena_bytes.end(), most);
  }

  // ---------------------------------------------------------------------------------------------------------- queues

  // Bytes that a step reads or writes, and the queue of the stream that does it.
  struct Access {
    uint32_t queue, home;  // home: of the device that the bytes lie on
    uint32_t root;
    int64_t low, high;  // of the root, [low, high)
    bool write;
    uint32_t when;  // 1 for the first step; 0 is the moment before
  };

  // Where a copy runs: on the device that gets it, or on that which it is fetched from. Host code waits for it there.
  uint32_t queue_of(const Instruction& e) const {
    const Step& step = *p_.steps[e.step];
    switch (e.kind) {
      case Instruction::kLaunch:
      case Instruction::kSizes: return p_.queue_of(step.device);
      case Instruction::kCopy: {
        const uint32_t to = p_.queue_of(p_.slots[e.outputs[0]].device);
        return to != kNone ? to : p_.queue_of(p_.slots[e.inputs[0]].device);
      }
      default: return kNone;
    }
  }

  void access(const Instruction& e, uint32_t slot, bool write, uint32_t when, std::vector<Access>* out) const {
    if (slot == kNone) return;
    const Slot& s = p_.slots[slot];
    const Resolved& r = l_.slots[slot];
    const uint32_t home = p_.queue_of(s.device);
    if (home == kNone || r.place != Resolved::kRoot) return;
    int64_t low = 0, high = 0;
    const int64_t bits = dtype_bits(s.dtype);
    for (uint32_t k = 0; k < s.rank; ++k) {
      if (r.sizes[k] == 0) return;
      (r.strides[k] < 0 ? low : high) += (r.sizes[k] - 1) * r.strides[k];
    }
    // A control step leaves every device's memory to that device's stream.
    const uint32_t queue = e.kind == Instruction::kControl ? home : e.queue;
    if (queue == kNone) return;
    out->push_back({queue, home, r.index, r.offset + low * bits / 8, r.offset + ((high + 1) * bits + 7) / 8, write, when});
  }

  // Streams of one call run in any order: a step waits for the data that it reads, for what still reads the bytes that it
  // writes, and, before it first touches memory of another device, for what was queued there before the call. A wait covers
  // everything queued until then.
  void order_queues() {
    for (Instruction& e : l_.program) e.queue = queue_of(e);
    const size_t n = p_.queues.size();
    if (n < 2) return;
    std::vector<Access> all, now;
    std::vector<std::vector<int64_t>> covered(n, std::vector<int64_t>(n, -1));  // [queue][other]: what it is behind
    for (uint32_t t = 0; t < l_.program.size(); ++t) {
      Instruction& e = l_.program[t];
      now.clear();
      for (const uint32_t slot : e.inputs) access(e, slot, false, t + 1, &now);
      for (const uint32_t slot : e.outputs) access(e, slot, true, t + 1, &now);
      if (e.workspace_bytes > 0 && e.queue != kNone)
        now.push_back(
            {e.queue, e.queue, e.workspace_root, e.workspace_offset, e.workspace_offset + e.workspace_bytes, true, t + 1});
      for (const Access& a : now) {
        std::vector<int64_t> needed(n, -1);
        std::vector<Wait> why(n, Wait::kStepReusesBytes);
        if (a.home != a.queue) needed[a.home] = 0, why[a.home] = Wait::kStepNeedsData;
        for (const Access& b : all) {
          if (b.queue == a.queue || b.root != a.root || b.high <= a.low || a.high <= b.low || !(a.write || b.write)) continue;
          needed[b.queue] = std::max<int64_t>(needed[b.queue], b.when);
          if (b.write) why[b.queue] = Wait::kStepNeedsData;
        }
        for (uint32_t q = 0; q < n; ++q) {
          if (needed[q] <= covered[a.queue][q]) continue;
          e.waits.push_back({a.queue, q, why[q]});
          covered[a.queue][q] = t;  // all steps before this one
        }
      }
      all.insert(all.end(), now.begin(), now.end());
    }
    for (const Access& a : all) {
      if (a.queue == a.home || static_cast<int64_t>(a.when) <= covered[a.home][a.queue]) continue;
      l_.last_waits.push_back({a.home, a.queue, Wait::kRunEnds});
      covered[a.home][a.queue] = static_cast<int64_t>(l_.program.size());
    }
  }

  const Plan& p_;
  uint32_t section_;
  const int64_t* dims_;
  const int64_t* bounds_;
  std::span<const InputLayout> inputs_;
  std::shared_ptr<SectionLayout> out_;
  SectionLayout& l_;
  std::vector<int64_t> bytes_, room_;  // by storage, as are the next five; room_: to be placed
  std::vector<uint32_t> claim_, parent_, first_, last_, given_;
  std::vector<uint32_t> input_last_;
  std::vector<uint8_t> input_used_;
};

}  // namespace

std::shared_ptr<const SectionLayout> make_layout(const Plan& plan, uint32_t section, const int64_t* dims,
                                                 std::span<const InputLayout> inputs,
                                                 std::shared_ptr<const SectionLayout> previous, const int64_t* bounds) {
  return LayoutMaker(plan, section, dims, inputs, std::move(previous), bounds).make();
}

std::vector<std::shared_ptr<const SectionLayout>> layouts_at_hints(const Plan& plan, const std::vector<int64_t>& hints) {
  if (plan.primary) return {plan.primary};
  std::vector<int64_t> dims(std::max<size_t>(1, plan.program.num_slots()), 0);
  std::copy(hints.begin(), hints.end(), dims.begin());
  std::vector<InputLayout> inputs(plan.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!plan.inputs[i].strides.empty()) inputs[i].strides = plan.inputs[i].strides.data();
    inputs[i].give_away = plan.inputs[i].donated && plan.inputs[i].writeback != TSR_NONE && !plan.nested;
  }
  std::vector<std::shared_ptr<const SectionLayout>> out;
  for (uint32_t s = 0; s < plan.num_sections; ++s) {
    plan.program.evaluate(s, dims.data());
    out.push_back(make_layout(plan, s, dims.data(), inputs, s ? out.back() : nullptr));
  }
  return out;
}

}  // namespace tessera::core
