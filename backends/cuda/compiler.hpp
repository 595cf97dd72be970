// SPDX-License-Identifier: Apache-2.0
// NVRTC: from CUDA C++ that includes nothing to machine code, and from that to functions that a device can launch.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu.hpp"

namespace tessera::cuda {

// The library, opened at run time. Thread-safe.
class Compiler {
 public:
  // Throws TSR-H004 where there is no NVRTC. `wanted`: see open_library.
  explicit Compiler(const std::string& wanted);

  int version() const { return version_; }  // 13000
  std::string version_text() const;         // "13.0"
  const std::string& path() const { return path_; }

  // Machine code for an architecture ("sm_90a") without contraction across operations. Throws TSR-H009 (an architecture that
  // this NVRTC does not know), TSR-B046 (text that does not compile).
  std::string compile(const std::string& text, const std::string& architecture);
  // The same for a text of this backend's own, compiled once for each architecture and kept.
  std::shared_ptr<const std::string> kept(const std::string& text, const std::string& architecture);

 private:
  using Program = void*;
  struct Api;

  std::shared_ptr<Api> api_;
  int version_ = 0;
  std::string path_;
  std::vector<int> architectures_;

  struct Slot {
    std::mutex mutex;
    std::shared_ptr<const std::string> cubin;
  };
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Slot>> kept_;  // by architecture and text
};

// A function of a module that is loaded on one device. Modules are never unloaded: a launch may be queued, and the driver's
// handles are small.
struct Function {
  Gpu* gpu = nullptr;
  CUfunction handle = nullptr;
};

// Loads a cubin on a device, once for each content, and finds functions in it. Thread-safe.
Function load_function(Gpu& gpu, const std::shared_ptr<const std::string>& cubin, const std::string& entry);

// Queues a launch. `arguments` has the address of each argument; `shared_bytes`: dynamic shared memory of a block; `name`: for
// messages.
inline void launch(Gpu& gpu, CUfunction function, const char* name, unsigned blocks, unsigned threads, unsigned shared_bytes,
                   tsr_stream* stream, void* const* arguments) {
  const Gpu::Scope scope(gpu);
  gpu.check(gpu.driver().cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared_bytes, stream->native,
                                        const_cast<void**>(arguments), nullptr),
            name);
  gpu.queued(stream, function);
}

}  // namespace tessera::cuda
