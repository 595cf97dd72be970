// SPDX-License-Identifier: Apache-2.0
// A device made of host memory with an option that says how it is wrong; right with fault = "none". faults_test.cpp says which
// check of the kit finds which fault.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/plugin.hpp"

struct tsr_stream {
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
  };
  uint32_t index;
  std::vector<Copy> late;  // of fault "copies_late"
};
struct tsr_event {
  std::mutex mutex;
  std::chrono::steady_clock::time_point time;
};

namespace {

namespace t = tessera::sdk;

std::string fault;  // of this process: every instance has the same
bool is(const char* name) { return fault == name; }

class Device final : public t::Device {
 public:
  void info(uint32_t, tsr_device_info& out) override {
    out.name = "broken:0";
    out.description = "a device made of host memory";
    out.host_accessible = 1;
  }

  void* alloc(uint32_t, size_t bytes, size_t align, tsr_stream*) override {
    void* p = nullptr;
    if (is("ignores_alignment")) return static_cast<char*>(std::malloc(bytes + 8)) + 8;  // never given back
    if (is("gives_null_when_full") && bytes > size_t{1} << 40) return nullptr;
    if (posix_memalign(&p, align < sizeof(void*) ? sizeof(void*) : align, bytes) != 0)
      throw t::Error(TSR_ENVIRONMENT, is("has_a_code_of_its_own") ? "ACME-4" : "TSR-R001",
                     "out of memory on device 'broken:0': asked for " + std::to_string(bytes) + " bytes",
                     "use smaller sizes or release tensors that are no longer needed");
    return p;
  }
  void free(uint32_t, void* p, tsr_stream*) noexcept override {
    if (!is("ignores_alignment")) std::free(p);
  }
  void copy(uint32_t, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* s) override {
    if (is("copies_late") && (flags & TSR_COPY_DIRECTION) == TSR_COPY_TO_HOST) return s->late.push_back({dst, src, bytes});
    if (is("copies_words")) bytes = bytes / 4 * 4;  // what lies behind the last whole word stays
    if (is("copies_blocks") && bytes) {             // from the beginning of a block of 64 bytes
      const size_t before = reinterpret_cast<uintptr_t>(dst) % 64;
      if ((flags & TSR_COPY_DIRECTION) == TSR_COPY_WITHIN && before) dst = static_cast<char*>(dst) - before;
    }
    if (bytes) std::memmove(dst, src, bytes);
  }
  void fill(uint32_t, void* dst, uint8_t value, size_t bytes, tsr_stream*) override {
    if (is("fills_words")) bytes = (bytes + 3) / 4 * 4;  // and what lies behind it too
    if (bytes) std::memset(dst, value, bytes);
  }
  void* host_alloc(uint32_t, size_t bytes) override { return alloc(0, bytes, 64, nullptr); }
  void host_free(uint32_t, void* p) noexcept override { std::free(p); }

  tsr_stream* stream_create(uint32_t index) override { return new tsr_stream{index, {}}; }
  void stream_destroy(uint32_t, tsr_stream* s) noexcept override { delete s; }
  void stream_synchronize(uint32_t, tsr_stream* s) override {
    for (const tsr_stream::Copy& c : s->late) std::memmove(c.to, c.from, c.bytes);
    s->late.clear();
  }

  tsr_event* event_create(uint32_t) override { return new tsr_event; }
  void event_destroy(uint32_t, tsr_event* e) noexcept override { delete e; }
  void event_record(uint32_t, tsr_event* e, tsr_stream*) override {
    const std::lock_guard lock(e->mutex);
    e->time = std::chrono::steady_clock::now();
  }
  void event_wait(uint32_t, tsr_event*, tsr_stream*) override {
    if (is("fails_without_record")) throw t::Error(TSR_BUG, "ACME-5", "the event has not been recorded");
  }
  bool event_query(uint32_t, tsr_event*) override { return !is("never_done"); }
  void event_synchronize(uint32_t, tsr_event*) override {}
  double event_elapsed(uint32_t, tsr_event* from, tsr_event* to) override {
    const auto read = [](tsr_event* e) {
      const std::lock_guard lock(e->mutex);
      return e->time;
    };
    const double seconds = std::chrono::duration<double>(read(to) - read(from)).count();
    return is("counts_backwards") ? -1 - seconds : seconds;
  }
  bool copies_peer() const override { return false; }
  bool reserves() const override { return is("forgets_what_it_reserved"); }
  void* reserve(uint32_t, size_t bytes) override { return std::calloc(1, bytes); }
  void commit(uint32_t, void* p, size_t bytes, tsr_stream*) override { std::memset(p, 0, bytes); }
  void unreserve(uint32_t, void* p) noexcept override { std::free(p); }
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  fault = std::string(plugin.options.get_string("fault", "none"));
  plugin.add_device("broken", 1, std::make_shared<Device>());
}
