// SPDX-License-Identifier: Apache-2.0
#include <mutex>
#include <nlohmann/json.hpp>

#include "capture/breaks.hpp"
#include "dispatch/callable.hpp"
#include "dispatch/segment.hpp"
#include "ir/graph.hpp"

namespace tessera::core {

using Json = nlohmann::ordered_json;

namespace {
Json texts_of(const Guards& guards) {
  Json out = Json::array();
  for (const GuardText& g : guards.texts()) out.push_back(g.text);
  return out;
}
size_t ops_of(const Graph& g) {
  size_t n = 0;
  for (const tsr_id node : nodes_of(g, 0)) n += std::string_view(g.node(node).op) != "constant";
  return n;
}
}  // namespace

std::string Callable::describe_json() const {
  const std::lock_guard lock(capture_lock_);
  const EntryTable& table = *tables_.back();
  Json entries = Json::array();
  for (const auto& e : table.entries()) {
    Json x;
    x["id"] = e->id.text();
    x["guards"] = texts_of(e->guards);
    x["symbolic"] = e->guards.mask.symbolic;
    x["hits"] = e->hits.load(std::memory_order_relaxed);
    x["last_used"] = e->tick.load(std::memory_order_relaxed);
    x["compile_ms"] = e->compile_seconds * 1e3;
    if (e->then) x["breaks"] = !e->then->returns;
    if (e->executable) x["ops"] = ops_of(e->executable->graph());
    if (e->executable) x["executable"] = Json::parse(e->executable->describe_json());
    entries.push_back(std::move(x));
  }
  const Paths& paths = *paths_.back();
  Json frames = Json::array(), breaks = Json::array();
  for (const auto& f : paths.frames) {
    Json segments = Json::array();
    for (const auto& s : f->segments) {
      Json x;
      x["id"] = s->number < 0 ? Json(nullptr) : Json(f->frame->compile(s->number).text());
      x["ops"] = s->ops;
      x["guards"] = texts_of(s->guards);
      x["compile_ms"] = s->compile_seconds * 1e3;
      if (s->executable) x["executable"] = Json::parse(s->executable->describe_json());
      segments.push_back(std::move(x));
    }
    Json x;
    x["name"] = f->frame->name();
    x["loc"] = f->frame->place();
    if (f->branch >= 0) x["branch"] = f->branch != 0;
    x["segments"] = std::move(segments);
    frames.push_back(std::move(x));
  }
  for (const Paths::Break& b : paths.breaks) {
    const BreakReason& why = break_reason(b.code);
    Json x;
    x["code"] = break_code_text(b.code);
    x["loc"] = b.place;
    x["what"] = why.title;
    x["detail"] = b.detail;
    x["why"] = why.why;
    x["fix"] = why.fixes;
    x["paths"] = b.count;
    breaks.push_back(std::move(x));
  }
  Json out;
  out["name"] = frame_->name();
  out["loc"] = frame_->place();
  out["dynamic"] = policy_.dynamic == GuardPolicy::kTrue;
  out["recompile_limit"] = frame_->limits().recompile;
  out["misses"] = misses_;
  out["evicted"] = table.evicted();
  out["masks"] = table.num_groups();
  out["entries"] = std::move(entries);
  if (!frames.empty()) {
    out["frames"] = std::move(frames);
    out["breaks"] = std::move(breaks);
  }
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);  // strings of a call may be no UTF-8
}

}  // namespace tessera::core
