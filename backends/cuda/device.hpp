// SPDX-License-Identifier: Apache-2.0
// The devices cuda:0, cuda:1, .. as the core asks for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu.hpp"

namespace tessera::cuda {

class Compiler;
class Reserved;

class CudaDevice final : public sdk::Device {
 public:
  // `libraries`: files of others that are used, for people.
  CudaDevice(const Driver& driver, const GpuOptions& options, std::shared_ptr<Compiler> compiler,
             const std::string& libraries = {});
  ~CudaDevice() override;
  static uint32_t index_of(tsr_device d);  // 1 of "cuda:1"

  uint32_t count() const { return static_cast<uint32_t>(gpus_.size()); }
  Gpu& gpu(uint32_t index);  // throws TSR-R002

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
  bool copies_strided() const override { return true; }
  void copy_strided(uint32_t index, const tsr_tensor& dst, const tsr_tensor& src, tsr_stream* s) override;
  bool copies_peer() const override { return true; }
  void copy_peer(uint32_t index, void* dst, uint32_t from, const void* src, size_t bytes, tsr_stream* s) override;
  bool wraps_streams() const override { return true; }
  tsr_stream* stream_wrap(uint32_t index, void* native) override;
  void* stream_native(uint32_t index, tsr_stream* s) override;
  bool tells_capturing() const override { return true; }
  bool stream_capturing(uint32_t index, tsr_stream* s) override;

  bool builds_graphs() const override { return true; }
  tsr_device_graph* graph_create(uint32_t index) override;
  uint32_t graph_add(uint32_t index, tsr_device_graph* g, const tsr_device_call& call, Nodes after) override;
  uint32_t graph_add_captured(uint32_t index, tsr_device_graph* g, const sdk::QueueWork& work, Nodes after) override;
  void graph_instantiate(uint32_t index, tsr_device_graph* g) override;
  void graph_set(uint32_t index, tsr_device_graph* g, uint32_t node, const tsr_device_call& call) override;
  void graph_set_captured(uint32_t index, tsr_device_graph* g, uint32_t node, const sdk::QueueWork& work) override;
  void graph_info(uint32_t index, tsr_device_graph* g, tsr_device_graph_info& out) override;
  void graph_launch(uint32_t index, tsr_device_graph* g, tsr_stream* s) override;
  void graph_destroy(uint32_t index, tsr_device_graph* g) noexcept override;

  bool reserves() const override;
  void* reserve(uint32_t index, size_t bytes) override;
  void commit(uint32_t index, void* range, size_t bytes, tsr_stream* s) override;
  void unreserve(uint32_t index, void* range) noexcept override;

 private:
  Gpu& of(uint32_t index, const tsr_stream* s, const char* function);

  struct Texts {
    std::string name, architecture, description, versions;
  };
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::vector<std::unique_ptr<Reserved>> reserved_;
  std::vector<Texts> texts_;
  std::shared_ptr<Compiler> compiler_;
};

}  // namespace tessera::cuda
