// SPDX-License-Identifier: Apache-2.0
#include "memory/device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "log/log.hpp"
#include "memory/block_pool.hpp"
#include "memory/pool.hpp"
#include "support/escaped.hpp"

namespace tessera::core {

namespace {

// More than this cannot be backed by memory, whatever the kernel's overcommit policy lets malloc promise: refusing up front
// gives a message where touching the pages would end the process.
size_t physical_bytes() {
  static const size_t bytes = [] {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(size) : SIZE_MAX / 2;
  }();
  return bytes;
}

Error out_of_memory(const std::string& device, size_t bytes, const std::string& why) {
  return environment_error("TSR-R001",
                           "out of memory on device '" + device + "': asked for " + std::to_string(bytes) + " bytes" +
                               (why.empty() ? "" : "; " + why),
                           "use smaller sizes, release tensors that are no longer needed, or a device with more memory");
}

// Calls f(), which calls `function` of the table of a device's provider: throws its error. An exception that leaves it is the
// bug of the provider's plugin.
template <class P, class F>
void ask(const P& provider, const std::string& device, const char* function, F&& f) {
  const auto where = [&] {
    return "plugin '" + provider.plugin + "' (" + provider.vendor + "): an exception left " + function + " of device '" +
           device + "'";
  };
  throw_if(contained(f, where), provider.plugin, provider.vendor);
}
// As ask(), of what cannot fail: a warning.
template <class F>
void ask_quietly(const std::string& device, const char* function, F&& f) noexcept {
  try {
    f();
  } catch (...) {
    log_warning("an exception left " + std::string(function) + " of device '" + device + "': " + what_was_thrown());
  }
}

void* host_allocate(size_t bytes) {
  if (bytes > physical_bytes()) throw out_of_memory("cpu", bytes, "the machine has " + std::to_string(physical_bytes()));
  // Huge pages for what spans several: fewer TLB misses in streaming kernels.
  const bool huge = bytes >= 2 * kHugePage;
  const size_t align = huge ? kHugePage : kAlignment;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* p = nullptr;
  if (posix_memalign(&p, align, rounded) != 0) throw out_of_memory("cpu", bytes, "");
  if (huge) madvise(p, rounded, MADV_HUGEPAGE);
  return p;
}

}  // namespace

class DeviceRegistry {
 public:
  static DeviceRegistry& get() {
    static DeviceRegistry* r = new DeviceRegistry;  // never destroyed: buffers may be released by static destructors
    return *r;
  }

  DeviceRegistry() { add("cpu", 0, "cpu"); }

  tsr_device intern(std::string_view name) {
    const size_t colon = name.find(':');
    const std::string_view kind = name.substr(0, colon);
    uint32_t index = 0;
    bool ok = !kind.empty();
    for (size_t i = 0; i < kind.size(); ++i) {
      const char c = kind[i];
      ok = ok && ((c >= 'a' && c <= 'z') || (i > 0 && ((c >= '0' && c <= '9') || c == '_')));
    }
    if (colon != std::string_view::npos) {
      const std::string_view digits = name.substr(colon + 1);
      ok = ok && !digits.empty() && digits.size() <= 4;
      for (const char c : digits) {
        ok = ok && c >= '0' && c <= '9';
        index = index * 10 + static_cast<uint32_t>(c - '0');
      }
    }
    if (ok && kind == "cpu") ok = index == 0;
    if (!ok)
      throw user_error("TSR-T030", "'" + std::string(name) + "' is not a device",
                       "write 'cpu', or a kind and a number such as 'null:0'");
    std::string full(kind);
    if (kind != "cpu") full += ":" + std::to_string(index);
    std::lock_guard lock(mutex_);
    if (const auto it = ids_.find(full); it != ids_.end()) return it->second;
    return add(std::string(kind), index, full);
  }

  Device* find(tsr_device id) noexcept { return id < kMaxDevices ? devices_[id].load(std::memory_order_acquire) : nullptr; }

  std::vector<Device*> all() {
    std::vector<Device*> out;
    for (auto& d : devices_)
      if (Device* p = d.load(std::memory_order_acquire)) out.push_back(p);
    return out;
  }

  void provide(const tsr_device_table& table, void* self, std::string plugin, std::string vendor,
               std::shared_ptr<const void> keep) {
    if (!table.name || std::strcmp(table.name, "cpu") == 0)
      throw bug("TSR-R003", "plugin '" + plugin + "' provides a device named '" + (table.name ? table.name : "") +
                                "', which is the host's own");
    for (uint32_t i = 0; i < table.count; ++i) {
      Device& d = *find(intern(std::string(table.name) + ":" + std::to_string(i)));
      std::lock_guard lock(mutex_);
      if (const auto* old = d.provider_.load(std::memory_order_acquire)) {
        if (old->plugin == plugin) continue;
        throw user_error("TSR-R003",
                         "device '" + d.name() + "' is provided by plugin '" + old->plugin +
                             "' in this process, and by plugin '" + plugin + "'",
                         "keep one of the two plugins in the config");
      }
      tsr_device_info info{};
      info.struct_size = sizeof info;
      auto made = std::make_unique<Device::Provider>(Device::Provider{&table, self, false, plugin, vendor, keep});
      if (table.info) ask(*made, d.name(), "info", [&] { return table.info(self, i, &info); });
      made->host_accessible = info.host_accessible != 0;
      providers_.push_back(std::move(made));
      d.provider_.store(providers_.back().get(), std::memory_order_release);
    }
  }

 private:
  tsr_device add(std::string kind, uint32_t index, std::string name) {
    if (count_ == kMaxDevices)
      throw user_error("TSR-T030", "device '" + name + "': more than " + std::to_string(kMaxDevices) + " devices");
    const auto id = static_cast<tsr_device>(count_++);
    ids_[name] = id;
    storage_[id] = std::make_unique<Device>(id, std::move(kind), index, std::move(name));
    devices_[id].store(storage_[id].get(), std::memory_order_release);
    return id;
  }

  std::mutex mutex_;
  size_t count_ = 0;
  std::map<std::string, tsr_device, std::less<>> ids_;
  std::array<std::unique_ptr<Device>, kMaxDevices> storage_;
  std::array<std::atomic<Device*>, kMaxDevices> devices_{};
  std::vector<std::unique_ptr<Device::Provider>> providers_;
};

Device::Device(tsr_device id, std::string kind, uint32_t index, std::string name)
    : id_(id), kind_(std::move(kind)), index_(index), name_(std::move(name)) {}

const Device::Provider& Device::provider() const {
  const Provider* p = provider_.load(std::memory_order_acquire);
  if (p) return *p;
  std::string same, all;
  for (const Device* d : DeviceRegistry::get().all()) {
    if (!d->available()) continue;
    all += (all.empty() ? "'" : ", '") + d->name() + "'";
    if (d->kind_ == kind_) same += (same.empty() ? "'" : ", '") + d->name() + "'";
  }
  throw user_error(
      "TSR-R002",
      "device '" + name_ + "' is not available: " +
          (same.empty() ? "no loaded plugin provides devices of the kind '" + kind_ + "'" : "of its kind there is " + same),
      same.empty()
          ? "use one of " + all + ", or a config whose plugins.load names a plugin with the device (tessera plugin list --all)"
          : "use one of " + same);
}

void Device::require() const {
  if (id_ != kCpu) provider();
}
bool Device::available() const { return id_ == kCpu || provider_.load(std::memory_order_acquire) != nullptr; }
bool Device::host_accessible() const { return id_ == kCpu || provider().host_accessible; }

void* Device::allocate(size_t bytes, tsr_stream* stream) {
  if (id_ == kCpu) return host_allocate(bytes);
  const Provider& p = provider();
  void* out = nullptr;
  ask(p, name_, "alloc", [&] { return p.table->alloc(p.self, index_, bytes, kAlignment, stream, &out); });
  if (!out && bytes > 0) throw out_of_memory(name_, bytes, "");
  return out;
}

void Device::free(void* p, size_t, tsr_stream* stream) noexcept {
  if (id_ == kCpu) return std::free(p);
  if (const Provider* provider = provider_.load(std::memory_order_acquire))
    ask_quietly(name_, "free", [&] { provider->table->free(provider->self, index_, p, stream); });
}

void Device::copy(void* dst, const void* src, size_t bytes, uint32_t direction, tsr_stream* stream) {
  if (bytes == 0) return;
  if (id_ == kCpu) {
    std::memcpy(dst, src, bytes);
    return;
  }
  const Provider& p = provider();
  ask(p, name_, "copy", [&] { return p.table->copy(p.self, index_, dst, src, bytes, direction, stream); });
  copies_[direction & TSR_COPY_DIRECTION].fetch_add(1, std::memory_order_relaxed);
}

Device::Copies Device::copies() const noexcept {
  const auto count = [&](uint32_t direction) { return copies_[direction].load(std::memory_order_relaxed); };
  return {count(TSR_COPY_TO_DEVICE), count(TSR_COPY_TO_HOST), count(TSR_COPY_WITHIN)};
}

bool Device::copy_strided(const tsr_tensor& dst, const tsr_tensor& src, tsr_stream* stream) {
  const Provider& p = provider();
  if (!p.table->copy_strided) return false;
  ask(p, name_, "copy_strided", [&] { return p.table->copy_strided(p.self, index_, &dst, &src, stream); });
  copies_[TSR_COPY_WITHIN].fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool Device::copy_peer(void* dst, Device& from, const void* src, size_t bytes, tsr_stream* stream) {
  const Provider& p = provider();
  if (!p.table->copy_peer || from.kind_ != kind_) return false;
  if (bytes > 0)
    ask(p, name_, "copy_peer", [&] { return p.table->copy_peer(p.self, index_, dst, from.index_, src, bytes, stream); });
  copies_[TSR_COPY_WITHIN].fetch_add(1, std::memory_order_relaxed);
  return true;
}

tsr_stream* Device::make_stream() {
  const Provider& p = provider();
  tsr_stream* out = nullptr;
  ask(p, name_, "stream_create", [&] { return p.table->stream_create(p.self, index_, &out); });
  return out;
}

tsr_stream* Device::wrap_stream(void* native) {
  const Provider& p = provider();
  if (!p.table->stream_wrap)
    throw user_error("TSR-R041", "device '" + name_ + "' takes no streams of other libraries",
                     "make one with stream_create and pass that");
  tsr_stream* out = nullptr;
  ask(p, name_, "stream_wrap", [&] { return p.table->stream_wrap(p.self, index_, native, &out); });
  return out;
}

void Device::destroy_stream(tsr_stream* stream) noexcept {
  if (const Provider* p = provider_.load(std::memory_order_acquire))
    ask_quietly(name_, "stream_destroy", [&] { p->table->stream_destroy(p->self, index_, stream); });
}

void Device::synchronize(tsr_stream* stream) {
  const Provider& p = provider();
  ask(p, name_, "stream_synchronize", [&] { return p.table->stream_synchronize(p.self, index_, stream); });
}

bool Device::wait_for_stream(tsr_stream* stream, Device& other, tsr_stream* awaited) {
  if (other.kind_ != kind_) return false;
  const Provider& p = provider();
  struct PooledEvent {  // the wait stays as it is when the event is recorded again
    Device& device;
    tsr_event* const event;
    ~PooledEvent() { device.give_event(event); }
  } const pooled{other, other.take_event()};
  ask(p, name_, "event_record", [&] { return p.table->event_record(p.self, other.index_, pooled.event, awaited); });
  ask(p, name_, "event_wait", [&] { return p.table->event_wait(p.self, index_, pooled.event, stream); });
  return true;
}

tsr_event* Device::take_event() {
  {
    std::lock_guard lock(events_mutex_);
    if (!events_.empty()) {
      tsr_event* const event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  const Provider& p = provider();
  tsr_event* event = nullptr;
  ask(p, name_, "event_create", [&] { return p.table->event_create(p.self, index_, &event); });
  return event;
}

void Device::give_event(tsr_event* event) noexcept {
  try {
    std::lock_guard lock(events_mutex_);
    events_.push_back(event);
  } catch (...) {
    if (const Provider* p = provider_.load(std::memory_order_acquire))
      ask_quietly(name_, "event_destroy", [&] { p->table->event_destroy(p->self, index_, event); });
  }
}

void Device::record(tsr_event* event, tsr_stream* stream) {
  const Provider& p = provider();
  ask(p, name_, "event_record", [&] { return p.table->event_record(p.self, index_, event, stream); });
}

void Device::synchronize(tsr_event* event) {
  const Provider& p = provider();
  ask(p, name_, "event_synchronize", [&] { return p.table->event_synchronize(p.self, index_, event); });
}

double Device::elapsed(tsr_event* from, tsr_event* to) {
  const Provider& p = provider();
  double seconds = 0;
  ask(p, name_, "event_elapsed", [&] { return p.table->event_elapsed(p.self, index_, from, to, &seconds); });
  return seconds;
}

bool Device::is_captured(tsr_stream* stream) {
  const Provider& p = provider();
  int captured = 0;
  if (p.table->stream_capturing)
    ask(p, name_, "stream_capturing", [&] { return p.table->stream_capturing(p.self, index_, stream, &captured); });
  return captured != 0;
}

void* Device::allocate_pinned(size_t bytes) {
  const Provider& p = provider();
  void* out = nullptr;
  ask(p, name_, "host_alloc", [&] { return p.table->host_alloc(p.self, index_, bytes, &out); });
  return out;
}

const tsr_device_table* Device::table(void** self) const noexcept {
  const Provider* p = provider_.load(std::memory_order_acquire);
  if (!p) return nullptr;
  *self = p->self;
  return p->table;
}

int64_t Device::total_bytes() {
  const Provider& p = provider();
  tsr_device_info info{};
  info.struct_size = sizeof info;
  if (p.table->info) ask(p, name_, "info", [&] { return p.table->info(p.self, index_, &info); });
  return info.total_bytes;
}

void Device::add_ledger(const Ledger* l) {
  const std::lock_guard lock(ledgers_mutex_);
  ledgers_.push_back(l);
}

void Device::remove_ledger(Ledger* l) noexcept {
  const std::lock_guard lock(ledgers_mutex_);
  std::erase(ledgers_, l);
  count_freed(l->freed.exchange(0, std::memory_order_relaxed));
}

int64_t Device::in_use() const {
  const std::lock_guard lock(ledgers_mutex_);
  int64_t bytes = in_use_.load(std::memory_order_relaxed);
  for (const Ledger* l : ledgers_) bytes -= l->freed.load(std::memory_order_relaxed);
  return bytes;
}

int64_t Device::peak(bool reset) noexcept {
  const int64_t peak = peak_.load(std::memory_order_relaxed);
  if (reset) {
    settle_counts(*this);  // else what this thread has noted could be allocated again unseen
    peak_.store(in_use(), std::memory_order_relaxed);
  }
  return peak;
}

tsr_device device_intern(std::string_view name) { return DeviceRegistry::get().intern(name); }
Device* find_device(tsr_device id) noexcept { return DeviceRegistry::get().find(id); }
std::vector<Device*> all_devices() { return DeviceRegistry::get().all(); }

Device& device(tsr_device id) {
  if (Device* d = find_device(id)) return *d;
  throw user_error("TSR-T031", "device id " + std::to_string(id) + " is unknown", "ids come from tsr_host_core.device_id");
}

void register_devices(const tsr_device_table& table, void* self, std::string plugin, std::string vendor,
                      std::shared_ptr<const void> keep) {
  DeviceRegistry::get().provide(table, self, std::move(plugin), std::move(vendor), std::move(keep));
}

}  // namespace tessera::core
