// SPDX-License-Identifier: Apache-2.0
#include "queues.hpp"

#include <algorithm>
#include <utility>

namespace tessera::sim {

namespace {

constexpr uint32_t kLost = 1;  // the device that lose_after ends

sdk::Error lost_error(const std::string& what) {
  return {TSR_ENVIRONMENT, "TSR-R047", "device 'sim:1' is gone" + what,
          "start the process anew; until then runs on other devices go on"};
}

}  // namespace

tsr_stream* Queues::create(uint32_t index) {
  const Lock lock(mutex_);
  auto s = std::make_unique<tsr_stream>();
  s->index = index;
  streams_.push_back(s.get());
  return s.release();
}

void Queues::destroy(tsr_stream* s) noexcept {
  const Lock lock(mutex_);
  if (!s->tasks.empty())
    complain("a stream of sim:" + std::to_string(s->index) + " was destroyed with " + std::to_string(s->tasks.size()) +
             " pieces of work queued on it");
  std::erase(streams_, s);
  delete s;
}

void Queues::complain(const std::string& what) {
  const Lock lock(mutex_);
  complaints_.push_back(what);
}

void Queues::raise() {
  if (complaints_.empty()) return;
  const std::string first = complaints_.front();
  complaints_.clear();
  throw sdk::Error(TSR_BUG, "TSR-B038", "device sim: " + first);
}

void Queues::need_running(const tsr_stream* s, const char* what) {
  if (s->recorded)
    throw sdk::Error(TSR_BUG, "TSR-B038",
                     "device sim: a stream of sim:" + std::to_string(s->index) + " that records a graph was " + what);
}

void Queues::need_alive(uint32_t index) {
  const Lock lock(mutex_);
  if (lost_ && index == kLost) throw lost_error("");
}

bool Queues::alive_for(tsr_stream* s, uint32_t index) {
  const Lock lock(mutex_);
  if (!lost_ || index != kLost) return true;
  s->failed = true;
  return false;
}

void Queues::raise_failed(tsr_stream* s) {
  need_alive(s->index);
  if (std::exchange(s->failed, false)) throw lost_error(", and work on 'sim:" + std::to_string(s->index) + "' needed it");
}

// Work of the device never runs, and what stands behind it on other devices is told so.
void Queues::lose() {
  lost_ = true;
  for (tsr_stream* s : streams_) {
    if (s->index != kLost) continue;
    s->failed = true;
    while (!s->tasks.empty()) {
      const Task t = std::move(s->tasks.front());
      s->tasks.pop_front();
      if (t.bookkeeping) t.run();
      ++s->done;
    }
  }
}

void Queues::append(tsr_stream* s, Task t) {
  s->tasks.push_back(std::move(t));
  ++s->queued;
  if (s->tasks.size() > ahead_) drive(nullptr, [&] { return s->tasks.size() <= ahead_ / 2; });
}

void Queues::push(tsr_stream* s, std::function<void()> run) {
  const Lock lock(mutex_);
  need_alive(s->index);
  if (s->recorded) return s->recorded->push_back(std::move(run));
  append(s, {std::move(run), nullptr});
}

void Queues::push_bookkeeping(tsr_stream* s, std::function<void()> run) {
  const Lock lock(mutex_);
  if (lost_ && s->index == kLost) return run();
  if (s->recorded) return s->recorded->push_back(std::move(run));
  append(s, {std::move(run), nullptr, true});
}

std::shared_ptr<Record> Queues::record(tsr_stream* s) {
  const Lock lock(mutex_);
  need_alive(s->index);
  need_running(s, "given an event to record");
  auto record = std::make_shared<Record>();
  append(s, {[record, s] {
               record->passed = true;
               record->failed = s->failed;
               record->time = std::chrono::steady_clock::now();
             },
             nullptr, true});
  return record;
}

void Queues::record(tsr_event* e, tsr_stream* s) {
  const Lock lock(mutex_);
  e->last = record(s);
}

void Queues::wait(const std::shared_ptr<Record>& r, tsr_stream* s) {
  const Lock lock(mutex_);
  if (!r) return;
  need_alive(s->index);
  need_running(s, "told to wait for an event");
  append(s, {nullptr, r});
}

void Queues::wait(tsr_event* e, tsr_stream* s) {
  const Lock lock(mutex_);
  wait(e->last, s);
}

uint64_t Queues::random() {
  const Lock lock(mutex_);
  return random_();
}

bool Queues::step(tsr_stream* wanted, int percent) {
  std::vector<tsr_stream*> ready;
  for (tsr_stream* s : streams_)
    if (!s->tasks.empty() && (s->tasks.front().run || s->tasks.front().awaited->passed)) ready.push_back(s);
  if (ready.empty()) return false;
  tsr_stream* s = ready[random_() % ready.size()];
  if (wanted && std::find(ready.begin(), ready.end(), wanted) != ready.end() && static_cast<int>(random_() % 100) < percent)
    s = wanted;
  if (lose_after_ >= 0 && s->index == kLost && s->tasks.front().run && !s->tasks.front().bookkeeping && lose_after_-- == 0) {
    lose();
    return true;
  }
  const Task t = std::move(s->tasks.front());
  s->tasks.pop_front();
  if (t.run)
    t.run();
  else
    s->failed = s->failed || t.awaited->failed;
  ++s->done;
  return true;
}

void Queues::drive(tsr_stream* wanted, const std::function<bool()>& enough) {
  // Sometimes the stream that is waited for hurries ahead of all others, sometimes it comes last.
  static constexpr int kPercent[] = {0, 50, 100};
  const int percent = kPercent[random_() % 3];
  while (!enough())
    if (!step(wanted, percent)) return;
}

void Queues::run_until(const std::function<bool()>& enough) {
  const Lock lock(mutex_);
  drive(nullptr, enough);
}

void Queues::finish(tsr_stream* s) {
  const Lock lock(mutex_);
  need_running(s, "waited for");
  const uint64_t all = s->queued;
  drive(s, [&] { return s->done >= all; });
  if (s->done < all) complain("streams wait for each other: nothing that is queued can run");
  raise();
  raise_failed(s);
}

void Queues::finish(tsr_event* e) {
  const Lock lock(mutex_);
  const std::shared_ptr<Record> record = e->last;
  drive(nullptr, [&] { return !record || record->passed; });
  if (record && !record->passed) complain("streams wait for each other: nothing that is queued can run");
  raise();
  need_alive(e->index);
}

bool Queues::query(tsr_event* e) {
  const Lock lock(mutex_);
  for (uint64_t n = random_() % 4; n > 0; --n) step(nullptr, 0);  // time passes
  return !e->last || e->last->passed;
}

double Queues::elapsed(tsr_event* from, tsr_event* to) {
  const Lock lock(mutex_);
  return std::chrono::duration<double>(to->last->time - from->last->time).count();
}

void Queues::run_now(tsr_stream* s, std::function<void()> run) {
  const Lock lock(mutex_);
  need_running(s, "waited for");
  append(s, {std::move(run), nullptr});
  finish(s);
}

}  // namespace tessera::sim
