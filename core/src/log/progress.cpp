// SPDX-License-Identifier: Apache-2.0
#include "log/progress.hpp"

#include <atomic>
#include <mutex>

namespace tessera::core {
namespace {

struct Listening {
  std::atomic<ProgressListener> listener{nullptr};  // read without the lock to find that nobody listens
  std::mutex mutex;                                 // held while the listener is called
  void* context = nullptr;
};

Listening& listening() {
  static auto* const one = new Listening;  // threads of plugins may outlive the statics of this library
  return *one;
}

}  // namespace

void listen_to_progress(ProgressListener listener, void* context) noexcept {
  Listening& l = listening();
  const std::lock_guard lock(l.mutex);
  l.context = context;
  l.listener.store(listener, std::memory_order_relaxed);
}

void tell_progress(const char* what, uint64_t done, uint64_t total) noexcept {
  Listening& l = listening();
  if (!l.listener.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(l.mutex);
  if (const ProgressListener tell = l.listener.load(std::memory_order_relaxed)) tell(l.context, what, done, total);
}

}  // namespace tessera::core
