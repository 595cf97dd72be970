// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>

namespace acme_opencl {

namespace {

template <class T>
T number(cl_device_id d, cl_device_info what) {
  T x{};
  check(clGetDeviceInfo(d, what, sizeof x, &x, nullptr), "clGetDeviceInfo");
  return x;
}
std::string text(cl_device_id d, cl_device_info what) {
  char buffer[512] = {};
  check(clGetDeviceInfo(d, what, sizeof buffer - 1, buffer, nullptr), "clGetDeviceInfo");
  return buffer;
}

// The last recording: the event may be recorded again meanwhile.
std::shared_ptr<_cl_event> last_of(tsr_event* e) {
  const std::lock_guard lock(e->mutex);
  return e->last;
}

}  // namespace

void check(cl_int status, const char* function) {
  if (status == CL_SUCCESS) return;
  const bool memory = status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES;
  throw t::Error(TSR_ENVIRONMENT, memory ? "TSR-R001" : "ACME-CL02",
                 std::string("OpenCL: ") + function + " gave error " + std::to_string(status) + ": expected 0",
                 "CL/cl.h names the error; see that the platform works (clinfo)");
}

OpenClDevice::OpenClDevice() {
  cl_platform_id platform = nullptr;
  cl_uint n = 0;
  const auto nothing = [](const std::string& found) {
    throw t::Error(TSR_ENVIRONMENT, "ACME-CL01",
                   "OpenCL: " + found + ": expected a device with f64 and fine-grained shared virtual memory",
                   "install a driver of OpenCL 2.0 or later (Debian: pocl-opencl-icd runs on the CPU)");
  };
  if (clGetPlatformIDs(1, &platform, &n) != CL_SUCCESS || n == 0) nothing("there is no platform");
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &n) != CL_SUCCESS) nothing("there is no device");
  std::vector<cl_device_id> ids(n);
  check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, n, ids.data(), nullptr), "clGetDeviceIDs");
  for (const cl_device_id id : ids) {
    if (!(number<cl_device_svm_capabilities>(id, CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_FINE_GRAIN_BUFFER) ||
        number<cl_device_fp_config>(id, CL_DEVICE_DOUBLE_FP_CONFIG) == 0)
      continue;
    Card c;
    cl_int status = CL_SUCCESS;
    c.id = id;
    c.context = clCreateContext(nullptr, 1, &id, nullptr, nullptr, &status);
    check(status, "clCreateContext");
    c.name = "opencl:" + std::to_string(cards_.size());
    c.model = text(id, CL_DEVICE_NAME);
    c.driver = text(id, CL_DRIVER_VERSION);
    auto& d = c.description;
    d.architecture = c.model + " " + c.driver;
    d.shuffles = false;  // sub-groups are optional, and have any number of lanes: 32 is what the kit's order of sums asks for
    d.units = static_cast<int>(number<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS));
    d.max_threads = static_cast<int>(std::min<size_t>(number<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE), 1024)) / 32 * 32;
    d.shared_bytes = static_cast<int64_t>(std::min<cl_ulong>(number<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE), 48 << 10));
    d.l2_bytes = static_cast<int64_t>(number<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE));
    d.bandwidth = 2e10;  // OpenCL does not tell
    if (const std::string why = tessera::kit::why_absurd(d); !why.empty()) nothing("'" + c.model + "': " + why);
    cards_.push_back(std::move(c));
  }
  if (cards_.empty()) nothing("no device of the platform will do");
}

const Card& OpenClDevice::card(uint32_t index) const {
  if (index >= cards_.size())
    throw t::Error(TSR_USER, "TSR-R002", "device 'opencl:" + std::to_string(index) + "' does not exist",
                   "there are opencl:0 to opencl:" + std::to_string(cards_.size() - 1));
  return cards_[index];
}
void OpenClDevice::info(uint32_t index, tsr_device_info& out) {
  const Card& c = card(index);
  out.name = c.name.c_str();
  out.description = c.model.c_str();
  out.host_accessible = 0;
  out.total_bytes = static_cast<int64_t>(number<cl_ulong>(c.id, CL_DEVICE_GLOBAL_MEM_SIZE));
  if (!TSR_HAS(&out, tsr_device_info, architecture)) return;
  out.architecture = c.description.architecture.c_str();
  out.driver_version = c.driver.c_str();
}

// ------------------------------------------------------------------------------------------------------------- memory

void* OpenClDevice::block(uint32_t index, size_t bytes, size_t align, cl_svm_mem_flags flags) {
  constexpr size_t kMost = 128;  // alignment that every platform gives
  const size_t more = align > kMost ? align : 0;
  char* const base = static_cast<char*>(clSVMAlloc(card(index).context, flags, bytes + more, more ? kMost : align));
  if (!base)
    throw t::Error(TSR_ENVIRONMENT, "TSR-R001",
                   "out of memory on device '" + card(index).name + "': asked for " + std::to_string(bytes) + " bytes",
                   "use smaller sizes, or release tensors that are no longer needed");
  if (more == 0) return base;
  char* const p = base + (align - reinterpret_cast<uintptr_t>(base) % align) % align;
  const std::lock_guard lock(mutex_);
  bases_[p] = base;
  return p;
}
void* OpenClDevice::alloc(uint32_t index, size_t bytes, size_t align, tsr_stream*) {
  return block(index, bytes, align, CL_MEM_READ_WRITE);
}
void OpenClDevice::free(uint32_t, void* p, tsr_stream* s) noexcept {
  if (!p) return;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = bases_.find(p); it != bases_.end()) {
      p = it->second;
      bases_.erase(it);
    }
  }
  clEnqueueSVMFree(s->queue, 1, &p, nullptr, nullptr, 0, nullptr, nullptr);  // behind what is queued
}
void* OpenClDevice::host_alloc(uint32_t index, size_t bytes) {
  return block(index, bytes, 64, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER | CL_MEM_SVM_ATOMICS);
}
void OpenClDevice::host_free(uint32_t index, void* p) noexcept { clSVMFree(cards_[index].context, p); }

void OpenClDevice::copy(uint32_t, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* s) {
  if (bytes == 0) return;
  const uint32_t direction = flags & TSR_COPY_DIRECTION;
  const bool wait = !(flags & TSR_COPY_ASYNC) && (direction == TSR_COPY_TO_DEVICE || direction == TSR_COPY_TO_HOST);
  check(clEnqueueSVMMemcpy(s->queue, wait, dst, src, bytes, 0, nullptr, nullptr), "clEnqueueSVMMemcpy");
}
void OpenClDevice::fill(uint32_t, void* dst, uint8_t value, size_t bytes, tsr_stream* s) {
  if (bytes > 0) check(clEnqueueSVMMemFill(s->queue, dst, &value, 1, bytes, 0, nullptr, nullptr), "clEnqueueSVMMemFill");
}

// ------------------------------------------------------------------------------------------------- streams and events

tsr_stream* OpenClDevice::stream_create(uint32_t index) {
  const cl_queue_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};  // for event_elapsed
  cl_int status = CL_SUCCESS;
  const cl_command_queue q = clCreateCommandQueueWithProperties(card(index).context, card(index).id, properties, &status);
  check(status, "clCreateCommandQueueWithProperties");
  return new tsr_stream{q};
}
void OpenClDevice::stream_destroy(uint32_t, tsr_stream* s) noexcept {
  clReleaseCommandQueue(s->queue);
  delete s;
}
void OpenClDevice::stream_synchronize(uint32_t, tsr_stream* s) { check(clFinish(s->queue), "clFinish"); }

tsr_event* OpenClDevice::event_create(uint32_t) { return new tsr_event; }
void OpenClDevice::event_destroy(uint32_t, tsr_event* e) noexcept { delete e; }
void OpenClDevice::event_record(uint32_t, tsr_event* e, tsr_stream* s) {
  cl_event marker = nullptr;
  check(clEnqueueMarkerWithWaitList(s->queue, 0, nullptr, &marker), "clEnqueueMarkerWithWaitList");
  clFlush(s->queue);  // who waits on another queue relies on it
  const std::lock_guard lock(e->mutex);
  e->last.reset(marker, clReleaseEvent);
}
void OpenClDevice::event_wait(uint32_t, tsr_event* e, tsr_stream* s) {
  const auto last = last_of(e);
  const cl_event wait = last.get();
  if (wait) check(clEnqueueBarrierWithWaitList(s->queue, 1, &wait, nullptr), "clEnqueueBarrierWithWaitList");
}
bool OpenClDevice::event_query(uint32_t, tsr_event* e) {
  cl_int state = CL_COMPLETE;
  if (const auto last = last_of(e))
    check(clGetEventInfo(last.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr), "clGetEventInfo");
  check(std::min(state, CL_SUCCESS), "the work before an event");
  return state == CL_COMPLETE;
}
void OpenClDevice::event_synchronize(uint32_t, tsr_event* e) {
  const auto last = last_of(e);
  const cl_event wait = last.get();
  if (wait) check(clWaitForEvents(1, &wait), "clWaitForEvents");
}
double OpenClDevice::event_elapsed(uint32_t, tsr_event* from, tsr_event* to) {
  cl_ulong begin = 0, end = 0;  // nanoseconds
  for (const auto& [event, time] : {std::pair{from, &begin}, std::pair{to, &end}})
    check(clGetEventProfilingInfo(last_of(event).get(), CL_PROFILING_COMMAND_END, sizeof *time, time, nullptr),
          "clGetEventProfilingInfo");
  return (static_cast<double>(end) - static_cast<double>(begin)) * 1e-9;
}

}  // namespace acme_opencl
