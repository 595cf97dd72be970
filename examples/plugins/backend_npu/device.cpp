// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace acme_npu {

namespace {

void* block(size_t bytes, size_t align) {
  void* p = nullptr;
  if (posix_memalign(&p, std::max(align, sizeof(void*)), std::max<size_t>(bytes, 1)) != 0)
    throw t::Error(TSR_ENVIRONMENT, "TSR-R001",
                   "out of memory on device 'npu:0': asked for " + std::to_string(bytes) + " bytes",
                   "use smaller sizes, or release tensors that are no longer needed");
  return p;
}

}  // namespace

void NpuDevice::info(uint32_t, tsr_device_info& out) {
  out.name = "npu:0";
  out.description = "an example: an accelerator made of the CPU";
  out.host_accessible = 0;                                                      // the host copies, and never follows an address
  if (TSR_HAS(&out, tsr_device_info, architecture)) out.architecture = "npu1";  // part of cache keys
}

// ------------------------------------------------------------------------------------------------------------- memory

void* NpuDevice::alloc(uint32_t, size_t bytes, size_t align, tsr_stream*) { return block(bytes, align); }

// Behind the work that is queued and may still use the memory.
void NpuDevice::free(uint32_t, void* p, tsr_stream* s) noexcept {
  submit(s, {[p] { std::free(p); }});
}

void NpuDevice::copy(uint32_t, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* s) {
  if (bytes == 0) return;
  const bool later = (flags & TSR_COPY_ASYNC) != 0;
  if ((flags & TSR_COPY_DIRECTION) == TSR_COPY_TO_DEVICE && !later) {
    // The caller may change `src` as soon as this returns.
    const auto staged =
        std::make_shared<std::vector<char>>(static_cast<const char*>(src), static_cast<const char*>(src) + bytes);
    return submit(s, {[dst, staged] { std::memcpy(dst, staged->data(), staged->size()); }});
  }
  submit(s, {[dst, src, bytes] { std::memmove(dst, src, bytes); }});
  if ((flags & TSR_COPY_DIRECTION) == TSR_COPY_TO_HOST && !later) stream_synchronize(0, s);
}

void NpuDevice::fill(uint32_t, void* dst, uint8_t value, size_t bytes, tsr_stream* s) {
  if (bytes > 0) submit(s, {[dst, value, bytes] { std::memset(dst, value, bytes); }});
}

void* NpuDevice::host_alloc(uint32_t, size_t bytes) { return block(bytes, 64); }
void NpuDevice::host_free(uint32_t, void* p) noexcept { std::free(p); }

// ------------------------------------------------------------------------------------------------- streams and events

void NpuDevice::submit(tsr_stream* s, std::vector<Command> commands) {
  if (s->list) {
    for (Command& c : commands) s->list->push_back(std::move(c));
    return;
  }
  const std::lock_guard lock(mutex_);
  for (Command& c : commands) s->queue.push_back({std::move(c), nullptr});
}

// With the lock held, as the two below.
void NpuDevice::run_next(tsr_stream* s) {
  const Queued q = std::move(s->queue.front());
  s->queue.pop_front();
  if (q.run)
    q.run();
  else
    run_until(*q.awaits);
}
void NpuDevice::run_all(tsr_stream* s) {
  while (!s->queue.empty()) run_next(s);
}
void NpuDevice::run_until(const Recording& r) {
  while (!r.passed) run_next(r.stream);  // it is queued there
}

tsr_stream* NpuDevice::stream_create(uint32_t) { return new tsr_stream; }
void NpuDevice::stream_destroy(uint32_t, tsr_stream* s) noexcept { delete s; }
void NpuDevice::stream_synchronize(uint32_t, tsr_stream* s) {
  const std::lock_guard lock(mutex_);
  run_all(s);
}

tsr_event* NpuDevice::event_create(uint32_t) { return new tsr_event; }
void NpuDevice::event_destroy(uint32_t, tsr_event* e) noexcept { delete e; }
void NpuDevice::event_record(uint32_t, tsr_event* e, tsr_stream* s) {
  const auto r = std::make_shared<Recording>(Recording{s, false, {}});
  const std::lock_guard lock(mutex_);
  e->last = r;
  s->queue.push_back({[r] {
                        r->passed = true;
                        r->time = std::chrono::steady_clock::now();
                      },
                      nullptr});
}
void NpuDevice::event_wait(uint32_t, tsr_event* e, tsr_stream* s) {
  const std::lock_guard lock(mutex_);
  if (e->last && !e->last->passed) s->queue.push_back({nullptr, e->last});
}
bool NpuDevice::event_query(uint32_t, tsr_event* e) {
  const std::lock_guard lock(mutex_);
  if (e->last && !e->last->passed) run_next(e->last->stream);  // so that who asks often enough hears yes
  return !e->last || e->last->passed;
}
void NpuDevice::event_synchronize(uint32_t, tsr_event* e) {
  const std::lock_guard lock(mutex_);
  if (e->last) run_until(*e->last);
}
double NpuDevice::event_elapsed(uint32_t, tsr_event* from, tsr_event* to) {
  return std::chrono::duration<double>(to->last->time - from->last->time).count();
}

}  // namespace acme_npu
