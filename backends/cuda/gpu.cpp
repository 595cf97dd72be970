// SPDX-License-Identifier: Apache-2.0
#include "gpu.hpp"

#include <algorithm>
#include <vector>

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

std::string mib(size_t bytes) {
  const double n = static_cast<double>(bytes) / (1 << 20);
  char text[32];
  std::snprintf(text, sizeof text, n < 10 ? "%.1f MiB" : "%.0f MiB", n);
  return text;
}

// Of functions; whatever is not among them names itself.
struct Names {
  std::mutex mutex;
  std::unordered_map<const void*, std::string> of;
  static Names& get() {
    static auto* names = new Names;  // never destroyed: threads may still fail at exit
    return *names;
  }
};
std::string name_of(const void* what) {
  std::lock_guard lock(Names::get().mutex);
  const auto it = Names::get().of.find(what);
  return it != Names::get().of.end() ? it->second : std::string(static_cast<const char*>(what));
}

}  // namespace

Gpu::Gpu(const Driver& driver, int index, const GpuOptions& options)
    : driver_(driver), index_(index), options_(options), name_("cuda:" + std::to_string(index)) {
  check(driver_.cuDeviceGet(&device_, index), "cuDeviceGet");
  char model[256] = "";
  check(driver_.cuDeviceGetName(model, sizeof model, device_), "cuDeviceGetName");
  model_ = model;
  check(driver_.cuDeviceTotalMem_v2(&total_, device_), "cuDeviceTotalMem");
  const int major = attribute(kMajor), minor = attribute(kMinor);
  architecture_ = "sm_" + std::to_string(major) + std::to_string(minor);
  if (major >= 9 && major < 12) architecture_ += "a";  // with the instructions of this architecture alone
  pools_ = attribute(kMemoryPoolsSupported) != 0;
}

int Gpu::attribute(Attribute a) const {
  std::atomic<int>& known = attributes_[static_cast<size_t>(a)];
  int value = known.load(std::memory_order_relaxed);
  if (value == 0 && driver_.cuDeviceGetAttribute(&value, a, device_) == kSuccess) known.store(value, std::memory_order_relaxed);
  return value;
}

double Gpu::bytes_per_second() const {
  return 2.0 * attribute(kMemoryClockRate) * 1e3 * attribute(kMemoryBusWidth) / 8;  // two transfers per clock, kHz, bits
}

CUcontext Gpu::context() {
  if (CUcontext c = context_.load(std::memory_order_acquire)) return c;
  std::lock_guard lock(mutex_);
  if (CUcontext c = context_.load(std::memory_order_acquire)) return c;
  CUcontext c = nullptr;
  check(driver_.cuDevicePrimaryCtxRetain(&c, device_), "cuDevicePrimaryCtxRetain");  // kept for the life of the process
  if (pools_) {
    MemoryPoolProperties p{};
    p.allocation_type = 1;  // pinned
    p.location = {1, device_};
    check(driver_.cuMemPoolCreate(&pool_, &p), "cuMemPoolCreate");
    // Blocks that are free stay with the pool until memory is short: giving them back at each synchronisation costs
    // milliseconds.
    uint64_t all = UINT64_MAX;
    check(driver_.cuMemPoolSetAttribute(pool_, kPoolReleaseThreshold, &all), "cuMemPoolSetAttribute");
    int count = 0;
    driver_.cuDeviceGetCount(&count);
    for (int i = 0; i < count; ++i) {  // other devices copy from and to it
      int can = 0;
      CUdevice peer = 0;
      if (i == index_ || driver_.cuDeviceGet(&peer, i) != kSuccess) continue;
      if (driver_.cuDeviceCanAccessPeer(&can, peer, device_) != kSuccess || !can) continue;
      const MemoryAccess access{{1, peer}, 3};
      check(driver_.cuMemPoolSetAccess(pool_, &access, 1), "cuMemPoolSetAccess");
    }
  }
  context_.store(c, std::memory_order_release);
  return c;
}

Gpu::Scope::Scope(Gpu& gpu) : driver_(gpu.driver_) {
  if (forked())
    throw t::Error(TSR_USER, "TSR-H005",
                   "device '" + gpu.name_ + "' was used before this process was forked, and a child cannot use it",
                   "start workers with 'spawn' instead of 'fork', or fork before the first use of a CUDA device");
  if (gpu.failed_.load(std::memory_order_acquire)) {
    std::lock_guard lock(gpu.mutex_);
    throw t::Error(TSR_ENVIRONMENT, "TSR-H007",
                   "device '" + gpu.name_ + "' has failed earlier and cannot be used in this process any more: " + gpu.failure_,
                   "start the program again; with [cuda] sync = true the kernel that fails is named");
  }
  CUcontext wanted = gpu.context();
  driver_.cuCtxGetCurrent(&before_);
  if (before_ == wanted) return;
  gpu.check(driver_.cuCtxSetCurrent(wanted), "cuCtxSetCurrent");
  if (gpu.options_.when_used) gpu.options_.when_used();
  changed_ = before_ != nullptr;  // a thread that had none keeps this one: it costs nothing, and saves the next call the change
}
Gpu::Scope::~Scope() {
  if (changed_) driver_.cuCtxSetCurrent(before_);
}

std::string Gpu::recent() const {
  std::string out;
  const uint32_t end = recent_at_.load(std::memory_order_relaxed);
  for (uint32_t i = end > kRecent ? end - kRecent : 0; i < end; ++i)
    if (const void* what = recent_[i % kRecent].load(std::memory_order_relaxed))
      out += (out.empty() ? "" : ", ") + name_of(what);
  return out;
}

void Gpu::fail(CUresult result, const char* call) {
  const std::string what = std::string(call) + " on '" + name_ + "'";
  if (!is_sticky(result)) cuda::check(result, what);
  std::string text = what + ": " + error_text(result);
  if (const std::string names = recent(); !names.empty()) text += "; queued last: " + names;
  if (!failed_.exchange(true, std::memory_order_acq_rel)) {
    std::lock_guard lock(mutex_);
    failure_ = text;
  }
  throw t::Error(TSR_ENVIRONMENT, "TSR-H007",
                 "device '" + name_ + "' has failed and cannot be used in this process any more: " + text,
                 "start the program again; with [cuda] sync = true the kernel that fails is named");
}

void Gpu::wait(tsr_stream* stream, const void* what) {
  if (stream->capturing) return;
  const std::string call = "after " + name_of(what) + ", cuStreamSynchronize";
  check(driver_.cuStreamSynchronize(stream->native), call.c_str());
}

void Gpu::keep_name(CUfunction function, const std::string& name) {
  std::lock_guard lock(Names::get().mutex);
  Names::get().of[function] = name;
}

void Gpu::trim() {
  if (!pools_) return;
  std::lock_guard lock(mutex_);
  driver_.cuMemPoolTrimTo(pool_, 0);
}

void* Gpu::allocate(size_t bytes, size_t align, tsr_stream* stream) {
  const Scope scope(*this);
  // The driver aligns to 256 bytes at least.
  if (align > 256)
    throw t::Error(TSR_BUG, "TSR-B045",
                   "device '" + name_ + "', alloc: expected an alignment of at most 256 bytes, found " + std::to_string(align));
  CUdeviceptr p = 0;
  const size_t asked = std::max<size_t>(bytes, 1);
  const auto attempt = [&] {
    return pools_ ? driver_.cuMemAllocFromPoolAsync(&p, asked, pool_, stream->native) : driver_.cuMemAlloc_v2(&p, asked);
  };
  CUresult r = attempt();
  if (r == kOutOfMemory && pools_) {
    trim();  // what was freed in the order of other streams comes back once they have passed it
    r = attempt();
  }
  if (r == kOutOfMemory) out_of_memory(bytes);
  check(r, pools_ ? "cuMemAllocFromPoolAsync" : "cuMemAlloc");
  void* out = reinterpret_cast<void*>(p);
  std::lock_guard lock(mutex_);
  blocks_[out] = asked;
  held_ += asked;
  return out;
}

void Gpu::free(void* p, tsr_stream* stream) noexcept {
  if (!p || forked() || failed_.load(std::memory_order_acquire)) return;  // the driver has taken it back, or never will
  try {
    const Scope scope(*this);
    {
      std::lock_guard lock(mutex_);
      if (const auto at = blocks_.find(p); at != blocks_.end()) {
        held_ -= at->second;
        blocks_.erase(at);
      }
    }
    if (pools_) {
      driver_.cuMemFreeAsync(address_of(p), stream->native);
    } else {
      driver_.cuStreamSynchronize(stream->native);
      driver_.cuMemFree_v2(address_of(p));
    }
  } catch (const std::exception&) {}  // a device that fails says so to the next who queues work
}

void Gpu::free_bytes(size_t* free, size_t* total) {
  const Scope scope(*this);
  check(driver_.cuMemGetInfo_v2(free, total), "cuMemGetInfo");
}

void Gpu::out_of_memory(size_t bytes) {
  size_t free = 0, total = total_;
  driver_.cuMemGetInfo_v2(&free, &total);
  uint64_t reserved = 0;
  if (pools_) driver_.cuMemPoolGetAttribute(pool_, kPoolReserved, &reserved);
  std::vector<size_t> sizes;
  size_t held = 0;
  {
    std::lock_guard lock(mutex_);
    held = held_;
    for (const auto& [p, n] : blocks_) sizes.push_back(n);
  }
  std::sort(sizes.rbegin(), sizes.rend());
  std::string largest;
  for (size_t i = 0; i < std::min<size_t>(3, sizes.size()); ++i) largest += (i ? ", " : "") + mib(sizes[i]);
  const auto mapped = static_cast<size_t>(mapped_.load(std::memory_order_relaxed));
  const size_t ours = std::max<size_t>(held, reserved) + mapped, used = total - std::min(free, total);
  throw t::Error(TSR_ENVIRONMENT, "TSR-R001",
                 "out of memory on device '" + name_ + "': asked for " + std::to_string(bytes) + " bytes; of " + mib(total) +
                     " this process's tensors and plans hold " + mib(held) + " in " + std::to_string(sizes.size()) + " blocks" +
                     (largest.empty() ? "" : " (the largest: " + largest + ")") +
                     (mapped > 0 ? ", arenas of device graphs hold " + mib(mapped) : "") +
                     (reserved > held ? ", " + mib(reserved - held) + " wait in the driver's pool" : "") + ", others hold " +
                     mib(used > ours ? used - ours : 0) + ", " + mib(free) + " are free",
                 "use smaller sizes, release tensors that are no longer needed, or end what else uses the device (nvidia-smi)");
}

}  // namespace tessera::cuda
