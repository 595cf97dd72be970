// SPDX-License-Identifier: Apache-2.0
// The devices sim:0 and sim:1: a GPU's memory and streams, made of the CPU.
#pragma once

#include <array>
#include <memory>

#include "graphs.hpp"
#include "memory.hpp"
#include "queues.hpp"

namespace tessera::sim {

inline constexpr uint32_t kDevices = 2;

class SimDevice final : public sdk::Device {
 public:
  SimDevice(uint64_t seed, size_t bytes, size_t ahead, int64_t lose_after);

  Queues& queues() { return queues_; }
  // Where the bytes of an address of this device lie; complains, and gives null, when they are no bytes of it.
  char* bytes_of(uint32_t index, const void* p, size_t bytes, const std::string& who);

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
  bool tells_capturing() const override { return true; }
  bool stream_capturing(uint32_t index, tsr_stream* s) override;
  bool captures() const override { return true; }
  void capture_begin(uint32_t index, tsr_stream* s) override;
  tsr_device_graph* capture_end(uint32_t index, tsr_stream* s) override;

  bool builds_graphs() const override { return true; }
  tsr_device_graph* graph_create(uint32_t index) override;
  uint32_t graph_add(uint32_t index, tsr_device_graph* g, const tsr_device_call& call, Nodes after) override;
  uint32_t graph_add_captured(uint32_t index, tsr_device_graph* g, const sdk::QueueWork& queue, Nodes after) override;
  void graph_instantiate(uint32_t index, tsr_device_graph* g) override;
  void graph_set(uint32_t index, tsr_device_graph* g, uint32_t node, const tsr_device_call& call) override;
  void graph_set_captured(uint32_t index, tsr_device_graph* g, uint32_t node, const sdk::QueueWork& queue) override;
  void graph_info(uint32_t index, tsr_device_graph* g, tsr_device_graph_info& out) override;
  void graph_launch(uint32_t index, tsr_device_graph* g, tsr_stream* s) override;
  void graph_destroy(uint32_t index, tsr_device_graph* g) noexcept override;

  bool reserves() const override { return true; }
  void* reserve(uint32_t index, size_t bytes) override;
  void commit(uint32_t index, void* reserved, size_t bytes, tsr_stream* s) override;
  void unreserve(uint32_t index, void* reserved) noexcept override;

 private:
  Queues queues_;
  Graphs graphs_;
  std::array<Memory, kDevices> memories_;
};

// A tensor's description by value, whose data can be moved to another address.
struct TensorCopy {
  tsr_tensor t{};
  std::vector<int64_t> numbers;
  explicit TensorCopy(const tsr_tensor& from);
  tsr_tensor at(char* data) const;  // element 0 there
  // Bytes before and behind element 0 that the tensor takes.
  void extent(int64_t* before, int64_t* behind) const;
};

}  // namespace tessera::sim
