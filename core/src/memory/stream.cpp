// SPDX-License-Identifier: Apache-2.0
#include "memory/stream.hpp"

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "support/error.hpp"

namespace tessera::core {

class StreamRegistry {
 public:
  static StreamRegistry& get() {
    static auto* r = new StreamRegistry;  // never destroyed, as devices
    return *r;
  }

  Stream& shared(Device& d) {
    if (Stream* s = shared_[d.id()].load(std::memory_order_acquire)) return *s;
    std::lock_guard lock(mutex_);
    if (Stream* s = shared_[d.id()].load(std::memory_order_acquire)) return *s;
    Stream& s = make(d, d.make_stream());
    shared_[d.id()].store(&s, std::memory_order_release);
    return s;
  }
  Stream& add(Device& d, tsr_stream* raw) {
    std::lock_guard lock(mutex_);
    return make(d, raw);
  }
  void remove(Stream& s) noexcept {
    std::lock_guard lock(mutex_);
    s.device_.destroy_stream(s.raw_);
    s.raw_ = nullptr;
    free_[s.device_.id()].push_back(&s);
  }
  std::vector<Stream*> of(Device& d) {
    std::lock_guard lock(mutex_);
    std::vector<Stream*> out;
    for (Stream& s : all_)
      if (&s.device_ == &d && s.raw_) out.push_back(&s);
    return out;
  }

 private:
  // An object that a stream has left goes on counting where that stopped: its old points have passed.
  Stream& make(Device& d, tsr_stream* raw) {
    if (auto& free = free_[d.id()]; !free.empty()) {
      Stream& s = *free.back();
      free.pop_back();
      {
        const std::lock_guard own(s.mutex_);
        s.seen_.clear();
      }
      s.raw_ = raw;
      return s;
    }
    return all_.emplace_back(d, raw);
  }

  std::mutex mutex_;
  std::deque<Stream> all_;
  std::atomic<Stream*> shared_[kMaxDevices] = {};
  std::map<tsr_device, std::vector<Stream*>> free_;
};

namespace {

Error captured_wait(const Device& d, const std::string& who) {
  return user_error("TSR-R046",
                    who + " and a stream of device '" + d.name() +
                        "' have to be brought into order, and that stream is being captured into a graph, which cannot wait",
                    "synchronise before the capture begins, keep tensors on the captured stream's device, and donate states");
}

}  // namespace

Stream& Stream::create(Device& d) { return StreamRegistry::get().add(d, d.make_stream()); }

Stream& Stream::wrap(Device& d, void* native) { return StreamRegistry::get().add(d, d.wrap_stream(native)); }

void Stream::destroy(Stream& s) noexcept {
  std::unique_lock life(s.life_);
  try {
    if (!is_removed(Wait::kStreamDestroyed)) s.finish();
  } catch (const Error&) {}  // a device that fails says so to the next who queues work
  StreamRegistry::get().remove(s);
}

void Stream::wait(const StreamPoint& p, Wait why) {
  if (needs_no_wait(p)) return;
  const std::shared_lock life(p.stream->life_);
  wait_alive(p, why);
}

bool Stream::wait_while_alive(const StreamPoint& p, Wait why) {
  if (needs_no_wait(p)) return true;
  std::shared_lock mine(life_, std::defer_lock), other(p.stream->life_, std::defer_lock);
  std::lock(mine, other);
  if (!raw()) return false;
  wait_alive(p, why);
  return true;
}

void Stream::wait_alive(const StreamPoint& p, Wait why) {
  if (has_passed(p)) return;  // it is gone meanwhile, or another's by now
  const std::lock_guard lock(mutex_);
  uint64_t& seen = seen_[p.stream];
  if (seen >= p.tick || is_removed(why)) return;
  // The count is read first: work that is queued in between is covered by the event, but not promised.
  const uint64_t covered = p.stream->submitted_.load(std::memory_order_acquire);
  if (is_captured() != p.stream->is_captured()) throw captured_wait(device_, "work on another stream");
  if (!device_.wait_for_stream(raw_, p.stream->device_, p.stream->raw_)) p.stream->finish();
  seen = covered;
}

void Stream::require_not_captured(const char* who) const {
  if (is_captured()) throw captured_wait(device_, who);
}

void Stream::synchronize(Wait why) {
  if (is_removed(why)) return;
  std::shared_lock life(life_);
  if (raw_) finish();
}

void Stream::finish() {
  require_not_captured("the host");
  const uint64_t covered = submitted_.load(std::memory_order_acquire);
  device_.synchronize(raw_);
  uint64_t passed = passed_.load(std::memory_order_relaxed);
  while (passed < covered && !passed_.compare_exchange_weak(passed, covered, std::memory_order_release)) {}
}

void Stream::host_wait(const StreamPoint& p, Wait why) {
  if (!p.stream || p.stream->has_passed(p)) return;
  p.stream->synchronize(why);
}

// ---------------------------------------------------------------------------------------------------- current streams

namespace {

struct Current {
  Stream* streams[kMaxDevices] = {};
};
thread_local std::unique_ptr<Current> t_current;

}  // namespace

Stream& current_stream(Device& d) {
  if (t_current && t_current->streams[d.id()]) return *t_current->streams[d.id()];
  return StreamRegistry::get().shared(d);
}

Stream& shared_stream(Device& d) { return StreamRegistry::get().shared(d); }

Stream& set_current_stream(Device& d, Stream* s) {
  Stream& before = current_stream(d);
  if (!t_current) t_current = std::make_unique<Current>();
  t_current->streams[d.id()] = s == &StreamRegistry::get().shared(d) ? nullptr : s;
  return before;
}

void synchronize_device(Device& d) {
  if (!d.has_streams()) return;
  const std::vector<Stream*> streams = StreamRegistry::get().of(d);
  for (Stream* s : streams) s->synchronize(Wait::kUser);
  for (Stream* s : streams) s->raise_fault();
}

// ------------------------------------------------------------------------------------------------------------- faults

namespace {

struct Sites {
  std::mutex mutex;
  struct Site {
    std::string where, lost;
  };
  std::unordered_map<uint64_t, Site> texts;
  uint64_t next = 1;
  static Sites& get() {
    static auto* s = new Sites;  // never destroyed: plans with static storage go after any destructor here
    return *s;
  }
};

}  // namespace

uint64_t register_site(std::string where, std::string lost) {
  Sites& s = Sites::get();
  std::lock_guard lock(s.mutex);
  s.texts[s.next] = {std::move(where), std::move(lost)};
  return s.next++;
}

void unregister_site(uint64_t site) noexcept {
  Sites& s = Sites::get();
  std::lock_guard lock(s.mutex);
  s.texts.erase(site);
}

tsr_fault* Stream::fault() {
  if (tsr_fault* f = fault_.load(std::memory_order_acquire)) return f;
  std::lock_guard lock(mutex_);
  if (tsr_fault* f = fault_.load(std::memory_order_acquire)) return f;
  auto* f = static_cast<tsr_fault*>(device_.allocate_pinned(sizeof(tsr_fault)));
  *f = {};
  fault_.store(f, std::memory_order_release);
  return f;
}

void Stream::raise_fault() {
  tsr_fault* const f = fault_.load(std::memory_order_acquire);
  if (!f || __atomic_load_n(&f->code, __ATOMIC_ACQUIRE) == 0) return;
  const tsr_fault found = *f;
  if (uint32_t code = found.code; !__atomic_compare_exchange_n(&f->code, &code, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return;  // another thread raises it
  __atomic_store_n(&f->claim, 0, __ATOMIC_RELEASE);
  std::string where = "a step that is gone", lost;
  {
    Sites& s = Sites::get();
    std::lock_guard lock(s.mutex);
    if (const auto at = s.texts.find(found.site); at != s.texts.end()) {
      where = at->second.where;
      lost = at->second.lost;
    }
  }
  where += ", on device '" + device_.name() + "'";
  if (!lost.empty()) where += "; " + lost;
  switch (found.code) {
    case TSR_FAULT_INDEX:
      throw user_error("TSR-R011",
                       (found.values[1] > 0 ? "index " + std::to_string(found.values[0]) + " is out of range for size " +
                                                  std::to_string(found.values[1])
                                            : std::string("an index is out of range")) +
                           " in " + where,
                       "indices must be in [0, size); negative ones are not wrapped");
    case TSR_FAULT_DIVISION: throw user_error("TSR-R010", "integer division by zero in " + where);
    default:
      throw user_error("TSR-R042", "data that the op cannot take in " + where,
                       "run the same on the host for the op's own message");
  }
}

}  // namespace tessera::core
