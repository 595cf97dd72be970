// SPDX-License-Identifier: Apache-2.0
#include "dispatch/events.hpp"

#include <algorithm>
#include <mutex>

namespace tessera::core {

namespace {

using Listeners = std::vector<std::shared_ptr<DispatchListener>>;

class Forward final : public DispatchListener {
 public:
  Forward() : list_(std::make_shared<Listeners>(Listeners{make_dispatch_log(), make_dispatch_trace()})) {}

  void add(std::shared_ptr<DispatchListener> l) {
    const std::lock_guard lock(mutex_);
    auto list = std::make_shared<Listeners>(*list_);
    list->push_back(std::move(l));
    list_ = std::move(list);
  }
  void remove(const DispatchListener* l) {
    const std::lock_guard lock(mutex_);
    auto list = std::make_shared<Listeners>(*list_);
    list->erase(std::remove_if(list->begin(), list->end(), [l](const auto& x) { return x.get() == l; }), list->end());
    list_ = std::move(list);
  }

  bool wants_reasons() const override {
    const auto list = listeners();
    return std::any_of(list->begin(), list->end(), [](const auto& l) { return l->wants_reasons(); });
  }
  bool wants_guards() const override {
    const auto list = listeners();
    return std::any_of(list->begin(), list->end(), [](const auto& l) { return l->wants_guards(); });
  }
  void recompiling(const RecompileEvent& e) override {
    for (const auto& l : *listeners()) l->recompiling(e);
  }
  void capture_begins(const Frame& f, const CompileId& id) override {
    for (const auto& l : *listeners()) l->capture_begins(f, id);
  }
  void capture_ended(const CaptureEvent& e) override {
    for (const auto& l : *listeners()) l->capture_ended(e);
  }
  void compiled(const CompiledEvent& e) override {
    for (const auto& l : *listeners()) l->compiled(e);
  }
  void failed(const FailedEvent& e) override {
    for (const auto& l : *listeners()) l->failed(e);
  }
  void limit_hit(const LimitEvent& e) override {
    for (const auto& l : *listeners()) l->limit_hit(e);
  }
  void redefined(const RedefinedEvent& e) override {
    for (const auto& l : *listeners()) l->redefined(e);
  }
  void graph_break(const GraphBreakEvent& e) override {
    for (const auto& l : *listeners()) l->graph_break(e);
  }
  void fallback(const FallbackEvent& e) override {
    for (const auto& l : *listeners()) l->fallback(e);
  }

 private:
  std::shared_ptr<const Listeners> listeners() const {
    const std::lock_guard lock(mutex_);
    return list_;
  }
  mutable std::mutex mutex_;
  std::shared_ptr<const Listeners> list_;  // replaced as a whole, so that events are told without the lock
};

Forward& forward() {
  static auto* f = new Forward;  // callables with static storage may compile until the very end
  return *f;
}

}  // namespace

void add_dispatch_listener(std::shared_ptr<DispatchListener> listener) { forward().add(std::move(listener)); }
void remove_dispatch_listener(const DispatchListener* listener) { forward().remove(listener); }
DispatchListener& dispatch_events() { return forward(); }

}  // namespace tessera::core
