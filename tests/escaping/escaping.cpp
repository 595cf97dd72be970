// SPDX-License-Identifier: Apache-2.0
// A plugin of several kinds whose functions let an exception escape, against the rules of the boundary: the one that the
// environment variable ESCAPING names. The others work. Tables by hand: the SDK's wrapper would convert what is thrown.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "tessera/abi.h"

namespace {

const tsr_host* host;

void may_throw(const char* function) {
  const char* which = std::getenv("ESCAPING");
  if (which && std::strcmp(which, function) == 0) throw std::runtime_error("no licence");
}
// What a function of a table that returns an error does otherwise: nothing.
tsr_error* fine(const char* function) {
  may_throw(function);
  return nullptr;
}

int64_t elements(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.sizes[i];
  return n;
}

// ---- a backend on the host: `neg` of f32, and how many elements of a tensor are not 0

tsr_claim claim(void*, tsr_graph* g, tsr_id node, const char** why) {
  may_throw("claim");
  const tsr_tables& t = *host->graph->tables(g);
  const std::string op = TSR_AT(tsr_node, t.nodes, t.node_stride, node)->op;
  *why = "neg and nonzero alone";
  return op == "neg" || op == "nonzero" ? TSR_CLAIM_YES : TSR_CLAIM_NO;
}

tsr_error* compile(void*, const tsr_compile* c, tsr_kernel* out) {
  may_throw("compile");
  const tsr_tables& t = *host->graph->tables(c->graph);
  const bool counts = std::strcmp(TSR_AT(tsr_node, t.nodes, t.node_stride, c->node)->op, "nonzero") == 0;
  out->name = "escaping.kernel";
  out->in_place = -1;
  out->workspace = [](void*, const int64_t*) -> int64_t { return may_throw("workspace"), 64; };
  out->destroy = [](void*) { may_throw("destroy"); };
  if (counts)
    out->sizes = [](void*, const tsr_launch* l, int64_t* symbols, uint32_t) {
      symbols[0] = 0;
      for (int64_t i = 0; i < elements(l->inputs[0]); ++i) symbols[0] += static_cast<const float*>(l->inputs[0].data)[i] != 0;
      return fine("sizes");
    };
  out->launch = counts ? [](void*, const tsr_launch* l) {
    int64_t n = 0;  // of one dimension
    for (int64_t i = 0; i < elements(l->inputs[0]); ++i)
      if (static_cast<const float*>(l->inputs[0].data)[i] != 0) static_cast<int64_t*>(l->outputs[0].data)[n++] = i;
    return fine("launch");
  } : [](void*, const tsr_launch* l) {
    for (int64_t i = 0; i < elements(l->outputs[0]); ++i)
      static_cast<float*>(l->outputs[0].data)[i] = -static_cast<const float*>(l->inputs[0].data)[i];
    return fine("launch");
  };
  return nullptr;
}

// ---- a store in memory

std::mutex mutex;
std::map<std::string, std::string> entries;

tsr_error* get(void*, const char* key, void* (*alloc)(void*, size_t), void* ctx, int* found) {
  may_throw("get");
  const std::lock_guard lock(mutex);
  const auto at = entries.find(key);
  *found = at != entries.end();
  if (*found) std::memcpy(alloc(ctx, at->second.size()), at->second.data(), at->second.size());
  return nullptr;
}
tsr_error* put(void*, const char* key, const void* bytes, size_t length) {
  may_throw("put");
  const std::lock_guard lock(mutex);
  entries[key].assign(static_cast<const char*>(bytes), length);
  return nullptr;
}
tsr_error* remove(void*, const char* key) {
  may_throw("remove");
  const std::lock_guard lock(mutex);
  entries.erase(key);
  return nullptr;
}
tsr_error* list(void*, void (*each)(void*, const char*, uint64_t, int64_t), void* ctx) {
  may_throw("list");
  const std::lock_guard lock(mutex);
  for (const auto& [key, bytes] : entries) each(ctx, key.c_str(), bytes.size(), 0);
  return nullptr;
}
tsr_error* store_info(void*, tsr_store_info* out) {
  out->location = "memory";
  out->exclusive = out->writable = 1;
  return fine("info");
}

// ---- a frontend that captures what a client hands over

int probe(void*, const char*, size_t) { return may_throw("probe"), 0; }
tsr_error* import(void*, const char*, size_t, const char*, tsr_graph*) { return fine("import"); }
tsr_error* capture(void*, tsr_recorder* r, const tsr_callable* c) {
  may_throw("capture");
  return c->invoke(c->self, r);
}

// ---- an op set

const tsr_record_file kRecords[] = {{"acme.tops",
                                     "op boom(%x: T[*S]) -> (T[*S])\n  where T: float\n  traits: pure\n"
                                     "  doc: \"x.\"\n  numerics: \"Exact.\"\n"
                                     "op same(%x: T[?]) -> (T[?])\n  where T: float\n  traits: pure view\n"
                                     "  doc: \"x, as it lies.\"\n  numerics: \"Exact.\"\n"
                                     "op twice(%x: T[*S]) -> (T[*S])\n  where T: float\n  traits: composite pure\n"
                                     "  doc: \"x + x.\"\n  numerics: \"Of its parts.\"\n"}};

tsr_error* compute(void*, const tsr_call*, const tsr_tensor* in, uint32_t, const tsr_tensor* out, uint32_t) {
  may_throw("compute");
  std::memcpy(out[0].data, in[0].data, static_cast<size_t>(elements(out[0])) * sizeof(float));
  return nullptr;
}

tsr_error* grad(void*, tsr_graph*, tsr_id, const tsr_id* grad_results, tsr_id* grad_operands) {
  may_throw("grad");
  grad_operands[0] = grad_results[0];
  return nullptr;
}
tsr_error* cost(void*, const tsr_call*, tsr_cost* out) {
  out->flops = 1;
  return fine("cost");
}

tsr_error* infer(void*, const tsr_call* c, tsr_type* results, uint32_t, uint32_t* num_results) {
  results[0] = *c->operands[0];
  *num_results = 1;
  return fine("infer");
}
int view(void*, const tsr_call*, const tsr_tensor* in, tsr_tensor* out, int64_t* out_strides) {
  may_throw("view");
  out->data = in->data;
  std::copy(in->strides, in->strides + in->rank, out_strides);
  return TSR_VIEW_ALWAYS;
}

tsr_error* decompose(void*, tsr_graph* g, tsr_id node, tsr_id* replacements) {
  may_throw("decompose");
  const tsr_tables& t = *host->graph->tables(g);
  const tsr_id x = TSR_AT(tsr_node, t.nodes, t.node_stride, node)->operands[0];
  const tsr_id operands[] = {x, x};
  tsr_node_desc d{};
  d.struct_size = sizeof d;
  d.op = "add";
  d.operands = operands;
  d.num_operands = 2;
  tsr_id sum = TSR_NONE;
  if (tsr_error* e = host->graph->node_create(g, &d, 0, node, &sum)) return e;
  const tsr_tables& now = *host->graph->tables(g);
  replacements[0] = TSR_AT(tsr_node, now.nodes, now.node_stride, sum)->results[0];
  return nullptr;
}

// ---- a partitioner that saves all

tsr_error* partition(void*, tsr_graph*, const tsr_options*, tsr_partition*) { return fine("partition"); }
tsr_error* front(void*, tsr_graph*, const tsr_options*, tsr_partition* p, void (*each)(void*, const tsr_partition*),
                 void* ctx) {
  may_throw("front");
  each(ctx, p);
  return nullptr;
}

// ---- a device whose memory is the host's

tsr_error* device_info(void*, uint32_t, tsr_device_info* out) {
  out->name = "escaping:0";
  out->description = "memory of the host";
  return fine("device_info");
}
tsr_error* device_alloc(void*, uint32_t, size_t bytes, size_t align, tsr_stream*, void** out) {
  may_throw("alloc");
  *out = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  return nullptr;
}

struct Tables {
  tsr_op_impl impls[3] = {};
  tsr_opset opset{};
  tsr_frontend frontend{};
  tsr_device_table device{};
  tsr_backend backend{};
  tsr_store store{};
  tsr_partitioner partitioner{};
  tsr_factory factories[6] = {};

  Tables() {
    impls[0].op = "boom";
    impls[0].compute = compute;
    impls[0].grad = grad;
    impls[0].cost = cost;
    impls[1].op = "same";
    impls[1].infer = infer;
    impls[1].view = view;
    impls[1].compute = compute;
    impls[2].op = "twice";
    impls[2].decompose = decompose;
    opset = {sizeof opset, "acme", kRecords, 1, sizeof kRecords[0], impls, 3, sizeof impls[0]};
    partitioner = {sizeof partitioner, "saves all", partition, front};
    frontend.struct_size = sizeof frontend;
    frontend.description = "captures";
    frontend.probe = probe;
    frontend.import = import;
    frontend.capture = capture;
    device.struct_size = sizeof device;
    device.name = "escaping";
    device.count = 1;
    device.info = device_info;
    device.alloc = device_alloc;
    device.free = [](void*, uint32_t, void* p, tsr_stream*) {
      std::free(p);
      may_throw("free");
    };
    device.copy = [](void*, uint32_t, void* dst, const void* src, size_t n, uint32_t, tsr_stream*) {
      may_throw("copy");
      std::memcpy(dst, src, n);
      return static_cast<tsr_error*>(nullptr);
    };
    device.fill = [](void*, uint32_t, void* p, uint32_t value, size_t n, tsr_stream*) {
      std::memset(p, static_cast<int>(value), n);
      return fine("fill");
    };
    static int some;  // what streams and events are: everything has happened when a function returns
    device.stream_create = [](void*, uint32_t, tsr_stream** out) {
      *out = reinterpret_cast<tsr_stream*>(&some);
      return fine("stream_create");
    };
    device.stream_destroy = [](void*, uint32_t, tsr_stream*) {};
    device.stream_synchronize = [](void*, uint32_t, tsr_stream*) { return fine("stream_synchronize"); };
    device.event_create = [](void*, uint32_t, tsr_event** out) {
      *out = reinterpret_cast<tsr_event*>(&some);
      return fine("event_create");
    };
    device.event_destroy = [](void*, uint32_t, tsr_event*) {};
    device.event_record = [](void*, uint32_t, tsr_event*, tsr_stream*) { return fine("event_record"); };
    device.event_wait = [](void*, uint32_t, tsr_event*, tsr_stream*) { return fine("event_wait"); };
    device.event_query = [](void*, uint32_t, tsr_event*, int* done) { return *done = 1, fine("event_query"); };
    device.event_synchronize = [](void*, uint32_t, tsr_event*) { return fine("event_synchronize"); };
    device.event_elapsed = [](void*, uint32_t, tsr_event*, tsr_event*, double* s) { return *s = 0, fine("event_elapsed"); };
    device.host_alloc = [](void*, uint32_t, size_t n, void** out) {
      *out = std::aligned_alloc(64, (n + 63) / 64 * 64);
      return fine("host_alloc");
    };
    device.host_free = [](void*, uint32_t, void* p) { std::free(p); };
    backend.struct_size = sizeof backend;
    backend.device = "cpu";
    backend.claim = claim;
    backend.compile = compile;
    store.struct_size = sizeof store;
    store.get = get;
    store.put = put;
    store.remove = remove;
    store.list = list;
    store.info = store_info;
    factories[0] = {TSR_OPSET, 0, "acme", &opset, nullptr};
    factories[1] = {TSR_FRONTEND, 0, "escaping", &frontend, nullptr};
    factories[2] = {TSR_DEVICE, 0, "escaping", &device, nullptr};
    factories[3] = {TSR_BACKEND, 0, "escaping", &backend, nullptr};
    factories[4] = {TSR_STORE, 0, "escaping", &store, nullptr};
    factories[5] = {TSR_PARTITIONER, 0, "escaping", &partitioner, nullptr};
  }
};
Tables tables;

}  // namespace

extern "C" TSR_EXPORT const tsr_plugin_desc* tsr_plugin_query(const tsr_host_info* h) {
  static tsr_plugin_desc d{};
  host = h;
  d.struct_size = sizeof d;
  d.abi_major = TSR_ABI_MAJOR;
  d.abi_minor = d.abi_minor_min = TSR_ABI_MINOR;
  d.ir_min = d.ir_max = TSR_IR_VERSION;
  d.id = TSR_PLUGIN_ID;
  d.version = TSR_PLUGIN_VERSION;
  d.vendor = TSR_PLUGIN_VENDOR;
  d.sanitizer = TSR_PLUGIN_SANITIZER;
  d.build_info = "as CMake built it";
  d.create = [](const tsr_host*, const tsr_options*, void** instance) {
    *instance = &tables;
    return static_cast<tsr_error*>(nullptr);
  };
  d.factories = [](void*, const tsr_factory** items, size_t* count, size_t* stride) {
    *items = tables.factories;
    *count = 6;
    *stride = sizeof tables.factories[0];
    return static_cast<tsr_error*>(nullptr);
  };
  return &d;
}
