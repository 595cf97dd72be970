// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "tessera/plugin.hpp"

// Work on a stream is done when the call that enqueues it returns: a stream is a name for an order, an event a time.
struct tsr_stream {
  uint32_t index;
};
struct tsr_event {
  uint32_t index;
  std::mutex mutex;
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
};

namespace tessera::null_backend {

namespace {

namespace t = tessera::sdk;
constexpr uint32_t device_count = 2;

void need_index(uint32_t index, const char* function) {
  if (index >= device_count)
    throw t::Error(TSR_USER, "TSR-R002", std::string(function) + ": device 'null:" + std::to_string(index) + "' does not exist",
                   "use null:0 or null:1");
}
void need(bool ok, const char* function, const char* expected) {
  if (!ok) throw t::Error(TSR_BUG, "TSR-B034", std::string("device null, ") + function + ": expected " + expected);
}

tsr_error* info(void*, uint32_t index, tsr_device_info* out) noexcept {
  return t::guarded([&] {
    need_index(index, "info");
    static const char* const names[device_count] = {"null:0", "null:1"};
    out->name = names[index];
    out->description = "host memory behind a device table; its backend computes nothing";
    out->host_accessible = 1;
    out->total_bytes = out->free_bytes = 0;
  });
}

tsr_error* alloc(void*, uint32_t index, size_t bytes, size_t align, void** out) noexcept {
  return t::guarded([&] {
    *out = nullptr;
    need_index(index, "alloc");
    need(align != 0 && (align & (align - 1)) == 0, "alloc", "an alignment that is a power of two");
    if (bytes == 0) return;
    void* p = nullptr;
    if (posix_memalign(&p, align < sizeof(void*) ? sizeof(void*) : align, bytes) != 0)
      throw t::Error(
          TSR_ENVIRONMENT, "TSR-R001",
          "out of memory on device 'null:" + std::to_string(index) + "': asked for " + std::to_string(bytes) + " bytes",
          "use smaller sizes or release tensors that are no longer needed");
    *out = p;
  });
}

void release(void*, uint32_t, void* p) noexcept { std::free(p); }

tsr_error* copy(void*, uint32_t index, void* dst, const void* src, size_t bytes, uint32_t direction,
                tsr_stream* stream) noexcept {
  return t::guarded([&] {
    need_index(index, "copy");
    need(direction <= TSR_COPY_WITHIN, "copy", "a direction TSR_COPY_*");
    need(!stream || stream->index == index, "copy", "a stream of the same device");
    if (bytes == 0) return;
    need(dst && src, "copy", "memory on both sides");
    std::memmove(dst, src, bytes);
  });
}

tsr_error* stream_create(void*, uint32_t index, tsr_stream** out) noexcept {
  return t::guarded([&] {
    need_index(index, "stream_create");
    *out = new tsr_stream{index};
  });
}
void stream_destroy(void*, tsr_stream* s) noexcept { delete s; }
tsr_error* stream_synchronize(void*, tsr_stream*) noexcept { return nullptr; }

tsr_error* event_create(void*, uint32_t index, tsr_event** out) noexcept {
  return t::guarded([&] {
    need_index(index, "event_create");
    auto e = std::make_unique<tsr_event>();
    e->index = index;
    *out = e.release();
  });
}
void event_destroy(void*, tsr_event* e) noexcept { delete e; }

tsr_error* event_record(void*, tsr_event* e, tsr_stream* s) noexcept {
  return t::guarded([&] {
    need(e != nullptr, "event_record", "an event");
    need(!s || s->index == e->index, "event_record", "a stream of the event's device");
    std::lock_guard lock(e->mutex);
    e->recorded = true;
    e->time = std::chrono::steady_clock::now();
  });
}
// What was recorded has finished, so there is nothing to wait for; an event that was never recorded counts as finished.
tsr_error* event_wait(void*, tsr_event* e, tsr_stream*) noexcept {
  return t::guarded([&] { need(e != nullptr, "event_wait", "an event"); });
}

tsr_error* event_elapsed(void*, tsr_event* from, tsr_event* to, double* seconds) noexcept {
  return t::guarded([&] {
    need(from && to, "event_elapsed", "two events");
    const auto read = [](tsr_event* e) {
      std::lock_guard lock(e->mutex);
      need(e->recorded, "event_elapsed", "two recorded events");
      return e->time;
    };
    const auto begin = read(from), end = read(to);
    *seconds = std::chrono::duration<double>(end - begin).count();
  });
}

}  // namespace

DeviceFactory make_device() {
  auto table = std::make_shared<tsr_device_table>();  // value-initialised: what is not set below is not offered
  table->struct_size = sizeof *table;
  table->name = "null";
  table->count = device_count;
  table->info = info;
  table->alloc = alloc;
  table->free = release;
  table->copy = copy;
  table->stream_create = stream_create;
  table->stream_destroy = stream_destroy;
  table->stream_synchronize = stream_synchronize;
  table->event_create = event_create;
  table->event_destroy = event_destroy;
  table->event_record = event_record;
  table->event_wait = event_wait;
  table->event_elapsed = event_elapsed;
  return {table, table.get(), table.get()};
}

}  // namespace tessera::null_backend
