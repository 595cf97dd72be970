// SPDX-License-Identifier: Apache-2.0
#include "plan/device_constants.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "cache/digest.hpp"

namespace tessera::core {

namespace {

struct Store {
  std::mutex mutex;
  std::map<std::pair<tsr_device, std::string>, BufferRef> blocks;  // by content
  static Store& get() {
    static auto* s = new Store;  // never destroyed: plans with static storage go after any destructor here
    return *s;
  }
};

}  // namespace

BufferRef place_constant(Device& device, const void* data, size_t bytes) {
  Store& store = Store::get();
  std::string digest = content_digest({static_cast<const char*>(data), bytes}, true);
  std::lock_guard lock(store.mutex);
  BufferRef& kept = store.blocks[{device.id(), std::move(digest)}];
  if (!kept) {
    Stream& stream = current_stream(device);
    BufferRef made(allocate_buffer(device, bytes, &stream));
    device.copy(made->data, data, bytes, TSR_COPY_TO_DEVICE, stream.raw());
    // Whoever reads it, on whatever stream, need not ask.
    Stream::host_wait(stream.point(), Wait::kConstantPlaced);
    kept = std::move(made);
  }
  kept->retain();
  return BufferRef(kept.get());
}

void drop_unused_constants() noexcept {
  Store& store = Store::get();
  std::lock_guard lock(store.mutex);
  std::erase_if(store.blocks, [](const auto& b) { return !b.second || b.second->refs.load(std::memory_order_acquire) == 1; });
}

}  // namespace tessera::core
