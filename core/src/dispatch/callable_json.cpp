// SPDX-License-Identifier: Apache-2.0
#include <mutex>
#include <nlohmann/json.hpp>

#include "dispatch/callable.hpp"

namespace tessera::core {

std::string Callable::describe_json() const {
  using Json = nlohmann::ordered_json;
  const std::lock_guard lock(mutex_);
  const EntryTable& table = *table_.load(std::memory_order_relaxed);
  Json entries = Json::array();
  for (const auto& e : table.entries()) {
    Json x;
    x["id"] = e->id.text();
    x["guards"] = Json::array();
    for (const GuardText& g : e->guards.texts()) x["guards"].push_back(g.text);
    x["symbolic"] = e->guards.mask.symbolic;
    x["hits"] = e->hits.load(std::memory_order_relaxed);
    x["last_used"] = e->tick.load(std::memory_order_relaxed);
    x["compile_ms"] = e->compile_seconds * 1e3;
    x["executable"] = Json::parse(e->executable->describe_json());
    entries.push_back(std::move(x));
  }
  Json out;
  out["name"] = frame_->name();
  out["loc"] = frame_->place();
  out["dynamic"] = policy_.dynamic == GuardPolicy::kTrue;
  out["recompile_limit"] = frame_->limits().recompile;
  out["misses"] = misses_;
  out["masks"] = table.num_groups();
  out["entries"] = std::move(entries);
  return out.dump();
}

}  // namespace tessera::core
