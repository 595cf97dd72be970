// SPDX-License-Identifier: Apache-2.0
#include "memory/buffer.hpp"

#include <array>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "memory/pool.hpp"
#include "memory/stream_pool.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// Blocks that no thread holds. Kept up to a bound per device: what goes beyond it returns to the device at once, so that a
// peak does not stay with the process. Sizes that nobody has asked for in a while make room first: else what one program left
// behind would have the next one ask the system for memory, and fault its pages in, at every call. Sizes in use stay, for a
// loop whose blocks do not all fit would otherwise lose each of them before it comes round.
class CentralPool {
 public:
  static constexpr size_t kMaxBytes = size_t{256} << 20;
  static constexpr uint64_t kStale = 64;  // operations on this pool

  static CentralPool& of(tsr_device id) {
    static auto* pools = new std::array<CentralPool, 256>;  // never destroyed, as devices
    return (*pools)[id];
  }
  Buffer* take(uint32_t c) noexcept {
    std::lock_guard lock(mutex_);
    asked_[c] = ++clock_;
    return heads_[c] ? pop(c) : nullptr;
  }
  // What has to return to the device for it, maybe `b` itself.
  Buffer* give(Buffer* b) noexcept {
    std::lock_guard lock(mutex_);
    asked_[b->size_class] = ++clock_;
    Buffer* out = nullptr;
    while (bytes_ + b->capacity > kMaxBytes) {
      const uint32_t c = b->capacity > kMaxBytes ? kSizeClasses : stalest();
      Buffer* gone = c == kSizeClasses ? b : pop(c);
      gone->next = out;
      out = gone;
      if (gone == b) return out;
    }
    b->next = heads_[b->size_class];
    heads_[b->size_class] = b;
    bytes_ += b->capacity;
    return out;
  }
  Buffer* take_all() noexcept {
    std::lock_guard lock(mutex_);
    Buffer* all = nullptr;
    for (uint32_t c = 0; c < kSizeClasses; ++c)
      while (heads_[c]) {
        Buffer* b = pop(c);
        b->next = all;
        all = b;
      }
    return all;
  }

 private:
  Buffer* pop(uint32_t c) noexcept {
    Buffer* b = heads_[c];
    heads_[c] = b->next;
    bytes_ -= b->capacity;
    return b;
  }
  // The class with blocks here that was asked for longest ago; kSizeClasses when none is old enough to go.
  uint32_t stalest() const noexcept {
    uint32_t best = kSizeClasses;
    for (uint32_t c = 0; c < kSizeClasses; ++c)
      if (heads_[c] && asked_[c] + kStale < clock_ && (best == kSizeClasses || asked_[c] < asked_[best])) best = c;
    return best;
  }

  std::mutex mutex_;
  std::array<Buffer*, kSizeClasses> heads_{};
  std::array<uint64_t, kSizeClasses> asked_{};  // when blocks of a class were last taken or given, by clock_
  uint64_t clock_ = 0;
  size_t bytes_ = 0;
};

// Those of a list go back to the device.
void destroy(Buffer* list) noexcept {
  while (Buffer* b = list) {
    list = b->next;
    b->device->free(b->data, b->capacity, nullptr);
    delete b;
  }
}

void give_central(Buffer* b) noexcept { destroy(CentralPool::of(b->device->id()).give(b)); }

Buffer* allocate_block(Device& device, uint32_t c, size_t capacity) {
  auto b = std::make_unique<Buffer>();
  try {
    b->data = device.allocate(capacity, nullptr);
  } catch (const Error& e) {
    if (e.code() != "TSR-R001") throw;
    trim_pool(device);  // what waits in the pool may be what is missing
    b->data = device.allocate(capacity, nullptr);
  }
  b->capacity = capacity;
  b->device = &device;
  b->size_class = c;
  return b.release();
}

thread_local bool t_dead = false;

struct CacheOwner {
  ~CacheOwner() {
    ThreadCache* c = t_thread_cache;
    t_thread_cache = nullptr;
    t_dead = true;
    delete c;
  }
};

}  // namespace

constinit thread_local ThreadCache* t_thread_cache TESSERA_INITIAL_EXEC = nullptr;

ThreadCache* make_thread_cache() noexcept {
  if (t_dead) return nullptr;
  static thread_local CacheOwner owner;
  (void)owner;
  t_thread_cache = new (std::nothrow) ThreadCache;
  return t_thread_cache;
}

ThreadCache::Bins& ThreadCache::add(Device& device) {
  auto bins = std::make_unique<Bins>();
  device.add_ledger(&bins->ledger);
  by_device[device.id()] = bins.release();
  return *by_device[device.id()];
}

ThreadCache::~ThreadCache() {
  for (uint32_t id = 0; id < kMaxDevices; ++id) {
    const std::unique_ptr<Bins> bins(by_device[id]);
    if (!bins) continue;
    for (Buffer*& head : bins->head)
      while (Buffer* b = head) {
        head = b->next;
        give_central(b);
      }
    find_device(id)->remove_ledger(&bins->ledger);
  }
  while (FreeHandle* h = handles) {
    handles = h->next;
    free_lines(h, kHandleBytes);
  }
  while (Buffer* b = headers) {
    headers = b->next;
    delete b;
  }
}

Buffer* allocate_buffer(Device& device, size_t bytes, Stream* stream) {
  if (bytes > size_t{1} << 46)  // beyond any address space, and beyond the size classes
    throw environment_error("TSR-R001",
                            "out of memory on device '" + device.name() + "': asked for " + std::to_string(bytes) + " bytes",
                            "use smaller sizes");
  if (device.id() != kCpu) return allocate_streamed(device, bytes, stream ? *stream : current_stream(device));
  const uint32_t c = size_class_of(bytes);
  ThreadCache* const cache = thread_cache();
  if (c < ThreadCache::kClasses && cache) [[likely]]
    if (Buffer* b = cache->take(device, c, bytes)) [[likely]]
      return b;
  Buffer* b = CentralPool::of(device.id()).take(c);
  if (!b) b = allocate_block(device, c, size_class_bytes(c));
  b->refs.store(1, std::memory_order_relaxed);
  b->bytes = bytes;
  if (cache)
    device.count_allocated(counted_bytes(bytes), cache->bins(device).ledger);
  else
    device.count_allocated(counted_bytes(bytes));
  return b;
}

Buffer* wrap_buffer(Device& device, void* data, size_t bytes, void (*deleter)(void*), void* ctx) {
  Buffer* b = nullptr;
  if (ThreadCache* cache = thread_cache(); cache && cache->headers) {
    b = cache->headers;
    cache->headers = b->next;
    --cache->num_headers;
  } else {
    b = new Buffer;
  }
  b->refs.store(1, std::memory_order_relaxed);
  b->data = data;
  b->bytes = b->capacity = bytes;
  b->device = &device;
  b->size_class = Buffer::kWrapped;
  b->deleter = deleter;
  b->deleter_ctx = ctx;
  b->uses = device.has_streams() ? new StreamUses : nullptr;
  return b;
}

void Buffer::recycle(Buffer* b) noexcept {
  ThreadCache* cache = thread_cache();
  if (b->size_class == kStreamed) [[unlikely]]
    return recycle_streamed(b);
  if (b->size_class == kWrapped) [[unlikely]] {
    if (b->uses) {
      leave_uses(*b);
      delete std::exchange(b->uses, nullptr);
    }
    if (b->deleter) b->deleter(b->deleter_ctx);
    if (cache && cache->num_headers < ThreadCache::kMaxHandles) {
      b->next = cache->headers;
      cache->headers = b;
      ++cache->num_headers;
    } else {
      delete b;
    }
    return;
  }
  if (cache && cache->give(b)) [[likely]]
    return;
  if (cache)
    b->device->count_freed(counted_bytes(b->bytes), cache->bins(*b->device).ledger);
  else
    b->device->count_freed(counted_bytes(b->bytes));
  give_central(b);
}

void settle_counts(Device& device) noexcept {
  ThreadCache* cache = thread_cache();
  if (cache && cache->by_device[device.id()])
    device.count_freed(cache->by_device[device.id()]->ledger.freed.exchange(0, std::memory_order_relaxed));
}

void trim_pool(Device& device) noexcept {
  if (device.id() != kCpu) return trim_streamed(device);
  if (ThreadCache* cache = thread_cache(); cache && cache->by_device[device.id()]) {
    ThreadCache::Bins& bins = *cache->by_device[device.id()];
    for (Buffer*& head : bins.head) {
      destroy(head);
      head = nullptr;
    }
    bins.bytes = 0;
  }
  destroy(CentralPool::of(device.id()).take_all());
}

}  // namespace tessera::core
