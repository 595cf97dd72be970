// SPDX-License-Identifier: Apache-2.0
#include <mutex>
#include <nlohmann/json.hpp>

#include "dispatch/callable_state.hpp"

namespace tessera::core {

namespace {
std::mutex frame_mutex;
int64_t next_frame = 0, live_frames = 0;
}  // namespace

void Frame::acquire() {
  if (id_ >= 0) return;
  const std::lock_guard lock(frame_mutex);
  id_ = next_frame++;
  ++live_frames;
}

void Frame::reset() {
  if (id_ < 0) return;
  id_ = -1;
  const std::lock_guard lock(frame_mutex);
  if (--live_frames == 0) next_frame = 0;
}

std::string Callable::describe_json() const {
  using Json = nlohmann::ordered_json;
  const std::lock_guard lock(mutex_);
  const State& state = *state_.load(std::memory_order_relaxed);
  Json entries = Json::array();
  for (const auto& e : state.entries) {
    Json x;
    x["id"] = std::to_string(state.frame.id()) + "/" + std::to_string(e->number);
    x["guards"] = guard_texts(e->expected, e->symbolic);
    x["symbolic"] = e->mask.symbolic;
    x["hits"] = e->hits.load(std::memory_order_relaxed);
    x["last_used"] = e->tick.load(std::memory_order_relaxed);
    x["compile_ms"] = e->compile_seconds * 1e3;
    x["executable"] = Json::parse(e->executable->describe_json());
    entries.push_back(std::move(x));
  }
  Json out;
  out["name"] = name_;
  out["loc"] = place();
  out["dynamic"] = dynamic_;
  out["recompile_limit"] = limit_;
  out["misses"] = state.misses;
  out["masks"] = state.all_groups.size();
  out["entries"] = std::move(entries);
  return out.dump();
}

}  // namespace tessera::core
