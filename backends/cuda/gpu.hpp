// SPDX-License-Identifier: Apache-2.0
// One GPU of this process: its primary context, its memory pool, and streams as the core holds them.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "driver.hpp"
#include "tessera/plugin.hpp"

namespace tessera::cuda {

class Gpu;

}  // namespace tessera::cuda

// A stream as the core passes it.
struct tsr_stream {
  tessera::cuda::Gpu* gpu = nullptr;
  tessera::cuda::CUstream native = nullptr;
  bool owned = true;       // false: another library's
  bool capturing = false;  // what is queued becomes a node of a graph: it must not be waited for
};
struct tsr_event {
  tessera::cuda::Gpu* gpu = nullptr;
  tessera::cuda::CUevent native = nullptr;
};

namespace tessera::cuda {

inline CUdeviceptr address_of(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

// What a plugin instance was configured with; devices are the process's, so the first instance's hold.
struct GpuOptions {
  bool sync = false;                // wait after every launch and copy, so that an error names what caused it
  std::function<void()> when_used;  // called by each thread that first takes the context; may be empty
};

// Thread-safe. Its context is made at the first use that needs one.
class Gpu {
 public:
  Gpu(const Driver& driver, int index, const GpuOptions& options);
  Gpu(const Gpu&) = delete;

  const Driver& driver() const { return driver_; }
  int index() const { return index_; }
  const std::string& name() const { return name_; }                  // "cuda:0"
  const std::string& model() const { return model_; }                // "NVIDIA H100 80GB HBM3"
  const std::string& architecture() const { return architecture_; }  // "sm_90a"
  int attribute(Attribute a) const;                                  // asked of the driver once: that takes a system call
  size_t total_bytes() const { return total_; }
  double bytes_per_second() const;  // of its memory, from its clock and width
  bool synchronous() const { return options_.sync; }

  // Makes the primary context, which all libraries of the process share, current for the calling thread while it lives. Throws
  // TSR-H005 in a process that was forked after CUDA had been used, TSR-H007 after the device has failed.
  class Scope {
   public:
    explicit Scope(Gpu& gpu);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    const Driver& driver_;
    CUcontext before_ = nullptr;
    bool changed_ = false;
  };

  CUcontext context();  // current or not
  // Throws what a call on this device reported; an error that ends the device is remembered, with what was launched last.
  void check(CUresult result, const char* call) {
    if (result != kSuccess) [[unlikely]]
      fail(result, call);
  }
  // After queueing work: waits for it with cuda.sync. `what`: a string that lives as long as the process, or a function that
  // keep_name() was told of.
  void queued(tsr_stream* stream, const void* what) {
    recent_[recent_at_.fetch_add(1, std::memory_order_relaxed) % kRecent].store(what, std::memory_order_relaxed);
    if (options_.sync) [[unlikely]]
      wait(stream, what);
  }

  void* allocate(size_t bytes, size_t align, tsr_stream* stream);
  void free(void* p, tsr_stream* stream) noexcept;
  void free_bytes(size_t* free, size_t* total);

  // Memory that is mapped into reserved addresses: counted with what this process holds.
  void mapped(int64_t more) { mapped_.fetch_add(more, std::memory_order_relaxed); }
  void trim();  // gives what the pool keeps back to the driver
  [[noreturn]] void out_of_memory(size_t bytes);

  // What a function of the driver is called, for messages.
  static void keep_name(CUfunction function, const std::string& name);

 private:
  static constexpr size_t kRecent = 8;
  [[noreturn]] void fail(CUresult result, const char* call);
  void wait(tsr_stream* stream, const void* what);
  std::string recent() const;

  const Driver& driver_;
  int index_;
  GpuOptions options_;
  CUdevice device_ = 0;
  std::string name_, model_, architecture_;
  size_t total_ = 0;
  mutable std::array<std::atomic<int>, kMostAttribute + 1> attributes_{};  // 0: not asked yet
  bool pools_ = false;                                                     // the driver allocates in stream order

  std::mutex mutex_;  // of what follows
  std::atomic<CUcontext> context_{nullptr};
  CUmemoryPool pool_ = nullptr;
  std::unordered_map<void*, size_t> blocks_;  // taken from the driver
  size_t held_ = 0;
  std::atomic<int64_t> mapped_{0};  // bytes
  std::string failure_;             // text of the error that ended the device
  std::atomic<bool> failed_{false};

  std::array<std::atomic<const void*>, kRecent> recent_{};
  std::atomic<uint32_t> recent_at_{0};
};

}  // namespace tessera::cuda
