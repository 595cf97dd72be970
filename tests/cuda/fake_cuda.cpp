// SPDX-License-Identifier: Apache-2.0
// The driver's half; fake_nvrtc.cpp has the compiler's.
#include "fake_cuda.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver.hpp"
#include "fake_image.hpp"
#include "fake_queue.hpp"
#include "tessera/kit/gpu/text_runner.hpp"

namespace tessera::cuda {

struct CUcontextObject {
  int device;
};
struct CUgraphNodeObject {
  enum Kind { Kernel, Copy, Fill, Child, Library, Empty } kind;
  CUgraph graph;
  std::vector<CUgraphNode> after;
  CUfunction function = nullptr;
  unsigned blocks = 0, threads = 0;
  std::vector<std::vector<char>> arguments;
  CUdeviceptr to = 0, from = 0;
  size_t bytes = 0;
  unsigned value = 0;
  CUgraph child = nullptr;  // a copy of its own
  std::function<bool(const fake::Real&)> work;
};
struct CUgraphObject {
  std::vector<std::unique_ptr<CUgraphNodeObject>> nodes;
};
struct CUgraphExecObject {
  std::unique_ptr<CUgraphObject> graph;
  std::map<CUgraphNode, CUgraphNode> node_of;  // of the graph that it was made of
};
struct CUstreamObject {
  int device;
  bool capturing = false;
  std::unique_ptr<CUgraphObject> captured;
};
struct CUeventObject {
  int device;
  bool recorded = false;
  double at = 0;
};
struct CUmemoryPoolObject {
  int device;
  uint64_t threshold = 0;
};
struct CUmoduleObject {
  int device;
  bool machine_code = false;  // of the real NVRTC: it loads, its kernels do nothing
  void* library = nullptr;
  std::vector<fake::Entry> entries;
  std::map<std::string, std::unique_ptr<CUfunctionObject>> functions;
};
struct CUfunctionObject {
  int device;
  std::string name;
  const fake::Entry* entry;
  void* bind;
  void* thunk;
};

}  // namespace tessera::cuda

namespace {

using namespace tessera::cuda;

// dry: device memory has addresses and no bytes, and nothing that is queued runs.
bool dry = false;
size_t reserved() { return dry ? size_t{1} << 38 : size_t{1} << 30; }
constexpr int kMaxDevices = 8;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Addresses lie in a reservation without access rights; the bytes lie behind it, at a fixed distance.
struct Memory {
  char* base = nullptr;
  size_t limit = 0, used = 0;
  std::map<size_t, size_t> blocks;  // offset: bytes
  std::map<size_t, size_t> mapped;  // of reserved ranges, which lie in the upper half
  size_t next_range = reserved() / 2;

  void reserve(size_t bytes) {
    limit = bytes;
    if (base) return;
    void* p = mmap(nullptr, 2 * reserved(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base = static_cast<char*>(p);
    next_range = reserved() / 2;
    mprotect(base + reserved(), dry ? 4096 : reserved(), PROT_READ | PROT_WRITE);
  }
  void poison(size_t at, size_t bytes) const {
    if (!dry) std::memset(base + reserved() + at, 0xfd, bytes);
  }
  CUdeviceptr allocate(size_t bytes) {
    const size_t n = (bytes + 511) / 512 * 512;
    if (used + n > limit) return 0;
    size_t at = 0;
    for (const auto& [offset, size] : blocks) {
      if (offset - at >= n) break;
      at = offset + size;
    }
    if (at + n > reserved() / 2) return 0;
    blocks[at] = n;
    used += n;
    poison(at, n);
    return reinterpret_cast<CUdeviceptr>(base + at);
  }
  bool free(CUdeviceptr p) {
    const auto it = blocks.find(static_cast<size_t>(p - reinterpret_cast<CUdeviceptr>(base)));
    if (it == blocks.end()) return false;
    used -= it->second;
    poison(it->first, it->second);
    blocks.erase(it);
    return true;
  }
  bool contains(CUdeviceptr p, size_t bytes) const {
    const CUdeviceptr b = reinterpret_cast<CUdeviceptr>(base);
    if (!base || p < b || p + bytes > b + reserved()) return false;
    size_t at = static_cast<size_t>(p - b);
    if (at < reserved() / 2) return true;
    for (const auto& [offset, size] : mapped)  // pieces of a range may lie beside each other
      if (at >= offset && at < offset + size) {
        if (at + bytes <= offset + size) return true;
        bytes -= offset + size - at;
        at = offset + size;
      }
    return false;
  }
};

struct State {
  std::recursive_mutex mutex;
  pid_t pid = 0;  // 0: not initialised
  int devices = 1, version = 13000, init = 0, sm = 90;
  size_t memory = 256;  // MiB
  Memory memories[kMaxDevices];
  CUcontextObject contexts[kMaxDevices];
  std::map<CUmemoryHandle, std::pair<int, size_t>> pieces;  // device, bytes
  CUmemoryHandle last_piece = 0;
  std::map<std::string, uint64_t> calls;
  struct Fail {
    int result, after;
  };
  std::map<std::string, Fail> fails;
  int broken = 0;  // a sticky error

  void read_environment() {
    const char* text = std::getenv("FAKE_CUDA");
    std::string all = text ? text : "";
    devices = 1, version = 13000, init = 0, sm = 90, memory = 256, dry = false;
    for (size_t at = 0; at < all.size();) {
      const size_t end = std::min(all.find(',', at), all.size()), equals = all.find('=', at);
      if (equals < end) {
        const std::string key = all.substr(at, equals - at);
        const int value = std::atoi(all.c_str() + equals + 1);
        if (key == "devices") devices = value;
        if (key == "version") version = value;
        if (key == "init") init = value;
        if (key == "memory") memory = static_cast<size_t>(value);
        if (key == "sm") sm = value;
        if (key == "dry") dry = value != 0;
      }
      at = end + 1;
    }
  }
};
State& state() {
  static State* s = new State;
  return *s;
}
thread_local CUcontext current = nullptr;

// What every call begins with. `needs_context`: as the driver, it refuses without one.
struct Entered {
  std::unique_lock<std::recursive_mutex> lock;
  CUresult result = kSuccess;
  Entered(const char* name, bool needs_context) : lock(state().mutex) {
    State& s = state();
    ++s.calls[name];
    const auto it = s.fails.find(name);
    if (it != s.fails.end() && it->second.after-- == 0) {
      result = it->second.result;
      s.fails.erase(it);
      if (is_final(result)) s.broken = result;
    }
    if (result == kSuccess && needs_context) {
      if (s.pid == 0 || s.pid != getpid())
        result = 3;
      else if (s.broken)
        result = s.broken;
      else if (!current)
        result = 201;
    }
  }
  static bool is_final(int r) { return r == 700 || r == 719 || r == 999; }
};

char* real(CUdeviceptr p, size_t bytes) {
  for (const Memory& m : state().memories)
    if (m.contains(p, bytes)) return reinterpret_cast<char*>(p) + reserved();
  return nullptr;
}

CUresult run(const CUgraphNodeObject& n);
CUresult run(const CUgraphObject& g) {
  for (const auto& n : g.nodes)
    if (const CUresult r = run(*n); r != kSuccess) return r;
  return kSuccess;
}

CUresult run(const CUgraphNodeObject& n) {
  if (dry) return kSuccess;
  switch (n.kind) {
    case CUgraphNodeObject::Empty: return kSuccess;
    case CUgraphNodeObject::Child: return run(*n.child);
    case CUgraphNodeObject::Library:
      return n.work([](const void* p, size_t bytes) { return real(reinterpret_cast<CUdeviceptr>(p), bytes); })
                 ? kSuccess
                 : state().broken = 700;
    case CUgraphNodeObject::Copy: {
      char *to = real(n.to, n.bytes), *from = real(n.from, n.bytes);
      if (!to || !from) return state().broken = 700;
      std::memmove(to, from, n.bytes);
      return kSuccess;
    }
    case CUgraphNodeObject::Fill: {
      char* to = real(n.to, n.bytes);
      if (!to) return state().broken = 700;
      std::memset(to, static_cast<int>(n.value), n.bytes);
      return kSuccess;
    }
    case CUgraphNodeObject::Kernel: break;
  }
  if (!n.function->thunk) return kSuccess;
  std::vector<std::vector<char>> values = n.arguments;
  std::vector<void*> arguments;
  for (std::vector<char>& a : values) {
    if (a.size() == 8) {
      CUdeviceptr p = 0;
      std::memcpy(&p, a.data(), 8);
      if (char* at = real(p, 1)) std::memcpy(a.data(), &at, 8);
    }
    arguments.push_back(a.data());
  }
  tessera::kit::TextLaunch launch;
  launch.name = n.function->name;
  launch.bind = reinterpret_cast<void (*)(const tessera::kit::TextRunnerApi*)>(n.function->bind);
  launch.entry = reinterpret_cast<void (*)(void* const*)>(n.function->thunk);
  launch.blocks = n.blocks;
  launch.threads = n.threads;
  launch.shared_bytes = n.function->entry->shared_bytes;
  launch.seed = state().calls["cuLaunchKernel"];
  try {
    tessera::kit::run_text(launch, arguments.data());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fake CUDA: %s\n", e.what());
    return state().broken = 719;
  }
  return kSuccess;
}

// Runs it, or adds it to what the stream captures.
CUresult queue(CUstream stream, CUgraphNodeObject node) {
  if (stream && stream->device != current->device) return 400;
  if (stream && stream->capturing) {
    node.graph = stream->captured.get();
    if (!stream->captured->nodes.empty()) node.after = {stream->captured->nodes.back().get()};
    stream->captured->nodes.push_back(std::make_unique<CUgraphNodeObject>(std::move(node)));
    return kSuccess;
  }
  return run(node);
}

CUgraphNodeObject kernel_of(CUfunction f, unsigned blocks, unsigned threads, void** parameters) {
  CUgraphNodeObject n{};
  n.kind = CUgraphNodeObject::Kernel;
  n.function = f;
  n.blocks = blocks;
  n.threads = threads;
  for (size_t i = 0; i < f->entry->sizes.size(); ++i) {
    const char* p = static_cast<const char*>(parameters[i]);
    n.arguments.emplace_back(p, p + f->entry->sizes[i]);
  }
  return n;
}
CUgraphNodeObject copy_of(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  CUgraphNodeObject n{};
  n.kind = CUgraphNodeObject::Copy;
  n.to = to, n.from = from, n.bytes = bytes;
  return n;
}
CUgraphNodeObject fill_of(CUdeviceptr to, unsigned value, size_t bytes) {
  CUgraphNodeObject n{};
  n.kind = CUgraphNodeObject::Fill;
  n.to = to, n.value = value, n.bytes = bytes;
  return n;
}

std::unique_ptr<CUgraphObject> copy_graph(const CUgraphObject& g, std::map<CUgraphNode, CUgraphNode>* node_of) {
  auto out = std::make_unique<CUgraphObject>();
  for (const auto& n : g.nodes) {
    out->nodes.push_back(std::make_unique<CUgraphNodeObject>(*n));
    if (n->child) out->nodes.back()->child = copy_graph(*n->child, nullptr).release();
    if (node_of) (*node_of)[n.get()] = out->nodes.back().get();
  }
  return out;
}

CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, size_t count, CUgraphNodeObject n) {
  n.graph = graph;
  for (size_t i = 0; i < count; ++i) {
    if (after[i]->graph != graph) return 1;
    n.after.push_back(after[i]);
  }
  graph->nodes.push_back(std::make_unique<CUgraphNodeObject>(std::move(n)));
  *out = graph->nodes.back().get();
  return kSuccess;
}

CUresult set(CUgraphExec exec, CUgraphNode node, CUgraphNodeObject with) {
  const auto it = exec->node_of.find(node);
  if (it == exec->node_of.end() || it->second->kind != with.kind) return 1;
  with.after = it->second->after;
  with.graph = it->second->graph;
  *it->second = std::move(with);
  return kSuccess;
}

}  // namespace

int fake::queue(CUstream stream, std::function<bool(const Real&)> work, unsigned form) {
  Entered entered("cublasLtMatmul", true);
  if (entered.result) return 13;  // CUBLAS_STATUS_EXECUTION_FAILED
  CUgraphNodeObject n{};
  n.kind = CUgraphNodeObject::Library;
  n.value = form;
  n.work = std::move(work);
  return ::queue(stream, std::move(n)) == kSuccess ? 0 : 13;
}

void fake_cuda_fail(const char* name, int result, int after) {
  std::lock_guard lock(state().mutex);
  state().fails[name] = {result, after};
}
uint64_t fake_cuda_calls(const char* name) {
  std::lock_guard lock(state().mutex);
  if (name) return state().calls[name];
  state().calls.clear();
  return 0;
}
uint64_t fake_cuda_used(int device) {
  std::lock_guard lock(state().mutex);
  return state().memories[device].used;
}

// Every function has the driver's name and parameters; ENTER_ANY is for those that need no context.
#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult
#define ENTER_ANY(name)         \
  Entered entered(name, false); \
  if (entered.result) return entered.result
#define ENTER(name)            \
  Entered entered(name, true); \
  if (entered.result) return entered.result

EXPORT cuInit(unsigned) {
  State& s = state();
  ENTER_ANY("cuInit");
  s.read_environment();
  if (s.init) return s.init;
  if (s.devices == 0) return kNoDevice;
  for (int i = 0; i < s.devices; ++i) {
    s.contexts[i].device = i;
    s.memories[i].reserve(s.memory << 20);
  }
  s.pid = getpid();
  return kSuccess;
}
EXPORT cuDriverGetVersion(int* version) {
  state().read_environment();
  *version = state().version;
  return kSuccess;
}
EXPORT cuGetErrorName(CUresult error, const char** text) {
  *text = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 700        ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == 3          ? "CUDA_ERROR_NOT_INITIALIZED"
                                : "CUDA_ERROR_FAKE";
  return kSuccess;
}
EXPORT cuGetErrorString(CUresult error, const char** text) {
  *text = error == 700 ? "an illegal memory access was encountered" : "as the test asked";
  return kSuccess;
}
EXPORT cuDeviceGetCount(int* count) {
  ENTER_ANY("cuDeviceGetCount");
  *count = state().devices;
  return kSuccess;
}
EXPORT cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER_ANY("cuDeviceGet");
  if (ordinal < 0 || ordinal >= state().devices) return 101;
  *device = ordinal;
  return kSuccess;
}
EXPORT cuDeviceGetName(char* name, int length, CUdevice) {
  std::snprintf(name, static_cast<size_t>(length), "Fake H100");
  return kSuccess;
}
EXPORT cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  static const std::map<int, int> values = {{kMaxThreadsPerBlock, 1024},
                                            {kWarpSize, 32},
                                            {kClockRate, 1980000},
                                            {kMultiprocessors, 132},
                                            {kMemoryClockRate, 2619000},
                                            {kMemoryBusWidth, 5120},
                                            {kL2CacheSize, 50 << 20},
                                            {kMaxThreadsPerMultiprocessor, 2048},
                                            {kSharedPerMultiprocessor, 228 << 10},
                                            {kRegistersPerMultiprocessor, 65536},
                                            {kSharedPerBlockOptin, 227 << 10},
                                            {kMaxBlocksPerMultiprocessor, 32},
                                            {kMemoryPoolsSupported, 1},
                                            {kVirtualMemory, 1}};
  if (attribute == kMajor) return *value = state().sm / 10, kSuccess;
  if (attribute == kMinor) return *value = state().sm % 10, kSuccess;
  const auto it = values.find(attribute);
  if (it == values.end()) return 1;
  *value = it->second;
  return kSuccess;
}
EXPORT cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = state().memory << 20;
  return kSuccess;
}
EXPORT cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER_ANY("cuDevicePrimaryCtxRetain");
  *context = &state().contexts[device];
  return kSuccess;
}
EXPORT cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
  *can = 1;
  return kSuccess;
}
EXPORT cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return kSuccess;
}
EXPORT cuCtxSetCurrent(CUcontext context) {
  ENTER_ANY("cuCtxSetCurrent");
  if (state().pid != getpid()) return 3;
  current = context;
  return kSuccess;
}
EXPORT cuCtxEnablePeerAccess(CUcontext, unsigned) {
  ENTER("cuCtxEnablePeerAccess");
  return kSuccess;
}
EXPORT cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER("cuMemGetInfo");
  const Memory& m = state().memories[current->device];
  *total = m.limit;
  *free = m.limit - m.used;
  return kSuccess;
}
EXPORT cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  ENTER("cuMemAlloc");
  *out = state().memories[current->device].allocate(bytes);
  return *out ? kSuccess : kOutOfMemory;
}
EXPORT cuMemFree_v2(CUdeviceptr p) {
  ENTER("cuMemFree");
  return state().memories[current->device].free(p) ? kSuccess : 1;
}
EXPORT cuMemPoolCreate(CUmemoryPool* pool, const MemoryPoolProperties* properties) {
  ENTER_ANY("cuMemPoolCreate");
  if (properties->allocation_type != 1 || properties->location.type != 1) return 1;
  *pool = new CUmemoryPoolObject{properties->location.id};
  return kSuccess;
}
EXPORT cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value) {
  if (attribute == kPoolReleaseThreshold) pool->threshold = *static_cast<uint64_t*>(value);
  return kSuccess;
}
EXPORT cuMemPoolGetAttribute(CUmemoryPool pool, int, void* value) {
  uint64_t bytes = state().memories[pool->device].used;
  for (const auto& [handle, piece] : state().pieces)  // are no part of a pool
    if (piece.first == pool->device) bytes -= piece.second;
  *static_cast<uint64_t*>(value) = bytes;
  return kSuccess;
}
EXPORT cuMemPoolSetAccess(CUmemoryPool, const MemoryAccess*, size_t) { return kSuccess; }
EXPORT cuMemPoolTrimTo(CUmemoryPool, size_t) {
  ENTER_ANY("cuMemPoolTrimTo");
  return kSuccess;
}
EXPORT cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  ENTER("cuMemAllocFromPoolAsync");
  if (!stream || stream->device != pool->device || stream->device != current->device) return 400;
  if (stream->capturing) return 900;
  *out = state().memories[pool->device].allocate(bytes);
  return *out ? kSuccess : kOutOfMemory;
}
EXPORT cuMemFreeAsync(CUdeviceptr p, CUstream stream) {
  ENTER("cuMemFreeAsync");
  return state().memories[stream->device].free(p) ? kSuccess : 1;
}
EXPORT cuMemGetAllocationGranularity(size_t* bytes, const MemoryProperties*, int) {
  *bytes = size_t{2} << 20;
  return kSuccess;
}
EXPORT cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr, unsigned long long) {
  ENTER("cuMemAddressReserve");
  Memory& m = state().memories[current->device];
  if (bytes % (2 << 20) != 0) return 1;
  if (m.next_range + bytes > reserved()) return kOutOfMemory;
  *out = reinterpret_cast<CUdeviceptr>(m.base + m.next_range);
  m.next_range += bytes;
  return kSuccess;
}
EXPORT cuMemAddressFree(CUdeviceptr, size_t) {
  ENTER("cuMemAddressFree");
  return kSuccess;
}
EXPORT cuMemCreate(CUmemoryHandle* out, size_t bytes, const MemoryProperties* p, unsigned long long) {
  ENTER("cuMemCreate");
  State& s = state();
  Memory& m = s.memories[p->location.id];
  if (p->type != 1 || p->location.type != 1 || bytes % (2 << 20) != 0) return 1;
  if (m.used + bytes > m.limit) return kOutOfMemory;
  m.used += bytes;
  *out = ++s.last_piece;
  s.pieces[*out] = {p->location.id, bytes};
  return kSuccess;
}
EXPORT cuMemRelease(CUmemoryHandle handle) {
  ENTER("cuMemRelease");
  State& s = state();
  const auto it = s.pieces.find(handle);
  if (it == s.pieces.end()) return 1;
  s.memories[it->second.first].used -= it->second.second;
  s.pieces.erase(it);
  return kSuccess;
}
EXPORT cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemoryHandle handle, unsigned long long) {
  ENTER("cuMemMap");
  State& s = state();
  Memory& m = s.memories[current->device];
  const size_t at = static_cast<size_t>(p - reinterpret_cast<CUdeviceptr>(m.base));
  if (offset != 0 || s.pieces[handle].second != bytes || at < reserved() / 2 || at + bytes > m.next_range) return 1;
  m.mapped[at] = bytes;
  m.poison(at, bytes);
  return kSuccess;
}
EXPORT cuMemUnmap(CUdeviceptr p, size_t bytes) {
  ENTER("cuMemUnmap");
  Memory& m = state().memories[current->device];
  const auto it = m.mapped.find(static_cast<size_t>(p - reinterpret_cast<CUdeviceptr>(m.base)));
  if (it == m.mapped.end() || it->second != bytes) return 1;
  m.mapped.erase(it);
  return kSuccess;
}
EXPORT cuMemSetAccess(CUdeviceptr, size_t, const MemoryAccess* access, size_t count) {
  ENTER("cuMemSetAccess");
  return count == 1 && access->flags == 3 && access->location.id == current->device ? kSuccess : 1;
}
EXPORT cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  ENTER("cuMemHostAlloc");
  *out = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *out ? kSuccess : kOutOfMemory;
}
EXPORT cuMemFreeHost(void* p) {
  ENTER("cuMemFreeHost");
  std::free(p);
  return kSuccess;
}
EXPORT cuPointerGetAttributes(unsigned count, int* attributes, void** values, CUdeviceptr p) {
  ENTER("cuPointerGetAttributes");
  if (count != 1 || attributes[0] != kPointerMemoryType) return 1;
  *static_cast<unsigned*>(values[0]) = real(p, 1) ? kMemoryDevice : 0;  // pinned memory is not told from pageable
  return kSuccess;
}
EXPORT cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyHtoDAsync");
  if (stream->device != current->device) return 400;
  if (stream->capturing) return 900;
  char* at = real(to, bytes);
  if (!at) return state().broken = 700;
  if (!dry) std::memcpy(at, from, bytes);
  return kSuccess;
}
EXPORT cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyDtoHAsync");
  if (stream->device != current->device) return 400;
  if (stream->capturing) return 900;
  const char* at = real(from, bytes);
  if (!at) return state().broken = 700;
  dry ? std::memset(to, 0, bytes) : std::memcpy(to, at, bytes);
  return kSuccess;
}
EXPORT cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER("cuMemcpyDtoDAsync");
  return queue(stream, copy_of(to, from, bytes));
}
EXPORT cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                         CUstream stream) {
  ENTER("cuMemcpyPeerAsync");
  State& s = state();
  if (!s.memories[to_context->device].contains(to, bytes) || !s.memories[from_context->device].contains(from, bytes)) return 1;
  return queue(stream, copy_of(to, from, bytes));
}
EXPORT cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  ENTER("cuMemsetD8Async");
  return queue(stream, fill_of(to, value, bytes));
}
EXPORT cuStreamCreate(CUstream* stream, unsigned flags) {
  ENTER("cuStreamCreate");
  if (flags != kStreamNonBlocking) return 1;
  *stream = new CUstreamObject{current->device, false, nullptr};
  return kSuccess;
}
EXPORT cuStreamDestroy_v2(CUstream stream) {
  ENTER("cuStreamDestroy");
  delete stream;
  return kSuccess;
}
EXPORT cuStreamSynchronize(CUstream stream) {
  ENTER("cuStreamSynchronize");
  return stream && stream->capturing ? 900 : kSuccess;
}
EXPORT cuStreamWaitEvent(CUstream, CUevent, unsigned) {
  ENTER("cuStreamWaitEvent");
  return kSuccess;
}
EXPORT cuStreamIsCapturing(CUstream stream, int* status) {
  ENTER("cuStreamIsCapturing");
  *status = stream && stream->capturing ? 1 : 0;
  return kSuccess;
}
EXPORT cuStreamBeginCapture_v2(CUstream stream, int) {
  ENTER("cuStreamBeginCapture");
  if (stream->capturing) return 900;
  stream->capturing = true;
  stream->captured = std::make_unique<CUgraphObject>();
  return kSuccess;
}
EXPORT cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  ENTER("cuStreamEndCapture");
  if (!stream->capturing) return 901;
  stream->capturing = false;
  *graph = stream->captured.release();
  return kSuccess;
}
EXPORT cuEventCreate(CUevent* event, unsigned) {
  ENTER("cuEventCreate");
  *event = new CUeventObject{current->device};
  return kSuccess;
}
EXPORT cuEventDestroy_v2(CUevent event) {
  ENTER("cuEventDestroy");
  delete event;
  return kSuccess;
}
EXPORT cuEventRecord(CUevent event, CUstream stream) {
  ENTER("cuEventRecord");
  if (event->device != current->device || stream->device != current->device) return 400;
  event->recorded = true;
  event->at = now();
  return kSuccess;
}
EXPORT cuEventQuery(CUevent) {
  ENTER("cuEventQuery");
  return kSuccess;
}
EXPORT cuEventSynchronize(CUevent) {
  ENTER("cuEventSynchronize");
  return kSuccess;
}
EXPORT cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  ENTER("cuEventElapsedTime");
  if (!from->recorded || !to->recorded) return 400;
  *milliseconds = static_cast<float>((to->at - from->at) * 1e3);
  return kSuccess;
}
EXPORT cuModuleLoadData(CUmodule* module, const void* image) {
  ENTER("cuModuleLoadData");
  auto m = std::make_unique<CUmoduleObject>();
  m->device = current->device;
  m->machine_code = std::memcmp(image, "\177ELF", 4) == 0;
  if (!m->machine_code && !fake::load(image, &m->library, &m->entries)) return 200;
  *module = m.release();
  return kSuccess;
}
EXPORT cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  ENTER("cuModuleGetFunction");
  if (module->machine_code) {
    static const fake::Entry nothing;
    auto& f = module->functions[name];
    f.reset(new CUfunctionObject{module->device, name, &nothing, nullptr, nullptr});
    return *function = f.get(), kSuccess;
  }
  for (const fake::Entry& e : module->entries) {
    if (e.name != name) continue;
    auto& f = module->functions[name];
    if (!f)
      f.reset(new CUfunctionObject{module->device, name, &e, dlsym(module->library, "text_runner_bind"),
                                   dlsym(module->library, (e.name + "_thunk").c_str())});
    *function = f.get();
    return f->bind && f->thunk ? kSuccess : 500;
  }
  return 500;
}
EXPORT cuModuleUnload(CUmodule module) {
  ENTER("cuModuleUnload");
  delete module;
  return kSuccess;
}
EXPORT cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  ENTER("cuFuncGetAttribute");
  if (attribute != kFuncStaticShared) return 1;
  *value = static_cast<int>(function->entry->shared_bytes);
  return kSuccess;
}
EXPORT cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (attribute != kFuncMaxDynamicShared || value + function->entry->shared_bytes > 227 << 10) return 1;
  return kSuccess;
}
EXPORT cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                      unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                      void** extra) {
  ENTER("cuLaunchKernel");
  if (function->device != current->device || stream->device != current->device) return 400;
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 || block_x == 0 || block_x > 1024 || extra ||
      shared_bytes > 227 << 10)
    return 1;
  return queue(stream, kernel_of(function, grid_x, block_x, parameters));
}
EXPORT cuGraphCreate(CUgraph* graph, unsigned) {
  ENTER("cuGraphCreate");
  *graph = new CUgraphObject;
  return kSuccess;
}
EXPORT cuGraphDestroy(CUgraph graph) {
  ENTER_ANY("cuGraphDestroy");
  delete graph;
  return kSuccess;
}
EXPORT cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count, const KernelNode* p) {
  ENTER("cuGraphAddKernelNode");
  return add(node, graph, after, count, kernel_of(p->function, p->grid_x, p->block_x, p->parameters));
}
EXPORT cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count, const CopyNode* c,
                            CUcontext) {
  ENTER("cuGraphAddMemcpyNode");
  if (c->source_type != kMemoryDevice || c->target_type != kMemoryDevice || c->height != 1 || c->depth != 1) return 1;
  return add(node, graph, after, count, copy_of(c->target_device, c->source_device, c->width));
}
EXPORT cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count, const FillNode* f,
                            CUcontext) {
  ENTER("cuGraphAddMemsetNode");
  if (f->element_bytes != 1 || f->height != 1) return 1;
  return add(node, graph, after, count, fill_of(f->target, f->value, f->width));
}
EXPORT cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count, CUgraph child) {
  ENTER("cuGraphAddChildGraphNode");
  CUgraphNodeObject n{};
  n.kind = CUgraphNodeObject::Child;
  n.child = copy_graph(*child, nullptr).release();
  return add(node, graph, after, count, std::move(n));
}
EXPORT cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count) {
  ENTER("cuGraphAddEmptyNode");
  CUgraphNodeObject n{};
  n.kind = CUgraphNodeObject::Empty;
  return add(node, graph, after, count, std::move(n));
}
EXPORT cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  if (nodes) return 1;
  *count = graph->nodes.size();
  return kSuccess;
}
EXPORT cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  ENTER("cuGraphInstantiate");
  auto e = std::make_unique<CUgraphExecObject>();
  e->graph = copy_graph(*graph, &e->node_of);
  *exec = e.release();
  return kSuccess;
}
EXPORT cuGraphExecDestroy(CUgraphExec exec) {
  ENTER_ANY("cuGraphExecDestroy");
  delete exec;
  return kSuccess;
}
EXPORT cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ENTER("cuGraphLaunch");
  if (stream->device != current->device) return 400;
  if (stream->capturing) return 900;
  return run(*exec->graph);
}
EXPORT cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const KernelNode* p) {
  ENTER("cuGraphExecKernelNodeSetParams");
  return set(exec, node, kernel_of(p->function, p->grid_x, p->block_x, p->parameters));
}
EXPORT cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CopyNode* c, CUcontext) {
  ENTER("cuGraphExecMemcpyNodeSetParams");
  return set(exec, node, copy_of(c->target_device, c->source_device, c->width));
}
EXPORT cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const FillNode* f, CUcontext) {
  ENTER("cuGraphExecMemsetNodeSetParams");
  return set(exec, node, fill_of(f->target, f->value, f->width));
}
EXPORT cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  ENTER("cuGraphExecChildGraphNodeSetParams");
  const auto it = exec->node_of.find(node);
  if (it == exec->node_of.end() || !it->second->child || it->second->child->nodes.size() != child->nodes.size()) return 910;
  for (size_t i = 0; i < child->nodes.size(); ++i) {
    const CUgraphNodeObject &is = *it->second->child->nodes[i], &was = *child->nodes[i];
    if (is.kind != was.kind || is.function != was.function) return 910;              // another shape
    if (is.kind == CUgraphNodeObject::Library && is.value != was.value) return 910;  // blocks in other clusters
  }
  CUgraphNodeObject n{};
  n.kind = CUgraphNodeObject::Child;
  n.child = copy_graph(*child, nullptr).release();
  return set(exec, node, std::move(n));
}
