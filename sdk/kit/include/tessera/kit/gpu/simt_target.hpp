// SPDX-License-Identifier: Apache-2.0
// What a device of the SIMT family brings so that the kit's backend (simt_backend.hpp) runs kernels on it: a description, a
// dialect, a compiler of text, a loader and a launcher. CUDA fills it in with NVRTC and the driver API, sim with a compiler
// inside the process and fibers.
//
// Threads: every function may be called from several threads at once, `launch` among them. Errors: functions throw sdk::Error;
// a text that does not compile is a bug of the kit (TSR_BUG), a compiler or a driver that is missing or fails is an environment
// fault (TSR_ENVIRONMENT). What goes wrong on the device after `launch` has returned is the device's to report, at the next
// synchronisation; faults of data go into SimtCall::fault.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/kit/gpu/emit.hpp"
#include "tessera/kit/program/device.hpp"
#include "tessera/kit/program/program.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

// What is compiled at once: several programs in one text.
struct SimtUnit {
  std::string text;
  std::vector<std::string> entries;      // the functions that are launched, each under a name that no other unit has
  std::vector<const Program*> programs;  // the same as data, for targets that run these; entries are their launches in order
};

// A unit's code on one device. It stays loaded as long as somebody holds it.
class SimtModule {
 public:
  virtual ~SimtModule() = default;
  virtual void* function(size_t entry) const = 0;  // by its place in SimtUnit::entries; what SimtCall::function becomes
};

// One launch of one function, by value: nothing in it needs to live longer than the call of SimtTarget::launch.
struct SimtCall {
  void* function = nullptr;
  const char* entry = "";    // its name, for messages
  uint32_t index = 0;        // of the device
  int64_t blocks = 0;        // never 0
  int64_t threads = 1;       // of a block
  int64_t shared_bytes = 0;  // of a block. Text that declares its shared memory needs none at the launch: see dynamic_shared
  // Bytes that the launch must give: 0, or all of shared_bytes where those are above 48 KiB. CUDA then wants the function's
  // attribute for it set: load() may allow every function as much as the device has.
  int64_t dynamic_shared = 0;
  // The arguments in their order: pointers to device memory, sizes, and, where `checks`, the address of the fault record and
  // the site. `arguments` has the address of each, as cuLaunchKernel takes them.
  std::span<void* const> pointers;
  std::span<const int64_t> bytes;  // that lie at each pointer, for targets that watch bounds
  std::span<const int64_t> sizes;
  bool checks = false;
  tsr_fault* fault = nullptr;
  uint64_t site = 0;
  void** arguments = nullptr;
  tsr_stream* stream = nullptr;
  const std::shared_ptr<const SimtModule>* module = nullptr;  // for targets that run later: what they hold on to
};

class SimtTarget {
 public:
  virtual ~SimtTarget() = default;
  virtual const char* device() const = 0;  // "cuda": what SimtBackend::device() says
  // Of the device at an index, the same at every call. It decides schedules, and is part of keys.
  virtual const GpuDescription& description(uint32_t index) = 0;
  virtual const GpuDialect& dialect() const = 0;
  // Names the compiler, its version and its options: part of keys of what was built.
  virtual std::string compiler() = 0;
  // Why there is nobody who compiles or runs, in one line; empty: there is.
  virtual std::string why_unavailable() { return {}; }
  virtual size_t kernels_of_unit() const { return 8; }  // compiled at once, at most

  // Compiles: a cubin, a shared object, whatever load() takes, also in another process. May take long, and needs no device.
  virtual std::string build(const SimtUnit& unit, const GpuDescription& device) = 0;
  // Called when a kernel is compiled or restored, never in a launch.
  virtual std::shared_ptr<const SimtModule> load(const std::string& built, std::span<const std::string> entries,
                                                 uint32_t index) = 0;
  // Bytes of shared memory that a launch of the call gives: tsr_device_call.shared_bytes, where the call is described.
  virtual int64_t launch_shared(const SimtCall& call) { return call.dynamic_shared; }
  // Queues the call on its stream. Allocates no device memory and does not wait.
  virtual void launch(const SimtCall& call) = 0;
  // By whose memory, streams and events schedules are measured where that is asked for (TSR_TUNE_SCHEDULES). Null: times mean
  // nothing there, and schedules are the model's.
  virtual sdk::Device* timed_device() { return nullptr; }
};

}  // namespace tessera::kit
