// SPDX-License-Identifier: Apache-2.0
#include "runtime/fast_call.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>

#include "compile/layout.hpp"
#include "compile/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "runtime/lease.hpp"
#include "runtime/parallel.hpp"
#include "support/error.hpp"

namespace tessera::core {

struct FastCall::Patch {
  void** where;
  int64_t offset;
};
struct FastCall::Base {
  void* value;
  uint32_t begin, end;  // patches
};
struct FastCall::Output {
  Device* device;
  Buffer* buffer;
  size_t bytes;
  const int64_t *sizes, *strides;
  uint32_t dtype, rank;
};
struct FastCall::Arena {
  Device* device;
  Buffer* buffer;
  int64_t bytes;
};
struct FastCall::Launch {
  tsr_error* (*fn)(void*, const tsr_launch*);
  void* self;
  tsr_launch launch;
  const Step* step;
};

bool FastCall::fits(const Plan& p) {
  if (!p.primary || p.measure || p.gives_away || p.nested) return false;
  for (const Exec& e : p.primary->program)
    if (e.kind != Exec::kLaunch) return false;
  for (const auto& o : p.primary->outputs)
    if (o.root != p.output_root(o.output)) return false;
  return p.primary->outputs.size() == p.output_slots.size();
}

FastCall* FastCall::make(const Plan& p) {
  const SectionLayout& l = *p.primary;
  const auto n = static_cast<uint32_t>(p.inputs.size()), m = static_cast<uint32_t>(p.output_slots.size());
  std::vector<uint32_t> arena_of(p.arena_devices.size(), kNone);
  uint32_t arenas = 0;
  for (size_t d = 0; d < l.arena_bytes.size(); ++d)
    if (l.arena_bytes[d] > 0) arena_of[d] = arenas++;
  size_t tensors = 0;
  for (const Exec& e : l.program) tensors += e.inputs.size() + e.outputs.size();

  // Base number of a root: inputs, then outputs, then arenas.
  const auto base_of = [&](uint32_t root) {
    if (root < n + m) return root;
    return n + m + arena_of[root - p.arena_root(0, 0)];
  };
  std::vector<std::vector<std::pair<size_t, int64_t>>> by_base(n + m + arenas);  // offsets of pointers in the block
  size_t num_patches = 0;

  size_t at = sizeof(FastCall);
  const auto reserve = [&](size_t bytes) {
    const size_t begin = at;
    at += (bytes + 7) / 8 * 8;
    return begin;
  };
  const size_t bases_at = reserve((n + m + arenas) * sizeof(Base));
  const size_t outputs_at = reserve(m * sizeof(Output));
  const size_t launches_at = reserve(l.program.size() * sizeof(Launch));
  const size_t arenas_at = reserve(arenas * sizeof(Arena));
  const size_t tensors_at = reserve(tensors * sizeof(tsr_tensor));
  size_t t = tensors_at;
  for (size_t i = 0; i < l.program.size(); ++i) {
    const Exec& e = l.program[i];
    for (const auto* slots : {&e.inputs, &e.outputs})
      for (const uint32_t slot : *slots) {
        if (slot != kNone && l.slots[slot].place == Resolved::kRoot) {
          by_base[base_of(l.slots[slot].index)].emplace_back(t + offsetof(tsr_tensor, data), l.slots[slot].offset);
          ++num_patches;
        }
        t += sizeof(tsr_tensor);
      }
    if (e.workspace_root != kNone) {
      by_base[base_of(e.workspace_root)].emplace_back(
          launches_at + i * sizeof(Launch) + offsetof(Launch, launch) + offsetof(tsr_launch, workspace), e.workspace_offset);
      ++num_patches;
    }
  }
  size_t dims = 0;
  for (const uint32_t slot : p.output_slots) dims += 2 * p.slots[slot].rank;
  const size_t output_dims_at = reserve(dims * sizeof(int64_t));
  const size_t patches_at = reserve(num_patches * sizeof(Patch));
  const size_t dims_at = reserve(std::max<size_t>(1, p.program.num_slots()) * sizeof(int64_t));

  char* block = static_cast<char*>(::operator new ((at + 63) / 64 * 64, std::align_val_t{64}));
  std::fill(block, block + at, char{0});
  auto* f = new (block) FastCall;
  f->num_inputs_ = n;
  f->num_outputs_ = m;
  f->num_launches_ = static_cast<uint32_t>(l.program.size());
  f->num_arenas_ = arenas;
  f->bases_ = reinterpret_cast<Base*>(block + bases_at);
  f->outputs_ = reinterpret_cast<Output*>(block + outputs_at);
  f->launches_ = reinterpret_cast<Launch*>(block + launches_at);
  f->arenas_ = reinterpret_cast<Arena*>(block + arenas_at);
  f->patches_ = reinterpret_cast<Patch*>(block + patches_at);
  uint32_t patch = 0;
  for (size_t b = 0; b < by_base.size(); ++b) {
    f->bases_[b].begin = patch;
    for (const auto& [where, offset] : by_base[b]) f->patches_[patch++] = {reinterpret_cast<void**>(block + where), offset};
    f->bases_[b].end = patch;
  }
  auto* numbers = reinterpret_cast<int64_t*>(block + output_dims_at);
  for (const auto& o : l.outputs) {
    const Slot& s = p.slots[p.output_slots[o.output]];
    const Resolved& r = l.slots[p.output_slots[o.output]];
    std::copy_n(r.sizes, s.rank, numbers);
    std::copy_n(r.strides, s.rank, numbers + s.rank);
    f->outputs_[o.output] = {&device(s.device), nullptr, static_cast<size_t>(o.bytes), numbers, numbers + s.rank,
                             s.dtype,           s.rank};
    numbers += 2 * s.rank;
  }
  f->threads_ = p.threads;
  for (size_t d = 0; d < arena_of.size(); ++d)
    if (arena_of[d] != kNone) f->arenas_[arena_of[d]] = {&device(p.arena_devices[d]), nullptr, l.arena_bytes[d]};
  auto* tensor = reinterpret_cast<tsr_tensor*>(block + tensors_at);
  for (size_t i = 0; i < l.program.size(); ++i) {
    const Exec& e = l.program[i];
    const Step& step = *p.steps[e.step];
    Launch& launch = f->launches_[i];
    launch.fn = step.kernel.launch;
    launch.self = step.kernel.self;
    launch.step = &step;
    launch.launch.struct_size = sizeof(tsr_launch);
    launch.launch.dims = reinterpret_cast<const int64_t*>(block + dims_at);
    launch.launch.inputs = tensor;
    launch.launch.num_inputs = static_cast<uint32_t>(e.inputs.size());
    launch.launch.outputs = tensor + e.inputs.size();
    launch.launch.num_outputs = static_cast<uint32_t>(e.outputs.size());
    for (const auto* slots : {&e.inputs, &e.outputs})
      for (const uint32_t slot : *slots) {
        tsr_tensor& x = *tensor++;
        if (slot == kNone) {
          x.flags = TSR_TENSOR_ABSENT;
          continue;
        }
        const Slot& s = p.slots[slot];
        const Resolved& r = l.slots[slot];
        x = {nullptr, s.dtype, s.rank, r.sizes, r.strides, s.device, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u};
        if (r.place == Resolved::kFixed) x.data = static_cast<char*>(p.constants[r.index].data) + r.offset;
      }
  }
  return f;
}

void FastCall::destroy(FastCall* f) noexcept { ::operator delete (f, std::align_val_t{64}); }

inline void FastCall::set(Base& base, void* p) {
  if (base.value == p) return;  // parameters are where they were
  base.value = p;
  for (uint32_t k = base.begin; k < base.end; ++k) *patches_[k].where = static_cast<char*>(p) + patches_[k].offset;
}

void FastCall::prepare(tsr_tensor_handle* const* inputs) {
  for (uint32_t i = 0; i < std::min(num_launches_, 4u); ++i) __builtin_prefetch(launches_[i].self);
  Base* base = bases_;
  for (uint32_t i = 0; i < num_inputs_; ++i) set(*base++, inputs[i]->desc.data);
  for (uint32_t j = 0; j < num_outputs_; ++j) {
    Output& o = outputs_[j];
    o.buffer = allocate_buffer(*o.device, o.bytes);
    set(*base++, o.buffer->data);
  }
  for (uint32_t k = 0; k < num_arenas_; ++k) {
    Arena& a = arenas_[k];
    a.buffer = take_arena(*a.device, a.bytes);
    set(*base++, a.buffer->data);
  }
}

void FastCall::launch(const Plan& plan) {
  for (uint32_t i = 0; i < num_launches_; ++i) {
    Launch& l = launches_[i];
    tsr_error* e = l.fn(l.self, &l.launch);
    if (!e) [[likely]]
      continue;
    try {
      l.step->backend->check(e);
    } catch (const Error& error) {
      rethrow_at(plan, *l.step, error);
    }
  }
}

void FastCall::run(const Plan& plan, tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) {
  struct Cleanup {  // whatever happens, the block holds no memory afterwards
    FastCall& f;
    ~Cleanup() {
      for (uint32_t k = 0; k < f.num_arenas_; ++k)
        if (Buffer* b = std::exchange(f.arenas_[k].buffer, nullptr)) give_arena(b);
      for (uint32_t j = 0; j < f.num_outputs_; ++j)
        if (Buffer* b = std::exchange(f.outputs_[j].buffer, nullptr)) b->release();
    }
  } cleanup{*this};
  prepare(inputs);
  if (threads_ > 0) {
    const ThreadLimit limit(threads_);
    launch(plan);
  } else {
    launch(plan);
  }
  uint32_t made = 0;
  try {
    for (; made < num_outputs_; ++made) {
      Output& o = outputs_[made];
      outputs[made] =
          tensor_over(o.buffer, o.buffer->data, o.dtype, o.rank, o.sizes, o.strides, o.device->id(), TSR_TENSOR_CONTIGUOUS);
      o.buffer = nullptr;
    }
  } catch (...) {
    while (made > 0) tensor_release(outputs[--made]);
    throw;
  }
}

FastCallPool::~FastCallPool() {
  for (auto& p : places_)
    if (FastCall* call = p.load()) FastCall::destroy(call);
}

const FastCall* FastCallPool::fill(const Plan& plan) {
  FastCall* call = FastCall::make(plan);
  if (FastCall* other = places_[0].exchange(call, std::memory_order_acq_rel)) FastCall::destroy(other);
  return call;
}

void FastCallPool::run(const Plan& plan, tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) {
  FastCall* call = nullptr;
  std::atomic<FastCall*>* place = &places_[0];
  for (auto& p : places_)
    if (p.load(std::memory_order_relaxed) && (call = p.exchange(nullptr, std::memory_order_acquire))) {
      place = &p;
      break;
    }
  if (!call) call = FastCall::make(plan);
  struct Return {
    std::atomic<FastCall*>* places;
    std::atomic<FastCall*>* place;
    FastCall* call;
    ~Return() {
      // Another thread may have put its own block there meanwhile: that one moves to a free place, or goes.
      FastCall* other = place->exchange(call, std::memory_order_acq_rel);
      for (size_t k = 0; other && k < kPlaces; ++k) {
        FastCall* none = nullptr;
        if (places[k].compare_exchange_strong(none, other, std::memory_order_acq_rel)) other = nullptr;
      }
      if (other) FastCall::destroy(other);
    }
  } give_back{places_, place, call};
  call->run(plan, inputs, outputs);
}

}  // namespace tessera::core
