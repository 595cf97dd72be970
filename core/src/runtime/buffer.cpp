// SPDX-License-Identifier: Apache-2.0
#include "runtime/buffer.hpp"

#include <array>
#include <mutex>
#include <new>

#include "runtime/pool.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// Blocks that no thread holds. Kept up to a bound per device: what goes beyond it returns to the device at once, so that a
// peak does not stay with the process.
class CentralPool {
 public:
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  static CentralPool& of(tsr_device id) {
    static auto* pools = new std::array<CentralPool, 256>;  // never destroyed, as devices
    return (*pools)[id];
  }
  Buffer* take(uint32_t c) noexcept {
    std::lock_guard lock(mutex_);
    Buffer* b = heads_[c];
    if (b) {
      heads_[c] = b->next;
      bytes_ -= b->capacity;
    }
    return b;
  }
  bool give(Buffer* b) noexcept {
    std::lock_guard lock(mutex_);
    if (bytes_ + b->capacity > kMaxBytes) return false;
    b->next = heads_[b->size_class];
    heads_[b->size_class] = b;
    bytes_ += b->capacity;
    return true;
  }
  Buffer* take_all() noexcept {
    std::lock_guard lock(mutex_);
    Buffer* all = nullptr;
    for (Buffer*& head : heads_)
      while (Buffer* b = head) {
        head = b->next;
        b->next = all;
        all = b;
      }
    bytes_ = 0;
    return all;
  }

 private:
  std::mutex mutex_;
  std::array<Buffer*, kSizeClasses> heads_{};
  size_t bytes_ = 0;
};

void destroy(Buffer* b) noexcept {
  b->device->free(b->data, b->capacity);
  delete b;
}

void give_central(Buffer* b) noexcept {
  if (!CentralPool::of(b->device->id()).give(b)) destroy(b);
}

int64_t counted(size_t bytes) { return static_cast<int64_t>((bytes + kAlignment - 1) / kAlignment * kAlignment); }

Buffer* allocate_block(Device& device, uint32_t c, size_t capacity) {
  auto b = std::make_unique<Buffer>();
  try {
    b->data = device.allocate(capacity);
  } catch (const Error& e) {
    if (e.code() != "TSR-R001") throw;
    trim_pool(device);  // what waits in the pool may be what is missing
    b->data = device.allocate(capacity);
  }
  b->capacity = capacity;
  b->device = &device;
  b->size_class = c;
  return b.release();
}

// A pointer is all the static TLS that this library asks for: initial-exec saves the call per access that a shared library
// otherwise pays, also when it is loaded with dlopen.
#if defined(__GNUC__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((tls_model("initial-exec")))
#endif
thread_local ThreadCache* t_cache = nullptr;
thread_local bool t_dead = false;

struct CacheOwner {
  ~CacheOwner() {
    ThreadCache* c = t_cache;
    t_cache = nullptr;
    t_dead = true;
    delete c;
  }
};

}  // namespace

ThreadCache* thread_cache() noexcept {
  if (t_cache) [[likely]]
    return t_cache;
  if (t_dead) return nullptr;
  static thread_local CacheOwner owner;
  (void)owner;
  t_cache = new (std::nothrow) ThreadCache;
  return t_cache;
}

void ThreadCache::add(uint32_t device) {
  if (device >= devices.size()) devices.resize(device + 1);
  devices[device] = std::make_unique<Bins>();
}

ThreadCache::~ThreadCache() {
  for (auto& bins : devices)
    if (bins)
      for (Buffer*& head : bins->head)
        while (Buffer* b = head) {
          head = b->next;
          give_central(b);
        }
  while (FreeHandle* h = handles) {
    handles = h->next;
    ::operator delete(h);
  }
  while (Buffer* b = headers) {
    headers = b->next;
    delete b;
  }
}

void* allocate_handle_block(size_t bytes) {
  if (bytes <= ThreadCache::kHandleBytes) {
    if (ThreadCache* cache = thread_cache(); cache && cache->handles) {
      ThreadCache::FreeHandle* h = cache->handles;
      cache->handles = h->next;
      --cache->num_handles;
      return h;
    }
    return ::operator new(ThreadCache::kHandleBytes);
  }
  return ::operator new(bytes);
}

void free_handle_block(void* p, size_t bytes) noexcept {
  if (bytes <= ThreadCache::kHandleBytes)
    if (ThreadCache* cache = thread_cache(); cache && cache->num_handles < ThreadCache::kMaxHandles) {
      cache->handles = ::new (p) ThreadCache::FreeHandle{cache->handles};
      ++cache->num_handles;
      return;
    }
  ::operator delete(p);
}

Buffer* allocate_buffer(Device& device, size_t bytes) {
  if (bytes > size_t{1} << 46)  // beyond any address space, and beyond the size classes
    throw environment_error("TSR-R001",
                            "out of memory on device '" + device.name() + "': asked for " + std::to_string(bytes) + " bytes",
                            "use smaller sizes");
  const uint32_t c = size_class_of(bytes);
  Buffer* b = nullptr;
  if (c < ThreadCache::kClasses)
    if (ThreadCache* cache = thread_cache()) {
      ThreadCache::Bins& bins = cache->bins(device.id());
      if ((b = bins.head[c])) {
        bins.head[c] = b->next;
        bins.bytes -= b->capacity;
      }
    }
  if (!b) b = CentralPool::of(device.id()).take(c);
  if (!b) b = allocate_block(device, c, size_class_bytes(c));
  b->refs.store(1, std::memory_order_relaxed);
  b->bytes = bytes;
  device.count_allocated(counted(bytes));
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
  return b;
}

void Buffer::recycle(Buffer* b) noexcept {
  ThreadCache* cache = thread_cache();
  if (b->size_class == kWrapped) {
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
  b->device->count_freed(counted(b->bytes));
  if (b->size_class < ThreadCache::kClasses && cache) {
    ThreadCache::Bins& bins = cache->bins(b->device->id());
    if (bins.bytes + b->capacity <= ThreadCache::kMaxBytes) {
      b->next = bins.head[b->size_class];
      bins.head[b->size_class] = b;
      bins.bytes += b->capacity;
      return;
    }
  }
  give_central(b);
}

void trim_pool(Device& device) noexcept {
  if (ThreadCache* cache = thread_cache(); cache && device.id() < cache->devices.size() && cache->devices[device.id()]) {
    ThreadCache::Bins& bins = *cache->devices[device.id()];
    for (Buffer*& head : bins.head)
      while (Buffer* b = head) {
        head = b->next;
        destroy(b);
      }
    bins.bytes = 0;
  }
  Buffer* all = CentralPool::of(device.id()).take_all();
  while (Buffer* b = all) {
    all = b->next;
    destroy(b);
  }
}

}  // namespace tessera::core
