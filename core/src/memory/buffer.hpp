// SPDX-License-Identifier: Apache-2.0
// Buffers: refcounted blocks of device memory, pooled per device in size classes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memory/device.hpp"
#include "memory/stream.hpp"

namespace tessera::core {

// Which streams have used a block of a device that has streams.
struct StreamUses {
  std::mutex mutex;
  Stream* home = nullptr;         // whose pool it belongs to
  StreamPoint written;            // the last work that wrote it; allocation counts
  std::vector<StreamPoint> read;  // since then, one per stream
};

// A block of memory with a reference count. Its header stays with the block while that waits in the pool, so that a small
// buffer is taken and given back without the system allocator. Thread-safe; made with one reference.
struct Buffer {
  std::atomic<int64_t> refs{1};
  void* data = nullptr;  // lowest address
  size_t bytes = 0;      // usable bytes from `data`
  size_t capacity = 0;   // of the block
  Device* device = nullptr;
  uint32_t size_class = 0;           // kWrapped: memory of somebody else; kStreamed: a block of a device with streams
  std::atomic<uint32_t> version{0};  // raised by writes in place, so that who holds it for later can tell
  Buffer* next = nullptr;            // in a free list
  void (*deleter)(void* ctx) = nullptr;
  void* deleter_ctx = nullptr;
  StreamUses* uses = nullptr;  // owned; null on the host

  static constexpr uint32_t kWrapped = 0xffffffffu, kStreamed = 0xfffffffeu;

  void note_written() noexcept { version.fetch_add(1, std::memory_order_relaxed); }
  void retain() noexcept { refs.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    // The sole owner needs no read-modify-write: nobody else can take a reference from one that does not exist.
    if (refs.load(std::memory_order_acquire) == 1 || refs.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle(this);
  }

 private:
  static void recycle(Buffer*) noexcept;
};

// Uninitialised, 64-byte aligned, also for 0 bytes (then `data` may not be dereferenced). Throws TSR-R001 or TSR-R002. On a
// device with streams the block is for work on `stream` from now on, null: the thread's current one. A block that this stream
// gave back is taken first, then one of another stream, behind the work that used it.
Buffer* allocate_buffer(Device& device, size_t bytes, Stream* stream = nullptr);
// A block of the caller's allocator.
Buffer* borrow_buffer(const tsr_allocator& allocator, Device& device, size_t bytes, Stream& stream);

// Order between a buffer's users. All do nothing for memory of the host.
void order_read(Buffer& b, Stream& stream, Wait why);   // what is queued from now on reads it
void order_write(Buffer& b, Stream& stream, Wait why);  // what is queued from now on writes it
void note_read(Buffer& b, const StreamPoint& p);        // once the work is queued
void note_write(Buffer& b, const StreamPoint& p);

// Does not own [data, data + bytes): `deleter(ctx)`, when not null, is called once with the last reference, when all streams
// have passed what they did with it.
Buffer* wrap_buffer(Device& device, void* data, size_t bytes, void (*deleter)(void*), void* ctx);

// Gives every block that waits in the central pool (and in the calling thread's cache) back to the device.
void trim_pool(Device& device) noexcept;

class BufferRef {  // an owning pointer
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* b) : b_(b) {}  // takes over one reference
  BufferRef(BufferRef&& o) noexcept : b_(o.b_) { o.b_ = nullptr; }
  BufferRef& operator=(BufferRef&& o) noexcept {
    if (this != &o) {
      reset();
      b_ = o.b_;
      o.b_ = nullptr;
    }
    return *this;
  }
  ~BufferRef() { reset(); }
  void reset() noexcept {
    if (b_) b_->release();
    b_ = nullptr;
  }
  Buffer* get() const { return b_; }
  Buffer* operator->() const { return b_; }
  explicit operator bool() const { return b_ != nullptr; }
  Buffer* take() noexcept {
    Buffer* b = b_;
    b_ = nullptr;
    return b;
  }

 private:
  Buffer* b_ = nullptr;
};

}  // namespace tessera::core
