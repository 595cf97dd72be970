// SPDX-License-Identifier: Apache-2.0
#include "runtime/fast_call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "compile/layout.hpp"
#include "compile/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "runtime/lease.hpp"
#include "runtime/parallel.hpp"
#include "runtime/pool.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// What a call has on its stack: addresses that operands are relative to, the buffers it holds, the operands of one launch.
constexpr size_t kMaxBases = 1024, kMaxHeld = 256, kMaxOperands = 256;

constexpr uint32_t kAbsolute = 0;  // the base of constants, of omitted operands and of no workspace: null

}  // namespace

struct FastCall::Operand {
  uint64_t type, place;  // dtype and rank, device and flags: two pairs of adjacent fields of tsr_tensor
  int64_t offset;        // bytes from its base
  uint32_t base;
  uint32_t numbers;
};
struct FastCall::Launch {
  tsr_error* (*fn)(void*, const tsr_launch*);
  void* self;
  uint32_t num_inputs, num_outputs;
  uint32_t workspace_base;
  uint32_t index;  // among the plan's steps
  int64_t workspace_offset;
};
struct FastCall::Output {
  Device* device;
  size_t bytes;
  uint32_t size_class;
  uint32_t dtype, rank;
  uint32_t numbers;
};
struct FastCall::Arena {
  Device* device;
  size_t bytes;
  uint32_t size_class;
};
static_assert(offsetof(tsr_tensor, rank) == offsetof(tsr_tensor, dtype) + 4);
static_assert(offsetof(tsr_tensor, flags) == offsetof(tsr_tensor, device) + 4);

bool FastCall::fits(const Plan& p) {
  if (!p.primary || p.measure || p.gives_away || p.nested) return false;
  for (const Exec& e : p.primary->program)
    if (e.kind != Exec::kLaunch || e.inputs.size() + e.outputs.size() > kMaxOperands) return false;
  for (const auto& o : p.primary->outputs)
    if (o.root != p.output_root(o.output)) return false;
  return p.primary->outputs.size() == p.output_slots.size() &&
         1 + p.inputs.size() + p.output_slots.size() + p.arena_devices.size() <= kMaxBases &&
         p.output_slots.size() + p.arena_devices.size() <= kMaxHeld;
}

FastCall::Owner FastCall::make(const Plan& p) {
  const SectionLayout& l = *p.primary;
  const auto n = static_cast<uint32_t>(p.inputs.size()), m = static_cast<uint32_t>(p.output_slots.size());
  std::vector<uint32_t> arena_of(p.arena_devices.size(), kNone);
  uint32_t arenas = 0;
  for (size_t d = 0; d < l.arena_bytes.size(); ++d)
    if (l.arena_bytes[d] > 0) arena_of[d] = arenas++;
  const auto base_of = [&](uint32_t root) {  // null, inputs, outputs, arenas
    return 1 + (root < n + m ? root : n + m + arena_of[root - p.arena_root(0, 0)]);
  };

  std::vector<Operand> operands;
  std::vector<Launch> launches;
  std::vector<Output> outputs(m);
  std::vector<int64_t> numbers(p.program.num_slots(), 0);  // first the slots of sizes, on which nothing depends here
  const size_t first_number = numbers.size();
  const auto add_numbers = [&](const Resolved& r, uint32_t rank) {  // equal ones once
    std::vector<int64_t> both(r.sizes, r.sizes + rank);
    both.insert(both.end(), r.strides, r.strides + rank);
    auto at = std::search(numbers.begin() + static_cast<std::ptrdiff_t>(first_number), numbers.end(), both.begin(), both.end());
    const auto index = static_cast<uint32_t>(at - numbers.begin());
    if (at == numbers.end()) numbers.insert(at, both.begin(), both.end());
    return index;
  };
  // Larger ones never come from a thread's own pool.
  const auto class_of = [](size_t bytes) { return bytes <= ThreadCache::kMaxBlock ? size_class_of(bytes) : kNone; };
  const auto pair = [](uint32_t low, uint32_t high) {  // as they stand in memory
    const uint32_t both[2] = {low, high};
    uint64_t out;
    std::memcpy(&out, both, sizeof out);
    return out;
  };
  const auto add_operand = [&](uint32_t slot) {
    if (slot == kNone) {
      operands.push_back({0, pair(0, TSR_TENSOR_ABSENT), 0, kAbsolute, 0});
      return;
    }
    const Slot& s = p.slots[slot];
    const Resolved& r = l.slots[slot];
    Operand o{pair(s.dtype, s.rank), pair(s.device, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u), r.offset, kAbsolute, 0};
    if (r.place == Resolved::kFixed) o.offset += reinterpret_cast<intptr_t>(p.constants[r.index].data);
    if (r.place == Resolved::kRoot) o.base = base_of(r.index);
    if (r.place == Resolved::kNowhere) o.offset = 0;
    o.numbers = add_numbers(r, s.rank);
    operands.push_back(o);
  };
  for (const Exec& e : l.program) {
    const Step& step = *p.steps[e.step];
    Launch launch{step.kernel.launch,
                  step.kernel.self,
                  static_cast<uint32_t>(e.inputs.size()),
                  static_cast<uint32_t>(e.outputs.size()),
                  kAbsolute,
                  e.step,
                  0};
    if (e.workspace_root != kNone) {
      launch.workspace_base = base_of(e.workspace_root);
      launch.workspace_offset = e.workspace_offset;
    }
    launches.push_back(launch);
    for (const auto* slots : {&e.inputs, &e.outputs})
      for (const uint32_t slot : *slots) add_operand(slot);
  }
  for (const auto& o : l.outputs) {
    const uint32_t slot = p.output_slots[o.output];
    const Slot& s = p.slots[slot];
    outputs[o.output] = {&device(s.device),
                         static_cast<size_t>(o.bytes),
                         class_of(static_cast<size_t>(o.bytes)),
                         s.dtype,
                         s.rank,
                         add_numbers(l.slots[slot], s.rank)};
  }

  size_t at = sizeof(FastCall);
  const auto reserve = [&](size_t bytes) {
    const size_t begin = at;
    at += (bytes + 7) / 8 * 8;
    return begin;
  };
  const size_t launches_at = reserve(launches.size() * sizeof(Launch));
  const size_t outputs_at = reserve(m * sizeof(Output));
  const size_t arenas_at = reserve(arenas * sizeof(Arena));
  const size_t operands_at = reserve(operands.size() * sizeof(Operand));
  const size_t numbers_at = reserve(numbers.size() * sizeof(int64_t));
  char* block = static_cast<char*>(::operator new ((at + 63) / 64 * 64, std::align_val_t{64}));
  auto* f = new (block) FastCall;
  f->num_inputs_ = n;
  f->num_outputs_ = m;
  f->num_launches_ = static_cast<uint32_t>(launches.size());
  f->num_arenas_ = arenas;
  f->threads_ = p.threads;
  const auto put = [&](const auto& items, size_t where) {
    using T = typename std::decay_t<decltype(items)>::value_type;
    return std::uninitialized_copy(items.begin(), items.end(), reinterpret_cast<T*>(block + where)) - items.size();
  };
  f->launches_ = put(launches, launches_at);
  f->operands_ = put(operands, operands_at);
  f->outputs_ = put(outputs, outputs_at);
  f->numbers_ = put(numbers, numbers_at);
  std::vector<Arena> arena_list(arenas);
  for (size_t d = 0; d < arena_of.size(); ++d)
    if (arena_of[d] != kNone) {
      const auto bytes = static_cast<size_t>(l.arena_bytes[d]);
      arena_list[arena_of[d]] = {&device(p.arena_devices[d]), bytes, class_of(bytes)};
    }
  f->arenas_ = put(arena_list, arenas_at);
  return Owner(f);
}

void FastCall::Free::operator()(const FastCall* f) const noexcept {
  ::operator delete (const_cast<FastCall*>(f), std::align_val_t{64});
}

// Outputs, then arenas. Whatever happens, a call lets go of all of it.
struct FastCall::Held {
  ThreadCache* const cache = thread_cache();
  uint32_t size = 0, first = 0;  // those before `first` have gone to their tensors
  uint32_t num_outputs;
  Buffer* buffers[kMaxHeld];

  explicit Held(uint32_t n) : num_outputs(n) {}  // leaves `buffers` alone
  Held(const Held&) = delete;
  ~Held() {
    for (uint32_t i = first; i < size; ++i) {
      // Small arenas are ordinary buffers of the thread's pool; large ones are shared by all calls.
      Buffer* b = buffers[i];
      if (i < num_outputs || b->size_class >= ThreadCache::kClasses || !cache || !cache->give(b)) [[unlikely]]
        give_back(b, i < num_outputs);
    }
  }
  template <class T>
  void* take(const T& t) {  // an output or an arena
    Buffer* b = nullptr;
    if (t.size_class != kNone && cache) [[likely]]
      b = cache->take(*t.device, t.size_class, t.bytes);
    if (!b) [[unlikely]]
      b = std::is_same_v<T, Arena> && t.size_class == kNone ? take_arena(*t.device, static_cast<int64_t>(t.bytes))
                                                            : allocate_buffer(*t.device, t.bytes);
    buffers[size++] = b;
    return b->data;
  }

 private:
  static void give_back(Buffer* b, bool output) noexcept {
    if (output || b->size_class < ThreadCache::kClasses)
      b->release();
    else
      give_arena(b);
  }
};

void FastCall::launch(const Plan& plan, void* const* bases) const {
  tsr_tensor tensors[kMaxOperands];
  tsr_launch call;
  call.struct_size = sizeof call;
  call.inputs = tensors;
  call.dims = numbers_;
  call.stream = nullptr;
  const auto at = [bases](uint32_t base, int64_t offset) {
    return reinterpret_cast<void*>(reinterpret_cast<intptr_t>(bases[base]) + offset);
  };
  const Operand* o = operands_;
  for (const Launch *l = launches_, *end = l + num_launches_; l != end; ++l) {
    tsr_tensor* t = tensors;
    for (const Operand* last = o + l->num_inputs + l->num_outputs; o != last; ++o, ++t) {
      t->data = at(o->base, o->offset);
      std::memcpy(reinterpret_cast<char*>(t) + offsetof(tsr_tensor, dtype), &o->type, sizeof o->type);
      std::memcpy(reinterpret_cast<char*>(t) + offsetof(tsr_tensor, device), &o->place, sizeof o->place);
      t->sizes = numbers_ + o->numbers;
      t->strides = t->sizes + t->rank;
    }
    call.num_inputs = l->num_inputs;
    call.num_outputs = l->num_outputs;
    call.outputs = tensors + l->num_inputs;
    call.workspace = at(l->workspace_base, l->workspace_offset);
    tsr_error* e = l->fn(l->self, &call);
    if (!e) [[likely]]
      continue;
    const Step& step = *plan.steps[l->index];
    try {
      step.backend->check(e);
    } catch (const Error& error) {
      rethrow_at(plan, step, error);
    }
  }
}

void FastCall::give(Held& held, tsr_tensor_handle** outputs) const {
  try {
    for (uint32_t& j = held.first; j < num_outputs_; ++j) {
      const Output& o = outputs_[j];
      const int64_t* sizes = numbers_ + o.numbers;
      Buffer* b = held.buffers[j];
      outputs[j] = tensor_over(b, b->data, o.dtype, o.rank, sizes, sizes + o.rank, o.device->id(), TSR_TENSOR_CONTIGUOUS);
    }
  } catch (...) {
    for (uint32_t j = 0; j < held.first; ++j) tensor_release(outputs[j]);
    throw;
  }
}

template <class DataOf>
inline void FastCall::run_on(const Plan& plan, DataOf data_of, tsr_tensor_handle** outputs) const {
  for (uint32_t i = 0; i < std::min(num_launches_, 4u); ++i) __builtin_prefetch(launches_[i].self);
  void* bases[kMaxBases];
  void** base = bases;
  *base++ = nullptr;
  for (uint32_t i = 0; i < num_inputs_; ++i) *base++ = data_of(i);
  Held held(num_outputs_);
  for (const Output *o = outputs_, *end = o + num_outputs_; o != end; ++o) *base++ = held.take(*o);
  for (const Arena *a = arenas_, *end = a + num_arenas_; a != end; ++a) *base++ = held.take(*a);
  if (threads_ > 0) {
    const ThreadLimit limit(threads_);
    launch(plan, bases);
  } else {
    launch(plan, bases);
  }
  give(held, outputs);
}

void FastCall::run(const Plan& plan, tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) const {
  run_on(
      plan, [inputs](uint32_t i) { return inputs[i]->desc.data; }, outputs);
}

void FastCall::run(const Plan& plan, const tsr_arg* args, const uint32_t* leaves, tsr_tensor_handle** outputs) const {
  run_on(
      plan, [args, leaves](uint32_t i) { return args[leaves[i]].tensor->desc.data; }, outputs);
}

}  // namespace tessera::core
