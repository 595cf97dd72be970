// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include "need.hpp"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "tessera/dtypes.hpp"

namespace tessera::sim {

namespace {

namespace t = tessera::sdk;

void need_index(uint32_t index, const char* function) {
  if (index >= kDevices)
    throw t::Error(TSR_USER, "TSR-R002", std::string(function) + ": device 'sim:" + std::to_string(index) + "' does not exist",
                   "use sim:0 or sim:1");
}
void need_stream(uint32_t index, const tsr_stream* s, const char* function) {
  need_index(index, function);
  need(s && s->index == index, function, "a stream of the same device");
}
std::string named(uint32_t index) { return "sim:" + std::to_string(index); }

}  // namespace

TensorCopy::TensorCopy(const tsr_tensor& from) : t(from) {
  if (from.flags & TSR_TENSOR_ABSENT) {
    t = {};
    t.flags = TSR_TENSOR_ABSENT;
    return;
  }
  numbers.assign(from.sizes, from.sizes + from.rank);
  numbers.insert(numbers.end(), from.strides, from.strides + from.rank);
}

tsr_tensor TensorCopy::at(char* data) const {
  tsr_tensor out = t;
  out.data = data;
  out.sizes = numbers.data();
  out.strides = numbers.data() + t.rank;
  return out;
}

void TensorCopy::extent(int64_t* before, int64_t* behind) const {
  *before = *behind = 0;
  int64_t low = 0, high = 0;
  for (uint32_t i = 0; i < t.rank; ++i) {
    if (numbers[i] == 0) return;
    (numbers[t.rank + i] < 0 ? low : high) += (numbers[i] - 1) * numbers[t.rank + i];
  }
  const int64_t bits = dtype_bits(static_cast<tsr_dtype>(t.dtype));
  *before = -low * bits / 8;
  *behind = ((high + 1) * bits + 7) / 8;
}

SimDevice::SimDevice(uint64_t seed, size_t bytes, size_t ahead, int64_t lose_after)
    : queues_(seed, ahead, lose_after), graphs_(*this, queues_) {
  for (Memory& m : memories_) m.reserve(bytes);
}

char* SimDevice::bytes_of(uint32_t index, const void* p, size_t bytes, const std::string& who) {
  if (bytes == 0) return memories_[index].bytes_of(p);
  if (memories_[index].contains(p, bytes)) {
    if (!memories_[index].live(p, bytes)) {
      queues_.complain(who + " on " + named(index) + " was given memory that is not allocated, or was freed");
      return nullptr;
    }
    if (memories_[index].committed(p, bytes)) return memories_[index].bytes_of(p);
    queues_.complain(who + " on " + named(index) + " was given reserved addresses without memory");
    return nullptr;
  }
  std::string where = "the host, or of nobody";
  for (uint32_t i = 0; i < kDevices; ++i)
    if (memories_[i].contains(p, bytes)) where = named(i);
  queues_.complain(who + " on " + named(index) + " was given an address of " + where);
  return nullptr;
}

void SimDevice::info(uint32_t index, tsr_device_info& out) {
  need_index(index, "info");
  static const char* const names[kDevices] = {"sim:0", "sim:1"};
  out.name = names[index];
  out.description = "a device made of the CPU: memory that the host cannot read, streams that run late";
  out.host_accessible = 0;
  out.total_bytes = static_cast<int64_t>(memories_[index].capacity());
  out.free_bytes = out.total_bytes - static_cast<int64_t>(memories_[index].used());
  if (!TSR_HAS(&out, tsr_device_info, flops_per_second)) return;
  out.architecture = "sim";
  out.units = 4;
  out.wave = 32;
  out.max_threads = 1024;
  out.shared_bytes = 48 << 10;
}

void* SimDevice::alloc(uint32_t index, size_t bytes, size_t align, tsr_stream* s) {
  need_stream(index, s, "alloc");
  queues_.need_alive(index);
  need(!s->recorded, "alloc", "a stream that does not record a graph");
  need(align != 0 && (align & (align - 1)) == 0, "alloc", "an alignment that is a power of two");
  char* p = memories_[index].allocate(bytes, align);
  // Blocks may be about to be freed.
  if (!p) queues_.run_until([&] { return (p = memories_[index].allocate(bytes, align)) != nullptr; });
  if (!p)
    throw t::Error(TSR_ENVIRONMENT, "TSR-R001",
                   "out of memory on device '" + named(index) + "': asked for " + std::to_string(bytes) + " bytes, " +
                       std::to_string(memories_[index].used()) + " of " + std::to_string(memories_[index].capacity()) +
                       " are used",
                   "use smaller sizes, release tensors that are no longer needed, or raise [sim] memory_mb");
  return p;
}

void SimDevice::free(uint32_t index, void* p, tsr_stream* s) noexcept {
  if (!p) return;
  memories_[index].retire(p);
  queues_.push_bookkeeping(s, [this, index, p] {
    if (!memories_[index].free(p)) queues_.complain("memory was freed on " + named(index) + " that is not allocated");
  });
}

void SimDevice::copy(uint32_t index, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* s) {
  need_stream(index, s, "copy");
  const uint32_t direction = flags & TSR_COPY_DIRECTION;
  need(direction <= TSR_COPY_WITHIN, "copy", "a direction TSR_COPY_*");
  if (bytes == 0) return;
  const bool later = (flags & TSR_COPY_ASYNC) != 0;
  if (direction == TSR_COPY_TO_DEVICE) {
    char* to = bytes_of(index, dst, bytes, "a copy");
    if (!to) return;
    if (later) return queues_.push(s, [to, src, bytes] { std::memcpy(to, src, bytes); });
    auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(src), static_cast<const char*>(src) + bytes);
    return queues_.push(s, [to, staged] { std::memcpy(to, staged->data(), staged->size()); });
  }
  const char* from = bytes_of(index, src, bytes, "a copy");
  if (!from) return;
  if (direction == TSR_COPY_TO_HOST) {
    const auto run = [dst, from, bytes] { std::memcpy(dst, from, bytes); };
    return later ? queues_.push(s, run) : queues_.run_now(s, run);
  }
  if (char* to = bytes_of(index, dst, bytes, "a copy")) queues_.push(s, [to, from, bytes] { std::memmove(to, from, bytes); });
}

void SimDevice::fill(uint32_t index, void* dst, uint8_t value, size_t bytes, tsr_stream* s) {
  need_stream(index, s, "fill");
  if (bytes == 0) return;
  if (char* to = bytes_of(index, dst, bytes, "fill")) queues_.push(s, [to, value, bytes] { std::memset(to, value, bytes); });
}

void SimDevice::copy_peer(uint32_t index, void* dst, uint32_t from, const void* src, size_t bytes, tsr_stream* s) {
  need_stream(index, s, "copy_peer");
  need_index(from, "copy_peer");
  if (bytes == 0) return;
  char* to = bytes_of(index, dst, bytes, "a copy between devices");
  const char* at = bytes_of(from, src, bytes, "a copy between devices");
  if (!to || !at) return;
  queues_.need_alive(from);
  queues_.push(s, [this, s, from, to, at, bytes] {
    if (queues_.alive_for(s, from)) std::memcpy(to, at, bytes);
  });
}

void SimDevice::copy_strided(uint32_t index, const tsr_tensor& dst, const tsr_tensor& src, tsr_stream* s) {
  need_stream(index, s, "copy_strided");
  auto to = std::make_shared<TensorCopy>(dst), from = std::make_shared<TensorCopy>(src);
  const auto place = [&](const TensorCopy& x) -> char* {
    int64_t before, behind;
    x.extent(&before, &behind);
    char* low = bytes_of(index, static_cast<char*>(x.t.data) - before, static_cast<size_t>(before + behind), "a strided copy");
    return low ? low + before : nullptr;
  };
  char *const d = place(*to), *const p = place(*from);
  if (!d || !p) return;
  queues_.push(s, [to, from, d, p] {
    const int64_t item = dtype_bits(static_cast<tsr_dtype>(to->t.dtype)) / 8;
    const uint32_t rank = to->t.rank;
    std::vector<int64_t> at(rank, 0);
    for (const int64_t n : std::span(to->numbers).first(rank))
      if (n == 0) return;
    for (;;) {
      int64_t x = 0, y = 0;
      for (uint32_t i = 0; i < rank; ++i) x += at[i] * to->numbers[rank + i], y += at[i] * from->numbers[rank + i];
      std::memcpy(d + x * item, p + y * item, static_cast<size_t>(item));
      uint32_t i = rank;
      while (i > 0 && ++at[i - 1] == to->numbers[i - 1]) at[--i] = 0;
      if (i == 0) return;
    }
  });
}

tsr_stream* SimDevice::stream_create(uint32_t index) {
  need_index(index, "stream_create");
  queues_.need_alive(index);
  return queues_.create(index);
}
void SimDevice::stream_destroy(uint32_t, tsr_stream* s) noexcept { queues_.destroy(s); }
void SimDevice::stream_synchronize(uint32_t index, tsr_stream* s) {
  need_stream(index, s, "stream_synchronize");
  queues_.finish(s);
}

tsr_event* SimDevice::event_create(uint32_t index) {
  need_index(index, "event_create");
  auto e = std::make_unique<tsr_event>();
  e->index = index;
  return e.release();
}
void SimDevice::event_destroy(uint32_t, tsr_event* e) noexcept { delete e; }
void SimDevice::event_record(uint32_t index, tsr_event* e, tsr_stream* s) {
  need_stream(index, s, "event_record");
  need(e && e->index == index, "event_record", "an event of the same device");
  queues_.record(e, s);
}
void SimDevice::event_wait(uint32_t index, tsr_event* e, tsr_stream* s) {
  need_stream(index, s, "event_wait");
  need(e != nullptr, "event_wait", "an event");
  queues_.wait(e, s);
}
bool SimDevice::event_query(uint32_t, tsr_event* e) {
  need(e != nullptr, "event_query", "an event");
  return queues_.query(e);
}
void SimDevice::event_synchronize(uint32_t, tsr_event* e) {
  need(e != nullptr, "event_synchronize", "an event");
  queues_.finish(e);
}
double SimDevice::event_elapsed(uint32_t, tsr_event* from, tsr_event* to) {
  need(from && to && from->last && to->last, "event_elapsed", "two recorded events");
  return queues_.elapsed(from, to);
}

bool SimDevice::stream_capturing(uint32_t index, tsr_stream* s) {
  need_stream(index, s, "stream_capturing");
  return s->recorded != nullptr;
}
void SimDevice::capture_begin(uint32_t index, tsr_stream* s) {
  need_stream(index, s, "capture_begin");
  graphs_.capture_begin(s);
}
tsr_device_graph* SimDevice::capture_end(uint32_t index, tsr_stream* s) {
  need_stream(index, s, "capture_end");
  return graphs_.capture_end(s);
}

namespace {
void need_graph(uint32_t index, const tsr_device_graph* g, const char* function) {
  need_index(index, function);
  need(g && g->index == index, function, "a graph of the same device");
}
}  // namespace

tsr_device_graph* SimDevice::graph_create(uint32_t index) {
  need_index(index, "graph_create");
  return graphs_.create(index);
}
uint32_t SimDevice::graph_add(uint32_t index, tsr_device_graph* g, const tsr_device_call& call, Nodes after) {
  need_graph(index, g, "graph_add");
  return graphs_.add(g, call, after);
}
uint32_t SimDevice::graph_add_captured(uint32_t index, tsr_device_graph* g, const t::QueueWork& queue, Nodes after) {
  need_graph(index, g, "graph_add_captured");
  return graphs_.add_captured(g, queue, after);
}
void SimDevice::graph_instantiate(uint32_t index, tsr_device_graph* g) {
  need_graph(index, g, "graph_instantiate");
  graphs_.instantiate(g);
}
void SimDevice::graph_set(uint32_t index, tsr_device_graph* g, uint32_t node, const tsr_device_call& call) {
  need_graph(index, g, "graph_set");
  graphs_.set(g, node, call);
}
void SimDevice::graph_set_captured(uint32_t index, tsr_device_graph* g, uint32_t node, const t::QueueWork& queue) {
  need_graph(index, g, "graph_set_captured");
  graphs_.set_captured(g, node, queue);
}
void SimDevice::graph_info(uint32_t index, tsr_device_graph* g, tsr_device_graph_info& out) {
  need_graph(index, g, "graph_info");
  graphs_.info(g, out);
}
void SimDevice::graph_launch(uint32_t index, tsr_device_graph* g, tsr_stream* s) {
  need_graph(index, g, "graph_launch");
  need_stream(index, s, "graph_launch");
  graphs_.launch(g, s);
}
void SimDevice::graph_destroy(uint32_t, tsr_device_graph* g) noexcept { delete g; }

void* SimDevice::reserve(uint32_t index, size_t bytes) {
  need_index(index, "reserve");
  queues_.need_alive(index);
  char* p = memories_[index].allocate_range(bytes);
  if (!p)
    throw t::Error(TSR_ENVIRONMENT, "TSR-R001",
                   "out of addresses on device '" + named(index) + "': asked for " + std::to_string(bytes) + " bytes",
                   "reserve less, or raise [sim] memory_mb");
  return p;
}
void SimDevice::commit(uint32_t index, void* reserved, size_t bytes, tsr_stream* s) {
  need_stream(index, s, "commit");
  queues_.need_alive(index);
  const std::optional<size_t> before = memories_[index].committed_bytes(reserved);
  need(before.has_value(), "commit", "an address of reserve");
  const auto attempt = [&] { return memories_[index].commit(reserved, bytes); };
  if (!attempt()) {
    bool done = false;
    queues_.run_until([&] { return done = attempt(); });  // blocks may be about to be freed
    if (!done)
      throw t::Error(TSR_ENVIRONMENT, "TSR-R001",
                     "out of memory on device '" + named(index) + "': asked for " + std::to_string(bytes) +
                         " bytes at a reserved address, " + std::to_string(memories_[index].used()) + " of " +
                         std::to_string(memories_[index].capacity()) + " are used",
                     "use smaller sizes, release tensors that are no longer needed, or raise [sim] memory_mb");
  }
  // What is given back loses its bytes behind the work that may still use them.
  if (bytes < *before)
    queues_.push(s, [at = memories_[index].bytes_of(reserved), bytes, n = *before - bytes] {
      std::memset(at + bytes, Memory::kPoison, n);
    });
}
void SimDevice::unreserve(uint32_t index, void* reserved) noexcept {
  if (reserved && !memories_[index].free(reserved)) queues_.complain("unreserve was given an address that is not reserved");
}

void* SimDevice::host_alloc(uint32_t index, size_t bytes) {
  need_index(index, "host_alloc");
  void* p = nullptr;
  if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0) throw std::bad_alloc();
  return p;
}
void SimDevice::host_free(uint32_t, void* p) noexcept { std::free(p); }

}  // namespace tessera::sim
