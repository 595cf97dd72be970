// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compiler.hpp"
#include "graph.hpp"
#include "reserved.hpp"
#include "strided_copy.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

[[noreturn]] void misused(const std::string& function, const char* expected) {
  throw t::Error(TSR_BUG, "TSR-B045", "device cuda, " + function + ": expected " + expected);
}

double flops_per_second(const Gpu& g) {
  // Units for f32 of one multiprocessor, by compute capability (CUDA C++ programming guide, arithmetic instructions).
  const int major = g.attribute(kMajor), minor = g.attribute(kMinor);
  const int lanes = (major == 8 && minor == 0) || major == 7 ? 64 : 128;
  return 2.0 * lanes * g.attribute(kMultiprocessors) * g.attribute(kClockRate) * 1e3;
}

}  // namespace

CudaDevice::CudaDevice(const Driver& driver, const GpuOptions& options, std::shared_ptr<Compiler> compiler,
                       const std::string& libraries)
    : compiler_(std::move(compiler)) {
  int count = 0;
  check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  for (int i = 0; i < count; ++i) {
    gpus_.push_back(std::make_unique<Gpu>(driver, i, options));
    Gpu& g = *gpus_.back();
    reserved_.push_back(std::make_unique<Reserved>(g));
    texts_.push_back({g.name(), g.architecture(),
                      g.model() + " (driver " + driver.path + ", NVRTC " + compiler_->path() +
                          (libraries.empty() ? "" : ", " + libraries) + ")",
                      "CUDA " + std::to_string(driver.version / 1000) + "." + std::to_string(driver.version % 1000 / 10) +
                          ", NVRTC " + compiler_->version_text()});
  }
}

uint32_t CudaDevice::index_of(tsr_device d) {
  const std::string_view name = t::host().core->device_name(d);
  const size_t colon = name.rfind(':');
  return colon == name.npos ? 0 : static_cast<uint32_t>(std::strtoul(name.data() + colon + 1, nullptr, 10));
}

Gpu& CudaDevice::gpu(uint32_t index) {
  if (index < gpus_.size()) return *gpus_[index];
  throw t::Error(TSR_USER, "TSR-R002", "device 'cuda:" + std::to_string(index) + "' does not exist",
                 gpus_.size() == 1 ? "there is cuda:0" : "there are cuda:0 to cuda:" + std::to_string(gpus_.size() - 1));
}

CudaDevice::~CudaDevice() = default;

Gpu& CudaDevice::of(uint32_t index, const tsr_stream* s, const char* function) {
  Gpu& g = gpu(index);
  if (!s || s->gpu != &g) misused(function, "a stream of the same device");
  return g;
}

void CudaDevice::info(uint32_t index, tsr_device_info& out) {
  Gpu& g = gpu(index);
  out.name = texts_[index].name.c_str();
  out.description = texts_[index].description.c_str();
  out.host_accessible = 0;
  out.total_bytes = static_cast<int64_t>(g.total_bytes());
  out.free_bytes = out.total_bytes;  // until a context is there to ask
  if (!TSR_HAS(&out, tsr_device_info, flops_per_second)) return;
  out.architecture = texts_[index].architecture.c_str();
  out.driver_version = texts_[index].versions.c_str();
  out.units = static_cast<uint32_t>(g.attribute(kMultiprocessors));
  out.wave = static_cast<uint32_t>(g.attribute(kWarpSize));
  out.max_threads = static_cast<uint32_t>(g.attribute(kMaxThreadsPerBlock));
  out.shared_bytes = g.attribute(kSharedPerBlockOptin);
  out.register_bytes = int64_t{4} * g.attribute(kRegistersPerMultiprocessor);
  out.cache_bytes = g.attribute(kL2CacheSize);
  out.bytes_per_second = g.bytes_per_second();
  out.flops_per_second = flops_per_second(g);
}

void* CudaDevice::alloc(uint32_t index, size_t bytes, size_t align, tsr_stream* s) {
  return of(index, s, "alloc").allocate(bytes, align, s);
}

void CudaDevice::free(uint32_t index, void* p, tsr_stream* s) noexcept { gpus_[index]->free(p, s); }

void CudaDevice::copy(uint32_t index, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* s) {
  Gpu& g = of(index, s, "copy");
  const uint32_t direction = flags & TSR_COPY_DIRECTION;
  if (direction > TSR_COPY_WITHIN) misused("copy", "a direction TSR_COPY_*");
  if (bytes == 0) return;
  if (s->capturing && direction != TSR_COPY_WITHIN) misused("copy", "no copy from or to the host in a graph");
  const Gpu::Scope scope(g);
  const Driver& d = g.driver();
  const bool later = (flags & TSR_COPY_ASYNC) != 0;
  switch (direction) {
    case TSR_COPY_TO_DEVICE: {
      g.check(d.cuMemcpyHtoDAsync_v2(address_of(dst), src, bytes, s->native), "cuMemcpyHtoDAsync");
      g.queued(s, "a copy to the device");
      if (later) return;
      // The driver has staged pageable memory when it returns; pinned memory it reads when the stream comes to it.
      unsigned type = 0;  // stays 0 for memory that the driver does not know
      int attribute = kPointerMemoryType;
      void* value = &type;
      if (d.cuPointerGetAttributes(1, &attribute, &value, address_of(src)) == kSuccess && type != 0)
        g.check(d.cuStreamSynchronize(s->native), "cuStreamSynchronize");
      return;
    }
    case TSR_COPY_TO_HOST:
      g.check(d.cuMemcpyDtoHAsync_v2(dst, address_of(src), bytes, s->native), "cuMemcpyDtoHAsync");
      g.queued(s, "a copy to the host");
      if (!later) g.check(d.cuStreamSynchronize(s->native), "cuStreamSynchronize");
      return;
    default:
      g.check(d.cuMemcpyDtoDAsync_v2(address_of(dst), address_of(src), bytes, s->native), "cuMemcpyDtoDAsync");
      g.queued(s, "a copy on the device");
  }
}

void CudaDevice::fill(uint32_t index, void* dst, uint8_t value, size_t bytes, tsr_stream* s) {
  Gpu& g = of(index, s, "fill");
  if (bytes == 0) return;
  const Gpu::Scope scope(g);
  g.check(g.driver().cuMemsetD8Async(address_of(dst), value, bytes, s->native), "cuMemsetD8Async");
  g.queued(s, "a fill");
}

tsr_stream* CudaDevice::stream_create(uint32_t index) {
  Gpu& g = gpu(index);
  const Gpu::Scope scope(g);
  auto s = std::make_unique<tsr_stream>();
  s->gpu = &g;
  g.check(g.driver().cuStreamCreate(&s->native, kStreamNonBlocking), "cuStreamCreate");
  return s.release();
}

void CudaDevice::stream_destroy(uint32_t, tsr_stream* s) noexcept {
  const std::unique_ptr<tsr_stream> owner(s);
  if (!s || !s->owned || forked()) return;
  try {
    const Gpu::Scope scope(*s->gpu);
    s->gpu->driver().cuStreamDestroy_v2(s->native);
  } catch (const std::exception&) {}  // with a device that has failed its streams are gone
}

void CudaDevice::stream_synchronize(uint32_t index, tsr_stream* s) {
  Gpu& g = of(index, s, "stream_synchronize");
  const Gpu::Scope scope(g);
  g.check(g.driver().cuStreamSynchronize(s->native), "cuStreamSynchronize");
}

tsr_event* CudaDevice::event_create(uint32_t index) {
  Gpu& g = gpu(index);
  const Gpu::Scope scope(g);
  auto e = std::make_unique<tsr_event>();
  e->gpu = &g;
  g.check(g.driver().cuEventCreate(&e->native, 0), "cuEventCreate");
  return e.release();
}

void CudaDevice::event_destroy(uint32_t, tsr_event* e) noexcept {
  const std::unique_ptr<tsr_event> owner(e);
  if (!e || forked()) return;
  try {
    const Gpu::Scope scope(*e->gpu);
    e->gpu->driver().cuEventDestroy_v2(e->native);
  } catch (const std::exception&) {}
}

void CudaDevice::event_record(uint32_t index, tsr_event* e, tsr_stream* s) {
  Gpu& g = of(index, s, "event_record");
  if (!e || e->gpu != &g) misused("event_record", "an event of the same device");
  const Gpu::Scope scope(g);
  g.check(g.driver().cuEventRecord(e->native, s->native), "cuEventRecord");
}

void CudaDevice::event_wait(uint32_t index, tsr_event* e, tsr_stream* s) {
  Gpu& g = of(index, s, "event_wait");
  if (!e) misused("event_wait", "an event");
  const Gpu::Scope scope(g);
  g.check(g.driver().cuStreamWaitEvent(s->native, e->native, 0), "cuStreamWaitEvent");
}

bool CudaDevice::event_query(uint32_t, tsr_event* e) {
  if (!e) misused("event_query", "an event");
  const Gpu::Scope scope(*e->gpu);
  const CUresult r = e->gpu->driver().cuEventQuery(e->native);
  if (r == kNotReady) return false;
  e->gpu->check(r, "cuEventQuery");
  return true;
}

void CudaDevice::event_synchronize(uint32_t, tsr_event* e) {
  if (!e) misused("event_synchronize", "an event");
  const Gpu::Scope scope(*e->gpu);
  e->gpu->check(e->gpu->driver().cuEventSynchronize(e->native), "cuEventSynchronize");
}

double CudaDevice::event_elapsed(uint32_t, tsr_event* from, tsr_event* to) {
  if (!from || !to || from->gpu != to->gpu) misused("event_elapsed", "two events of one device");
  const Gpu::Scope scope(*from->gpu);
  float milliseconds = 0;
  from->gpu->check(from->gpu->driver().cuEventElapsedTime(&milliseconds, from->native, to->native), "cuEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e-3;
}

void* CudaDevice::host_alloc(uint32_t index, size_t bytes) {
  Gpu& g = gpu(index);
  const Gpu::Scope scope(g);
  void* p = nullptr;
  const CUresult r = g.driver().cuMemHostAlloc(&p, std::max<size_t>(bytes, 1), kHostPortable | kHostDeviceMap);
  if (r == kOutOfMemory)
    throw t::Error(TSR_ENVIRONMENT, "TSR-R001", "out of pinned host memory: asked for " + std::to_string(bytes) + " bytes",
                   "use smaller sizes, or raise the limit of locked memory (ulimit -l)");
  g.check(r, "cuMemHostAlloc");
  return p;
}

void CudaDevice::host_free(uint32_t index, void* p) noexcept {
  if (!p || forked()) return;
  try {
    const Gpu::Scope scope(*gpus_[index]);
    gpus_[index]->driver().cuMemFreeHost(p);
  } catch (const std::exception&) {}
}

void CudaDevice::copy_strided(uint32_t index, const tsr_tensor& dst, const tsr_tensor& src, tsr_stream* s) {
  strided_copy(of(index, s, "copy_strided"), *compiler_, dst, src, s);
}

void CudaDevice::copy_peer(uint32_t index, void* dst, uint32_t from, const void* src, size_t bytes, tsr_stream* s) {
  Gpu& g = of(index, s, "copy_peer");
  Gpu& source = gpu(from);
  if (s->capturing) misused("copy_peer", "no copy between devices in a graph");
  if (bytes == 0) return;
  source.context();
  const Gpu::Scope scope(g);
  g.check(g.driver().cuMemcpyPeerAsync(address_of(dst), g.context(), address_of(src), source.context(), bytes, s->native),
          "cuMemcpyPeerAsync");
  g.queued(s, "a copy between devices");
}

tsr_stream* CudaDevice::stream_wrap(uint32_t index, void* native) {
  Gpu& g = gpu(index);
  auto s = std::make_unique<tsr_stream>();
  s->gpu = &g;
  s->native = static_cast<CUstream>(native);
  s->owned = false;
  return s.release();
}

void* CudaDevice::stream_native(uint32_t index, tsr_stream* s) { return of(index, s, "stream_native").index(), s->native; }

bool CudaDevice::stream_capturing(uint32_t index, tsr_stream* s) {
  Gpu& g = of(index, s, "stream_capturing");
  if (s->capturing) return true;
  if (s->owned) return false;  // nobody else knows it
  const Gpu::Scope scope(g);
  int status = kCaptureNone;
  g.check(g.driver().cuStreamIsCapturing(s->native, &status), "cuStreamIsCapturing");
  return status != kCaptureNone;
}

tsr_device_graph* CudaDevice::graph_create(uint32_t index) { return new tsr_device_graph(gpu(index)); }
uint32_t CudaDevice::graph_add(uint32_t, tsr_device_graph* g, const tsr_device_call& call, Nodes after) {
  return g->add(call, after);
}
uint32_t CudaDevice::graph_add_captured(uint32_t, tsr_device_graph* g, const t::QueueWork& work, Nodes after) {
  return g->add_captured(work, after);
}
void CudaDevice::graph_instantiate(uint32_t, tsr_device_graph* g) { g->instantiate(); }
void CudaDevice::graph_set(uint32_t, tsr_device_graph* g, uint32_t node, const tsr_device_call& call) { g->set(node, call); }
void CudaDevice::graph_set_captured(uint32_t, tsr_device_graph* g, uint32_t node, const t::QueueWork& work) {
  g->set_captured(node, work);
}
void CudaDevice::graph_info(uint32_t, tsr_device_graph* g, tsr_device_graph_info& out) { g->info(out); }
void CudaDevice::graph_launch(uint32_t index, tsr_device_graph* g, tsr_stream* s) {
  of(index, s, "graph_launch");
  g->launch(s);
}
void CudaDevice::graph_destroy(uint32_t, tsr_device_graph* g) noexcept { delete g; }

bool CudaDevice::reserves() const {
  return std::all_of(gpus_.begin(), gpus_.end(), [](const auto& g) { return g->attribute(kVirtualMemory) != 0; });
}
void* CudaDevice::reserve(uint32_t index, size_t bytes) { return gpu(index), reserved_[index]->reserve(bytes); }
void CudaDevice::commit(uint32_t index, void* range, size_t bytes, tsr_stream* s) {
  of(index, s, "commit");
  reserved_[index]->commit(range, bytes, s);
}
void CudaDevice::unreserve(uint32_t index, void* range) noexcept { reserved_[index]->unreserve(range); }

}  // namespace tessera::cuda
