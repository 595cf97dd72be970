// SPDX-License-Identifier: Apache-2.0
#include "plan/device_constants.hpp"

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

void name_all(std::vector<HostConstant>& constants) {
  std::vector<std::string_view> contents;
  std::vector<HostConstant*> nameless;
  for (HostConstant& c : constants) {
    if (!c.name.empty()) continue;
    nameless.push_back(&c);
    contents.emplace_back(static_cast<const char*>(c.data), c.bytes);
  }
  std::vector<std::string> digests = content_digests(contents, true);
  for (size_t i = 0; i < nameless.size(); ++i) nameless[i]->name = std::move(digests[i]);
}

// Copies on their way, which have ended when this is gone: the host's memory and the blocks are in use until then.
class Crossing {
 public:
  explicit Crossing(Device& device) : device_(device), stream_(current_stream(device)) {}
  ~Crossing() {
    if (queued_) wait();
  }
  Crossing(const Crossing&) = delete;

  BufferRef begin(const HostConstant& c) {
    BufferRef made(allocate_buffer(device_, c.bytes, &stream_));
    queued_ = true;
    device_.copy(made->data, c.data, c.bytes, TSR_COPY_TO_DEVICE, stream_.raw());
    return made;
  }
  // Whoever reads them, on whatever stream, need not ask.
  void end() {
    if (std::exchange(queued_, false)) Stream::host_wait(stream_.point(), Wait::kConstantPlaced);
  }

 private:
  void wait() noexcept {
    try {
      end();
    } catch (...) {  // the device has failed, which is what the caller is being told
    }
  }
  Device& device_;
  Stream& stream_;
  bool queued_ = false;
};

}  // namespace

std::vector<BufferRef> place_constants(Device& device, std::vector<HostConstant> constants,
                                       const std::function<bool()>& names_hold) {
  name_all(constants);
  Store& store = Store::get();
  std::lock_guard lock(store.mutex);
  std::map<std::string_view, BufferRef> made;
  {
    Crossing crossing(device);
    for (const HostConstant& c : constants)
      if (!store.blocks.contains({device.id(), c.name}) && !made.contains(c.name)) made.emplace(c.name, crossing.begin(c));
    crossing.end();
  }
  std::vector<BufferRef> out;
  const auto share = [&](const BufferRef& block) {
    block->retain();
    out.emplace_back(block.get());
  };
  for (const HostConstant& c : constants) {
    const auto fresh = made.find(c.name);
    share(fresh != made.end() ? fresh->second : store.blocks.at({device.id(), c.name}));
  }
  if (!names_hold || names_hold())
    for (auto& [name, block] : made) store.blocks.emplace(std::pair(device.id(), std::string(name)), std::move(block));
  return out;
}

void drop_unused_constants() noexcept {
  Store& store = Store::get();
  std::lock_guard lock(store.mutex);
  std::erase_if(store.blocks, [](const auto& b) { return !b.second || b.second->refs.load(std::memory_order_acquire) == 1; });
}

}  // namespace tessera::core
