// SPDX-License-Identifier: Apache-2.0
// The device npu:0: an accelerator with memory of its own, whose streams are lists of commands that run when somebody waits for
// them. A real one passes each function of NpuDevice on to its driver.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <tessera/plugin.hpp>

namespace acme_npu {

using Command = std::function<void()>;

// One recording of an event: it has passed when the stream has come to it. A wait keeps the recording that it was queued
// behind, because the event may be recorded again on another stream.
struct Recording {
  tsr_stream* stream;
  bool passed = false;
  std::chrono::steady_clock::time_point time;
};

struct Queued {
  Command run;                        // empty: a wait
  std::shared_ptr<Recording> awaits;  // for this
};

}  // namespace acme_npu

// The host passes these around and never looks inside.
struct tsr_stream {
  std::deque<acme_npu::Queued> queue;
  std::vector<acme_npu::Command>* list = nullptr;  // set: launches are collected there instead (executor.cpp)
};
struct tsr_event {
  std::shared_ptr<acme_npu::Recording> last;  // null: never recorded
};

namespace acme_npu {

namespace t = tessera::sdk;

class NpuDevice final : public t::Device {
 public:
  // Queues commands that run in order, with one call of the driver.
  void submit(tsr_stream* s, std::vector<Command> commands);

  void info(uint32_t index, tsr_device_info& out) override;
  void* alloc(uint32_t index, size_t bytes, size_t align, tsr_stream* s) override;
  void free(uint32_t index, void* p, tsr_stream* s) noexcept override;
  void copy(uint32_t index, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* s) override;
  void fill(uint32_t index, void* dst, uint8_t value, size_t bytes, tsr_stream* s) override;
  tsr_stream* stream_create(uint32_t index) override;
  void stream_destroy(uint32_t index, tsr_stream* s) noexcept override;
  void stream_synchronize(uint32_t index, tsr_stream* s) override;
  tsr_event* event_create(uint32_t index) override;
  void event_destroy(uint32_t index, tsr_event* e) noexcept override;
  void event_record(uint32_t index, tsr_event* e, tsr_stream* s) override;
  void event_wait(uint32_t index, tsr_event* e, tsr_stream* s) override;
  bool event_query(uint32_t index, tsr_event* e) override;
  void event_synchronize(uint32_t index, tsr_event* e) override;
  double event_elapsed(uint32_t index, tsr_event* from, tsr_event* to) override;
  void* host_alloc(uint32_t index, size_t bytes) override;
  void host_free(uint32_t index, void* p) noexcept override;

 private:
  void run_next(tsr_stream* s);
  void run_all(tsr_stream* s);
  void run_until(const Recording& r);
  std::mutex mutex_;  // of all streams and events: streams may wait for each other
};

}  // namespace acme_npu
