// SPDX-License-Identifier: Apache-2.0
// tsr_host_core: errors, logs, parallel loops, devices and op indices, as plugins see them.
#include <mutex>
#include <unordered_map>

#include "api/api.hpp"
#include "capture/recorder.hpp"
#include "ir/graph_api.hpp"
#include "ir/host_functions.hpp"
#include "log/log.hpp"
#include "log/progress.hpp"
#include "memory/device.hpp"
#include "memory/parallel.hpp"
#include "plugin/plugin_host.hpp"

namespace tessera::core {

namespace abi {
tsr_error* error_create(uint32_t family, const char* code, const char* message, const char* hint);
const char* error_code(const tsr_error* e);
const char* error_message(const tsr_error* e);
const char* error_hint(const tsr_error* e);
uint32_t error_family(const tsr_error* e);
void error_free(tsr_error* e);
}  // namespace abi

namespace {

// Dense numbers for op names, the same in every context of the process.
uint32_t op_index(const char* op) noexcept {
  static std::mutex mutex;
  static auto* indices = new std::unordered_map<std::string, uint32_t>;
  try {
    const std::lock_guard lock(mutex);
    return indices->try_emplace(op, static_cast<uint32_t>(indices->size())).first->second;
  } catch (...) {
    return TSR_NONE;
  }
}

}  // namespace

const tsr_host_core& host_core() {
  static const tsr_host_core table = {
      .struct_size = sizeof(tsr_host_core),
      .error_create = abi::error_create,
      .error_code = abi::error_code,
      .error_message = abi::error_message,
      .error_hint = abi::error_hint,
      .error_family = abi::error_family,
      .error_free = abi::error_free,
      .log_enabled = abi::log_enabled,
      .log_write = abi::log_write,
      .parallel = parallel,
      .num_threads = num_threads,
      .device_id = [](const char* name) noexcept -> tsr_device {
        try {
          return device_intern(name ? name : "");
        } catch (...) {
          return kNoDevice;
        }
      },
      .device_name = [](tsr_device id) noexcept -> const char* {
        const Device* d = find_device(id);
        return d ? d->name().c_str() : "?";
      },
      .op_index = op_index,
      .host_call = call_host_function,
      .device_table = [](tsr_device id, void** self, uint32_t* index) noexcept -> const tsr_device_table* {
        const Device* d = find_device(id);
        const tsr_device_table* table = d ? d->table(self) : nullptr;
        if (table) *index = d->index();
        return table;
      },
      .progress =
          [](const char* what, uint64_t done, uint64_t total) noexcept {
            if (what) tell_progress(what, done, total);
          },
  };
  return table;
}

const tsr_host& api::host() {
  static const tsr_host table = make_host(&host_core(), &graph_api(), &capture_api());
  return table;
}

}  // namespace tessera::core
