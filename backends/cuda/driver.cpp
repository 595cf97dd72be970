// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

#include "libraries.hpp"
#include "tessera/plugin.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr int kOldestDriver = 12000;  // kernels of a pool per device, kernel nodes with contexts

std::atomic<const Driver*> the_driver{nullptr};
std::atomic<bool> in_child{false};

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

std::string dl_reason() {
  const char* reason = dlerror();
  return reason ? reason : "unknown reason";
}

}  // namespace

const Driver& Driver::open(const std::string& wanted) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (const Driver* d = the_driver.load(std::memory_order_acquire)) return *d;
  static const char* const kSonames[] = {"libcuda.so.1"};
  dlerror();
  Library library = open_library({kSonames, {}}, wanted);
  if (!library.handle) {
    // The last attempt is the plain name, whose reason is the one that matters.
    std::string reason = wanted.empty() ? (dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), dl_reason()) : dl_reason();
    throw t::Error(TSR_ENVIRONMENT, "TSR-H001",
                   "no CUDA driver: " + (wanted.empty() ? std::string("libcuda.so.1") : "'" + wanted + "'") +
                       " cannot be opened: " + reason,
                   "install NVIDIA's driver, or load this plugin with optional = true and name another backend behind it");
  }
  auto driver = std::make_unique<Driver>();
  driver->path = library.path;
  std::string missing;
#define TESSERA_CUDA_LOAD(name, parameters)                                              \
  driver->name = reinterpret_cast<decltype(driver->name)>(dlsym(library.handle, #name)); \
  if (!driver->name) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  TESSERA_CUDA_FUNCTIONS(TESSERA_CUDA_LOAD)
#undef TESSERA_CUDA_LOAD
  if (driver->cuDriverGetVersion) driver->cuDriverGetVersion(&driver->version);
  if (!missing.empty() || driver->version < kOldestDriver)
    throw t::Error(TSR_ENVIRONMENT, "TSR-H003",
                   "the CUDA driver is too old: " + library.path + " is of CUDA " + version_text(driver->version) +
                       ", expected " + version_text(kOldestDriver) + " or newer" +
                       (missing.empty() ? "" : "; it lacks " + missing),
                   "install a newer driver of NVIDIA's");
  the_driver.store(driver.get(), std::memory_order_release);  // for error_text
  const auto give_up = [&](const char* code, const std::string& what, const char* hint) {
    the_driver.store(nullptr, std::memory_order_release);
    return t::Error(TSR_ENVIRONMENT, code, what, hint);
  };
  if (const CUresult r = driver->cuInit(0); r != kSuccess) {
    const std::string text = error_text(r);
    if (r == kNoDevice)
      throw give_up("TSR-H002", "no CUDA device: the driver " + library.path + " finds none",
                    "see that the GPU is there (nvidia-smi) and that CUDA_VISIBLE_DEVICES does not hide it");
    throw give_up("TSR-H001", "no CUDA driver: " + library.path + " does not start: " + text,
                  "see that the driver is loaded and matches its library (nvidia-smi)");
  }
  int count = 0;
  if (driver->cuDeviceGetCount(&count) != kSuccess || count == 0)
    throw give_up("TSR-H002", "no CUDA device: the driver " + library.path + " finds none",
                  "see that the GPU is there (nvidia-smi) and that CUDA_VISIBLE_DEVICES does not hide it");
  pthread_atfork(nullptr, nullptr, [] { in_child.store(true, std::memory_order_relaxed); });
  return *driver.release();  // stays: the library is never closed
}

const Driver& Driver::get() { return *the_driver.load(std::memory_order_acquire); }

bool forked() { return in_child.load(std::memory_order_relaxed); }

std::string error_text(CUresult result) {
  const char *name = nullptr, *text = nullptr;
  if (const Driver* d = the_driver.load(std::memory_order_acquire)) {
    d->cuGetErrorName(result, &name);
    d->cuGetErrorString(result, &text);
  }
  return (name ? std::string(name) : std::string("error")) + " (" + std::to_string(result) + ")" +
         (text ? ": " + std::string(text) : "");
}

bool is_sticky(CUresult r) {
  return r == 4 || r == 214 || r == 220 || r == 226 || r == 700 || r == 702 || (r >= 709 && r <= 710) ||
         (r >= 714 && r <= 719) || r == 721 || r == 999;
}

void check(CUresult result, std::string_view what) {
  if (result == kSuccess) return;
  const std::string message = std::string(what) + ": " + error_text(result);
  if (result == kOutOfMemory)
    throw t::Error(TSR_ENVIRONMENT, "TSR-R001", "out of memory in " + message,
                   "use smaller sizes, or release what else uses the device (nvidia-smi shows it)");
  if (result >= 900 && result <= 908)
    throw t::Error(TSR_USER, "TSR-H008", "a stream is being captured into a graph, and does not allow " + message,
                   "do this before the capture begins");
  if (is_sticky(result))
    throw t::Error(TSR_ENVIRONMENT, "TSR-H007",
                   "the CUDA device has failed and cannot be used in this process any more: " + message,
                   "start the program again; with [cuda] sync = true the kernel that fails is named");
  throw t::Error(TSR_ENVIRONMENT, "TSR-H006", message);
}

}  // namespace tessera::cuda
