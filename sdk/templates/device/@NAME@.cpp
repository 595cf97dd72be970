// The device @NAME@: memory, streams and events. This one is made of host memory and does its work at once; replace the bodies
// by calls of your driver. The contract, rule by rule: docs/devices.md.
#include <tessera/plugin.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>

// What the host holds for you; it never looks inside.
struct tsr_stream {
  uint32_t index;
};
struct tsr_event {
  std::mutex mutex;
  std::chrono::steady_clock::time_point time;
};

namespace {

namespace t = tessera::sdk;

class Device final : public t::Device {
 public:
  void info(uint32_t, tsr_device_info& out) override {
    out.name = "@NAME@:0";
    out.description = "a device made of host memory";
    out.host_accessible = 1;  // 0 where the host must not follow addresses of the device
  }

  // ---- memory. Addresses are numbers: p + n is n bytes behind p. `align` is a power of two, at most 256.
  void* alloc(uint32_t, size_t bytes, size_t align, tsr_stream*) override {
    void* p = nullptr;
    if (posix_memalign(&p, align < sizeof(void*) ? sizeof(void*) : align, bytes) != 0)
      throw t::Error(TSR_ENVIRONMENT, "TSR-R001",
                     "out of memory on device '@NAME@:0': asked for " + std::to_string(bytes) + " bytes",
                     "use smaller sizes or release tensors that are no longer needed");
    return p;
  }
  // Behind the work that is queued on the stream.
  void free(uint32_t, void* p, tsr_stream*) noexcept override { std::free(p); }
  // Unless `flags` has TSR_COPY_ASYNC, host memory has been read or written when this returns. flags & TSR_COPY_DIRECTION tells
  // the direction.
  void copy(uint32_t, void* dst, const void* src, size_t bytes, uint32_t /*flags*/, tsr_stream*) override {
    if (bytes) std::memmove(dst, src, bytes);
  }
  void fill(uint32_t, void* dst, uint8_t value, size_t bytes, tsr_stream*) override {
    if (bytes) std::memset(dst, value, bytes);
  }
  // Memory that host and device read and write at the same address.
  void* host_alloc(uint32_t, size_t bytes) override { return alloc(0, bytes, 64, nullptr); }
  void host_free(uint32_t, void* p) noexcept override { std::free(p); }

  // ---- streams: work on one runs in the order in which it was queued
  tsr_stream* stream_create(uint32_t index) override { return new tsr_stream{index}; }
  void stream_destroy(uint32_t, tsr_stream* s) noexcept override { delete s; }
  void stream_synchronize(uint32_t, tsr_stream*) override {}

  // ---- events: a wait stands for what its event stood for when it was queued
  tsr_event* event_create(uint32_t) override { return new tsr_event; }
  void event_destroy(uint32_t, tsr_event* e) noexcept override { delete e; }
  void event_record(uint32_t, tsr_event* e, tsr_stream*) override {
    const std::lock_guard lock(e->mutex);
    e->time = std::chrono::steady_clock::now();
  }
  void event_wait(uint32_t, tsr_event*, tsr_stream*) override {}
  bool event_query(uint32_t, tsr_event*) override { return true; }
  void event_synchronize(uint32_t, tsr_event*) override {}
  double event_elapsed(uint32_t, tsr_event* from, tsr_event* to) override {
    const auto read = [](tsr_event* e) {
      const std::lock_guard lock(e->mutex);
      return e->time;
    };
    return std::chrono::duration<double>(read(to) - read(from)).count();
  }
  // Copies of strided tensors, between devices, graphs and reserved addresses are optional: see tessera::sdk::Device.
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  // Look for the hardware here, and throw a t::Error of the family TSR_ENVIRONMENT where there is none: a config that loads the
  // plugin with `optional = true` then goes on without it. A backend for this device names it in device().
  plugin.add_device("@NAME@", 1, std::make_shared<Device>());
}
