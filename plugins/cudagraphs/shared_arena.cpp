// SPDX-License-Identifier: Apache-2.0
#include "shared_arena.hpp"

#include <algorithm>
#include <map>

#include "graph.hpp"

namespace tessera::cudagraphs {

namespace t = tessera::sdk;

SharedArena& SharedArena::of(tsr_device device) {
  static std::mutex all_mutex;
  static auto* all = new std::map<tsr_device, std::unique_ptr<SharedArena>>;  // never destroyed: devices outlive contexts
  std::lock_guard lock(all_mutex);
  std::unique_ptr<SharedArena>& arena = (*all)[device];
  if (!arena) arena.reset(new SharedArena(device));
  return *arena;
}

void* SharedArena::memory(size_t bytes, tsr_stream* stream) {
  const tsr_device_table& d = device.table();
  if (!base_) {
    // As many addresses as the device has memory: the arena of no plan is larger.
    tsr_device_info info{};
    info.struct_size = sizeof info;
    t::check(d.info(device.self(), device.index(), &info));
    reserved_ = std::max(bytes, static_cast<size_t>(std::max<int64_t>(info.total_bytes, 0)));
    t::check(d.reserve(device.self(), device.index(), reserved_, &base_));
  }
  if (bytes > committed_) {
    t::check(d.commit(device.self(), device.index(), base_, bytes, stream));
    committed_ = bytes;
  }
  return base_;
}

void SharedArena::order(tsr_stream* stream) {
  if (!event_ || last_ == stream) return;
  t::check(device.table().event_wait(device.self(), device.index(), event_, stream));
}

void SharedArena::launched(tsr_stream* stream) {
  if (!event_) t::check(device.table().event_create(device.self(), device.index(), &event_));
  t::check(device.table().event_record(device.self(), device.index(), event_, stream));
  last_ = stream;
}

void SharedArena::wait() {
  if (event_) t::check(device.table().event_synchronize(device.self(), device.index(), event_));
}

void SharedArena::admit(GraphSet* graph, int64_t bytes, int64_t limit) {
  while (!kept_.empty() && kept_bytes_ + bytes > limit) {
    GraphSet* const oldest = kept_.back().graph;
    if (t::log_enabled("cudagraphs"))
      t::log("cudagraphs", "graph '" + oldest->name() + "' is given up: graphs would take more than " +
                               std::to_string(limit >> 20) + " MiB ([cudagraphs] max_mb)");
    oldest->drop();  // which removes it
  }
  kept_.push_front({graph, bytes});
  kept_bytes_ += bytes;
}

void SharedArena::used(GraphSet* graph) {
  const auto it = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.graph == graph; });
  if (it != kept_.end()) kept_.splice(kept_.begin(), kept_, it);
}

void SharedArena::remove(GraphSet* graph) {
  const auto it = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.graph == graph; });
  if (it == kept_.end()) return;
  kept_bytes_ -= it->bytes;
  kept_.erase(it);
}

}  // namespace tessera::cudagraphs
