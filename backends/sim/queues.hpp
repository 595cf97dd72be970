// SPDX-License-Identifier: Apache-2.0
// The streams of all simulated devices: work that is queued runs late, on the thread that waits for it, in an order that a seed
// chooses.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tessera/plugin.hpp"

namespace tessera::sim {

// One recording of an event. Whoever waits keeps the one that he waits for: later ones may pass before it, on other streams.
struct Record {
  bool passed = false;
  bool failed = false;  // what it stands for rests on work of a device that is gone
  std::chrono::steady_clock::time_point time;
};

// One piece of work. Without `run` it waits.
struct Task {
  std::function<void()> run;
  std::shared_ptr<Record> awaited;
  bool bookkeeping = false;  // also done for a device that is gone
};

}  // namespace tessera::sim

struct tsr_stream {
  uint32_t index = 0;
  // Set: the stream records. What is queued goes there and does not run, and nobody may wait for it.
  std::vector<std::function<void()>>* recorded = nullptr;
  std::deque<tessera::sim::Task> tasks;
  uint64_t queued = 0, done = 0;
  bool failed = false;  // what has run rests on work of a device that is gone: who waits next hears of it
};
struct tsr_event {
  uint32_t index = 0;
  std::shared_ptr<tessera::sim::Record> last;  // null: never recorded
};

namespace tessera::sim {

// Every stream is in order; among streams whose first task need not wait, the seed picks the next. Thread-safe.
class Queues {
 public:
  // With `lose_after` of 0 and more, sim:1 is gone once that many pieces of work have run on it.
  Queues(uint64_t seed, size_t ahead, int64_t lose_after = -1) : random_(seed), ahead_(ahead), lose_after_(lose_after) {}

  tsr_stream* create(uint32_t index);
  void destroy(tsr_stream* s) noexcept;
  void push(tsr_stream* s, std::function<void()> run);
  void push_bookkeeping(tsr_stream* s, std::function<void()> run);  // of a device that is gone it runs at once
  void record(tsr_event* e, tsr_stream* s);
  std::shared_ptr<Record> record(tsr_stream* s);
  void wait(tsr_event* e, tsr_stream* s);
  void wait(const std::shared_ptr<Record>& r, tsr_stream* s);
  uint64_t random();

  // Runs work until everything that is queued on the stream now is done. Throws what went wrong anywhere since it was last
  // asked.
  void finish(tsr_stream* s);
  void finish(tsr_event* e);
  bool query(tsr_event* e);
  double elapsed(tsr_event* from, tsr_event* to);
  // Runs work until `enough`, or until there is none.
  void run_until(const std::function<bool()>& enough);
  // Queues work and runs until it is done.
  void run_now(tsr_stream* s, std::function<void()> run);
  // Work that broke a rule: the next who waits hears of it.
  void complain(const std::string& what);
  // A device that is gone fails every call, as a card does that has fallen off its bus. Throws TSR-R047.
  void need_alive(uint32_t index);
  // Called by work that needs memory of another device: false, and the stream fails, where that one is gone.
  bool alive_for(tsr_stream* s, uint32_t index);

 private:
  using Lock = std::unique_lock<std::recursive_mutex>;
  bool step(tsr_stream* wanted, int percent);  // one task; false: none can run
  void drive(tsr_stream* wanted, const std::function<bool()>& enough);
  void append(tsr_stream* s, Task t);
  void raise();
  void raise_failed(tsr_stream* s);
  void lose();                                                      // sim:1
  static void need_running(const tsr_stream* s, const char* what);  // throws when the stream records

  std::recursive_mutex mutex_;
  std::mt19937_64 random_;
  size_t ahead_;
  int64_t lose_after_;
  bool lost_ = false;  // sim:1
  std::vector<tsr_stream*> streams_;
  std::vector<std::string> complaints_;
};

}  // namespace tessera::sim
