// SPDX-License-Identifier: Apache-2.0
// L2 and L3: a device, by its table alone: memory, copies, the order of streams, events, and what is optional
// (docs/devices.md).
#include <algorithm>
#include <cstring>
#include <thread>

#include "subject.hpp"
#include "suites.hpp"

namespace tessera::conformance {
namespace {

// The table of a device of the plugin, its functions as calls that throw Failed with the function's name.
class DeviceUnderTest {
 public:
  DeviceUnderTest(Subject& s, const std::string& name) {
    const tsr_factory* f = s.direct().find(TSR_DEVICE, name);
    if (!f) throw Failed("factories lists no device '" + name + "', which the manifest promises");
    table_ = static_cast<const tsr_device_table*>(f->table);
    self_ = f->self;
    if (table_->count == 0) throw Skipped("this machine has none of its devices");
  }
  const tsr_device_table& table() const { return *table_; }
  void* self() const { return self_; }

  static void check(const char* function, tsr_error* error) {
    if (const std::string what = text_of_error(error); !what.empty()) throw Failed(std::string(function) + ": " + what);
  }
  char* alloc(size_t bytes, size_t align, tsr_stream* s) const {
    void* p = nullptr;
    check("alloc", table_->alloc(self_, 0, bytes, align, s, &p));
    if (!p) throw Failed("alloc of " + std::to_string(bytes) + " bytes gave NULL and no error");
    return static_cast<char*>(p);
  }
  void free(void* p, tsr_stream* s) const { table_->free(self_, 0, p, s); }
  void copy(void* to, const void* from, size_t bytes, uint32_t flags, tsr_stream* s) const {
    check("copy", table_->copy(self_, 0, to, from, bytes, flags, s));
  }
  void fill(void* to, uint32_t value, size_t bytes, tsr_stream* s) const {
    check("fill", table_->fill(self_, 0, to, value, bytes, s));
  }
  tsr_stream* stream() const {
    tsr_stream* s = nullptr;
    check("stream_create", table_->stream_create(self_, 0, &s));
    if (!s) throw Failed("stream_create gave NULL and no error");
    return s;
  }
  void destroy(tsr_stream* s) const {
    synchronize(s);
    table_->stream_destroy(self_, 0, s);
  }
  void synchronize(tsr_stream* s) const { check("stream_synchronize", table_->stream_synchronize(self_, 0, s)); }
  tsr_event* event() const {
    tsr_event* e = nullptr;
    check("event_create", table_->event_create(self_, 0, &e));
    if (!e) throw Failed("event_create gave NULL and no error");
    return e;
  }
  void destroy(tsr_event* e) const { table_->event_destroy(self_, 0, e); }
  void record(tsr_event* e, tsr_stream* s) const { check("event_record", table_->event_record(self_, 0, e, s)); }
  void wait(tsr_event* e, tsr_stream* s) const { check("event_wait", table_->event_wait(self_, 0, e, s)); }
  // The bytes at an address of the device.
  std::vector<char> read(const void* from, size_t bytes, tsr_stream* s) const {
    std::vector<char> out(bytes);
    copy(out.data(), from, bytes, TSR_COPY_TO_HOST, s);
    return out;
  }
  // Is every byte `value`?
  void expect_bytes(const char* what, const void* at, size_t bytes, uint8_t value, tsr_stream* s) const {
    const std::vector<char> got = read(at, bytes, s);
    for (size_t i = 0; i < bytes; ++i)
      if (static_cast<uint8_t>(got[i]) != value)
        throw Failed(std::string(what) + ": found " + std::to_string(static_cast<uint8_t>(got[i])) + " in byte " +
                     std::to_string(i) + ", expected " + std::to_string(value));
  }

 private:
  const tsr_device_table* table_;
  void* self_;
};
using Device = DeviceUnderTest;

std::vector<char> pattern(size_t bytes, unsigned seed) {
  std::vector<char> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>((i * 131 + i / 251 + seed * 17) & 0xff);
  return out;
}
constexpr size_t kSizes[] = {1, 63, 64, 65, 4095, 4097, size_t{1} << 20};

void functions(const Device& d) {
  const tsr_device_table& t = d.table();
  if (!t.name || !*t.name) throw Failed("the table has no name");
  const std::pair<const char*, bool> required[] = {
      {"info", t.info != nullptr},
      {"alloc", t.alloc != nullptr},
      {"free", t.free != nullptr},
      {"copy", t.copy != nullptr},
      {"fill", t.fill != nullptr},
      {"stream_create", t.stream_create != nullptr},
      {"stream_destroy", t.stream_destroy != nullptr},
      {"stream_synchronize", t.stream_synchronize != nullptr},
      {"event_create", t.event_create != nullptr},
      {"event_destroy", t.event_destroy != nullptr},
      {"event_record", t.event_record != nullptr},
      {"event_wait", t.event_wait != nullptr},
      {"event_query", t.event_query != nullptr},
      {"event_synchronize", t.event_synchronize != nullptr},
      {"event_elapsed", t.event_elapsed != nullptr},
      {"host_alloc", t.host_alloc != nullptr},
      {"host_free", t.host_free != nullptr},
  };
  for (const auto& [name, there] : required)
    if (!there) throw Failed("the table lacks " + std::string(name));
  const auto together = [](const char* what, std::initializer_list<bool> there) {
    if (std::count(there.begin(), there.end(), true) % static_cast<long>(there.size()))
      throw Failed(std::string("the table has some functions of ") + what + " and lacks others; they come together");
  };
  together("capture", {t.capture_begin != nullptr, t.capture_end != nullptr});
  together("wrapped streams", {t.stream_wrap != nullptr, t.stream_native != nullptr});
  if (TSR_HAS(&t, tsr_device_table, graph_info))
    together("graphs", {t.graph_create != nullptr, t.graph_add != nullptr, t.graph_add_captured != nullptr,
                        t.graph_instantiate != nullptr, t.graph_set != nullptr, t.graph_set_captured != nullptr,
                        t.graph_info != nullptr});
  if (TSR_HAS(&t, tsr_device_table, unreserve))
    together("reserved addresses", {t.reserve != nullptr, t.commit != nullptr, t.unreserve != nullptr});
}

void info(const Device& d) {
  for (uint32_t i = 0; i < d.table().count; ++i) {
    tsr_device_info x{};
    x.struct_size = sizeof x;
    Device::check("info", d.table().info(d.self(), i, &x));
    if (x.total_bytes < 0 || x.shared_bytes < 0 || x.register_bytes < 0 || x.cache_bytes < 0 || x.bytes_per_second < 0 ||
        x.flops_per_second < 0)
      throw Failed("a size or a speed is negative; what is unknown is 0");
    if (x.wave != 0 && x.wave != 32 && x.wave != 64)
      throw Failed("found wave " + std::to_string(x.wave) + ", expected 32, 64, or 0 for unknown");
  }
}

void allocation(const Device& d) {
  tsr_stream* s = d.stream();
  std::vector<char*> all;
  for (const size_t align : {size_t{1}, size_t{64}, size_t{256}})
    for (const size_t bytes : kSizes) {
      char* p = d.alloc(bytes, align, s);
      if (reinterpret_cast<uintptr_t>(p) % align)
        throw Failed("alloc aligned to " + std::to_string(align) + " gave an address that is not");
      d.fill(p, static_cast<uint32_t>(all.size() % 250), bytes, s);
      all.push_back(p);
    }
  for (size_t i = 0; i < all.size(); ++i)
    d.expect_bytes("blocks overlap, or fill misses bytes", all[i], kSizes[i % std::size(kSizes)], static_cast<uint8_t>(i % 250),
                   s);
  for (char* p : all) d.free(p, s);
  d.free(nullptr, s);
  d.destroy(s);
}

void out_of_memory(const Device& d) {
  tsr_stream* s = d.stream();
  void* p = nullptr;
  tsr_error* error = d.table().alloc(d.self(), 0, size_t{1} << 60, 64, s, &p);
  if (!error) throw Failed("alloc of 2^60 bytes succeeds");
  const std::string code = e::api().host->core->error_code(error);
  const std::string what = text_of_error(error);
  if (code != "TSR-R001") throw Failed("alloc of 2^60 bytes fails with " + code + ", expected TSR-R001: " + what);
  char* small = d.alloc(4096, 64, s);  // and goes on to serve what it can
  d.fill(small, 7, 4096, s);
  d.expect_bytes("memory after a failed alloc", small, 4096, 7, s);
  d.free(small, s);
  d.destroy(s);
}

// Addresses of the device are numbers: p + n is n bytes behind p.
void addresses(const Device& d) {
  tsr_stream* s = d.stream();
  char *a = d.alloc(8192, 64, s), *b = d.alloc(8192, 64, s);
  d.fill(a, 0x11, 8192, s);
  d.fill(b, 0x22, 8192, s);
  const std::vector<char> data = pattern(1000, 1);
  d.copy(a + 129, data.data(), data.size(), TSR_COPY_TO_DEVICE, s);
  d.copy(b + 3, a + 129, data.size(), TSR_COPY_WITHIN, s);
  d.expect_bytes("a copy to an inner address touches what lies before it", a, 129, 0x11, s);
  d.expect_bytes("a copy to an inner address touches what lies behind it", a + 1129, 8192 - 1129, 0x11, s);
  d.expect_bytes("a copy within the device touches what lies before it", b, 3, 0x22, s);
  d.expect_bytes("a copy within the device touches what lies behind it", b + 1003, 8192 - 1003, 0x22, s);
  if (d.read(b + 3, data.size(), s) != data)
    throw Failed("bytes that went to an inner address and on within the device come back changed");
  d.fill(a + 7, 0x33, 11, s);
  d.expect_bytes("fill of an inner range", a + 7, 11, 0x33, s);
  d.expect_bytes("fill touches what lies before it", a, 7, 0x11, s);
  d.expect_bytes("fill touches what lies behind it", a + 18, 100, 0x11, s);
  d.copy(a, a, 0, TSR_COPY_WITHIN, s);  // nothing
  d.fill(a, 0, 0, s);
  d.expect_bytes("fill of no bytes", a, 7, 0x11, s);
  d.free(a, s);
  d.free(b, s);
  d.destroy(s);
}

// Without TSR_COPY_ASYNC host memory is free to change when the call returns.
void synchrony(const Device& d) {
  tsr_stream* s = d.stream();
  for (const size_t bytes : kSizes) {
    char* p = d.alloc(bytes, 64, s);
    const std::vector<char> data = pattern(bytes, 2);
    std::vector<char> source = data;
    d.copy(p, source.data(), bytes, TSR_COPY_TO_DEVICE, s);
    std::fill(source.begin(), source.end(), char{0x7e});
    std::vector<char> back(bytes);
    d.copy(back.data(), p, bytes, TSR_COPY_TO_HOST, s);
    if (back != data)  // nothing waits in between: a copy that had not read or written by then shows here
      throw Failed(std::to_string(bytes) +
                   " bytes come back changed: a copy without TSR_COPY_ASYNC must have read its source, or written its "
                   "destination, when it returns");
    d.free(p, s);
  }
  d.destroy(s);
}

void pinned(const Device& d) {
  tsr_stream* s = d.stream();
  const size_t bytes = 1 << 16;
  void *from = nullptr, *to = nullptr;
  Device::check("host_alloc", d.table().host_alloc(d.self(), 0, bytes, &from));
  Device::check("host_alloc", d.table().host_alloc(d.self(), 0, bytes, &to));
  const std::vector<char> data = pattern(bytes, 3);
  std::memcpy(from, data.data(), bytes);
  std::memset(to, 0, bytes);
  char* p = d.alloc(bytes, 64, s);
  d.copy(p, from, bytes, TSR_COPY_TO_DEVICE | TSR_COPY_ASYNC, s);
  d.copy(to, p, bytes, TSR_COPY_TO_HOST | TSR_COPY_ASYNC, s);
  d.synchronize(s);
  if (std::memcmp(to, data.data(), bytes) != 0)
    throw Failed("bytes copied with TSR_COPY_ASYNC through memory of host_alloc differ after stream_synchronize");
  d.free(p, s);
  d.destroy(s);
  d.table().host_free(d.self(), 0, from);
  d.table().host_free(d.self(), 0, to);
  d.table().host_free(d.self(), 0, nullptr);
}

void stream_order(const Device& d) {
  tsr_stream* s = d.stream();
  const size_t bytes = 1 << 18;
  char *a = d.alloc(bytes, 64, s), *b = d.alloc(bytes, 64, s), *c = d.alloc(bytes, 64, s);
  for (int round = 0; round < 8; ++round) {
    d.fill(a, 0x10, bytes, s);
    d.copy(b, a, bytes, TSR_COPY_WITHIN, s);
    d.fill(a, 0x20, bytes, s);
    d.copy(c, a, bytes, TSR_COPY_WITHIN, s);
    d.fill(a, 0x30, bytes, s);
    d.expect_bytes("work on one stream ran in another order than it was queued", b, bytes, 0x10, s);
    d.expect_bytes("work on one stream ran in another order than it was queued", c, bytes, 0x20, s);
  }
  for (char* p : {a, b, c}) d.free(p, s);
  d.destroy(s);
}

// Memory goes back behind the work that is queued on the stream.
void free_order(const Device& d) {
  tsr_stream* s = d.stream();
  const size_t bytes = 1 << 18;
  char* out = d.alloc(bytes, 64, s);
  for (int round = 0; round < 8; ++round) {
    char* a = d.alloc(bytes, 64, s);
    d.fill(a, 0x41, bytes, s);
    d.copy(out, a, bytes, TSR_COPY_WITHIN, s);
    d.free(a, s);
    char* b = d.alloc(bytes, 64, s);
    d.fill(b, 0x42, bytes, s);
    d.expect_bytes("memory was given to another user before the work queued on it had run", out, bytes, 0x41, s);
    d.free(b, s);
  }
  d.free(out, s);
  d.destroy(s);
}

void events(const Device& d) {
  tsr_stream *s = d.stream(), *other = d.stream();
  const size_t bytes = 1 << 18;
  char *a = d.alloc(bytes, 64, s), *b = d.alloc(bytes, 64, s);
  tsr_event *e = d.event(), *never = d.event(), *late = d.event();
  d.synchronize(s);
  for (int round = 0; round < 8; ++round) {
    d.fill(a, 0x51, bytes, s);
    d.record(e, s);
    d.wait(e, other);
    d.copy(b, a, bytes, TSR_COPY_WITHIN, other);
    d.record(late, other);
    // Recorded again: the wait that is queued already stands for the first recording.
    d.record(e, s);
    d.wait(late, s);
    d.fill(a, 0x52, bytes, s);
    d.expect_bytes("work ran before the event that its stream waits for", b, bytes, 0x51, other);
    d.synchronize(s);
  }
  d.wait(never, s);  // never recorded: no wait
  d.fill(a, 0x53, bytes, s);
  d.expect_bytes("behind a wait for an event that was never recorded", a, bytes, 0x53, s);
  d.record(e, s);
  Device::check("event_synchronize", d.table().event_synchronize(d.self(), 0, e));
  int done = 0;
  Device::check("event_query", d.table().event_query(d.self(), 0, e, &done));
  if (done != 1) throw Failed("event_query says that an event has not passed which event_synchronize has waited for");
  d.record(late, s);
  Device::check("event_synchronize", d.table().event_synchronize(d.self(), 0, late));
  double seconds = -1;
  Device::check("event_elapsed", d.table().event_elapsed(d.self(), 0, e, late, &seconds));
  if (!(seconds >= 0 && seconds < 60))
    throw Failed("event_elapsed of two events that have passed is " + std::to_string(seconds) + " s");
  // A wait that is queued stays when its event goes.
  tsr_event* brief = d.event();
  d.fill(a, 0x54, bytes, s);
  d.record(brief, s);
  d.wait(brief, other);
  d.destroy(brief);
  d.copy(b, a, bytes, TSR_COPY_WITHIN, other);
  d.expect_bytes("the wait for an event was lost when the event was destroyed", b, bytes, 0x54, other);
  d.synchronize(s);
  for (tsr_event* x : {e, never, late}) d.destroy(x);
  d.free(a, s);
  d.free(b, s);
  d.destroy(other);
  d.destroy(s);
}

void graphs(const Device& d) {
  const tsr_device_table& t = d.table();
  if (!TSR_HAS(&t, tsr_device_table, graph_info) || !t.graph_create) throw Skipped("it does not build graphs from nodes");
  tsr_stream* s = d.stream();
  const size_t bytes = 4096;
  char *a = d.alloc(bytes, 64, s), *b = d.alloc(bytes, 64, s), *c = d.alloc(bytes, 64, s);
  d.fill(b, 0, bytes, s);
  d.fill(c, 0, bytes, s);
  d.synchronize(s);
  tsr_device_graph* g = nullptr;
  Device::check("graph_create", t.graph_create(d.self(), 0, &g));
  const auto add = [&](const tsr_device_call& call, std::vector<uint32_t> after) {
    uint32_t node = 0;
    Device::check("graph_add", t.graph_add(d.self(), 0, g, &call, after.data(), static_cast<uint32_t>(after.size()), &node));
    return node;
  };
  tsr_device_call fill{};
  fill.struct_size = sizeof fill;
  fill.kind = TSR_CALL_FILL;
  fill.name = "fill";
  fill.to = a;
  fill.value = 0x61;
  fill.bytes = bytes;
  tsr_device_call copy = fill;
  copy.kind = TSR_CALL_COPY;
  copy.name = "copy";
  copy.to = b;
  copy.from = a;
  tsr_device_call empty{};
  empty.struct_size = sizeof empty;
  empty.kind = TSR_CALL_EMPTY;
  empty.name = "join";
  const uint32_t first = add(fill, {}), second = add(copy, {first}), join = add(empty, {second});
  if (first != 0 || second != 1 || join != 2)
    throw Failed("nodes are numbered " + std::to_string(first) + ", " + std::to_string(second) + ", " + std::to_string(join) +
                 ", expected 0, 1, 2");
  Device::check("graph_instantiate", t.graph_instantiate(d.self(), 0, g));
  for (int i = 0; i < 3; ++i) Device::check("graph_launch", t.graph_launch(d.self(), 0, g, s));
  d.expect_bytes("the result of a graph's two nodes", b, bytes, 0x61, s);
  copy.to = c;
  Device::check("graph_set", t.graph_set(d.self(), 0, g, second, &copy));
  fill.value = 0x62;
  Device::check("graph_set", t.graph_set(d.self(), 0, g, first, &fill));
  Device::check("graph_launch", t.graph_launch(d.self(), 0, g, s));
  d.expect_bytes("the result of a graph after graph_set", c, bytes, 0x62, s);
  d.expect_bytes("what a node wrote before it was set to another address", b, bytes, 0x61, s);
  tsr_error* refused = t.graph_set(d.self(), 0, g, first, &copy);
  if (!refused) throw Failed("graph_set takes a copy for a node that fills");
  const std::string code = e::api().host->core->error_code(refused);
  e::api().error_free(refused);
  if (code != "TSR-R044") throw Failed("graph_set with another kind fails with " + code + ", expected TSR-R044");
  Device::check("graph_launch", t.graph_launch(d.self(), 0, g, s));
  d.expect_bytes("a graph after a graph_set that was refused", c, bytes, 0x62, s);
  tsr_device_graph_info x{};
  x.struct_size = sizeof x;
  Device::check("graph_info", t.graph_info(d.self(), 0, g, &x));
  if (x.nodes < 2) throw Failed("graph_info counts " + std::to_string(x.nodes) + " nodes of a graph with a fill and a copy");
  d.synchronize(s);
  t.graph_destroy(d.self(), 0, g);
  for (char* p : {a, b, c}) d.free(p, s);
  d.destroy(s);
}

void reserved(const Device& d) {
  const tsr_device_table& t = d.table();
  if (!TSR_HAS(&t, tsr_device_table, unreserve) || !t.reserve) throw Skipped("it does not reserve addresses");
  tsr_stream* s = d.stream();
  void* p = nullptr;
  const size_t all = size_t{64} << 20, some = size_t{4} << 20;
  Device::check("reserve", t.reserve(d.self(), 0, all, &p));
  Device::check("commit", t.commit(d.self(), 0, p, some, s));
  d.fill(p, 0x71, some, s);
  Device::check("commit", t.commit(d.self(), 0, p, 2 * some, s));
  d.expect_bytes("what lay there before more was committed", p, some, 0x71, s);
  d.fill(static_cast<char*>(p) + some, 0x72, some, s);
  d.expect_bytes("memory that was committed later", static_cast<char*>(p) + some, some, 0x72, s);
  Device::check("commit", t.commit(d.self(), 0, p, some, s));
  d.expect_bytes("what is left after some was given back", p, some, 0x71, s);
  Device::check("commit", t.commit(d.self(), 0, p, 0, s));
  d.synchronize(s);
  t.unreserve(d.self(), 0, p);
  d.destroy(s);
}

void strided(const Device& d) {
  const tsr_device_table& t = d.table();
  if (!t.copy_strided) throw Skipped("it does not copy strided tensors");
  tsr_stream* s = d.stream();
  float host[12];
  for (int i = 0; i < 12; ++i) host[i] = static_cast<float>(i);
  char *a = d.alloc(sizeof host, 64, s), *b = d.alloc(sizeof host, 64, s);
  d.copy(a, host, sizeof host, TSR_COPY_TO_DEVICE, s);
  const int64_t sizes[] = {4, 3}, transposed[] = {1, 4}, dense[] = {3, 1};
  tsr_tensor from{a, TSR_F32, 2, sizes, transposed, e::device(t.name), 0},
      to{b, TSR_F32, 2, sizes, dense, e::device(t.name), TSR_TENSOR_CONTIGUOUS};
  Device::check("copy_strided", t.copy_strided(d.self(), 0, &to, &from, s));
  float back[12];
  d.copy(back, b, sizeof back, TSR_COPY_TO_HOST, s);
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 3; ++k)
      if (back[i * 3 + k] != host[k * 4 + i])
        throw Failed("copy_strided of a transposed tensor puts elements into wrong places");
  d.free(a, s);
  d.free(b, s);
  d.destroy(s);
}

void peers(const Device& d) {
  const tsr_device_table& t = d.table();
  if (!t.copy_peer) throw Skipped("it does not copy between its devices");
  if (t.count < 2) throw Skipped("this machine has one of its devices");
  tsr_stream *s0 = d.stream(), *s1 = nullptr;
  Device::check("stream_create", t.stream_create(d.self(), 1, &s1));
  const std::vector<char> data = pattern(4097, 5);
  char* a = d.alloc(data.size(), 64, s0);
  void* b = nullptr;
  Device::check("alloc", t.alloc(d.self(), 1, data.size(), 64, s1, &b));
  d.copy(a, data.data(), data.size(), TSR_COPY_TO_DEVICE, s0);
  d.synchronize(s0);
  Device::check("copy_peer", t.copy_peer(d.self(), 1, b, 0, a, data.size(), s1));
  std::vector<char> back(data.size());
  Device::check("copy", t.copy(d.self(), 1, back.data(), b, back.size(), TSR_COPY_TO_HOST, s1));
  if (back != data) throw Failed("bytes that copy_peer brought to another device come back changed");
  t.free(d.self(), 1, b, s1);
  Device::check("stream_synchronize", t.stream_synchronize(d.self(), 1, s1));
  t.stream_destroy(d.self(), 1, s1);
  d.free(a, s0);
  d.destroy(s0);
}

void many_threads(const Device& d) {
  std::vector<std::thread> all;
  std::vector<std::string> what(4);
  for (unsigned k = 0; k < 4; ++k)
    all.emplace_back([&, k] {
      try {
        tsr_stream* s = d.stream();
        for (unsigned round = 0; round < 50; ++round) {
          const size_t bytes = 1000 + 977 * round;
          const std::vector<char> data = pattern(bytes, k * 100 + round);
          char *a = d.alloc(bytes, 64, s), *b = d.alloc(bytes, 64, s);
          d.copy(a, data.data(), bytes, TSR_COPY_TO_DEVICE, s);
          d.copy(b, a, bytes, TSR_COPY_WITHIN, s);
          if (d.read(b, bytes, s) != data) throw Failed("with four threads at once bytes come back changed");
          d.free(a, s);
          d.free(b, s);
        }
        d.destroy(s);
      } catch (const std::exception& x) {
        what[k] = x.what();
      }
    });
  for (std::thread& t : all) t.join();
  for (const std::string& w : what)
    if (!w.empty()) throw Failed(w);
}

}  // namespace

void add_device_checks(Subject& s, Checks& out) {
  const std::vector<std::string> devices = s.manifest().names("device");
  for (const std::string& name : devices) {
    const std::string of = devices.size() > 1 ? " of " + name : "";
    const auto add = [&](int level, const char* check, const char* about, void (*f)(const Device&)) {
      out.push_back(
          {level, std::string("device/") + check + of, about, [name, f](Subject& subject) { f(Device(subject, name)); }});
    };
    add(2, "functions", "Required functions are there, and optional ones come in their groups.", functions);
    add(2, "info", "A device describes itself; what it does not know is 0.", info);
    add(2, "allocation", "Blocks are aligned as asked and do not overlap; freeing NULL does nothing.", allocation);
    add(2, "out_of_memory", "Too large a block is an error with code TSR-R001, and the device goes on.", out_of_memory);
    add(3, "addresses", "Addresses are numbers: an inner address is a place to copy to and from, to the byte.", addresses);
    add(3, "synchrony", "A copy without TSR_COPY_ASYNC is done with host memory when it returns.", synchrony);
    add(3, "pinned", "Copies with TSR_COPY_ASYNC through memory of host_alloc are done after stream_synchronize.", pinned);
    add(3, "stream_order", "Work on one stream runs in the order in which it was queued.", stream_order);
    add(3, "free_order", "Memory is given back behind the work that is queued on the stream.", free_order);
    add(3, "events",
        "A wait stands for what its event stood for when it was queued, also when the event is recorded again or destroyed.",
        events);
    add(3, "graphs", "Graphs of nodes run in their order, are set anew, and refuse a node of another kind.", graphs);
    add(3, "reserved", "Reserved addresses keep what lies there while memory behind them grows and shrinks.", reserved);
    add(3, "strided", "Strided tensors are copied element by element.", strided);
    add(3, "peers", "Bytes go from one device to another.", peers);
    add(4, "threads", "Four threads use the table at once.", many_threads);
  }
}

}  // namespace tessera::conformance
