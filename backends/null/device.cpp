// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

// Work on a stream is done when the call that queues it returns: a stream is a name for an order, an event a time.
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

void need_index(uint32_t index, const char* function) {
  if (index >= device_count)
    throw t::Error(TSR_USER, "TSR-R002", std::string(function) + ": device 'null:" + std::to_string(index) + "' does not exist",
                   "use null:0 or null:1");
}
void need(bool ok, const char* function, const char* expected) {
  if (!ok) throw t::Error(TSR_BUG, "TSR-B034", std::string("device null, ") + function + ": expected " + expected);
}
void need_stream(uint32_t index, const tsr_stream* s, const char* function) {
  need_index(index, function);
  need(s && s->index == index, function, "a stream of the same device");
}

void* host_block(uint32_t index, size_t bytes, size_t align) {
  if (bytes == 0) return nullptr;
  void* p = nullptr;
  if (posix_memalign(&p, align < sizeof(void*) ? sizeof(void*) : align, bytes) != 0)
    throw t::Error(
        TSR_ENVIRONMENT, "TSR-R001",
        "out of memory on device 'null:" + std::to_string(index) + "': asked for " + std::to_string(bytes) + " bytes",
        "use smaller sizes or release tensors that are no longer needed");
  return p;
}

class NullDevice final : public t::Device {
 public:
  void info(uint32_t index, tsr_device_info& out) override {
    need_index(index, "info");
    static const char* const names[device_count] = {"null:0", "null:1"};
    out.name = names[index];
    out.description = "host memory behind a device table; its backend computes nothing";
    out.host_accessible = 1;
    out.total_bytes = out.free_bytes = 0;
  }

  void* alloc(uint32_t index, size_t bytes, size_t align, tsr_stream* s) override {
    need_stream(index, s, "alloc");
    need(align != 0 && (align & (align - 1)) == 0, "alloc", "an alignment that is a power of two");
    return host_block(index, bytes, align);
  }
  void free(uint32_t, void* p, tsr_stream*) noexcept override { std::free(p); }

  void copy(uint32_t index, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* s) override {
    need_stream(index, s, "copy");
    need((flags & TSR_COPY_DIRECTION) <= TSR_COPY_WITHIN, "copy", "a direction TSR_COPY_*");
    move("copy", dst, src, bytes);
  }
  void fill(uint32_t index, void* dst, uint8_t value, size_t bytes, tsr_stream* s) override {
    need_stream(index, s, "fill");
    need(dst || bytes == 0, "fill", "memory to be filled");
    if (bytes > 0) std::memset(dst, value, bytes);
  }
  bool copies_peer() const override { return true; }
  void copy_peer(uint32_t index, void* dst, uint32_t from, const void* src, size_t bytes, tsr_stream* s) override {
    need_stream(index, s, "copy_peer");
    need_index(from, "copy_peer");
    move("copy_peer", dst, src, bytes);
  }

  tsr_stream* stream_create(uint32_t index) override {
    need_index(index, "stream_create");
    return new tsr_stream{index};
  }
  void stream_destroy(uint32_t, tsr_stream* s) noexcept override { delete s; }
  void stream_synchronize(uint32_t index, tsr_stream* s) override { need_stream(index, s, "stream_synchronize"); }

  tsr_event* event_create(uint32_t index) override {
    need_index(index, "event_create");
    auto e = std::make_unique<tsr_event>();
    e->index = index;
    return e.release();
  }
  void event_destroy(uint32_t, tsr_event* e) noexcept override { delete e; }
  void event_record(uint32_t index, tsr_event* e, tsr_stream* s) override {
    need_stream(index, s, "event_record");
    need(e && s->index == e->index, "event_record", "a stream of the event's device");
    std::lock_guard lock(e->mutex);
    e->recorded = true;
    e->time = std::chrono::steady_clock::now();
  }
  // What was recorded has finished, so there is nothing to wait for; an event that was never recorded counts as finished.
  void event_wait(uint32_t index, tsr_event* e, tsr_stream* s) override {
    need_stream(index, s, "event_wait");
    need(e != nullptr, "event_wait", "an event");
  }
  bool event_query(uint32_t, tsr_event* e) override {
    need(e != nullptr, "event_query", "an event");
    return true;
  }
  void event_synchronize(uint32_t, tsr_event* e) override { need(e != nullptr, "event_synchronize", "an event"); }
  double event_elapsed(uint32_t, tsr_event* from, tsr_event* to) override {
    need(from && to, "event_elapsed", "two events");
    const auto read = [](tsr_event* e) {
      std::lock_guard lock(e->mutex);
      need(e->recorded, "event_elapsed", "two recorded events");
      return e->time;
    };
    const auto begin = read(from), end = read(to);
    return std::chrono::duration<double>(end - begin).count();
  }

  void* host_alloc(uint32_t index, size_t bytes) override {
    need_index(index, "host_alloc");
    return host_block(index, bytes, 64);
  }
  void host_free(uint32_t, void* p) noexcept override { std::free(p); }

 private:
  static void move(const char* function, void* dst, const void* src, size_t bytes) {
    if (bytes == 0) return;
    need(dst && src, function, "memory on both sides");
    std::memmove(dst, src, bytes);
  }
};

}  // namespace

std::unique_ptr<t::Device> make_device() { return std::make_unique<NullDevice>(); }

}  // namespace tessera::null_backend
