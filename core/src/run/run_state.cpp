// SPDX-License-Identifier: Apache-2.0
#include "run/run_state.hpp"

#include <array>

#include "memory/device.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

void SectionRun::materialise(const Plan& plan, std::shared_ptr<const SectionLayout> layout, const int64_t* dims) {
  layout_ = std::move(layout);
  const SectionLayout& l = *layout_;
  size_t count = 0;
  for (const Instruction& e : l.program) count += e.inputs.size() + e.outputs.size();
  tensors_.clear();
  tensors_.reserve(count);
  ready_.clear();
  ready_.reserve(l.program.size());
  std::vector<std::vector<Patch>> by_root(plan.num_roots());
  const auto add = [&](uint32_t slot) {
    tsr_tensor& t = tensors_.emplace_back();
    if (slot == kNone) {
      t = {};
      t.flags = TSR_TENSOR_ABSENT;
      return;
    }
    const Slot& s = plan.slots[slot];
    const Resolved& r = l.slots[slot];
    t = {nullptr, s.dtype, s.rank, r.sizes, r.strides, s.device, r.dense ? TSR_TENSOR_CONTIGUOUS : 0u};
    if (r.place == Resolved::kFixed) {
      t.data = static_cast<char*>(plan.constants[r.index].data) + r.offset;
    } else if (r.place == Resolved::kRoot) {
      by_root[r.index].push_back({&t.data, r.offset});
    }
  };
  for (const Instruction& e : l.program) {
    Ready& ready = ready_.emplace_back();
    ready.instruction = &e;
    ready.step = plan.steps[e.step].get();
    ready.queue = e.queue;
    tsr_launch& launch = ready.launch;
    launch = {};
    launch.struct_size = sizeof launch;
    launch.inputs = tensors_.data() + tensors_.size();
    for (const uint32_t slot : e.inputs) add(slot);
    launch.num_inputs = static_cast<uint32_t>(e.inputs.size());
    launch.outputs = tensors_.data() + tensors_.size();
    if (e.kind != Instruction::kControl) {
      for (const uint32_t slot : e.outputs) add(slot);
      launch.num_outputs = static_cast<uint32_t>(e.outputs.size());
    }
    if (e.workspace_root != kNone) by_root[e.workspace_root].push_back({&launch.workspace, e.workspace_offset});
    launch.dims = dims;
    launch.site = ready.step->site;
  }
  patches_.clear();
  patch_begin_.assign(1, 0);
  used_.clear();
  for (uint32_t root = 0; root < by_root.size(); ++root) {
    patches_.insert(patches_.end(), by_root[root].begin(), by_root[root].end());
    patch_begin_.push_back(static_cast<uint32_t>(patches_.size()));
    if (!by_root[root].empty()) used_.push_back(root);
  }
  bases_.assign(plan.num_roots(), nullptr);
}

namespace {
std::atomic<int64_t> live_leases{0};
}

RunState::RunState(const Plan& p)
    : plan(p),
      dims(std::max<size_t>(1, p.program.num_slots()), 0),
      sections(p.num_sections),
      bases(p.num_roots() + p.constants.size(), nullptr),
      outputs(p.output_slots.size(), nullptr),
      output_roots(p.output_slots.size(), kNone),
      dynamics(p.num_dynamic),
      arenas(p.num_sections * p.arena_devices.size(), nullptr),
      inputs(p.inputs.size()) {
  for (size_t c = 0; c < p.constants.size(); ++c) bases[p.num_roots() + c] = p.constants[c].data;
  live_leases.fetch_add(1, std::memory_order_relaxed);
}

RunState::~RunState() {
  reset();
  if (live_leases.fetch_sub(1, std::memory_order_acq_rel) == 1) drop_arenas();
}

void StepTimes::begin(const Step& step, Stream& stream) {
  Device& d = stream.device();
  Timed t{&step, &stream, d.take_event(), nullptr};
  try {
    t.to = d.take_event();
    steps_.push_back(t);
  } catch (...) {
    d.give_event(t.from);
    if (t.to) d.give_event(t.to);
    throw;
  }
  d.record(t.from, stream.raw());
}

void StepTimes::end() { steps_.back().stream->device().record(steps_.back().to, steps_.back().stream->raw()); }

void StepTimes::collect() {
  for (const Timed& t : steps_) {
    Device& d = t.stream->device();
    d.synchronize(t.to);
    t.step->measured_ns.fetch_add(static_cast<int64_t>(d.elapsed(t.from, t.to) * 1e9), std::memory_order_relaxed);
    t.step->measured_runs.fetch_add(1, std::memory_order_relaxed);
  }
  drop();
}

void StepTimes::drop() noexcept {
  for (const Timed& t : steps_) {
    t.stream->device().give_event(t.from);
    t.stream->device().give_event(t.to);
  }
  steps_.clear();
}

void RunState::reset() noexcept {
  times.drop();
  for (Buffer*& b : outputs)
    if (b) {
      b->release();
      b = nullptr;
    }
  for (TensorRef& t : dynamics) t = TensorRef();
  for (Buffer*& b : arenas)
    if (b) {
      give_arena(b);
      b = nullptr;
    }
}

namespace {

struct ArenaShelf {
  static constexpr size_t kPlaces = 16;
  std::array<std::atomic<Buffer*>, kPlaces> places{};
};
ArenaShelf& shelf_of(tsr_device id) {
  static auto* shelves = new std::array<ArenaShelf, 256>;  // never destroyed, as devices
  return (*shelves)[id];
}

}  // namespace

Stream* RunState::stream_of(tsr_device d) const {
  const uint32_t queue = plan.queue_of(d);
  if (queue != kNone) return streams[queue];
  return d == kCpu ? nullptr : &context.stream_of(device(d));
}

Buffer* take_arena(Device& device, int64_t bytes) {
  ArenaShelf& shelf = shelf_of(device.id());
  Buffer* small = nullptr;
  for (auto& place : shelf.places) {
    if (!place.load(std::memory_order_relaxed)) continue;
    Buffer* b = place.exchange(nullptr, std::memory_order_acquire);
    if (!b) continue;
    if (b->bytes >= static_cast<size_t>(bytes)) {
      if (small) give_arena(small);
      return b;
    }
    if (small) give_arena(small);
    small = b;
  }
  if (small) small->release();  // it grows: what was too small for one caller will be for the next
  return allocate_buffer(device, static_cast<size_t>(bytes));
}

void give_arena(Buffer* b) noexcept {
  if (b->uses) return b->release();  // a block of its device's pool
  for (auto& place : shelf_of(b->device->id()).places) {
    Buffer* expected = nullptr;
    if (!place.load(std::memory_order_relaxed) && place.compare_exchange_strong(expected, b, std::memory_order_release)) return;
  }
  b->release();
}

void drop_arenas() noexcept {
  for (Device* d : all_devices())
    for (auto& place : shelf_of(d->id()).places)
      if (Buffer* b = place.exchange(nullptr, std::memory_order_acquire)) b->release();
}

}  // namespace tessera::core
