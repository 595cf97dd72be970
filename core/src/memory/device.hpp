// SPDX-License-Identifier: Apache-2.0
// Devices: process-wide interned ids and, behind each, the memory that a plugin's device table (or the host) provides.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

inline constexpr size_t kAlignment = 64;  // of every buffer and of every offset in an arena, bytes
inline constexpr tsr_device kCpu = 0;
inline constexpr tsr_device kNoDevice = 0xffffffffu;
inline constexpr size_t kMaxDevices = 256;

// One memory and the counters over it. Objects are made on first mention of their name and live as long as the process.
// Thread-safe. An interned device that no plugin provides exists, but allocating on it is error TSR-R002.
class Device {
 public:
  Device(tsr_device id, std::string kind, uint32_t index, std::string name);
  Device(const Device&) = delete;

  tsr_device id() const { return id_; }
  const std::string& name() const { return name_; }  // "cpu", "null:1"
  const std::string& kind() const { return kind_; }  // "cpu", "null"
  uint32_t index() const { return index_; }
  bool available() const;
  void require() const;  // throws TSR-R002 where nobody serves it, with what there is
  bool host_accessible() const;

  bool has_streams() const { return id_ != kCpu && provider_.load(std::memory_order_acquire) != nullptr; }

  // 64-byte aligned, for work on the stream from now on; the host has none (null). Throws TSR-R001 (out of memory, with the
  // bytes asked for) or TSR-R002.
  void* allocate(size_t bytes, tsr_stream* stream);
  void free(void* p, size_t bytes, tsr_stream* stream) noexcept;
  // Of a device with streams, in stream order. When it returns, a destination in host memory is readable and a host source may
  // be reused.
  void copy(void* dst, const void* src, size_t bytes, uint32_t direction, tsr_stream* stream);
  // False: the device cannot, and nothing was done. Source and destination of copy_strided lie on this device; those of
  // copy_peer on `from` and on this device, whose stream it is.
  bool copy_strided(const tsr_tensor& dst, const tsr_tensor& src, tsr_stream* stream);
  bool copy_peer(void* dst, Device& from, const void* src, size_t bytes, tsr_stream* stream);

  // ---- streams of this device, as its table knows them
  tsr_stream* make_stream();
  tsr_stream* wrap_stream(void* native);  // throws TSR-R041
  void destroy_stream(tsr_stream* stream) noexcept;
  void synchronize(tsr_stream* stream);
  // `stream` waits for what is queued on another stream by now. False: there is no event that both devices know.
  bool wait_for_stream(tsr_stream* stream, Device& other, tsr_stream* awaited);
  // Whether somebody is recording the stream into a graph: then nobody may wait for it, nor ask for its events.
  bool is_captured(tsr_stream* stream);

  // ---- events that time work. Taken ones come from a store that grows with the number in use.
  tsr_event* take_event();
  void give_event(tsr_event* event) noexcept;
  void record(tsr_event* event, tsr_stream* stream);
  void synchronize(tsr_event* event);
  double elapsed(tsr_event* from, tsr_event* to);  // seconds; both have passed
  // How many copies have been queued so far, by direction; those between devices are counted by the one that gets them.
  struct Copies {
    int64_t to_device = 0, to_host = 0, within = 0;
    bool operator==(const Copies&) const = default;
  };
  Copies copies() const noexcept;
  void* allocate_pinned(size_t bytes);  // host memory that the device addresses; stays with the process
  int64_t total_bytes();                // 0: unknown
  // The table that serves this device, with the `self` of its functions; null: the host, or nobody.
  const tsr_device_table* table(void** self) const noexcept;

  // Bytes of live buffers, counted by the owner of the buffers (buffer.cpp), and their maximum.
  //
  // What a thread frees it notes in a ledger of its own at first, and takes from there what it allocates next: a steady call
  // touches no counter that others write. The maximum is exact while one thread allocates, and at most kMaxNoted too high for
  // each further one.
  struct Ledger {  // written by its thread alone
    std::atomic<int64_t> freed{0};
  };
  static constexpr int64_t kMaxNoted = 64 << 10;
  void add_ledger(const Ledger* l);
  void remove_ledger(Ledger* l) noexcept;
  void count_allocated(int64_t bytes, Ledger& own) noexcept {
    const int64_t noted = own.freed.load(std::memory_order_relaxed);
    if (noted >= bytes) [[likely]] {
      own.freed.store(noted - bytes, std::memory_order_relaxed);
      return;
    }
    own.freed.store(0, std::memory_order_relaxed);
    count_allocated(bytes - noted);
  }
  void count_freed(int64_t bytes, Ledger& own) noexcept {
    const int64_t noted = own.freed.load(std::memory_order_relaxed) + bytes;
    if (noted <= kMaxNoted) [[likely]] {
      own.freed.store(noted, std::memory_order_relaxed);
      return;
    }
    own.freed.store(0, std::memory_order_relaxed);
    count_freed(noted);
  }
  void count_allocated(int64_t bytes) noexcept {
    const int64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {}
  }
  void count_freed(int64_t bytes) noexcept { in_use_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t in_use() const;
  int64_t peak(bool reset) noexcept;

 private:
  friend class DeviceRegistry;
  struct Provider {  // immutable once published
    const tsr_device_table* table;
    void* self;
    bool host_accessible;
    std::string plugin, vendor;
    std::shared_ptr<const void> keep;  // the plugin's instance
  };
  const Provider& provider() const;  // throws TSR-R002

  tsr_device id_;
  std::string kind_;
  uint32_t index_;
  std::string name_;
  std::atomic<const Provider*> provider_{nullptr};
  mutable std::mutex ledgers_mutex_;
  std::vector<const Ledger*> ledgers_;
  std::mutex events_mutex_;
  std::vector<tsr_event*> events_;       // that nobody uses
  std::atomic<int64_t> copies_[3] = {};  // by TSR_COPY_TO_DEVICE, TSR_COPY_TO_HOST, TSR_COPY_WITHIN
  alignas(64) std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
};

// Interns "cpu", "null:1"; "null" means "null:0" and "cpu:0" is "cpu". Throws TSR-T030 for a malformed name.
tsr_device device_intern(std::string_view name);
// The device of an id; throws TSR-T031 for a number that device_intern never gave.
Device& device(tsr_device id);
// nullptr instead of throwing.
Device* find_device(tsr_device id) noexcept;
std::vector<Device*> all_devices();

// Makes a plugin's devices usable. Process-wide, because ids are: the first instance of a plugin that brings a kind of device
// serves it until the process ends (`keep` is retained, so that buffers may outlive the context). Registering the same kind
// again from the same plugin is a no-op; from another plugin it is error TSR-R003.
void register_devices(const tsr_device_table& table, void* self, std::string plugin, std::string vendor,
                      std::shared_ptr<const void> keep);

}  // namespace tessera::core
