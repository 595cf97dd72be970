// SPDX-License-Identifier: Apache-2.0
#include "memory/stream_pool.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <map>
#include <memory>

#include "memory/pool.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// Up to 1 MiB the classes of the host's pool; above, steps of at most 1/64.
size_t rounded(size_t bytes) {
  if (bytes <= size_t{1} << 20) return size_class_bytes(size_class_of(bytes));
  const size_t step = std::bit_floor(bytes) / 64;
  return (bytes + step - 1) / step * step;
}

template <class F>
void each_point(const StreamUses& u, F&& f) {
  f(u.written);
  for (const StreamPoint& p : u.read) f(p);
}

// Blocks that nobody refers to, each with the points of those who used it. What goes beyond a bound returns to the device:
// first blocks of sizes that nobody has asked for in a while, as in the host's pool, else the block that comes.
class StreamPool {
 public:
  static constexpr uint64_t kStale = 64;  // operations on this pool
  static constexpr size_t kUnset = SIZE_MAX;

  static StreamPool& of(const Device& d) {
    static auto* pools = new std::array<StreamPool, kMaxDevices>;  // never destroyed, as devices
    return (*pools)[d.id()];
  }

  Buffer* take(size_t capacity, const Stream& s) {
    std::lock_guard lock(mutex_);
    Size& size = sizes_[capacity];
    size.asked = ++clock_;
    if (size.blocks.empty()) return nullptr;
    // The youngest that needs no wait, else the oldest, whose users are likeliest to be done.
    const auto found = std::find_if(size.blocks.rbegin(), size.blocks.rend(), [&](const Buffer* b) {
      bool ready = true;
      each_point(*b->uses,
                 [&](const StreamPoint& p) { ready = ready && (!p.stream || p.stream == &s || p.stream->has_passed(p)); });
      return ready;
    });
    const auto at = found == size.blocks.rend() ? size.blocks.begin() : std::next(found).base();
    Buffer* b = *at;
    size.blocks.erase(at);
    bytes_ -= capacity;
    return b;
  }

  // What has to go back to the device for it, maybe the block itself.
  std::vector<Buffer*> give(Buffer* b) {
    std::lock_guard lock(mutex_);
    if (limit_ == kUnset)
      limit_ = std::max(size_t{256} << 20, static_cast<size_t>(std::max<int64_t>(b->device->total_bytes(), 0)) / 2);
    sizes_[b->capacity].asked = ++clock_;
    std::vector<Buffer*> gone;
    while (bytes_ + b->capacity > limit_) {
      const auto oldest = b->capacity > limit_ ? sizes_.end() : stalest();
      if (oldest == sizes_.end()) {
        gone.push_back(b);
        return gone;
      }
      gone.push_back(pop(oldest));
    }
    sizes_[b->capacity].blocks.push_back(b);
    bytes_ += b->capacity;
    return gone;
  }

  // What has to go back to the device for it.
  std::vector<Buffer*> set_limit(size_t bytes) {
    std::lock_guard lock(mutex_);
    limit_ = bytes;
    std::vector<Buffer*> gone;
    for (auto at = sizes_.begin(); at != sizes_.end(); ++at)
      while (bytes_ > limit_ && !at->second.blocks.empty()) gone.push_back(pop(at));
    return gone;
  }

  std::vector<Buffer*> take_all() {
    std::lock_guard lock(mutex_);
    std::vector<Buffer*> all;
    for (auto at = sizes_.begin(); at != sizes_.end(); ++at)
      while (!at->second.blocks.empty()) all.push_back(pop(at));
    return all;
  }

 private:
  struct Size {
    std::deque<Buffer*> blocks;  // oldest first
    uint64_t asked = 0;          // when one was last taken or given, by clock_
  };
  using Sizes = std::map<size_t, Size>;  // by capacity

  Buffer* pop(Sizes::iterator at) {
    Buffer* b = at->second.blocks.front();
    at->second.blocks.pop_front();
    bytes_ -= b->capacity;
    return b;
  }
  Sizes::iterator stalest() {
    auto best = sizes_.end();
    for (auto at = sizes_.begin(); at != sizes_.end(); ++at)
      if (!at->second.blocks.empty() && at->second.asked + kStale < clock_ &&
          (best == sizes_.end() || at->second.asked < best->second.asked))
        best = at;
    return best;
  }

  std::mutex mutex_;
  Sizes sizes_;
  uint64_t clock_ = 0;
  size_t bytes_ = 0, limit_ = kUnset;
};

// What is queued on the stream from now on comes behind what others did with a block. False: the stream is gone.
bool wait_for_uses(const StreamUses& uses, Stream& stream, Wait why) noexcept {
  bool alive = true;
  each_point(uses, [&](const StreamPoint& p) {
    try {
      alive = stream.wait_while_alive(p, why) && alive;
    } catch (const Error&) {}  // a device that fails says so to the next who queues work
  });
  return alive;
}

// Back to the device, in the order of the stream that the block was allocated on, or of the one that all threads share where
// that is gone.
void give_back(Buffer* b) noexcept {
  const std::unique_ptr<Buffer> owner(b);
  const std::unique_ptr<StreamUses> uses(b->uses);
  const auto free_on = [&](Stream& s) {
    return wait_for_uses(*uses, s, Wait::kBlockRead) && s.while_alive([&] { b->device->free(b->data, b->capacity, s.raw()); });
  };
  if (!free_on(*uses->home)) free_on(shared_stream(*b->device));
}

void* allocate_on(Device& device, size_t capacity, Stream& s) {
  const auto attempt = [&](bool last) -> void* {
    try {
      return device.allocate(capacity, s.raw());
    } catch (const Error& e) {
      if (last || e.code() != "TSR-R001") throw;
      return nullptr;
    }
  };
  if (void* p = attempt(false)) return p;
  trim_streamed(device);  // what waits in the pool may be what is missing
  if (void* p = attempt(false)) return p;
  synchronize_device(device);
  return attempt(true);
}

}  // namespace

Buffer* allocate_streamed(Device& device, size_t bytes, Stream& s) {
  const size_t capacity = rounded(bytes);
  Buffer* b = StreamPool::of(device).take(capacity, s);
  if (b) {
    try {
      each_point(*b->uses, [&](const StreamPoint& p) { s.wait(p, Wait::kBlockReused); });
    } catch (...) {
      for (Buffer* gone : StreamPool::of(device).give(b)) give_back(gone);
      throw;
    }
  } else {
    auto made = std::make_unique<Buffer>();
    auto uses = std::make_unique<StreamUses>();
    made->data = allocate_on(device, capacity, s);
    made->capacity = capacity;
    made->device = &device;
    made->size_class = Buffer::kStreamed;
    made->uses = uses.release();
    b = made.release();
  }
  b->uses->home = &s;
  b->uses->written = s.point();
  b->uses->read.clear();
  b->refs.store(1, std::memory_order_relaxed);
  b->bytes = bytes;
  device.count_allocated(counted_bytes(bytes));
  return b;
}

void recycle_streamed(Buffer* b) noexcept {
  b->device->count_freed(counted_bytes(b->bytes));
  try {
    for (Buffer* gone : StreamPool::of(*b->device).give(b)) give_back(gone);
  } catch (...) {
    give_back(b);
  }
}

void set_pool_limit(Device& device, size_t bytes) {
  for (Buffer* b : StreamPool::of(device).set_limit(bytes)) give_back(b);
}

void trim_streamed(Device& device) noexcept {
  for (Buffer* b : StreamPool::of(device).take_all()) give_back(b);
}

void leave_uses(const Buffer& b) noexcept {
  if (b.uses->home) {
    if (!wait_for_uses(*b.uses, *b.uses->home, Wait::kBorrowedReturned))
      wait_for_uses(*b.uses, shared_stream(*b.device), Wait::kBorrowedReturned);
    return;
  }
  each_point(*b.uses, [&](const StreamPoint& p) {
    try {
      Stream::host_wait(p, Wait::kBorrowedReturned);
    } catch (const Error&) {}  // a device that fails says so to the next who queues work
  });
}

// ------------------------------------------------------------------------------------------------------ caller's blocks

namespace {

struct CallerBlock {
  tsr_allocator allocator;
  Device& device;
  Stream& home;
  void* data;
  size_t bytes;
};

}  // namespace

Buffer* borrow_buffer(const tsr_allocator& allocator, Device& device, size_t bytes, Stream& stream) {
  auto block = std::make_unique<CallerBlock>(CallerBlock{allocator, device, stream, nullptr, bytes});
  try {
    throw_if(allocator.alloc(allocator.ctx, device.id(), bytes, &stream, &block->data));
  } catch (const Error& e) {
    throw Error(e.family(), e.code(),
                "the caller's allocator, " + std::to_string(bytes) + " bytes on device '" + device.name() + "': " + e.message(),
                e.hint());
  }
  if (!block->data && bytes > 0)
    throw environment_error("TSR-R001",
                            "out of memory on device '" + device.name() + "': the caller's allocator gave nothing for " +
                                std::to_string(bytes) + " bytes",
                            "use smaller sizes, or run without an allocator");
  if (reinterpret_cast<uintptr_t>(block->data) % kAlignment != 0) {
    allocator.free(allocator.ctx, device.id(), block->data, bytes, &stream);
    throw user_error("TSR-R043",
                     "the caller's allocator gave memory on device '" + device.name() + "' that is not aligned to " +
                         std::to_string(kAlignment) + " bytes",
                     "align blocks to 64 bytes");
  }
  Buffer* b = wrap_buffer(device, block->data, bytes, nullptr, nullptr);
  b->uses->home = &stream;
  b->uses->written = stream.point();
  b->deleter_ctx = block.release();
  b->deleter = [](void* ctx) {
    const std::unique_ptr<CallerBlock> l(static_cast<CallerBlock*>(ctx));
    // Its stream may be going away on another thread: it stays until the memory is back, or the shared one takes its place.
    const auto free_on = [&](Stream& s) { l->allocator.free(l->allocator.ctx, l->device.id(), l->data, l->bytes, &s); };
    if (!l->home.while_alive([&] { free_on(l->home); })) free_on(shared_stream(l->device));
  };
  return b;
}

// -------------------------------------------------------------------------------------------------------------- order

void order_read(Buffer& b, Stream& stream, Wait why) {
  if (!b.uses) return;
  std::lock_guard lock(b.uses->mutex);
  stream.wait(b.uses->written, why);
}

void order_write(Buffer& b, Stream& stream, Wait why) {
  if (!b.uses) return;
  std::lock_guard lock(b.uses->mutex);
  each_point(*b.uses, [&](const StreamPoint& p) { stream.wait(p, why); });
}

void note_read(Buffer& b, const StreamPoint& p) {
  if (!b.uses) return;
  std::lock_guard lock(b.uses->mutex);
  for (StreamPoint& r : b.uses->read)
    if (r.stream == p.stream) {
      r.tick = std::max(r.tick, p.tick);
      return;
    }
  b.uses->read.push_back(p);
}

void note_write(Buffer& b, const StreamPoint& p) {
  if (!b.uses) return;
  std::lock_guard lock(b.uses->mutex);
  b.uses->written = p;
  b.uses->read.clear();
}

}  // namespace tessera::core
