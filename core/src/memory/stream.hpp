// SPDX-License-Identifier: Apache-2.0
// Streams: queues of devices, and the order between them.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "memory/device.hpp"
#include "memory/waits.hpp"
#include "tessera/embed.h"

// What clients hold is a core::Stream.
struct tsr_stream_handle {};

namespace tessera::core {

class Stream;

// The work that had been queued on a stream when `tick` was given out. Everything that waits is expressed in such points:
// whoever waits for one needs no event of its own, since an event that is recorded later covers the point too.
struct StreamPoint {
  Stream* stream = nullptr;
  uint64_t tick = 0;
};

// A queue of a device. Objects live as long as the process: buffers keep points on streams that are gone, and those have
// passed. Thread-safe; threads that queue work on one stream at the same time leave its order to chance.
class Stream : public tsr_stream_handle {
 public:
  Stream(Device& device, tsr_stream* raw) : device_(device), raw_(raw) {}
  Stream(const Stream&) = delete;

  static Stream& create(Device& device);              // a queue of its own
  static Stream& wrap(Device& device, void* native);  // of another library; throws TSR-R041
  static void destroy(Stream&) noexcept;              // waits for what is queued on it
  static Stream* from(tsr_stream_handle* s) { return static_cast<Stream*>(s); }

  Device& device() const { return device_; }
  tsr_stream* raw() const { return raw_.load(std::memory_order_acquire); }  // null: the queue is gone

  // Behind everything that the calling thread has queued so far.
  StreamPoint point() noexcept { return {this, submitted_.fetch_add(1, std::memory_order_acq_rel) + 1}; }
  // What is queued here from now on runs behind `p`. Blocks the host where the two devices have no common events.
  void wait(const StreamPoint& p, Wait why);
  // The same for who does not know whether this queue is still there. False: it is gone.
  bool wait_while_alive(const StreamPoint& p, Wait why);
  // The host waits for `p`, or for everything that is queued here. Throws errors of the device, never those of kernels.
  static void host_wait(const StreamPoint& p, Wait why);
  void synchronize(Wait why);
  // Calls `f` while the queue cannot go away. False: it is gone.
  template <class F>
  bool while_alive(F&& f) {
    const std::shared_lock life(life_);
    if (!raw()) return false;
    f();
    return true;
  }
  bool has_passed(const StreamPoint& p) const noexcept { return p.tick <= p.stream->passed_.load(std::memory_order_acquire); }

  // Whether somebody is recording what is queued here into a graph. Waiting for it throws TSR-R046 then.
  bool is_captured() const { return device_.is_captured(raw_); }
  void require_not_captured(const char* who) const;  // `who` would wait for it

  // Where kernels on this stream report what is wrong with their data.
  tsr_fault* fault();
  // Throws what kernels have reported, as the error of the step that found it, and forgets it.
  void raise_fault();

 private:
  friend class StreamRegistry;
  void finish();  // with `life_` held
  bool needs_no_wait(const StreamPoint& p) const noexcept { return !p.stream || p.stream == this || has_passed(p); }
  void wait_alive(const StreamPoint& p, Wait why);  // with the `life_` of that stream held
  Device& device_;
  std::atomic<tsr_stream*> raw_;  // a buffer may ask while its stream goes away, or serves somebody else by then
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint64_t> passed_{0};  // the host knows that all work up to here is done
  std::atomic<tsr_fault*> fault_{nullptr};
  std::shared_mutex
      life_;  // exclusive: while the queue goes away. Other threads hold points on it, and may be about to wait for one
  std::mutex mutex_;
  std::unordered_map<const Stream*, uint64_t> seen_;  // what is queued here comes behind that much of another stream
};

// The calling thread's stream of a device: its own choice, else the one that all threads share. The device is not the host.
Stream& current_stream(Device& device);
// The one that all threads share, which stays as long as the process.
Stream& shared_stream(Device& device);
// null: the shared one. Returns what was current.
Stream& set_current_stream(Device& device, Stream* stream);
// Waits for all streams of a device, then throws what kernels have found.
void synchronize_device(Device& device);

// Names of launches for messages about faults (tsr_launch.site), and what a fault of theirs costs the caller: "the donated
// state 's' of the call is lost", or nothing. Thread-safe.
uint64_t register_site(std::string where, std::string lost = {});
void unregister_site(uint64_t site) noexcept;

}  // namespace tessera::core
