// SPDX-License-Identifier: Apache-2.0
// Devices opencl:0, opencl:1, ..: those of the first OpenCL platform. Memory is shared virtual memory, so that an address is a
// number as the host wants it; a stream is a command queue.
#pragma once

#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <tessera/kit/gpu/simt_target.hpp>
#include <tessera/plugin.hpp>

// The host passes these around and never looks inside.
struct tsr_stream {
  cl_command_queue queue;
};
struct tsr_event {
  std::mutex mutex;
  std::shared_ptr<_cl_event> last;  // null: never recorded
};

namespace acme_opencl {

namespace t = tessera::sdk;

// Throws where `status` is an error.
void check(cl_int status, const char* function);

struct Card {
  cl_device_id id = nullptr;
  cl_context context = nullptr;
  std::string name, model, driver;
  tessera::kit::GpuDescription description;
};

class OpenClDevice final : public t::Device {
 public:
  OpenClDevice();  // throws where there is no platform, or no device with what is needed
  const Card& card(uint32_t index) const;
  const std::vector<Card>& cards() const { return cards_; }

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
  void* block(uint32_t index, size_t bytes, size_t align, cl_svm_mem_flags flags);

  std::vector<Card> cards_;
  std::mutex mutex_;
  std::map<void*, void*> bases_;  // of blocks whose beginning was moved to be aligned
};

std::shared_ptr<tessera::kit::SimtTarget> make_target(std::shared_ptr<OpenClDevice> device);

}  // namespace acme_opencl
