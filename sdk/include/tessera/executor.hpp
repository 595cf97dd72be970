// SPDX-License-Identifier: Apache-2.0
// C++ wrapper for executors: plugins that run the step table of a compiled plan in another way than step by step, such as one
// graph of the device. abi.h (tsr_executor) has the rules. A plugin adds one with add_executor().
#pragma once

#include <memory>
#include <string>

#include "tessera/plugin.hpp"

namespace tessera::sdk {

// What an executor made of one layout of one plan. Destroyed by the host; its last calls may still be queued then.
class PreparedPlan {
 public:
  virtual ~PreparedPlan() = default;
  // Queues the work of all rows. False: declined, nothing is queued, and the call runs step by step. Throws Error. Several
  // threads may call it at once.
  virtual bool run(const tsr_executor_call& call) = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const char* device() const = 0;
  virtual uint64_t capabilities() const = 0;  // TSR_CAP_DETERMINISTIC, TSR_EXECUTOR_*
  // Null: declined; *why, a string that lives as long as the plugin, says why. Throws Error.
  virtual std::unique_ptr<PreparedPlan> prepare(const tsr_step_table& table, const char** why) = 0;
};

// The rows, slots and roots of a table, by number.
inline const tsr_step& row_of(const tsr_step_table& t, size_t i) { return *TSR_AT(tsr_step, t.steps, t.stride, i); }
inline const tsr_slot& slot_of(const tsr_step_table& t, size_t i) { return *TSR_AT(tsr_slot, t.slots, t.slot_stride, i); }
inline const tsr_root& root_of(const tsr_step_table& t, size_t i) { return *TSR_AT(tsr_root, t.roots, t.root_stride, i); }
inline const tsr_launch& launch_of(const tsr_executor_call& c, size_t row) {
  return *TSR_AT(tsr_launch, c.launches, c.launch_stride, row);
}

// The device that serves an id, with its table: what an executor builds graphs with. Throws TSR-R002 where nobody serves it.
class DeviceTable {
 public:
  explicit DeviceTable(tsr_device id) {
    const tsr_host_core& core = *host().core;
    if (TSR_HAS(&core, tsr_host_core, device_table)) table_ = core.device_table(id, &self_, &index_);
    if (!table_) throw Error(TSR_USER, "TSR-R002", std::string("no plugin serves device '") + core.device_name(id) + "'");
  }
  // table().graph_launch(self(), index(), ...)
  const tsr_device_table& table() const { return *table_; }
  void* self() const { return self_; }
  uint32_t index() const { return index_; }
  bool builds_graphs() const { return TSR_HAS(table_, tsr_device_table, graph_info) && table_->graph_create; }
  bool reserves() const { return TSR_HAS(table_, tsr_device_table, unreserve) && table_->reserve; }

 private:
  const tsr_device_table* table_ = nullptr;
  void* self_ = nullptr;
  uint32_t index_ = 0;
};

inline void add_executor(Plugin& plugin, const char* name, std::shared_ptr<Executor> executor) {
  auto t = std::make_shared<tsr_executor>();
  t->struct_size = sizeof *t;
  t->device = executor->device();
  t->capabilities = executor->capabilities();
  t->prepare = [](void* self, const tsr_step_table* table, void** prepared, const char** why) noexcept {
    return guarded([&] { *prepared = static_cast<Executor*>(self)->prepare(*table, why).release(); });
  };
  t->run = [](void*, void* prepared, const tsr_executor_call* call, int* taken) noexcept {
    return guarded([&] { *taken = static_cast<PreparedPlan*>(prepared)->run(*call) ? 1 : 0; });
  };
  t->release = [](void*, void* prepared) noexcept { delete static_cast<PreparedPlan*>(prepared); };
  plugin.add_raw(TSR_EXECUTOR, name, t.get(), executor.get());
  plugin.keep(std::move(t));
  plugin.keep(std::move(executor));
}

}  // namespace tessera::sdk
